"""The verbs of streams without keys."""

from __future__ import annotations

from typing import Any, overload

from .. import _millstream
from .._errors.flow import FlowUsageError
from .._values.types import T_co
from . import kernels as _kernels
from .arguments import callable_or_raise, calling, collecting, reading, same_times
from .base import PlainBase
from .lookups import debug, enrich
from .named import MISSING, check_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable
    from typing import Any, TypeGuard

    from typing_extensions import TypeIs

    from .._values.durations import Seconds
    from .._values.types import (
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
            # Where a value may be dropped, times are found by position.
            kernel = _kernels.keyed(_kernels.PRODUCE[kind](f), tolerant)
            return self._new_stream(self._pipe.step(kind, name or "", "produce", kernel, on_error), True)
        pipe = self._pipe.step(kind, name or "", "values", make(f, tolerant), on_error)
        return self._new_stream(pipe, self._timed)

    def map(self, f: Callable[[T_co], U], name: str | None = None, on_error: OnError = "fail") -> Stream[U]:
        """Makes one item of each item.

        Args:
            f: is called with each item and returns the new item.
            name: the name of the step in errors and metrics.
            on_error: what happens to an item on which ``f`` raises: ``"fail"``, ``"skip"`` or a
                :class:`millstream.dead_letter`.

        Returns:
            The stream of the new items.

        Raises:
            FlowUsageError: ``f`` is not callable.

        Example:
            >>> import millstream as ms
            >>> flow, out = ms.Flow("example"), ms.testing.collect()
            >>> flow.source("in", ms.testing.items([1, 2])).map(lambda n: n * 10).sink("out", out)
            >>> _ = ms.run(flow)
            >>> out
            [10, 20]
        """
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
        """Keeps the items for which ``f`` is true.

        Args:
            f: is called with each item.
            name: the name of the step in errors and metrics.
            on_error: what happens to an item on which ``f`` raises: ``"fail"``, ``"skip"`` or a
                :class:`millstream.dead_letter`.

        Returns:
            The stream of the items that are kept.

        Raises:
            FlowUsageError: ``f`` is not callable.

        Example:
            >>> import millstream as ms
            >>> flow, out = ms.Flow("example"), ms.testing.collect()
            >>> flow.source("in", ms.testing.items([1, 2, 3])).filter(lambda n: n > 1).sink("out", out)
            >>> _ = ms.run(flow)
            >>> out
            [2, 3]
        """
        return self._step("filter", f, _kernels.filter_values, name, on_error)

    def flat_map(
        self, f: Callable[[T_co], Iterable[U]], name: str | None = None, on_error: OnError = "fail"
    ) -> Stream[U]:
        """Makes any number of items of each item.

        Args:
            f: is called with each item and returns an iterable of new items.
            name: the name of the step in errors and metrics.
            on_error: what happens to an item on which ``f`` raises: ``"fail"``, ``"skip"`` or a
                :class:`millstream.dead_letter`.

        Returns:
            The stream of the new items, in order.

        Raises:
            FlowUsageError: ``f`` is not callable.

        Example:
            >>> import millstream as ms
            >>> flow, out = ms.Flow("words"), ms.testing.collect()
            >>> lines = flow.source("lines", ms.testing.items(["to be", "or not"]))
            >>> lines.flat_map(str.split).sink("out", out)
            >>> _ = ms.run(flow)
            >>> out
            ['to', 'be', 'or', 'not']
        """
        return self._step("flat_map", f, _kernels.flat_map_values, name, on_error)

    def filter_map(
        self, f: Callable[[T_co], U | None], name: str | None = None, on_error: OnError = "fail"
    ) -> Stream[U]:
        """Makes one item of each item, or none where ``f`` returns None.

        Args:
            f: is called with each item and returns the new item, or None.
            name: the name of the step in errors and metrics.
            on_error: what happens to an item on which ``f`` raises: ``"fail"``, ``"skip"`` or a
                :class:`millstream.dead_letter`.

        Returns:
            The stream of the new items.

        Raises:
            FlowUsageError: ``f`` is not callable.

        Example:
            >>> import millstream as ms
            >>> flow, out = ms.Flow("example"), ms.testing.collect()
            >>> stream = flow.source("in", ms.testing.items(["1", "x", "2"]))
            >>> stream.filter_map(lambda text: int(text) if text.isdigit() else None).sink("out", out)
            >>> _ = ms.run(flow)
            >>> out
            [1, 2]
        """
        return self._step("filter_map", f, _kernels.filter_map_values, name, on_error)

    def inspect(
        self, f: Callable[[T_co], object], name: str | None = None, on_error: OnError = "fail"
    ) -> Stream[T_co]:
        """Calls ``f`` with each item and passes the item on unchanged.

        Args:
            f: is called with each item; its result is ignored.
            name: the name of the step in errors and metrics.
            on_error: what happens to an item on which ``f`` raises: ``"fail"``, ``"skip"`` or a
                :class:`millstream.dead_letter`.

        Returns:
            The stream of the same items.

        Raises:
            FlowUsageError: ``f`` is not callable.

        Example:
            >>> import millstream as ms
            >>> seen = []
            >>> flow, out = ms.Flow("example"), ms.testing.collect()
            >>> flow.source("in", ms.testing.items([1, 2])).inspect(seen.append).sink("out", out)
            >>> _ = ms.run(flow)
            >>> seen, out
            ([1, 2], [1, 2])
        """
        return self._step("inspect", f, _kernels.inspect_values, name, on_error)

    def map_batch(
        self, f: Callable[[list[T_co]], list[U]], name: str | None = None, on_error: OnError = "fail"
    ) -> Stream[U]:
        """Makes a list of items of each batch, in one call.

        How many items a batch has depends on the source and on how fast its input arrives. After
        ``event_time`` the function must return as many items as it received, or none.

        Args:
            f: is called with a list, which it may change and keep, and returns a list.
            name: the name of the step in errors and metrics.
            on_error: what happens to the whole batch if ``f`` raises.

        Returns:
            The stream of the items of the lists.

        Raises:
            FlowUsageError: ``f`` is not callable.

        Example:
            >>> import millstream as ms
            >>> flow, out = ms.Flow("example"), ms.testing.collect()
            >>> stream = flow.source("in", ms.testing.items([1, 2, 3]))
            >>> stream.map_batch(lambda batch: [n + 1 for n in batch]).sink("out", out)
            >>> _ = ms.run(flow)
            >>> out
            [2, 3, 4]
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
        """Divides the stream in two: the items for which ``f`` is true, and the others.

        A stream that is not used is dropped.

        Args:
            f: is called with each item.
            name: the name of the step in errors and metrics.
            on_error: what happens to an item on which ``f`` raises: ``"fail"``, ``"skip"`` or a
                :class:`millstream.dead_letter`.

        Returns:
            The stream of the items for which ``f`` is true, and the stream of the others.

        Raises:
            FlowUsageError: ``f`` is not callable.

        Example:
            >>> import millstream as ms
            >>> flow, small, large = ms.Flow("sizes"), ms.testing.collect(), ms.testing.collect()
            >>> below, others = flow.source("in", ms.testing.items([1, 20, 3])).branch(lambda n: n < 10)
            >>> below.sink("small", small)
            >>> others.sink("large", large)
            >>> _ = ms.run(flow)
            >>> small, large
            ([1, 3], [20])
        """
        callable_or_raise("branch", f)
        yes, no = self._pipe.divide(name or "", _kernels.judge(f, on_error != "fail"), on_error)
        return self._new_stream(yes, self._timed), self._new_stream(no, self._timed)

    def merge(self, *others: Stream[U]) -> Stream[T_co | U]:
        """Joins this stream and others into one. The order within each stream is kept.

        Args:
            others: the other streams, without keys as this one.

        Returns:
            One stream with the items of all.

        Raises:
            FlowUsageError: another stream has keys, or only some of the streams have times.

        Example:
            >>> import millstream as ms
            >>> flow, out = ms.Flow("merged"), ms.testing.collect()
            >>> one, two = (flow.source(name, ms.testing.items([name])) for name in ("one", "two"))
            >>> one.merge(two).sink("out", out)
            >>> _ = ms.run(flow)
            >>> sorted(out)
            ['one', 'two']
        """
        pipes = [self._pipe]
        for other in others:
            if not isinstance(other, PlainBase):
                raise FlowUsageError(f"a stream without keys merges with such streams, not with {other!r}")
            same_times(self._timed, other._timed)
            pipes.append(other._pipe)
        return self._new_stream(_millstream.Pipe.gather("merge", "", pipes, False), self._timed)

    def redistribute(self) -> Stream[T_co]:
        """Distributes the batches over the workers in turn, so that they share the work. Order is lost.

        Returns:
            The stream of the same items.

        Example:
            >>> import millstream as ms
            >>> flow, out = ms.Flow("shared"), ms.testing.collect()
            >>> flow.source("in", ms.testing.items(range(4))).redistribute().map(str).sink("out", out)
            >>> _ = ms.run(flow, workers=2)
            >>> sorted(out)
            ['0', '1', '2', '3']
        """
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
        """Gives each item a key.

        A key is ``str``, ``bytes``, ``int``, ``bool`` or a tuple of them; objects of their subclasses are
        not. From the next step that keeps state on, all items of a key are on one worker, in the order of
        their source.

        Args:
            f: a function that returns the key of an item, or the name of a field: of a mapping, a record or
                an object with attributes.
            name: the name of the step in errors and metrics.
            on_error: what happens to an item on which ``f`` raises or that gets no valid key: ``"fail"``,
                ``"skip"`` or a :class:`millstream.dead_letter`.

        Returns:
            The keyed stream of the same items.

        Raises:
            FlowUsageError: ``f`` is neither a function nor a ``str``.

        Example:
            >>> import millstream as ms
            >>> flow, out = ms.Flow("example"), ms.testing.collect()
            >>> stream = flow.source("in", ms.testing.items(["to", "be", "to"]))
            >>> stream.key_by(str.upper).count().sink("out", out)
            >>> _ = ms.run(flow)
            >>> out
            [('TO', 2), ('BE', 1)]
        """
        kernel = _kernels.key_values(reading("key_by", f), on_error != "fail")
        pipe = self._pipe.step("key_by", name or "", "keys", kernel, on_error)
        return self._new_keyed([pipe], False, self._timed)

    def collect(self, max: int, wait: Seconds | None = None, name: str = "collect") -> Stream[list[T_co]]:
        """Groups the items into lists of at most ``max`` items.

        The lists have no times.

        Args:
            max: the number of items of a full list, 1 or more.
            wait: seconds of processing time or a timedelta after which a list that is not full is emitted,
                counted from its first item. None waits until it is full or the input ends.
            name: the name of the step in errors and metrics.

        Returns:
            The stream of the lists.

        Raises:
            FlowUsageError: ``max`` or ``wait`` is out of range.

        Example:
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
        """Makes one item of each item with an asyncio function, for example a request to another system.

        When ``concurrency`` calls are running, the flow waits: that is its back-pressure. The results have
        no times. Calls that had not finished at a crash are made again.

        Args:
            f: an asyncio function that is called with each item.
            concurrency: how many calls run at once at most.
            ordered: True emits results in the order of their items, False as they finish.
            timeout: seconds or a timedelta after which a call has failed. None waits without a limit.
            retries: how often a call that failed is made again.
            retry_pause: seconds before the first retry; the pause doubles with each further one.
            name: the name of the step in errors and metrics.
            on_error: what happens to an item whose calls have all failed.

        Returns:
            The stream of the results.

        Raises:
            FlowUsageError: ``f`` is not callable, or a number is out of range.

        Example:
            >>> import asyncio
            >>> import millstream as ms
            >>> async def ask(n: int) -> int:
            ...     await asyncio.sleep(0)
            ...     return n * n
            >>> flow, out = ms.Flow("squares"), ms.testing.collect()
            >>> flow.source("in", ms.testing.items([1, 2, 3])).map_async(ask).sink("out", out)
            >>> _ = ms.run(flow)
            >>> out
            [1, 4, 9]
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
        name: str | None = None,
        on_error: OnError = "fail",
    ) -> Stream[tuple[T_co, U]]: ...
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
    ) -> Stream[tuple[T_co, U]]: ...
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
    ) -> Stream[tuple[T_co, Any]]:
        """Pairs each item with the answer that ``f`` returns for it, and caches the answers.

        Each worker has a cache of its own. The worker waits for ``f``; ``map_async`` makes many slow calls
        at once. The cache is not saved: after a crash ``f`` is called again.

        Args:
            f: is called with the item, or with what ``key`` returns for it.
            key: a function that returns the hashable question that an item asks, or the name of a field.
                None: the item itself.
            ttl: seconds or a timedelta, by the clock of the run, after which an answer is asked for again.
                None: never.
            size: how many answers a worker caches; the least recently used one is dropped first.
            stale: for how long after its ``ttl`` an old answer is used if ``f`` raises.
            retry: seconds after which ``f`` is called again at the earliest after it has raised.
            name: the name of the step in errors and metrics.
            on_error: what happens to an item for which ``f`` raises and there is no answer.

        Returns:
            The stream of pairs ``(item, answer)``.

        Raises:
            FlowUsageError: ``f`` or ``key`` is not callable, or a number is out of range.

        Example:
            >>> import millstream as ms
            >>> prices = {"tea": 3}
            >>> flow, out = ms.Flow("prices"), ms.testing.collect()
            >>> orders = flow.source("orders", ms.testing.items(["tea", "tea", "gold"]))
            >>> orders.enrich_cached(prices.get, ttl=60).sink("out", out)
            >>> _ = ms.run(flow)
            >>> out
            [('tea', 3), ('tea', 3), ('gold', None)]
        """
        how = f, key, ttl, size, stale, retry, name
        return self._new_stream(enrich(self._pipe, self._timed, *how, on_error), self._timed)

    def inspect_debug(self, label: str, to: Callable[[str], object] | None = None) -> Stream[T_co]:
        """Writes one line for each item and passes the item on unchanged.

        A line is ``LABEL epoch=E worker=W: ITEM``. The epoch is that of the commit to which the item
        belongs, ``-`` without a state directory.

        Args:
            label: the text that begins each line.
            to: is called with each line, for example ``logging.getLogger("orders").debug``. None writes to
                standard error.

        Returns:
            The stream of the same items.

        Raises:
            FlowUsageError: the label is empty, or ``to`` is not callable.

        Example:
            >>> import millstream as ms
            >>> flow, lines = ms.Flow("debug"), []
            >>> numbers = flow.source("numbers", ms.testing.items([1, 2]))
            >>> numbers.inspect_debug("seen", to=lines.append).sink("out", ms.testing.collect())
            >>> _ = ms.run(flow)
            >>> lines
            ['seen epoch=- worker=0: 1', 'seen epoch=- worker=0: 2']
        """
        return self._new_stream(debug(self._pipe, label, to), self._timed)

    def sink(
        self, name: str, sink: AnySink[T_co] = MISSING, gather: bool = False, on_error: OnError = "fail"
    ) -> None:
        """Ends the stream in a sink. A stream may have several sinks.

        Args:
            name: the name of the sink; it must stay the same, because the state of the sink is saved under
                it.
            sink: a sink of ``ms.tcp``, ``ms.files``, ``ms.journals`` or ``ms.queues``, one of
                :func:`millstream.sink`, a list, or a :class:`millstream.Sink`.
            gather: whether one worker writes the output of all: the first one of process 0, to which the
                others send their items. So the processes of a flow write one file.
            on_error: what happens to an item that cannot be encoded, that is too large, or that the
                destination refuses: ``"fail"`` ends the flow with an error that names it, ``"skip"`` skips it
                with a warning in the log, and :class:`millstream.dead_letter` sends an item that cannot be
                encoded to a sink besides. What the destination refuses is skipped with ``dead_letter`` too:
                the warning has its number and the reason.

        Raises:
            FlowUsageError: the name is empty or used twice, ``sink`` is no sink, or ``on_error`` is given
                with a :class:`millstream.Sink`, which encodes nothing.

        Example:
            >>> import millstream as ms
            >>> flow, out = ms.Flow("example"), ms.testing.collect()
            >>> flow.source("in", ms.testing.items([1, 2])).sink("out", out)
            >>> _ = ms.run(flow)
            >>> out
            [1, 2]
        """
        check_name("sink", name, sink)
        self._pipe.sink(name, sink, gather, on_error)
