"""The verbs of streams without keys."""

from __future__ import annotations

from typing import Any, overload

from .. import _kernels, _millstream
from .._errors import FlowUsageError
from .._types import T_co
from .arguments import callable_or_raise, calling, collecting, same_times
from .base import PlainBase
from .lookups import debug, enrich

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable
    from typing import Any, TypeGuard

    from typing_extensions import TypeIs

    from .._durations import Seconds
    from .._types import (
        AnySink,
        K,
        OnError,
        U,
        W,
    )
    from .streams import KeyedStream, Stream


__all__ = ["PlainVerbs"]


class PlainVerbs(PlainBase[T_co]):
    """The verbs of :class:`Stream`, those that give times excepted."""

    __slots__ = ()

    def _step(
        self, kind: str, f: Any, make: Callable[[Any, bool], Any], name: str | None, on_error: OnError
    ) -> Stream[Any]:
        callable_or_raise(kind, f)
        tolerant = on_error != "fail"
        if self._timed and (tolerant or kind not in ("map", "inspect")):
            # Where a value may be left out, times are found again by position.
            kernel = _kernels.keyed(_kernels.PRODUCE[kind](f), tolerant)
            return self._new_stream(self._pipe.step(kind, name or "", "produce", kernel, on_error), True)
        pipe = self._pipe.step(kind, name or "", "values", make(f, tolerant), on_error)
        return self._new_stream(pipe, self._timed)

    def map(self, f: Callable[[T_co], U], name: str | None = None, on_error: OnError = "fail") -> Stream[U]:
        """One item out for each item in."""
        return self._step("map", f, _kernels.map_values, name, on_error)

    @overload
    def filter(
        self, f: Callable[[T_co], TypeIs[U]], name: str | None = None, on_error: OnError = "fail"
    ) -> Stream[U]: ...
    @overload
    def filter(
        self, f: Callable[[T_co], TypeGuard[U]], name: str | None = None, on_error: OnError = "fail"
    ) -> Stream[U]: ...
    @overload
    def filter(
        self, f: Callable[[T_co], object], name: str | None = None, on_error: OnError = "fail"
    ) -> Stream[T_co]: ...
    def filter(
        self, f: Callable[[T_co], object], name: str | None = None, on_error: OnError = "fail"
    ) -> Stream[Any]:
        """The items for which ``f`` is true."""
        return self._step("filter", f, _kernels.filter_values, name, on_error)

    def flat_map(
        self, f: Callable[[T_co], Iterable[U]], name: str | None = None, on_error: OnError = "fail"
    ) -> Stream[U]:
        """Any number of items out for each item in.

        >>> import millstream as ms
        >>> flow, out = ms.Flow("words"), ms.testing.collect()
        >>> flow.source("lines", ms.testing.items(["to be", "or not"])).flat_map(str.split).sink("out", out)
        >>> _ = ms.run(flow)
        >>> out
        ['to', 'be', 'or', 'not']
        """
        return self._step("flat_map", f, _kernels.flat_map_values, name, on_error)

    def filter_map(
        self, f: Callable[[T_co], U | None], name: str | None = None, on_error: OnError = "fail"
    ) -> Stream[U]:
        """As ``map``, but nothing comes out where ``f`` gives None."""
        return self._step("filter_map", f, _kernels.filter_map_values, name, on_error)

    def inspect(
        self, f: Callable[[T_co], object], name: str | None = None, on_error: OnError = "fail"
    ) -> Stream[T_co]:
        """Calls ``f`` with each item, which goes on as it is."""
        return self._step("inspect", f, _kernels.inspect_values, name, on_error)

    def map_batch(
        self, f: Callable[[list[T_co]], list[U]], name: str | None = None, on_error: OnError = "fail"
    ) -> Stream[U]:
        """A whole batch at once: ``f`` is given a list, which it may change and keep, and gives a list.

        How many items a batch has depends on the source and on how fast its input comes. ``on_error`` applies
        to the whole batch. Behind ``event_time`` ``f`` gives as many items as it is given, or none.
        """
        callable_or_raise("map_batch", f)
        pipe = self._pipe.step("map_batch", name or "", "batch", _kernels.batch(f), on_error)
        return self._new_stream(pipe, self._timed)

    @overload
    def branch(
        self, f: Callable[[T_co], TypeIs[U]], name: str | None = None, on_error: OnError = "fail"
    ) -> tuple[Stream[U], Stream[T_co]]: ...
    @overload
    def branch(
        self, f: Callable[[T_co], TypeGuard[U]], name: str | None = None, on_error: OnError = "fail"
    ) -> tuple[Stream[U], Stream[T_co]]: ...
    @overload
    def branch(
        self, f: Callable[[T_co], object], name: str | None = None, on_error: OnError = "fail"
    ) -> tuple[Stream[T_co], Stream[T_co]]: ...
    def branch(
        self, f: Callable[[T_co], object], name: str | None = None, on_error: OnError = "fail"
    ) -> tuple[Stream[Any], Stream[T_co]]:
        """Two streams: the items for which ``f`` is true, and the others; one nobody reads is dropped."""
        callable_or_raise("branch", f)
        yes, no = self._pipe.divide(name or "", _kernels.judge(f, on_error != "fail"), on_error)
        return self._new_stream(yes, self._timed), self._new_stream(no, self._timed)

    def merge(self, *others: Stream[U]) -> Stream[T_co | U]:
        """This stream and others as one. Order is kept within each of them."""
        pipes = [self._pipe]
        for other in others:
            if not isinstance(other, PlainBase):
                raise FlowUsageError(f"a stream without keys merges with such streams, not with {other!r}")
            same_times(self._timed, other._timed)
            pipes.append(other._pipe)
        return self._new_stream(_millstream.Pipe.gather("merge", "", pipes, False), self._timed)

    def redistribute(self) -> Stream[T_co]:
        """Deals the batches to the workers in turn, so that work on them is shared. Order is lost."""
        return self._new_stream(self._pipe.redistribute(), self._timed)

    @overload
    def key_by(
        self, f: Callable[[T_co], K], name: str | None = None, on_error: OnError = "fail"
    ) -> KeyedStream[K, T_co]: ...
    @overload
    def key_by(
        self, f: str, name: str | None = None, on_error: OnError = "fail"
    ) -> KeyedStream[Any, T_co]: ...
    def key_by(
        self, f: Callable[[T_co], Any] | str, name: str | None = None, on_error: OnError = "fail"
    ) -> KeyedStream[Any, T_co]:
        """Gives each item a key: what ``f`` gives, or the field or attribute of that name.

        A key is ``str``, ``bytes``, ``int`` or a tuple of them. From the next step that keeps state on, all
        items of a key are on one worker, in the order of their source.
        """
        tolerant = on_error != "fail"
        if isinstance(f, str):
            kernel = _kernels.key_field(f, tolerant)
        else:
            callable_or_raise("key_by", f)
            kernel = _kernels.key_values(f, tolerant)
        pipe = self._pipe.step("key_by", name or "", "keys", kernel, on_error)
        return self._new_keyed([pipe], False, self._timed)

    def collect(self, max: int, wait: Seconds | None = None, name: str = "collect") -> Stream[list[T_co]]:
        """Lists of at most ``max`` values.

        ``wait`` seconds of processing time after its first value a list is given as it is; unless told
        otherwise it waits until it is full or the input has ended. What comes out has no times.

        >>> import millstream as ms
        >>> flow, out = ms.Flow("lists"), ms.testing.collect()
        >>> flow.source("numbers", ms.testing.items(range(5))).collect(max=2).sink("out", out)
        >>> _ = ms.run(flow)
        >>> out
        [[0, 1], [2, 3], [4]]
        """
        return self._new_stream(self._pipe.collect(name, *collecting(max, wait), False), False)

    def map_async(
        self,
        f: Callable[[T_co], Coroutine[Any, Any, U]],
        concurrency: int = 16,
        ordered: bool = True,
        timeout: Seconds | None = None,
        retries: int = 0,
        retry_pause: Seconds = 0.1,
        name: str | None = None,
        on_error: OnError = "fail",
    ) -> Stream[U]:
        """As ``map``, with an asyncio function that calls the outside; at most ``concurrency`` calls at once.

        Results come in the order of their values, or as they are ready if not ``ordered``. A call that
        takes longer than ``timeout`` seconds has failed; one that fails is made again up to ``retries``
        times, after pauses that begin with ``retry_pause`` and double. When all calls are taken the flow
        waits, which is back-pressure. What comes out has no times.
        """
        make = calling(f, concurrency, ordered, timeout, retries, retry_pause)
        return self._new_stream(self._pipe.ticking("map_async", name or "", make, on_error), False)

    @overload
    def enrich_cached(
        self,
        f: Callable[[T_co], U],
        key: None = None,
        ttl: Seconds | None = None,
        size: int = 10_000,
        stale: Seconds = 0,
        retry: Seconds = 1,
        clock: Callable[[], float] | None = None,
        name: str | None = None,
        on_error: OnError = "fail",
    ) -> Stream[tuple[T_co, U]]: ...
    @overload
    def enrich_cached(
        self,
        f: Callable[[W], U],
        key: Callable[[T_co], W],
        ttl: Seconds | None = None,
        size: int = 10_000,
        stale: Seconds = 0,
        retry: Seconds = 1,
        clock: Callable[[], float] | None = None,
        name: str | None = None,
        on_error: OnError = "fail",
    ) -> Stream[tuple[T_co, U]]: ...
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
    ) -> Stream[tuple[T_co, Any]]:
        """Pairs ``(item, answer)`` of each item and what ``f`` answers for it; answers are kept and used
        again.

        ``f`` is called with the item, or with what ``key`` makes of it, which must be hashable; each worker
        keeps its own answers, at most ``size``, of which the one used longest ago goes first. An answer is
        asked for again after ``ttl`` seconds of processing time (``None``: never). If ``f`` then raises, the
        old answer serves for ``stale`` seconds more, and ``f`` is called again after ``retry`` seconds at the
        earliest; if there is none, ``on_error`` says what becomes of the item. The worker waits for ``f``:
        for many slow calls at once there is ``map_async``. Answers are not saved: after a crash they are
        asked for again. ``clock`` gives seconds that never go back, for tests.

        >>> import millstream as ms
        >>> prices = {"tea": 3}
        >>> flow, out = ms.Flow("prices"), ms.testing.collect()
        >>> orders = flow.source("orders", ms.testing.items(["tea", "tea", "gold"]))
        >>> orders.enrich_cached(prices.get, ttl=60).sink("out", out)
        >>> _ = ms.run(flow)
        >>> out
        [('tea', 3), ('tea', 3), ('gold', None)]
        """
        how = f, key, ttl, size, stale, retry, clock, name
        return self._new_stream(enrich(self._pipe, self._timed, *how, on_error), self._timed)

    def inspect_debug(self, label: str, to: Callable[[str], object] | None = None) -> Stream[T_co]:
        """Writes a line for each item to standard error, which goes on as it is: ``LABEL epoch=E worker=W:
        ITEM``.

        The epoch is that of the commit which the item belongs to, ``-`` without a state directory. ``to`` is
        called with each line instead, ``logging.getLogger("orders").debug`` for instance.

        >>> import millstream as ms
        >>> flow, lines = ms.Flow("debug"), []
        >>> numbers = flow.source("numbers", ms.testing.items([1, 2]))
        >>> numbers.inspect_debug("seen", to=lines.append).sink("out", ms.testing.collect())
        >>> _ = ms.run(flow)
        >>> lines
        ['seen epoch=- worker=0: 1', 'seen epoch=- worker=0: 2']
        """
        return self._new_stream(debug(self._pipe, label, to), self._timed)

    def sink(self, name: str, sink: AnySink[T_co]) -> None:
        """Ends the stream in a sink. A stream may have several sinks."""
        if not name:
            raise FlowUsageError("a sink needs a name")
        self._pipe.sink(name, sink)
