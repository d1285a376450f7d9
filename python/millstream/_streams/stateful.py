"""Verbs of keyed streams that are made in modules of their own: their types and documentation."""

from __future__ import annotations

from typing import Generic, cast, overload

from .._types import K_co, V_co
from .misplaced import Verbs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Literal

    from .._durations import Seconds
    from .._types import (
        BatchLogic,
        EndingBatchLogic,
        EndingTimedBatchLogic,
        R,
        S,
        TimedBatchLogic,
        U,
        W,
        X,
        Y,
    )
    from .join_all import EmitMode, InsertMode
    from .keyed import KeyedStream
    from .plain import OnError

__all__ = ["KeyedVerbs"]


class KeyedVerbs(Verbs, Generic[K_co, V_co]):
    """What :class:`KeyedStream` takes from here."""

    __slots__ = ()

    @overload
    def stateful_batch(
        self,
        name: str,
        logic: Callable[[], EndingTimedBatchLogic[K_co, V_co, R]],
        state: None = None,
        on_error: OnError = "fail",
        ttl: Seconds | None = None,
    ) -> KeyedStream[K_co, R]: ...
    @overload
    def stateful_batch(
        self,
        name: str,
        logic: Callable[[], EndingBatchLogic[K_co, V_co, R]],
        state: None = None,
        on_error: OnError = "fail",
        ttl: Seconds | None = None,
    ) -> KeyedStream[K_co, R]: ...
    @overload
    def stateful_batch(
        self,
        name: str,
        logic: Callable[[], TimedBatchLogic[K_co, V_co, R]],
        state: None = None,
        on_error: OnError = "fail",
        ttl: Seconds | None = None,
    ) -> KeyedStream[K_co, R]: ...
    @overload
    def stateful_batch(
        self,
        name: str,
        logic: Callable[[], BatchLogic[K_co, V_co, R]],
        state: None = None,
        on_error: OnError = "fail",
        ttl: Seconds | None = None,
    ) -> KeyedStream[K_co, R]: ...
    @overload
    def stateful_batch(
        self,
        name: str,
        logic: Callable[[S, list[V_co]], R | None],
        state: Callable[[], S],
        on_error: OnError = "fail",
        ttl: Seconds | None = None,
    ) -> KeyedStream[K_co, R]: ...
    def stateful_batch(
        self,
        name: str,
        logic: Callable[..., Any],
        state: Callable[[], Any] | None = None,
        on_error: OnError = "fail",
        ttl: Seconds | None = None,
    ) -> KeyedStream[K_co, Any]:
        """As ``stateful``, called once with all values that a key has in a batch, a list of one or more.

        A class has ``on_batch(key, values)`` where it would have ``on_item(key, value)``, with a context as a
        third argument if it wants one, and ``on_end`` and ``on_timer`` as there; a function is ``(state,
        values)``. How many values a batch has depends on the source and on how fast its input comes, as for
        ``map_batch``: results that depend on it are others after a crash. ``on_error`` applies to all values
        of the key in the batch. Behind ``event_time`` a list has the latest time of its values.

        >>> import millstream as ms
        >>> class Total:
        ...     def __init__(self):
        ...         self.total = 0
        ...     def on_batch(self, key, values):
        ...         self.total += sum(values)
        ...         return [self.total]
        >>> flow, out = ms.Flow("totals"), ms.testing.collect()
        >>> numbers = flow.source("numbers", ms.testing.items(range(5))).key_by(lambda n: n % 2)
        >>> numbers.stateful_batch("total", Total).sink("out", out)
        >>> _ = ms.run(flow)
        >>> dict(out)  # the last total of each key
        {0: 6, 1: 4}
        """
        from .batches import stateful_batch

        return stateful_batch(self._stream(), name, logic, state, on_error, ttl)

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
        from .join_all import join_all

        return join_all(self._stream(), name, others, emit, insert, ttl)

    @overload
    def enrich_cached(
        self,
        f: Callable[[V_co], U],
        key: None = None,
        ttl: Seconds | None = None,
        size: int = 10_000,
        stale: Seconds = 0,
        retry: Seconds = 1,
        clock: Callable[[], float] | None = None,
        name: str | None = None,
        on_error: OnError = "fail",
    ) -> KeyedStream[K_co, tuple[V_co, U]]: ...
    @overload
    def enrich_cached(
        self,
        f: Callable[[W], U],
        key: Callable[[V_co], W],
        ttl: Seconds | None = None,
        size: int = 10_000,
        stale: Seconds = 0,
        retry: Seconds = 1,
        clock: Callable[[], float] | None = None,
        name: str | None = None,
        on_error: OnError = "fail",
    ) -> KeyedStream[K_co, tuple[V_co, U]]: ...
    def enrich_cached(
        self,
        f: Callable[[Any], Any],
        key: Callable[[Any], Any] | None = None,
        ttl: Seconds | None = None,
        size: int = 10_000,
        stale: Seconds = 0,
        retry: Seconds = 1,
        clock: Callable[[], float] | None = None,
        name: str | None = None,
        on_error: OnError = "fail",
    ) -> KeyedStream[K_co, tuple[V_co, Any]]:
        """Pairs ``(value, answer)``: as ``enrich_cached`` of streams without keys, with the values."""
        from .keyed import KeyedStream
        from .lookups import enrich

        stream = self._stream()
        pipe, placed = stream._joined()
        how = f, key, ttl, size, stale, retry, clock, name
        return KeyedStream([enrich(pipe, True, *how, on_error)], placed, stream._timed)

    def inspect_debug(self, label: str, to: Callable[[str], object] | None = None) -> KeyedStream[K_co, V_co]:
        """Writes a line for each value to standard error, which goes on as it is: ``LABEL epoch=E worker=W
        key=K: ITEM``.

        The epoch is that of the commit which the value belongs to, ``-`` without a state directory. ``to`` is
        called with each line instead, ``logging.getLogger("orders").debug`` for instance.
        """
        from .keyed import KeyedStream
        from .lookups import debug

        stream = self._stream()
        pipe, placed = stream._joined()
        return KeyedStream([debug(pipe, label, to)], placed, stream._timed)

    def _stream(self) -> KeyedStream[K_co, V_co]:
        """This, as the only class that has these verbs."""
        return cast("KeyedStream[K_co, V_co]", self)
