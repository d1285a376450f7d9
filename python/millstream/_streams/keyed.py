"""The verbs that a keyed stream shares with streams without keys."""

from __future__ import annotations

from typing import Any, overload

from .. import _millstream
from .._errors.flow import FlowUsageError
from .._values.types import K_co, V_co
from . import kernels as _kernels
from .arguments import callable_or_raise, calling, collecting, same_times
from .base import KeyedBase
from .lookups import debug, enrich
from .named import MISSING

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable
    from typing import Any, TypeGuard

    from typing_extensions import TypeIs

    from .._values.durations import Seconds
    from .._values.types import (
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
        """Makes one value of each value.

        Args:
            f: is called with each value and returns the new value.
            name: the name of the step in errors and metrics.
            on_error: what happens to an item on which ``f`` raises: ``"fail"``, ``"skip"`` or a
                :class:`millstream.dead_letter`.

        Returns:
            The keyed stream of the new values.

        Raises:
            FlowUsageError: ``f`` is not callable.

        Example:
            >>> import millstream as ms
            >>> flow, out = ms.Flow("example"), ms.testing.collect()
            >>> stream = flow.source("in", ms.testing.items(["a", "bc"]))
            >>> stream.key_by(len).map(str.upper).sink("out", out)
            >>> _ = ms.run(flow)
            >>> out
            [(1, 'A'), (2, 'BC')]
        """
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
        """Keeps the values for which ``f`` is true.

        Args:
            f: is called with each value.
            name: the name of the step in errors and metrics.
            on_error: what happens to an item on which ``f`` raises: ``"fail"``, ``"skip"`` or a
                :class:`millstream.dead_letter`.

        Returns:
            The keyed stream of the values that are kept.

        Raises:
            FlowUsageError: ``f`` is not callable.

        Example:
            >>> import millstream as ms
            >>> flow, out = ms.Flow("example"), ms.testing.collect()
            >>> stream = flow.source("in", ms.testing.items(["a", "bc"]))
            >>> stream.key_by(len).filter(lambda word: word != "a").sink("out", out)
            >>> _ = ms.run(flow)
            >>> out
            [(2, 'bc')]
        """
        return self._produce("filter", f, name, on_error)

    def flat_map(
        self, f: Callable[[V_co], Iterable[U]], name: str | None = None, on_error: OnError = "fail"
    ) -> KeyedStream[K_co, U]:
        """Makes any number of values of each value.

        Args:
            f: is called with each value and returns an iterable of new values.
            name: the name of the step in errors and metrics.
            on_error: what happens to an item on which ``f`` raises: ``"fail"``, ``"skip"`` or a
                :class:`millstream.dead_letter`.

        Returns:
            The keyed stream of the new values, in order.

        Raises:
            FlowUsageError: ``f`` is not callable.

        Example:
            >>> import millstream as ms
            >>> flow, out = ms.Flow("example"), ms.testing.collect()
            >>> stream = flow.source("in", ms.testing.items(["to be"]))
            >>> stream.key_by(len).flat_map(str.split).sink("out", out)
            >>> _ = ms.run(flow)
            >>> out
            [(5, 'to'), (5, 'be')]
        """
        return self._produce("flat_map", f, name, on_error)

    def filter_map(
        self, f: Callable[[V_co], U | None], name: str | None = None, on_error: OnError = "fail"
    ) -> KeyedStream[K_co, U]:
        """Makes one value of each value, or none where ``f`` returns None.

        Args:
            f: is called with each value and returns the new value, or None.
            name: the name of the step in errors and metrics.
            on_error: what happens to an item on which ``f`` raises: ``"fail"``, ``"skip"`` or a
                :class:`millstream.dead_letter`.

        Returns:
            The keyed stream of the new values.

        Raises:
            FlowUsageError: ``f`` is not callable.

        Example:
            >>> import millstream as ms
            >>> flow, out = ms.Flow("example"), ms.testing.collect()
            >>> stream = flow.source("in", ms.testing.items(["7", "x"]))
            >>> stream.key_by(len).filter_map(lambda s: int(s) if s.isdigit() else None).sink("out", out)
            >>> _ = ms.run(flow)
            >>> out
            [(1, 7)]
        """
        return self._produce("filter_map", f, name, on_error)

    def inspect(
        self, f: Callable[[V_co], object], name: str | None = None, on_error: OnError = "fail"
    ) -> KeyedStream[K_co, V_co]:
        """Calls ``f`` with each value and passes the value on unchanged.

        Args:
            f: is called with each value; its result is ignored.
            name: the name of the step in errors and metrics.
            on_error: what happens to an item on which ``f`` raises: ``"fail"``, ``"skip"`` or a
                :class:`millstream.dead_letter`.

        Returns:
            The keyed stream of the same values.

        Raises:
            FlowUsageError: ``f`` is not callable.

        Example:
            >>> import millstream as ms
            >>> seen = []
            >>> flow, out = ms.Flow("example"), ms.testing.collect()
            >>> stream = flow.source("in", ms.testing.items(["a", "bc"]))
            >>> stream.key_by(len).inspect(seen.append).sink("out", out)
            >>> _ = ms.run(flow)
            >>> seen, out
            (['a', 'bc'], [(1, 'a'), (2, 'bc')])
        """
        return self._produce("inspect", f, name, on_error)

    def map_batch(
        self, f: Callable[[list[V_co]], list[U]], name: str | None = None, on_error: OnError = "fail"
    ) -> KeyedStream[K_co, U]:
        """Makes a list of values of the values of each batch, in one call.

        Args:
            f: is called with a list, which it may change and keep, and returns a list of the same length,
                or an empty one.
            name: the name of the step in errors and metrics.
            on_error: what happens to the whole batch if ``f`` raises.

        Returns:
            The keyed stream of the values of the lists.

        Raises:
            FlowUsageError: ``f`` is not callable.

        Example:
            >>> import millstream as ms
            >>> flow, out = ms.Flow("example"), ms.testing.collect()
            >>> stream = flow.source("in", ms.testing.items(["a", "bc"]))
            >>> stream.key_by(len).map_batch(lambda words: [w.upper() for w in words]).sink("out", out)
            >>> _ = ms.run(flow)
            >>> out
            [(1, 'A'), (2, 'BC')]
        """
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
        """Divides the stream in two: the values for which ``f`` is true, and the others.

        A stream that is not used is dropped.

        Args:
            f: is called with each value.
            name: the name of the step in errors and metrics.
            on_error: what happens to an item on which ``f`` raises: ``"fail"``, ``"skip"`` or a
                :class:`millstream.dead_letter`.

        Returns:
            The keyed stream of the values for which ``f`` is true, and the keyed stream of the others.

        Raises:
            FlowUsageError: ``f`` is not callable.

        Example:
            >>> import millstream as ms
            >>> flow, a, others = ms.Flow("letters"), ms.testing.collect(), ms.testing.collect()
            >>> yes, no = flow.source("in", ms.testing.items("ab")).key_by(str).branch(lambda c: c == "a")
            >>> yes.sink("a", a)
            >>> no.sink("others", others)
            >>> _ = ms.run(flow)
            >>> a, others
            ([('a', 'a')], [('b', 'b')])
        """
        callable_or_raise("branch", f)
        pipe, placed = self._joined()
        yes, no = pipe.divide(name or "", _kernels.judge(f, on_error != "fail"), on_error)
        return self._new_keyed([yes], placed, self._timed), self._new_keyed([no], placed, self._timed)

    def merge(self, *others: KeyedStream[K_co, U]) -> KeyedStream[K_co, V_co | U]:
        """Joins this stream and others into one. The order within each stream is kept.

        The streams keep their own types of values: a stateful function tells them apart with
        ``isinstance``.

        Args:
            others: the other keyed streams.

        Returns:
            One keyed stream with the values of all.

        Raises:
            FlowUsageError: another stream has no keys, or only some of the streams have times.

        Example:
            >>> import millstream as ms
            >>> flow, out = ms.Flow("merged"), ms.testing.collect()
            >>> one, two = (flow.source(name, ms.testing.items("ab")).key_by(str) for name in ("one", "two"))
            >>> one.merge(two).count().sink("out", out)
            >>> _ = ms.run(flow)
            >>> sorted(out)
            [('a', 2), ('b', 2)]
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
        """Groups the values of each key into lists of at most ``max`` values.

        The lists have no times.

        Args:
            max: the number of values of a full list, 1 or more.
            wait: seconds of processing time or a timedelta after which a list that is not full is emitted,
                counted from its first value. None waits until it is full or the input ends.
            name: the name of the step; saved state is found by it, so it must stay the same.

        Returns:
            The keyed stream of the lists.

        Raises:
            FlowUsageError: ``max`` or ``wait`` is out of range.

        Example:
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
        """Makes one value of each value with an asyncio function, for example a request to another system.

        When ``concurrency`` calls are running, the flow waits: that is its back-pressure. The results have
        no times. Calls that had not finished at a crash are made again.

        Args:
            f: an asyncio function that is called with each value.
            concurrency: how many calls run at once at most.
            ordered: True emits results in the order of their values, False as they finish.
            timeout: seconds or a timedelta after which a call has failed. None waits without a limit.
            retries: how often a call that failed is made again.
            retry_pause: seconds before the first retry; the pause doubles with each further one.
            name: the name of the step in errors and metrics.
            on_error: what happens to a value whose calls have all failed.

        Returns:
            The keyed stream of the results.

        Raises:
            FlowUsageError: ``f`` is not callable, or a number is out of range.

        Example:
            >>> import millstream as ms
            >>> async def shout(word: str) -> str:
            ...     return word.upper()
            >>> flow, out = ms.Flow("shout"), ms.testing.collect()
            >>> flow.source("in", ms.testing.items(["a", "bc"])).key_by(len).map_async(shout).sink("out", out)
            >>> _ = ms.run(flow)
            >>> out
            [(1, 'A'), (2, 'BC')]
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
        name: str | None = None,
        on_error: OnError = "fail",
    ) -> KeyedStream[K_co, tuple[V_co, U]]: ...
    @overload
    def enrich_cached(
        self,
        f: Callable[[Any], U],
        key: str,
        ttl: Seconds | None = None,
        size: int = 10_000,
        stale: Seconds = 0,
        retry: Seconds = 1,
        name: str | None = None,
        on_error: OnError = "fail",
    ) -> KeyedStream[K_co, tuple[V_co, U]]: ...
    def enrich_cached(
        self,
        f: Callable[[Any], Any],
        key: Callable[[Any], Any] | str | None = None,
        ttl: Seconds | None = None,
        size: int = 10_000,
        stale: Seconds = 0,
        retry: Seconds = 1,
        name: str | None = None,
        on_error: OnError = "fail",
    ) -> KeyedStream[K_co, tuple[V_co, Any]]:
        """Pairs each value with the answer that ``f`` returns for it, and caches the answers.

        As ``enrich_cached`` of :class:`millstream.Stream`, with the values.

        Args:
            f: is called with the value, or with what ``key`` returns for it.
            key: a function that returns the hashable question that a value asks, or the name of a field.
                None: the value itself.
            ttl: seconds or a timedelta, by the clock of the run, after which an answer is asked for again.
                None: never.
            size: how many answers a worker caches; the least recently used one is dropped first.
            stale: for how long after its ``ttl`` an old answer is used if ``f`` raises.
            retry: seconds after which ``f`` is called again at the earliest after it has raised.
            name: the name of the step in errors and metrics.
            on_error: what happens to a value for which ``f`` raises and there is no answer.

        Returns:
            The keyed stream of pairs ``(value, answer)``.

        Raises:
            FlowUsageError: ``f`` or ``key`` is not callable, or a number is out of range.

        Example:
            >>> import millstream as ms
            >>> flow, out = ms.Flow("example"), ms.testing.collect()
            >>> stream = flow.source("in", ms.testing.items(["tea"]))
            >>> stream.key_by(len).enrich_cached({"tea": 3}.get).sink("out", out)
            >>> _ = ms.run(flow)
            >>> out
            [(3, ('tea', 3))]
        """
        pipe, placed = self._joined()
        how = f, key, ttl, size, stale, retry, name
        return self._new_keyed([enrich(pipe, True, *how, on_error)], placed, self._timed)

    def inspect_debug(self, label: str, to: Callable[[str], object] | None = None) -> KeyedStream[K_co, V_co]:
        """Writes one line for each value and passes the value on unchanged.

        A line is ``LABEL epoch=E worker=W key=K: ITEM``. The epoch is that of the commit to which the value
        belongs, ``-`` without a state directory.

        Args:
            label: the text that begins each line.
            to: is called with each line, for example ``logging.getLogger("orders").debug``. None writes to
                standard error.

        Returns:
            The keyed stream of the same values.

        Raises:
            FlowUsageError: the label is empty, or ``to`` is not callable.

        Example:
            >>> import millstream as ms
            >>> lines = []
            >>> flow, out = ms.Flow("example"), ms.testing.collect()
            >>> stream = flow.source("in", ms.testing.items(["tea"]))
            >>> stream.key_by(len).inspect_debug("seen", to=lines.append).sink("out", out)
            >>> _ = ms.run(flow)
            >>> lines
            ["seen epoch=- worker=0 key=3: 'tea'"]
        """
        pipe, placed = self._joined()
        return self._new_keyed([debug(pipe, label, to)], placed, self._timed)

    def items(self) -> Stream[tuple[K_co, V_co]]:
        """Makes pairs of keys and values.

        Returns:
            The stream of the pairs, without keys.

        Example:
            >>> import millstream as ms
            >>> flow, out = ms.Flow("example"), ms.testing.collect()
            >>> flow.source("in", ms.testing.items(["a", "bc"])).key_by(len).items().sink("out", out)
            >>> _ = ms.run(flow)
            >>> out
            [(1, 'a'), (2, 'bc')]
        """
        return self._new_stream(
            self._joined()[0].step("items", "", "unkey", _kernels.pairs, "fail"), self._timed
        )

    def values(self) -> Stream[V_co]:
        """Drops the keys.

        Returns:
            The stream of the values, without keys.

        Example:
            >>> import millstream as ms
            >>> flow, out = ms.Flow("example"), ms.testing.collect()
            >>> flow.source("in", ms.testing.items(["a", "bc"])).key_by(len).values().sink("out", out)
            >>> _ = ms.run(flow)
            >>> out
            ['a', 'bc']
        """
        return self._new_stream(
            self._joined()[0].step("values", "", "unkey", _kernels.values, "fail"), self._timed
        )

    def sink(
        self,
        name: str,
        sink: AnySink[tuple[K_co, V_co]] = MISSING,
        gather: bool = False,
        on_error: OnError = "fail",
    ) -> None:
        """Ends the stream in a sink, which receives pairs of key and value.

        Args:
            name: the name of the sink; it must stay the same, because the state of the sink is saved under
                it.
            sink: a sink of ``ms.tcp``, ``ms.files``, ``ms.journals`` or ``ms.queues``, one of
                :func:`millstream.sink`, a list, or a :class:`millstream.Sink`.
            gather: whether one worker writes the output of all: the first one of process 0, to which the
                others send their items. So the processes of a flow write one file.
            on_error: what happens to an item that cannot be encoded, that is too large, or that the
                destination refuses, as for :meth:`Stream.sink`.

        Raises:
            FlowUsageError: the name is empty or used twice, ``sink`` is no sink, or ``on_error`` is given
                with a :class:`millstream.Sink`, which encodes nothing.

        Example:
            >>> import millstream as ms
            >>> flow, out = ms.Flow("example"), ms.testing.collect()
            >>> flow.source("in", ms.testing.items(["a"])).key_by(len).sink("out", out)
            >>> _ = ms.run(flow)
            >>> out
            [(1, 'a')]
        """
        self.items().sink(name, sink, gather, on_error)
