"""Flows and streams: the fluent API.

A flow is described once and run any number of times. Each verb gives a new stream; nothing happens before
:func:`millstream.run`. A mistake in the description raises at the call that makes it.
"""

from __future__ import annotations

from typing import Generic, overload

from .. import _kernels, _millstream
from .._durations import nanos
from .._errors import FlowUsageError
from .._types import T_co
from .misplaced import Verbs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable
    from os import PathLike
    from typing import Any, Literal, TypeAlias, TypeGuard

    from typing_extensions import TypeIs

    from .._clocks import Clock
    from .._durations import Seconds
    from .._errors import dead_letter
    from .._handle import Running
    from .._types import AnySink, AnySource, K, Time, U, W
    from .keyed import KeyedStream

    OnError: TypeAlias = "Literal['fail', 'skip'] | dead_letter"

__all__ = ["Flow", "Stream"]


def callable_or_raise(verb: str, f: object) -> None:
    """Raises when ``f``, given to ``verb``, is no function."""
    if not callable(f):
        raise FlowUsageError(f"{verb} takes a function, not {f!r}")


def same_times(one: bool, other: bool) -> None:
    """Raises when only one of two streams has times."""
    if one != other:
        raise FlowUsageError("a stream behind event_time merges only with streams behind event_time")


def collecting(most: int, wait: Seconds | None) -> tuple[int, int | None]:
    """What ``collect`` is told: how many values, and how many nanoseconds."""
    if not isinstance(most, int) or most < 1:
        raise FlowUsageError(f"max is a number of values, 1 or more, not {most!r}")
    return most, None if wait is None else nanos("wait", wait)


def calling(
    f: Any, concurrency: int, ordered: bool, timeout: Seconds | None, retries: int, pause: Seconds
) -> Callable[[], Any]:
    """What makes the step ``map_async`` on a worker."""
    from .._async_calls import MapAsync

    callable_or_raise("map_async", f)
    if not isinstance(concurrency, int) or concurrency < 1:
        raise FlowUsageError(f"concurrency is a number of calls, 1 or more, not {concurrency!r}")
    if not isinstance(retries, int) or retries < 0:
        raise FlowUsageError(f"retries is a number of calls, 0 or more, not {retries!r}")
    limit = None if timeout is None else nanos("timeout", timeout) / 1e9
    first = nanos("retry_pause", pause, 0) / 1e9
    return lambda: MapAsync(f, concurrency, ordered, limit, retries, first)


class Flow(Verbs):
    """Sources, steps and sinks under a name.

    >>> import millstream as ms
    >>> flow, out = ms.Flow("squares"), ms.testing.collect()
    >>> flow.source("numbers", ms.testing.items([1, 2, 3])).map(lambda n: n * n).sink("out", out)
    >>> report = ms.run(flow)
    >>> out
    [1, 4, 9]
    """

    def __init__(self, name: str) -> None:
        self._flow = _millstream.Flow(name)

    @property
    def name(self) -> str:
        """The flow's name."""
        return self._flow.name

    def source(
        self, name: str, source: AnySource[U], on_error: OnError = "fail", batch_size: int | None = None
    ) -> Stream[U]:
        """Adds a source; ``on_error`` says what becomes of input that cannot be decoded.

        Sources are made by ``ms.tcp``, ``ms.files``, ``ms.generate`` and ``ms.testing``; own ones are
        subclasses of :class:`millstream.Source`. Steps see at most ``batch_size`` items at once, a number
        from 1; where it is None, as many as the source has at a time. Another value is a FlowUsageError.

        >>> import millstream as ms
        >>> flow, out = ms.Flow("pairs"), ms.testing.collect()
        >>> numbers = flow.source("numbers", ms.generate(lambda: range(9)), batch_size=2)
        >>> numbers.map_batch(lambda batch: [len(batch)]).sink("out", out)
        >>> _ = ms.run(flow)
        >>> max(out), sum(out)
        (2, 9)
        """
        if not name:
            raise FlowUsageError(f'flow "{self.name}": a source needs a name')
        return Stream(self._flow.source(name, source, on_error, batch_size))

    def start(
        self,
        workers: int = 1,
        spin: bool = False,
        clock: _millstream.VirtualClock | None = None,
        state: str | PathLike[str] | None = None,
        epoch: float = 1.0,
        sync: bool = True,
        drop_state: Iterable[str] = (),
        fresh: bool = False,
    ) -> Running:
        """Starts the flow on threads of its own, and gives what stops it and waits for it.

        The arguments are those of :func:`millstream.run`, and so are the errors.

        >>> import millstream as ms
        >>> flow, out = ms.Flow("ticks"), ms.testing.collect()
        >>> flow.source("ticks", ms.generate(lambda: iter(int, 1), rate=1000)).sink("out", out)
        >>> with flow.start() as running:
        ...     try:
        ...         report = running.wait(timeout=0.1)
        ...     except TimeoutError:
        ...         pass  # it has no end: the block stops it
        """
        from .._handle import Running
        from .._run import checked

        saving = checked(workers, state, epoch, sync, drop_state, fresh)
        return Running(_millstream.start(self._flow, workers, spin, clock, saving))

    def describe(self, format: Literal["text", "json", "mermaid"] = "text") -> str:
        """The graph of the flow.

        >>> import millstream as ms
        >>> flow = ms.Flow("f")
        >>> numbers = flow.source("in", ms.testing.items([]))
        >>> numbers.filter(bool, name="true").sink("out", ms.testing.collect())
        >>> print(flow.describe())
        flow f
          source    in (test script)
          filter    true from in
          sink      out (collected in a list) from true
        <BLANKLINE>
        """
        return self._flow.describe(format)

    def __repr__(self) -> str:
        return f"<flow {self.name}>"


class Stream(Verbs, Generic[T_co]):
    """A stream of objects. Steps take a function; ``name`` is what errors and metrics call the step.

    ``on_error`` is what happens to an item on which the function raises: ``"fail"`` ends the flow with a
    :class:`millstream.StepError`, ``"skip"`` counts it and goes on, ``ms.dead_letter(sink)`` sends it to a
    sink.
    """

    __slots__ = ("_pipe", "_timed")

    def __init__(self, pipe: _millstream.Pipe, timed: bool = False) -> None:
        self._pipe = pipe
        self._timed = timed

    def _step(
        self, kind: str, f: Any, make: Callable[[Any, bool], Any], name: str | None, on_error: OnError
    ) -> Stream[Any]:
        callable_or_raise(kind, f)
        tolerant = on_error != "fail"
        if self._timed and (tolerant or kind not in ("map", "inspect")):
            # Where a value may be left out, times are found again by position.
            kernel = _kernels.keyed(_kernels.PRODUCE[kind](f), tolerant)
            return Stream(self._pipe.step(kind, name or "", "produce", kernel, on_error), True)
        pipe = self._pipe.step(kind, name or "", "values", make(f, tolerant), on_error)
        return Stream(pipe, self._timed)

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
        return Stream(pipe, self._timed)

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
        return Stream(yes, self._timed), Stream(no, self._timed)

    def merge(self, *others: Stream[U]) -> Stream[T_co | U]:
        """This stream and others as one. Order is kept within each of them."""
        pipes = [self._pipe]
        for other in others:
            if not isinstance(other, Stream):
                raise FlowUsageError(f"a stream without keys merges with such streams, not with {other!r}")
            same_times(self._timed, other._timed)
            pipes.append(other._pipe)
        return Stream(_millstream.Pipe.gather("merge", "", pipes, False), self._timed)

    def redistribute(self) -> Stream[T_co]:
        """Deals the batches to the workers in turn, so that work on them is shared. Order is lost."""
        return Stream(self._pipe.redistribute(), self._timed)

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
        from .keyed import KeyedStream

        tolerant = on_error != "fail"
        if isinstance(f, str):
            kernel = _kernels.key_field(f, tolerant)
        else:
            callable_or_raise("key_by", f)
            kernel = _kernels.key_values(f, tolerant)
        pipe = self._pipe.step("key_by", name or "", "keys", kernel, on_error)
        return KeyedStream([pipe], False, self._timed)

    def event_time(
        self,
        f: Callable[[T_co], Time],
        lateness: Seconds = 0,
        idle: Seconds | None = None,
        name: str | None = None,
        on_error: OnError = "fail",
    ) -> Stream[T_co]:
        """Gives each item the time at which it happened, and lets event time follow the items.

        ``f`` gives a number of seconds since an epoch of your choice, or a datetime with a time zone. An item
        may be ``lateness`` seconds behind the latest one of its partition. A partition that has been silent
        for ``idle`` seconds no longer holds back the others; unless told otherwise they wait for it. Stands
        before the first ``merge``, ``redistribute`` and step that keeps state.

        >>> import millstream as ms
        >>> flow, out = ms.Flow("per minute"), ms.testing.collect()
        >>> readings = flow.source("readings", ms.testing.items([(1, "a"), (61, "a"), (62, "a")]))
        >>> timed = readings.event_time(lambda reading: reading[0])
        """
        callable_or_raise("event_time", f)
        kernel = _kernels.key_values(f, on_error != "fail")
        late, pause = nanos("lateness", lateness, 0), None if idle is None else nanos("idle", idle)
        return Stream(self._pipe.event_time(name or "", kernel, late, pause, on_error), True)

    def event_clock(
        self, make: Callable[[str], Clock], name: str | None = None, on_error: OnError = "fail"
    ) -> Stream[T_co]:
        """Gives each item the time that a clock of one's own tells, which also says how far event time
        has come.

        ``make`` is called with the name of each partition of the source and gives its clock, an object
        with the methods of :class:`millstream.Clock`. Stands before the first ``merge`` and ``key_by``,
        as ``event_time``.

        >>> import millstream as ms
        >>> class Marked:  # items are in order between marks, which say how far time has come
        ...     watermark = None
        ...     def on_item(self, item, now):
        ...         if item[1] == "mark":
        ...             self.watermark = item[0]
        ...         return item[0], self.watermark
        ...     def resume(self, watermark):
        ...         self.watermark = watermark
        >>> flow, out = ms.Flow("marks"), ms.testing.collect()
        >>> items = flow.source("items", ms.testing.items([(5, "a"), (3, "b"), (20, "mark"), (4, "c")]))
        >>> tens = items.event_clock(lambda partition: Marked()).key_by(lambda item: "k")
        >>> counts = tens.window("tens", ms.windows.tumbling(10)).count()
        >>> counts.values().map(lambda window: (window.start, window.value)).sink("out", out)
        >>> counts.late.values().sink("late", out)
        >>> _ = ms.run(flow)
        >>> sorted(out, key=str)
        [(0.0, 2), (20.0, 1), (4, 'c')]
        """
        callable_or_raise("event_clock", make)
        return Stream(self._pipe.event_clock(name or "", make, on_error), True)

    def processing_time(self, name: str | None = None) -> Stream[T_co]:
        """Gives each item the time at which it is read; time goes on without items."""
        return Stream(self._pipe.processing_time(name or ""), True)

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
        return Stream(self._pipe.collect(name, *collecting(max, wait), False))

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
        return Stream(self._pipe.ticking("map_async", name or "", make, on_error))

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
        from .lookups import enrich

        how = f, key, ttl, size, stale, retry, clock, name
        return Stream(enrich(self._pipe, self._timed, *how, on_error), self._timed)

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
        from .lookups import debug

        return Stream(debug(self._pipe, label, to), self._timed)

    def sink(self, name: str, sink: AnySink[T_co]) -> None:
        """Ends the stream in a sink. A stream may have several sinks."""
        if not name:
            raise FlowUsageError("a sink needs a name")
        self._pipe.sink(name, sink)
