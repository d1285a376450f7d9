"""The verbs of keyed streams that join several of them by their keys."""

from __future__ import annotations

from typing import Any, cast, overload

from .._errors.flow import FlowUsageError
from .._values.durations import nanos
from .._values.types import K_co, V_co
from . import window_options
from .arguments import named_or_raise, same_times
from .base import KeyedBase
from .join_all import join_all
from .window_join import join

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Literal, TypedDict

    from typing_extensions import Unpack

    from .._values.durations import Seconds
    from .._values.types import (
        W,
        X,
        Y,
    )
    from ..windows import Window, Windowed, Windower
    from .base import KeyedBase
    from .join_all import EmitMode, InsertMode
    from .streams import KeyedStream, LateStream

    class PerKey(TypedDict, total=False):
        """How the lateness of a value is judged."""

        watermark: Literal["partition", "key"]
        lateness: Seconds
        patience: Seconds | None


def distances(within: Seconds | tuple[Seconds, Seconds]) -> tuple[int, int]:
    """How much earlier and how much later than a value its partners are; nanoseconds."""
    if not isinstance(within, (tuple, list)):
        return nanos("within", within), nanos("within", within)
    if len(within) != 2:
        raise FlowUsageError(f"within is a duration, or (before, after), not {within!r}")
    before, after = within
    return nanos("within: before", before, 0), nanos("within: after", after, 0)


class JoinVerbs(KeyedBase[K_co, V_co]):
    """The verbs of :class:`KeyedStream` that take other keyed streams."""

    __slots__ = ()

    @overload
    def join(
        self,
        name: str,
        other: KeyedStream[K_co, W],
        how: Literal["inner"] = "inner",
        within: None = None,
        ttl: None = None,
        *,
        window: Window | Windower,
        **per_key: Unpack[PerKey],
    ) -> LateStream[K_co, Windowed[tuple[V_co, W]], V_co | W]: ...
    @overload
    def join(
        self,
        name: str,
        other: KeyedStream[K_co, W],
        how: Literal["left"],
        within: None = None,
        ttl: None = None,
        *,
        window: Window | Windower,
        **per_key: Unpack[PerKey],
    ) -> LateStream[K_co, Windowed[tuple[V_co, W | None]], V_co | W]: ...
    @overload
    def join(
        self,
        name: str,
        other: KeyedStream[K_co, W],
        how: Literal["inner", "left", "full"],
        within: None = None,
        ttl: None = None,
        *,
        window: Window | Windower,
        **per_key: Unpack[PerKey],
    ) -> LateStream[K_co, Windowed[tuple[V_co | None, W | None]], V_co | W]: ...
    @overload
    def join(
        self,
        name: str,
        other: KeyedStream[K_co, W],
        how: Literal["inner"] = "inner",
        within: Seconds | tuple[Seconds, Seconds] | None = None,
        ttl: Seconds | None = None,
        **per_key: Unpack[PerKey],
    ) -> LateStream[K_co, tuple[V_co, W], V_co | W]: ...
    @overload
    def join(
        self,
        name: str,
        other: KeyedStream[K_co, W],
        how: Literal["left"],
        within: Seconds | tuple[Seconds, Seconds] | None = None,
        ttl: Seconds | None = None,
        **per_key: Unpack[PerKey],
    ) -> LateStream[K_co, tuple[V_co, W | None], V_co | W]: ...
    @overload
    def join(
        self,
        name: str,
        other: KeyedStream[K_co, W],
        how: Literal["inner", "left", "full"],
        within: Seconds | tuple[Seconds, Seconds] | None = None,
        ttl: Seconds | None = None,
        **per_key: Unpack[PerKey],
    ) -> LateStream[K_co, tuple[V_co | None, W | None], V_co | W]: ...
    def join(
        self,
        name: str,
        other: KeyedStream[K_co, W],
        how: Literal["inner", "left", "full"] = "inner",
        within: Seconds | tuple[Seconds, Seconds] | None = None,
        ttl: Seconds | None = None,
        window: Window | Windower | None = None,
        watermark: Literal["partition", "key"] = "partition",
        lateness: Seconds = 0,
        patience: Seconds | None = None,
    ) -> LateStream[K_co, Any, V_co | W]:
        """Pairs values of this stream and another that have the same key.

        Without ``within`` and ``window`` each value of either stream is paired with the latest value of the
        other. In a stream with times, values are processed in the order of their times, when the watermark
        has passed them; late values are in the stream ``late`` of the result. In a stream without times
        they are processed as they arrive. With ``window`` the pairs are emitted when the window closes, as
        :class:`millstream.windows.Windowed`.

        Args:
            name: the name of the step; saved state is found by it, so it must stay the same.
            other: the other keyed stream.
            how: ``"inner"`` emits pairs only; ``"left"`` also the values of this stream without a partner,
                as ``(own, None)``; ``"full"`` those of both.
            within: pairs each value with all values of the other stream whose times differ by at most so
                many seconds. ``(before, after)``: those that are at most ``before`` earlier than the value of
                this stream, or at most ``after`` later.
            ttl: seconds of event time after which the latest values of a key without values are forgotten.
                None keeps them.
            window: pairs each value with all values of the other stream in the same window of the key.
            watermark: ``"partition"`` judges lateness by the watermark of the source; ``"key"`` by the
                values of the same key alone.
            lateness: with ``watermark="key"``: how many seconds a value may be older than the newest value
                of its key.
            patience: with ``watermark="key"``: how many seconds the watermark of a silent key
                trails that of the partitions. None: a silent key waits until the input ends.

        Returns:
            The keyed stream of the pairs ``(own, other)``.

        Raises:
            FlowUsageError: ``other`` has no keys, or an option does not fit the others.

        Example:
            >>> import millstream as ms
            >>> flow, out = ms.Flow("pairs"), ms.testing.collect()
            >>> def timed(name, items):
            ...     return flow.source(name, items).event_time(lambda item: item[0]).key_by(lambda item: "k")
            >>> clicks = timed("clicks", ms.testing.items([(1, "click"), (20, "click")]))
            >>> views = timed("views", ms.testing.items([(0, "view"), (19, "view"), (22, "view")]))
            >>> clicks.join("pairs", views, within=2).values().sink("out", out)
            >>> _ = ms.run(flow)
            >>> out
            [((1, 'click'), (0, 'view')), ((20, 'click'), (19, 'view')), ((20, 'click'), (22, 'view'))]
        """
        if how not in ("inner", "left", "full"):
            raise FlowUsageError(f'how is "inner", "left" or "full", not {how!r}')
        if window is not None:
            if within is not None or ttl is not None:
                raise FlowUsageError(
                    "window says how long a value is kept: within and ttl have no meaning with it"
                )
            options = watermark, lateness, patience
            return join(self._own(), name, other, how, window, options)
        per_key = self._per_key(name, watermark, lateness, patience)
        if within is None:
            return self._join(name, other, ("latest", how, (0, 0)), ttl, per_key)
        if not self._timed:
            raise FlowUsageError("within needs times: put event_time or processing_time before key_by")
        if ttl is not None:
            raise FlowUsageError("within says how long a value is kept: ttl has no meaning with it")
        return self._join(name, other, ("within", how, distances(within)), None, per_key)

    @overload
    def lookup(
        self,
        name: str,
        table: KeyedStream[K_co, W],
        how: Literal["inner"],
        ttl: Seconds | None = None,
        **per_key: Unpack[PerKey],
    ) -> LateStream[K_co, tuple[V_co, W], V_co | W]: ...
    @overload
    def lookup(
        self,
        name: str,
        table: KeyedStream[K_co, W],
        how: Literal["inner", "left"] = "left",
        ttl: Seconds | None = None,
        **per_key: Unpack[PerKey],
    ) -> LateStream[K_co, tuple[V_co, W | None], V_co | W]: ...
    def lookup(
        self,
        name: str,
        table: KeyedStream[K_co, W],
        how: Literal["inner", "left"] = "left",
        ttl: Seconds | None = None,
        *,
        watermark: Literal["partition", "key"] = "partition",
        lateness: Seconds = 0,
        patience: Seconds | None = None,
    ) -> LateStream[K_co, tuple[V_co, Any], V_co | W]:
        """Pairs each value with the latest value of ``table`` that has the same key.

        ``table`` is a keyed stream that changes slowly; its values emit nothing themselves. In a stream
        with times a value is paired with the row that was the latest at the time of the value.

        Args:
            name: the name of the step; saved state is found by it, so it must stay the same.
            table: the keyed stream of rows.
            how: ``"left"`` pairs a value without a row with None, ``"inner"`` drops it.
            ttl: seconds of event time after which the row of a key without values is forgotten. None keeps
                it.
            watermark: ``"partition"`` judges lateness by the watermark of the source; ``"key"`` by the
                values of the same key alone.
            lateness: with ``watermark="key"``: how many seconds a value may be older than the newest value
                of its key.
            patience: with ``watermark="key"``: how many seconds the watermark of a silent key
                trails that of the partitions. None: a silent key waits until the input ends.

        Returns:
            The keyed stream of the pairs ``(value, row)``.

        Raises:
            FlowUsageError: ``table`` has no keys, or an option does not fit the others.

        Example:
            >>> import millstream as ms
            >>> flow, out = ms.Flow("priced"), ms.testing.collect()
            >>> def timed(name, items):
            ...     source = flow.source(name, ms.testing.items(items)).event_time(lambda item: item[0])
            ...     return source.key_by(lambda item: "tea")
            >>> orders = timed("orders", [(2, "order"), (9, "order")])
            >>> prices = timed("prices", [(1, 3), (5, 4)])
            >>> orders.lookup("price", prices).values().sink("out", out)
            >>> _ = ms.run(flow)
            >>> out
            [((2, 'order'), (1, 3)), ((9, 'order'), (5, 4))]
        """
        if how not in ("inner", "left"):
            raise FlowUsageError(f'how is "inner" or "left", not {how!r}')
        per_key = self._per_key(name, watermark, lateness, patience)
        return self._join(name, table, ("lookup", how, (0, 0)), ttl, per_key)

    @overload
    def join_all(
        self,
        name: str,
        second: KeyedStream[K_co, W],
        /,
        *,
        emit: Literal["complete"] = "complete",
        insert: InsertMode = "last",
        ttl: Seconds | None = None,
    ) -> LateStream[K_co, tuple[V_co, W], V_co | W]: ...
    @overload
    def join_all(
        self,
        name: str,
        second: KeyedStream[K_co, W],
        /,
        *,
        emit: EmitMode,
        insert: InsertMode = "last",
        ttl: Seconds | None = None,
    ) -> LateStream[K_co, tuple[V_co | None, W | None], V_co | W]: ...
    @overload
    def join_all(
        self,
        name: str,
        second: KeyedStream[K_co, W],
        third: KeyedStream[K_co, X],
        /,
        *,
        emit: Literal["complete"] = "complete",
        insert: InsertMode = "last",
        ttl: Seconds | None = None,
    ) -> LateStream[K_co, tuple[V_co, W, X], V_co | W | X]: ...
    @overload
    def join_all(
        self,
        name: str,
        second: KeyedStream[K_co, W],
        third: KeyedStream[K_co, X],
        /,
        *,
        emit: EmitMode,
        insert: InsertMode = "last",
        ttl: Seconds | None = None,
    ) -> LateStream[K_co, tuple[V_co | None, W | None, X | None], V_co | W | X]: ...
    @overload
    def join_all(
        self,
        name: str,
        second: KeyedStream[K_co, W],
        third: KeyedStream[K_co, X],
        fourth: KeyedStream[K_co, Y],
        /,
        *,
        emit: Literal["complete"] = "complete",
        insert: InsertMode = "last",
        ttl: Seconds | None = None,
    ) -> LateStream[K_co, tuple[V_co, W, X, Y], V_co | W | X | Y]: ...
    @overload
    def join_all(
        self,
        name: str,
        second: KeyedStream[K_co, W],
        third: KeyedStream[K_co, X],
        fourth: KeyedStream[K_co, Y],
        /,
        *,
        emit: EmitMode,
        insert: InsertMode = "last",
        ttl: Seconds | None = None,
    ) -> LateStream[K_co, tuple[V_co | None, W | None, X | None, Y | None], V_co | W | X | Y]: ...
    @overload
    def join_all(
        self,
        name: str,
        *others: KeyedStream[K_co, Any],
        emit: EmitMode = "complete",
        insert: InsertMode = "last",
        ttl: Seconds | None = None,
    ) -> LateStream[K_co, tuple[Any, ...], Any]: ...
    def join_all(
        self,
        name: str,
        *others: KeyedStream[K_co, Any],
        emit: EmitMode = "complete",
        insert: InsertMode = "last",
        ttl: Seconds | None = None,
    ) -> LateStream[K_co, Any, Any]:
        """Joins this stream with any number of others into tuples of one value of each stream.

        After ``event_time`` values are processed in the order of their times, those of one time in the order
        of the streams, once the watermark has passed them. Without times they are processed as they arrive,
        which between streams is no certain order. ``"running"`` and ``"final"`` keep every key unless there
        is a ``ttl``.

        Args:
            name: the name of the step; saved state is found by it, so it must stay the same.
            others: the other keyed streams.
            emit: ``"complete"`` emits a tuple when each stream has had a value of the key, and then forgets
                these values; ``"running"`` after each value, with None for streams without one; ``"final"``
                when all input has ended.
            insert: which values of one stream count: the ``"first"``, the ``"last"``, or all
                (``"product"``: one tuple for each combination).
            ttl: the time after which a key without values is forgotten; in event time where
                the stream has times. None keeps every key.

        Returns:
            The keyed stream of the tuples, this stream's value first; its ``late`` has the values that were
            too late.

        Raises:
            FlowUsageError: there is no other stream, one has no keys, or an option is unknown.

        Example:
            >>> import millstream as ms
            >>> flow, out = ms.Flow("orders"), ms.testing.collect()
            >>> def source(name, items):
            ...     return flow.source(name, ms.testing.items(items)).key_by(lambda item: item[0])
            >>> orders = source("orders", [(1, "tea"), (2, "coffee")])
            >>> paid, sent = source("paid", [(2, "card"), (1, "cash")]), source("sent", [(1, "post")])
            >>> orders.join_all("done", paid, sent).sink("out", out)
            >>> _ = ms.run(flow)
            >>> out
            [(1, ((1, 'tea'), (1, 'cash'), (1, 'post')))]
        """
        return join_all(self._own(), name, others, emit, insert, ttl)

    def _own(self) -> KeyedStream[K_co, V_co]:
        """This stream, as the class that has the other verbs too."""
        return cast("KeyedStream[K_co, V_co]", self)

    def _per_key(
        self, name: str, watermark: str, lateness: Seconds, patience: Seconds | None
    ) -> tuple[int, int | None] | None:
        """Lateness and patience of a watermark for each key, in nanoseconds; None for one of the source."""
        window_options.watermark_or_raise(f'the join "{name}"', watermark, lateness, patience)
        if watermark == "key" and not self._timed:
            raise FlowUsageError(
                f'watermark="key" of the join "{name}" needs times: put event_time before key_by'
            )
        return window_options.per_key(watermark, lateness, patience)

    def _join(
        self,
        name: str,
        other: KeyedStream[K_co, W],
        described: tuple[str, str, tuple[int, int]],
        ttl: Seconds | None,
        per_key: tuple[int, int | None] | None,
    ) -> LateStream[K_co, Any, V_co | W]:
        named_or_raise("join", name)
        if not isinstance(other, KeyedBase):
            raise FlowUsageError(f"a keyed stream is joined with a keyed stream, not with {other!r}")
        if ttl is not None and not self._timed:
            raise FlowUsageError("ttl of a join needs times: put event_time before key_by")
        same_times(self._timed, other._timed)
        life = None if ttl is None else nanos("ttl", ttl)
        right: KeyedStream[K_co, W] = self._new_keyed(
            [pipe.to_the_right() for pipe in other._pipes], other._placed, other._timed
        )
        both = self._own().merge(right)._home()
        results, late = both.join(name, (*described, life, per_key), self._timed, "fail")
        results.joins([self._pipes, right._pipes])
        return self._new_late(results, self._timed, late)
