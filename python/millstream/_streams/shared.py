"""The verbs of streams with and without keys besides those of ``steps``: lists, calls, lookups, sinks."""

from __future__ import annotations

from typing import Any, overload

from .. import _millstream
from .._values.types import Kind_co, T_co
from .arguments import calling, collecting
from .base import Base
from .lookups import debug, enrich
from .named import MISSING, check_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from .._values.durations import Seconds
    from .._values.types import AnyKey, AnySink, OnError, U, W
    from .base import Keyed, Plain, Same
    from .streams import KeyedStream, Stream


class SharedVerbs(Base[Kind_co, T_co]):
    """Verbs of both kinds of streams. The items of a keyed stream are its values."""

    __slots__ = ()

    @overload
    def merge(self: Plain[T_co], *others: Stream[U]) -> Stream[T_co | U]: ...
    @overload
    def merge(
        self: Keyed[AnyKey, T_co], *others: KeyedStream[AnyKey, U]
    ) -> KeyedStream[AnyKey, T_co | U]: ...
    def merge(self, *others: Any) -> Same:
        """Joins this stream and others into one. The order within each stream is kept.

        The streams keep their own types of items: a function tells them apart with ``isinstance``.

        Args:
            others: the other streams, all with keys or all without, as this one.

        Returns:
            One stream with the items of all.

        Raises:
            FlowUsageError: only some of the streams have keys, or only some have times.

        Example:
            >>> import millstream as ms
            >>> flow, out = ms.Flow("merged"), ms.testing.collect()
            >>> one, two = (flow.source(name, ms.testing.items([name])) for name in ("one", "two"))
            >>> one.merge(two).sink("out", out)
            >>> _ = ms.run(flow)
            >>> sorted(out)
            ['one', 'two']
        """
        return self._merged(others)

    @overload
    def collect(
        self: Plain[T_co], max: int, wait: Seconds | None = None, name: str = "collect"
    ) -> Stream[list[T_co]]: ...
    @overload
    def collect(
        self: Keyed[AnyKey, T_co], max: int, wait: Seconds | None = None, name: str = "collect"
    ) -> KeyedStream[AnyKey, list[T_co]]: ...
    def collect(self, max: int, wait: Seconds | None = None, name: str = "collect") -> Same:
        """Groups the items, in a keyed stream those of each key, into lists of at most ``max`` items.

        The lists have no times.

        Args:
            max: the number of items of a full list, 1 or more.
            wait: seconds of processing time or a timedelta after which a list that is not full is emitted,
                counted from its first item. None waits until it is full or the input ends.
            name: the name of the step; saved state is found by it, so it must stay the same.

        Returns:
            The stream of the lists.

        Raises:
            FlowUsageError: ``max`` or ``wait`` is out of range.

        Example:
            >>> import millstream as ms
            >>> flow, out = ms.Flow("lists"), ms.testing.collect()
            >>> numbers = flow.source("numbers", ms.testing.items(range(5)))
            >>> numbers.collect(max=2).sink("out", out)
            >>> _ = ms.run(flow)
            >>> out
            [[0, 1], [2, 3], [4]]
            >>> flow, out = ms.Flow("lists of keys"), ms.testing.collect()
            >>> numbers = flow.source("numbers", ms.testing.items(range(5)))
            >>> numbers.key_by(lambda n: n % 2).collect(max=2).sink("out", out)
            >>> _ = ms.run(flow)
            >>> out
            [(0, [0, 2]), (1, [1, 3]), (0, [4])]
        """
        lists = collecting(max, wait)
        pipe = self._home().collect(name, *lists, self._keyed)
        return self._same(pipe, True, False)

    @overload
    def map_async(
        self: Plain[T_co],
        f: Callable[[T_co], Coroutine[Any, Any, U]],
        concurrency: int = 16,
        ordered: bool = True,
        timeout: Seconds | None = None,
        retries: int = 0,
        retry_pause: Seconds = 0.1,
        name: str | None = None,
        on_error: OnError = "fail",
    ) -> Stream[U]: ...
    @overload
    def map_async(
        self: Keyed[AnyKey, T_co],
        f: Callable[[T_co], Coroutine[Any, Any, U]],
        concurrency: int = 16,
        ordered: bool = True,
        timeout: Seconds | None = None,
        retries: int = 0,
        retry_pause: Seconds = 0.1,
        name: str | None = None,
        on_error: OnError = "fail",
    ) -> KeyedStream[AnyKey, U]: ...
    def map_async(
        self,
        f: Callable[[Any], Coroutine[Any, Any, Any]],
        concurrency: int = 16,
        ordered: bool = True,
        timeout: Seconds | None = None,
        retries: int = 0,
        retry_pause: Seconds = 0.1,
        name: str | None = None,
        on_error: OnError = "fail",
    ) -> Same:
        """Makes one item of each item with an asyncio function, for example a request to another system.

        When ``concurrency`` calls are running, the flow waits: that is its back-pressure. The results have
        no times. Calls that had not finished at a crash are made again.

        Args:
            f: an asyncio function that is called with each item.
            concurrency: how many calls run at once at most.
            ordered: True emits results in the order of their items, False as they finish.
            timeout: the time after which a call has failed. None waits without a limit.
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
        pipe, _ = self._joined()
        # What is asked again after a crash may be on another worker than that of its key.
        return self._same(pipe.ticking("map_async", name or "", make, on_error), False, False)

    @overload
    def enrich_cached(
        self: Plain[T_co],
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
        self: Plain[T_co],
        f: Callable[[W], U],
        key: Callable[[T_co], W] | str,
        ttl: Seconds | None = None,
        size: int = 10_000,
        stale: Seconds = 0,
        retry: Seconds = 1,
        name: str | None = None,
        on_error: OnError = "fail",
    ) -> Stream[tuple[T_co, U]]: ...
    @overload
    def enrich_cached(
        self: Keyed[AnyKey, T_co],
        f: Callable[[T_co], U],
        key: None = None,
        ttl: Seconds | None = None,
        size: int = 10_000,
        stale: Seconds = 0,
        retry: Seconds = 1,
        name: str | None = None,
        on_error: OnError = "fail",
    ) -> KeyedStream[AnyKey, tuple[T_co, U]]: ...
    @overload
    def enrich_cached(
        self: Keyed[AnyKey, T_co],
        f: Callable[[W], U],
        key: Callable[[T_co], W] | str,
        ttl: Seconds | None = None,
        size: int = 10_000,
        stale: Seconds = 0,
        retry: Seconds = 1,
        name: str | None = None,
        on_error: OnError = "fail",
    ) -> KeyedStream[AnyKey, tuple[T_co, U]]: ...
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
    ) -> Same:
        """Pairs each item with the answer that ``f`` returns for it, and caches the answers.

        Each worker has a cache of its own. The worker waits for ``f``; ``map_async`` makes many slow calls
        at once. The cache is not saved: after a crash ``f`` is called again.

        Args:
            f: is called with the item, or with what ``key`` returns for it.
            key: a function that returns the hashable question that an item asks, or the name of a field.
                None: the item itself.
            ttl: the time, by the clock of the run, after which an answer is asked for again.
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
        pipe, placed = self._joined()
        how = f, key, ttl, size, stale, retry, name
        pipe = enrich(pipe, self._keyed or self._timed, *how, on_error)
        return self._same(pipe, placed, self._timed)

    @overload
    def inspect_debug(
        self: Plain[T_co], label: str, to: Callable[[str], object] | None = None
    ) -> Stream[T_co]: ...
    @overload
    def inspect_debug(
        self: Keyed[AnyKey, T_co], label: str, to: Callable[[str], object] | None = None
    ) -> KeyedStream[AnyKey, T_co]: ...
    def inspect_debug(self, label: str, to: Callable[[str], object] | None = None) -> Same:
        """Writes one line for each item and passes the item on unchanged.

        A line is ``LABEL epoch=E worker=W: ITEM``, with keys ``LABEL epoch=E worker=W key=K: ITEM``. The
        epoch is that of the commit to which the item belongs, ``-`` without a state directory.

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
            >>> flow, lines, more = ms.Flow("debug"), [], []
            >>> numbers = flow.source("numbers", ms.testing.items([1, 2]))
            >>> seen = numbers.inspect_debug("seen", to=lines.append)
            >>> seen.key_by(str).inspect_debug("keyed", to=more.append).sink("out", ms.testing.collect())
            >>> _ = ms.run(flow)
            >>> lines, more[0]
            (['seen epoch=- worker=0: 1', 'seen epoch=- worker=0: 2'], "keyed epoch=- worker=0 key='1': 1")
        """
        pipe, placed = self._joined()
        return self._same(debug(pipe, label, to), placed, self._timed)

    @overload
    def sink(
        self: Plain[T_co],
        name: str,
        sink: AnySink[T_co] = MISSING,
        gather: bool = False,
        on_error: OnError = "fail",
    ) -> None: ...
    @overload
    def sink(
        self: Keyed[AnyKey, T_co],
        name: str,
        sink: AnySink[tuple[AnyKey, T_co]] = MISSING,
        gather: bool = False,
        on_error: OnError = "fail",
    ) -> None: ...
    def sink(
        self, name: str, sink: AnySink[Any] = MISSING, gather: bool = False, on_error: OnError = "fail"
    ) -> None:
        """Ends the stream in a sink, which receives pairs of key and item where there are keys.

        A stream may have several sinks.

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
            >>> flow, out, pairs = ms.Flow("example"), ms.testing.collect(), ms.testing.collect()
            >>> numbers = flow.source("in", ms.testing.items([1, 2]))
            >>> numbers.sink("out", out)
            >>> numbers.key_by(str).sink("pairs", pairs)
            >>> _ = ms.run(flow)
            >>> out, pairs
            ([1, 2], [('1', 1), ('2', 2)])
        """
        check_name("sink", name, sink)
        _millstream.Pipe.check_sink(sink, on_error)
        self._unkeyed().sink(name, sink, gather, on_error)
