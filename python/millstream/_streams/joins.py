"""The verbs of keyed streams that bring several of them together by their keys."""

from __future__ import annotations

from typing import Any, cast, overload

from .._durations import nanos
from .._errors import FlowUsageError
from .._types import K_co, V_co
from . import window_options
from .arguments import named_or_raise
from .base import KeyedBase
from .join_all import join_all
from .window_join import join

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Literal

    from .._durations import Seconds
    from .._types import (
        W,
        X,
        Y,
    )
    from ..windows import Window, Windowed, Windower
    from .base import KeyedBase
    from .join_all import EmitMode, InsertMode
    from .streams import KeyedStream, LateStream


__all__ = ["JoinVerbs"]


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
        watermark: Literal["partition", "key"] = "partition",
        lateness: Seconds = 0,
        patience: Seconds | None = None,
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
        watermark: Literal["partition", "key"] = "partition",
        lateness: Seconds = 0,
        patience: Seconds | None = None,
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
        watermark: Literal["partition", "key"] = "partition",
        lateness: Seconds = 0,
        patience: Seconds | None = None,
    ) -> LateStream[K_co, Windowed[tuple[V_co | None, W | None]], V_co | W]: ...
    @overload
    def join(
        self,
        name: str,
        other: KeyedStream[K_co, W],
        how: Literal["inner"] = "inner",
        within: Seconds | None = None,
        ttl: Seconds | None = None,
        *,
        watermark: Literal["partition", "key"] = "partition",
        lateness: Seconds = 0,
        patience: Seconds | None = None,
    ) -> LateStream[K_co, tuple[V_co, W], V_co | W]: ...
    @overload
    def join(
        self,
        name: str,
        other: KeyedStream[K_co, W],
        how: Literal["left"],
        within: Seconds | None = None,
        ttl: Seconds | None = None,
        *,
        watermark: Literal["partition", "key"] = "partition",
        lateness: Seconds = 0,
        patience: Seconds | None = None,
    ) -> LateStream[K_co, tuple[V_co, W | None], V_co | W]: ...
    @overload
    def join(
        self,
        name: str,
        other: KeyedStream[K_co, W],
        how: Literal["inner", "left", "full"],
        within: Seconds | None = None,
        ttl: Seconds | None = None,
        *,
        watermark: Literal["partition", "key"] = "partition",
        lateness: Seconds = 0,
        patience: Seconds | None = None,
    ) -> LateStream[K_co, tuple[V_co | None, W | None], V_co | W]: ...
    def join(
        self,
        name: str,
        other: KeyedStream[K_co, W],
        how: Literal["inner", "left", "full"] = "inner",
        within: Seconds | None = None,
        ttl: Seconds | None = None,
        window: Window | Windower | None = None,
        watermark: Literal["partition", "key"] = "partition",
        lateness: Seconds = 0,
        patience: Seconds | None = None,
    ) -> LateStream[K_co, Any, V_co | W]:
        """Pairs ``(own, other)`` of the values of this stream and another with the same key.

        Without ``within`` each value of either stream is paired with the latest one of the other; with it,
        with all values of the other stream that are at most so many seconds before or behind it. ``how``:
        ``"left"`` gives values of this stream that find no partner too, as ``(own, None)``, ``"full"`` those
        of both. Behind ``event_time`` values take their turn in the order of their times, once the watermark
        has passed them; what comes later is in the stream ``late`` of the result. Otherwise they take it as
        they come. ``ttl``: the latest values are forgotten when a key has had none for so long in event time.

        ``watermark="key"``: what is late, and when values take their turn, is judged by the values of their
        own key, of both streams: a value is late only if its key has seen one that is more than ``lateness``
        seconds later. The values of a key that goes silent wait until the input ends, unless there is
        ``patience``: then its watermark follows that of the partitions, so many seconds behind.

        With ``window`` each value is paired with all values of the other stream in the same window of
        their key, when the window closes; what comes out are :class:`millstream.windows.Windowed` pairs.

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
            return self._join(name, other, ("latest", how, 0), ttl, per_key)
        if not self._timed:
            raise FlowUsageError("within needs times: put event_time or processing_time before key_by")
        if ttl is not None:
            raise FlowUsageError("within says how long a value is kept: ttl has no meaning with it")
        return self._join(name, other, ("within", how, nanos("within", within)), None, per_key)

    @overload
    def lookup(
        self,
        name: str,
        table: KeyedStream[K_co, W],
        how: Literal["inner"],
        ttl: Seconds | None = None,
        *,
        watermark: Literal["partition", "key"] = "partition",
        lateness: Seconds = 0,
        patience: Seconds | None = None,
    ) -> LateStream[K_co, tuple[V_co, W], V_co | W]: ...
    @overload
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
        """Pairs ``(value, row)`` of each value and the latest value of ``table`` with its key, or None.

        ``table`` is a keyed stream that changes slowly: its values bring about nothing themselves. Behind
        ``event_time`` a value meets the row that was the latest at its own time. ``how="inner"`` leaves out
        values without a row. ``ttl``, ``watermark``, ``lateness`` and ``patience`` as for ``join``.
        """
        if how not in ("inner", "left"):
            raise FlowUsageError(f'how is "inner" or "left", not {how!r}')
        per_key = self._per_key(name, watermark, lateness, patience)
        return self._join(name, table, ("lookup", how, 0), ttl, per_key)

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
    ) -> KeyedStream[K_co, tuple[V_co, W]]: ...
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
    ) -> KeyedStream[K_co, tuple[V_co | None, W | None]]: ...
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
    ) -> KeyedStream[K_co, tuple[V_co, W, X]]: ...
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
    ) -> KeyedStream[K_co, tuple[V_co | None, W | None, X | None]]: ...
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
    ) -> KeyedStream[K_co, tuple[V_co, W, X, Y]]: ...
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
    ) -> KeyedStream[K_co, tuple[V_co | None, W | None, X | None, Y | None]]: ...
    @overload
    def join_all(
        self,
        name: str,
        *others: KeyedStream[K_co, Any],
        emit: EmitMode = "complete",
        insert: InsertMode = "last",
        ttl: Seconds | None = None,
    ) -> KeyedStream[K_co, tuple[Any, ...]]: ...
    def join_all(
        self,
        name: str,
        *others: KeyedStream[K_co, Any],
        emit: EmitMode = "complete",
        insert: InsertMode = "last",
        ttl: Seconds | None = None,
    ) -> KeyedStream[K_co, Any]:
        """Joins this stream with any number of others: tuples of a value of each, this stream's first.

        ``emit``: ``"complete"`` gives a tuple once each stream has given the key a value, and then forgets
        these values; ``"running"`` after each value, with None for streams that have given none; ``"final"``
        when all input has ended. ``insert`` says which values of one stream count: the ``"first"``, the
        ``"last"``, or all (``"product"``: a tuple for each combination). Values take their turn as they come,
        which between streams is no certain order. ``"running"`` and ``"final"`` keep every key; ``ttl`` as
        for ``stateful``.

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
        """Lateness and patience of a watermark for each key, in nanoseconds, if there is to be one."""
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
        described: tuple[str, str, int],
        ttl: Seconds | None,
        per_key: tuple[int, int | None] | None,
    ) -> LateStream[K_co, Any, V_co | W]:
        named_or_raise("join", name)
        if not isinstance(other, KeyedBase):
            raise FlowUsageError(f"a keyed stream is joined with a keyed stream, not with {other!r}")
        if ttl is not None and not self._timed:
            raise FlowUsageError("ttl of a join needs times: put event_time before key_by")
        right: KeyedStream[K_co, W] = self._new_keyed(
            [pipe.to_the_right() for pipe in other._pipes], other._placed, other._timed
        )
        life = None if ttl is None else nanos("ttl", ttl)
        both = self._own().merge(right)._home()
        results, late = both.join(name, (*described, life, per_key), self._timed, "fail")
        return self._new_late(results, self._timed, late)
