"""The verbs that a keyed stream shares with streams without keys."""

from __future__ import annotations

from typing import Any, overload

from .. import _kernels, _millstream
from .._errors import FlowUsageError
from .._types import K_co, V_co
from .arguments import callable_or_raise, calling, collecting, same_times
from .base import KeyedBase
from .lookups import debug, enrich

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable
    from typing import Any, TypeGuard

    from typing_extensions import TypeIs

    from .._durations import Seconds
    from .._types import (
        AnySink,
        OnError,
        U,
        W,
    )
    from .base import KeyedBase
    from .streams import KeyedStream, Stream


__all__ = ["KeyedVerbs"]


class KeyedVerbs(KeyedBase[K_co, V_co]):
    """The verbs of :class:`KeyedStream` that keep no state."""

    __slots__ = ()

    def _step(
        self, kind: str, shape: str, kernel: Any, name: str | None, on_error: OnError
    ) -> KeyedStream[K_co, Any]:
        pipe, placed = self._joined()
        return self._new_keyed([pipe.step(kind, name or "", shape, kernel, on_error)], placed, self._timed)

    def _produce(
        self, kind: str, f: Callable[[Any], Any], name: str | None, on_error: OnError
    ) -> KeyedStream[K_co, Any]:
        callable_or_raise(kind, f)
        kernel = _kernels.keyed(_kernels.PRODUCE[kind](f), on_error != "fail")
        return self._step(kind, "produce", kernel, name, on_error)

    def map(
        self, f: Callable[[V_co], U], name: str | None = None, on_error: OnError = "fail"
    ) -> KeyedStream[K_co, U]:
        """One value out for each value in."""
        if on_error == "fail":
            callable_or_raise("map", f)
            return self._step("map", "values", _kernels.map_values(f, False), name, on_error)
        return self._produce("map", f, name, on_error)

    @overload
    def filter(
        self, f: Callable[[V_co], TypeIs[U]], name: str | None = None, on_error: OnError = "fail"
    ) -> KeyedStream[K_co, U]: ...
    @overload
    def filter(
        self, f: Callable[[V_co], TypeGuard[U]], name: str | None = None, on_error: OnError = "fail"
    ) -> KeyedStream[K_co, U]: ...
    @overload
    def filter(
        self, f: Callable[[V_co], object], name: str | None = None, on_error: OnError = "fail"
    ) -> KeyedStream[K_co, V_co]: ...
    def filter(
        self, f: Callable[[V_co], object], name: str | None = None, on_error: OnError = "fail"
    ) -> KeyedStream[K_co, Any]:
        """The values for which ``f`` is true."""
        return self._produce("filter", f, name, on_error)

    def flat_map(
        self, f: Callable[[V_co], Iterable[U]], name: str | None = None, on_error: OnError = "fail"
    ) -> KeyedStream[K_co, U]:
        """Any number of values out for each value in."""
        return self._produce("flat_map", f, name, on_error)

    def filter_map(
        self, f: Callable[[V_co], U | None], name: str | None = None, on_error: OnError = "fail"
    ) -> KeyedStream[K_co, U]:
        """As ``map``, but nothing comes out where ``f`` gives None."""
        return self._produce("filter_map", f, name, on_error)

    def inspect(
        self, f: Callable[[V_co], object], name: str | None = None, on_error: OnError = "fail"
    ) -> KeyedStream[K_co, V_co]:
        """Calls ``f`` with each value, which goes on as it is."""
        return self._produce("inspect", f, name, on_error)

    def map_batch(
        self, f: Callable[[list[V_co]], list[U]], name: str | None = None, on_error: OnError = "fail"
    ) -> KeyedStream[K_co, U]:
        """The values of a whole batch at once; ``f`` gives as many as it is given, or none."""
        callable_or_raise("map_batch", f)
        return self._step("map_batch", "batch", _kernels.batch(f), name, on_error)

    @overload
    def branch(
        self, f: Callable[[V_co], TypeIs[U]], name: str | None = None, on_error: OnError = "fail"
    ) -> tuple[KeyedStream[K_co, U], KeyedStream[K_co, V_co]]: ...
    @overload
    def branch(
        self, f: Callable[[V_co], TypeGuard[U]], name: str | None = None, on_error: OnError = "fail"
    ) -> tuple[KeyedStream[K_co, U], KeyedStream[K_co, V_co]]: ...
    @overload
    def branch(
        self, f: Callable[[V_co], object], name: str | None = None, on_error: OnError = "fail"
    ) -> tuple[KeyedStream[K_co, V_co], KeyedStream[K_co, V_co]]: ...
    def branch(
        self, f: Callable[[V_co], object], name: str | None = None, on_error: OnError = "fail"
    ) -> tuple[KeyedStream[K_co, Any], KeyedStream[K_co, V_co]]:
        """Two streams: the values for which ``f`` is true, and the others; one nobody reads is dropped."""
        callable_or_raise("branch", f)
        pipe, placed = self._joined()
        yes, no = pipe.divide(name or "", _kernels.judge(f, on_error != "fail"), on_error)
        return self._new_keyed([yes], placed, self._timed), self._new_keyed([no], placed, self._timed)

    def merge(self, *others: KeyedStream[K_co, U]) -> KeyedStream[K_co, V_co | U]:
        """This stream and others as one. Order is kept within each of them.

        The streams keep their own types: a stateful function tells them apart with ``isinstance``.
        """
        for other in others:
            if not isinstance(other, KeyedBase):
                raise FlowUsageError(f"a keyed stream merges with keyed streams, not with {other!r}")
            same_times(self._timed, other._timed)
        streams = (self, *others)
        if any(stream._placed for stream in streams):
            homes = [stream._home() for stream in streams]
            return self._new_keyed([_millstream.Pipe.gather("merge", "", homes, False)], True, self._timed)
        return self._new_keyed([pipe for stream in streams for pipe in stream._pipes], False, self._timed)

    def collect(
        self, max: int, wait: Seconds | None = None, name: str = "collect"
    ) -> KeyedStream[K_co, list[V_co]]:
        """Lists of at most ``max`` values of a key.

        ``wait`` seconds of processing time after its first value a list is given as it is; unless told
        otherwise it waits until it is full or the input has ended. What comes out has no times.

        >>> import millstream as ms
        >>> flow, out = ms.Flow("lists"), ms.testing.collect()
        >>> numbers = flow.source("numbers", ms.testing.items(range(5))).key_by(lambda n: n % 2)
        >>> numbers.collect(max=2).sink("out", out)
        >>> _ = ms.run(flow)
        >>> out
        [(0, [0, 2]), (1, [1, 3]), (0, [4])]
        """
        pipe = self._home().collect(name, *collecting(max, wait), True)
        return self._new_keyed([pipe], True, False)

    def map_async(
        self,
        f: Callable[[V_co], Coroutine[Any, Any, U]],
        concurrency: int = 16,
        ordered: bool = True,
        timeout: Seconds | None = None,
        retries: int = 0,
        retry_pause: Seconds = 0.1,
        name: str | None = None,
        on_error: OnError = "fail",
    ) -> KeyedStream[K_co, U]:
        """As ``map``, with an asyncio function that calls the outside; at most ``concurrency`` calls at once.

        Results come in the order of their values, or as they are ready if not ``ordered``. A call that
        takes longer than ``timeout`` seconds has failed; one that fails is made again up to ``retries``
        times, after pauses that begin with ``retry_pause`` and double. When all calls are taken the flow
        waits, which is back-pressure. What comes out has no times.
        """
        pipe, _ = self._joined()
        make = calling(f, concurrency, ordered, timeout, retries, retry_pause)
        # What is asked again after a crash may be on another worker than that of its key.
        return self._new_keyed([pipe.ticking("map_async", name or "", make, on_error)], False, False)

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
        pipe, placed = self._joined()
        how = f, key, ttl, size, stale, retry, clock, name
        return self._new_keyed([enrich(pipe, True, *how, on_error)], placed, self._timed)

    def inspect_debug(self, label: str, to: Callable[[str], object] | None = None) -> KeyedStream[K_co, V_co]:
        """Writes a line for each value to standard error, which goes on as it is: ``LABEL epoch=E worker=W
        key=K: ITEM``.

        The epoch is that of the commit which the value belongs to, ``-`` without a state directory. ``to`` is
        called with each line instead, ``logging.getLogger("orders").debug`` for instance.
        """
        pipe, placed = self._joined()
        return self._new_keyed([debug(pipe, label, to)], placed, self._timed)

    def items(self) -> Stream[tuple[K_co, V_co]]:
        """Keys and values as pairs."""
        return self._new_stream(
            self._joined()[0].step("items", "", "unkey", _kernels.pairs, "fail"), self._timed
        )

    def values(self) -> Stream[V_co]:
        """The values without their keys."""
        return self._new_stream(
            self._joined()[0].step("values", "", "unkey", _kernels.values, "fail"), self._timed
        )

    def sink(self, name: str, sink: AnySink[tuple[K_co, V_co]]) -> None:
        """Ends the stream in a sink, which is given pairs of key and value."""
        self.items().sink(name, sink)
