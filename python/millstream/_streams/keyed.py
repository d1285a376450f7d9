"""Keyed streams: each value beside its key, and the steps that keep state for each key."""

from __future__ import annotations

from typing import Generic, overload

from .. import _kernels, _logic, _millstream, _revival, _states
from .._durations import nanos
from .._errors import FlowUsageError
from .._types import K_co, L_co, V_co
from . import window_options
from .joins import Joins
from .plain import Stream, callable_or_raise, calling, collecting, same_times
from .stateful import KeyedVerbs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable
    from typing import Any, Literal, TypeGuard

    from typing_extensions import TypeIs

    from .._durations import Seconds
    from .._revival import Aliases, Migrate
    from .._types import (
        A,
        Adds,
        AnySink,
        Compares,
        Emit,
        EndingLogic,
        EndingTimedLogic,
        Logic,
        R,
        S,
        TimedLogic,
        U,
    )
    from ..windows import Window, Windower
    from .plain import OnError
    from .windowed import Windows

__all__ = ["KeyedStream"]


def at_each(emit: str) -> bool:
    """True for ``"each"``, false for ``"end"``; anything else is a mistake."""
    if emit not in ("end", "each"):
        raise FlowUsageError(f'emit is "end" or "each", not {emit!r}')
    return emit == "each"


def named_or_raise(kind: str, name: object) -> None:
    """Raises for a step that keeps state and has no name."""
    if not isinstance(name, str) or not name:
        raise FlowUsageError(f"a {kind} step keeps state and needs a name")


class KeyedStream(Joins[K_co, V_co], KeyedVerbs[K_co, V_co]):
    """A stream whose values have a key beside them. The verbs of :class:`Stream` work on the values.

    Steps that keep state need a name that stays the same: state is found by it. Where ``emit`` is asked for,
    ``"end"`` gives the result of each key when all input has ended, ``"each"`` after each value.
    """

    __slots__ = ("_pipes", "_placed", "_timed")

    def __init__(self, pipes: list[_millstream.Pipe], placed: bool, timed: bool) -> None:
        # Several until they are brought together; placed: each item is on the worker of its key.
        self._pipes = pipes
        self._placed = placed
        self._timed = timed

    def _home(self) -> _millstream.Pipe:
        """The items on the workers of their keys, as one stream."""
        if self._placed:
            return self._pipes[0]
        return _millstream.Pipe.gather("exchange", "", self._pipes, True)

    def _joined(self) -> tuple[_millstream.Pipe, bool]:
        """The items as one stream, wherever they are; and whether they are at home."""
        if len(self._pipes) == 1:
            return self._pipes[0], self._placed
        return self._home(), True

    def _step(
        self, kind: str, shape: str, kernel: Any, name: str | None, on_error: OnError
    ) -> KeyedStream[K_co, Any]:
        pipe, placed = self._joined()
        return KeyedStream([pipe.step(kind, name or "", shape, kernel, on_error)], placed, self._timed)

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
        return KeyedStream([yes], placed, self._timed), KeyedStream([no], placed, self._timed)

    def merge(self, *others: KeyedStream[K_co, U]) -> KeyedStream[K_co, V_co | U]:
        """This stream and others as one. Order is kept within each of them.

        The streams keep their own types: a stateful function tells them apart with ``isinstance``.
        """
        for other in others:
            if not isinstance(other, KeyedStream):
                raise FlowUsageError(f"a keyed stream merges with keyed streams, not with {other!r}")
            same_times(self._timed, other._timed)
        streams = (self, *others)
        if any(stream._placed for stream in streams):
            homes = [stream._home() for stream in streams]
            return KeyedStream([_millstream.Pipe.gather("merge", "", homes, False)], True, self._timed)
        return KeyedStream([pipe for stream in streams for pipe in stream._pipes], False, self._timed)

    def _keep(self, kind: str, name: str, kernel: Any, on_error: OnError) -> KeyedStream[K_co, Any]:
        named_or_raise(kind, name)
        return KeyedStream([self._home().step(kind, name, "pairs", kernel, on_error)], True, False)

    @overload
    def stateful(
        self,
        name: str,
        logic: Callable[[], EndingTimedLogic[K_co, V_co, R]],
        state: None = None,
        on_error: OnError = "fail",
        ttl: Seconds | None = None,
        aliases: Aliases | None = None,
        migrate: Migrate | None = None,
    ) -> KeyedStream[K_co, R]: ...
    @overload
    def stateful(
        self,
        name: str,
        logic: Callable[[], EndingLogic[K_co, V_co, R]],
        state: None = None,
        on_error: OnError = "fail",
        ttl: Seconds | None = None,
        aliases: Aliases | None = None,
        migrate: Migrate | None = None,
    ) -> KeyedStream[K_co, R]: ...
    @overload
    def stateful(
        self,
        name: str,
        logic: Callable[[], TimedLogic[K_co, V_co, R]],
        state: None = None,
        on_error: OnError = "fail",
        ttl: Seconds | None = None,
        aliases: Aliases | None = None,
        migrate: Migrate | None = None,
    ) -> KeyedStream[K_co, R]: ...
    @overload
    def stateful(
        self,
        name: str,
        logic: Callable[[], Logic[K_co, V_co, R]],
        state: None = None,
        on_error: OnError = "fail",
        ttl: Seconds | None = None,
        aliases: Aliases | None = None,
        migrate: Migrate | None = None,
    ) -> KeyedStream[K_co, R]: ...
    @overload
    def stateful(
        self,
        name: str,
        logic: Callable[[S, V_co], R | None],
        state: Callable[[], S],
        on_error: OnError = "fail",
        ttl: Seconds | None = None,
        aliases: Aliases | None = None,
        migrate: Migrate | None = None,
    ) -> KeyedStream[K_co, R]: ...
    def stateful(
        self,
        name: str,
        logic: Callable[..., Any],
        state: Callable[[], Any] | None = None,
        on_error: OnError = "fail",
        ttl: Seconds | None = None,
        aliases: Aliases | None = None,
        migrate: Migrate | None = None,
    ) -> KeyedStream[K_co, Any]:
        """State of one's own for each key, in one of two ways.

        A *class*, or a function that makes an object: it is called without arguments for each key, at the
        key's first value. ``on_item(key, value)`` gives an iterable of outputs or None, and so does
        ``on_end(key)``, called when all input has ended, if it is there. A method that takes one argument
        more is given a :class:`millstream.KeyContext`, with which it sets timers; ``on_timer(key, at, ctx)``
        is called when one fires.

        A *function* ``(state, value)`` with ``state=``, which makes the state of a key, an object that the
        function changes in place. What it gives is the output; None is no output. The state keeps what the
        function did to it before it failed. A state that cannot be changed (a number, text, a tuple, a frozen
        dataclass) is refused: :meth:`stateful_map` takes a function that returns the new state.

        ``ttl``: a key that has had no value for so long is forgotten; in event time where the stream has it.

        ``aliases``, ``migrate``: what becomes of saved states when their class has changed. ``aliases`` are
        names that the class had, or a mapping from such names to classes; ``migrate(state)`` is called with
        each saved state when a run begins, and returns the state to go on with. It may be called again with
        what it has returned.

        >>> import millstream as ms
        >>> def longest(state: dict, word: str) -> str | None:
        ...     if len(word) > len(state.get("word", "")):
        ...         state["word"] = word
        ...         return word
        >>> flow, out = ms.Flow("longest"), ms.testing.collect()
        >>> words = flow.source("words", ms.testing.items(["ab", "a", "ba", "abc"]))
        >>> keyed = words.key_by(lambda word: word[0])
        >>> keyed.stateful("longest", longest, state=dict).values().sink("out", out)
        >>> _ = ms.run(flow)
        >>> out
        ['ab', 'ba', 'abc']
        """
        callable_or_raise("stateful", logic)
        named_or_raise("stateful", name)
        if state is not None:
            callable_or_raise("state=", state)
            _states.own_state_or_raise(name, state)
            _states.state_first_or_raise("stateful", logic, state)
            made = _revival.reviving(_states.changeable(name, state), state, aliases, migrate)
        else:
            _states.without_arguments_or_raise(logic)
            made = _revival.reviving(logic, logic, aliases, migrate)
        plain = state is not None or (isinstance(logic, type) and _logic.is_plain(logic))
        if plain and ttl is None and not self._timed:
            # Loops in Python beat calls from native code where time does not matter.
            tolerant = on_error != "fail"
            if state is None:
                return self._keep("stateful", name, _kernels.stateful_logic(made, tolerant), on_error)
            return self._keep("stateful", name, _kernels.stateful_function(logic, made, tolerant), on_error)
        life = None if ttl is None else nanos("ttl", ttl)
        function = None if state is None else logic
        pipe = self._home().stateful(name, made, function, False, self._timed, life, on_error)
        return KeyedStream([pipe], True, self._timed)

    @overload
    def stateful_map(
        self,
        name: str,
        f: Callable[[S | None, V_co], tuple[S | None, R]],
        state: None = None,
        on_error: OnError = "fail",
        ttl: Seconds | None = None,
        aliases: Aliases | None = None,
        migrate: Migrate | None = None,
    ) -> KeyedStream[K_co, R]: ...
    @overload
    def stateful_map(
        self,
        name: str,
        f: Callable[[S, V_co], tuple[S | None, R]],
        state: Callable[[], S],
        on_error: OnError = "fail",
        ttl: Seconds | None = None,
        aliases: Aliases | None = None,
        migrate: Migrate | None = None,
    ) -> KeyedStream[K_co, R]: ...
    def stateful_map(
        self,
        name: str,
        f: Callable[[Any, Any], tuple[Any, Any]],
        state: Callable[[], Any] | None = None,
        on_error: OnError = "fail",
        ttl: Seconds | None = None,
        aliases: Aliases | None = None,
        migrate: Migrate | None = None,
    ) -> KeyedStream[K_co, Any]:
        """One output for each value, by a function ``(state, value)`` that returns ``(new state, output)``.

        Args:
            name: the name of the step, by which its state is found again.
            f: the function. A new state of None forgets the key. The output is given as it is, None too.
            state: makes the state of a key that has none; without it the function is given None.
            on_error: what becomes of a value on which the function raises; the state stays as it was.
            ttl: a key that has had no value for so many seconds is forgotten; in event time where the stream
                has it.
            aliases: names that the class of saved states had, or a mapping from such names to classes.
            migrate: a function that makes of each saved state, when a run begins, the one to go on with.

        >>> import millstream as ms
        >>> def running(total: int, value: int) -> tuple[int, int]:
        ...     return total + value, total + value
        >>> flow, out = ms.Flow("totals"), ms.testing.collect()
        >>> sales = flow.source("sales", ms.testing.items([("a", 1), ("b", 5), ("a", 2)]))
        >>> keyed = sales.key_by(lambda sale: sale[0]).map(lambda sale: sale[1])
        >>> keyed.stateful_map("totals", running, state=int).sink("out", out)
        >>> _ = ms.run(flow)
        >>> out
        [('a', 1), ('b', 5), ('a', 3)]
        """
        callable_or_raise("stateful_map", f)
        named_or_raise("stateful_map", name)
        if state is not None:
            callable_or_raise("state=", state)
        _states.state_first_or_raise("stateful_map", f, state)
        life = None if ttl is None else nanos("ttl", ttl)
        made = _states.nothing if state is None else state
        make = _revival.reviving(made, made, aliases, migrate, strict=False)
        pipe = self._home().stateful(name, make, f, True, self._timed, life, on_error)
        return KeyedStream([pipe], True, self._timed)

    def window(
        self,
        name: str,
        window: Window | Windower,
        early: int | None = None,
        on_error: OnError = "fail",
        ordered: bool = False,
        watermark: Literal["partition", "key"] = "partition",
        lateness: Seconds = 0,
        patience: Seconds | None = None,
    ) -> Windows[K_co, V_co]:
        """Groups the values of each key into windows, made by ``ms.windows``, or by an object of one's
        own with the method of :class:`millstream.windows.Windower`; the verbs of
        :class:`millstream.Windows` say what becomes of them.

        ``early``: the result so far is given too, after every so many values of a window (of a pane, where
        windows slide).

        ``watermark="key"``: what is late, and when a window closes, is judged by the values of their
        own key: a value is late only if its key has seen one that is more than ``lateness`` seconds
        later. The windows of a key that goes silent stay open until the input ends, unless there is
        ``patience``: then they close once the watermark of the partitions is so many seconds past their end.

        ``ordered``: what is made of a window is made of its values in the order of their times, those of one
        time as they came, for first, last and differences. The values are kept until their window closes, in
        memory and in the saved state, instead of one accumulator, and are sorted then; the functions
        are called for a whole window at once when it closes, once for each window that slides, and
        again for each early result. A function that raises fails its window, not a value.

        >>> import millstream as ms
        >>> flow, out = ms.Flow("firsts"), ms.testing.collect()
        >>> prices = flow.source("prices", ms.testing.items([(3, "b"), (1, "a"), (12, "c")]))
        >>> keyed = prices.event_time(lambda price: price[0], lateness=10).key_by(lambda price: "all")
        >>> tens = keyed.window("tens", ms.windows.tumbling(10), ordered=True)
        >>> tens.reduce(lambda first, _: first).values().map(lambda first: first.value[1]).sink("out", out)
        >>> _ = ms.run(flow)
        >>> out
        ['a', 'c']
        """
        from .windowed import Windows

        named_or_raise("window", name)
        needs_times = window_options.checked_or_raise(window, early, watermark, lateness, patience)
        if not self._timed and needs_times:
            raise FlowUsageError(f"{window!r} needs times: put event_time or processing_time before key_by")
        if ordered and not self._timed:
            raise FlowUsageError("ordered=True needs times: put event_time before key_by")
        options = early or 0, ordered, window_options.per_key(watermark, lateness, patience)
        return Windows(self, name, window, options, on_error)

    def fold(
        self,
        name: str,
        init: Callable[[], A],
        f: Callable[[A, V_co], A],
        emit: Emit = "end",
        on_error: OnError = "fail",
        aliases: Aliases | None = None,
        migrate: Migrate | None = None,
    ) -> KeyedStream[K_co, A]:
        """``acc = f(acc, value)`` for each key, from ``init()``; ``aliases`` and ``migrate`` as for
        ``stateful``.
        """
        callable_or_raise("fold", init)
        callable_or_raise("fold", f)
        kernel = _kernels.aggregate(f, lambda value: f(init(), value), at_each(emit), on_error != "fail")
        if aliases is not None or migrate is not None:
            kernel = _kernels.revived(kernel, _revival.reviving(init, init, aliases, migrate, strict=False))
        return self._keep("fold", name, kernel, on_error)

    def reduce(
        self, name: str, f: Callable[[V_co, V_co], V_co], emit: Emit = "end", on_error: OnError = "fail"
    ) -> KeyedStream[K_co, V_co]:
        """The first value of each key, combined with the later ones by ``f``."""
        callable_or_raise("reduce", f)
        kernel = _kernels.aggregate(f, lambda value: value, at_each(emit), on_error != "fail")
        return self._keep("reduce", name, kernel, on_error)

    def count(self, emit: Emit = "end", name: str = "count") -> KeyedStream[K_co, int]:
        """How many values each key has.

        >>> import millstream as ms
        >>> flow, out = ms.Flow("letters"), ms.testing.collect()
        >>> flow.source("text", ms.testing.items("abracadabra")).key_by(str).count().sink("out", out)
        >>> _ = ms.run(flow)
        >>> out
        [('a', 5), ('b', 2), ('r', 2), ('c', 1), ('d', 1)]
        """
        return self._keep("count", name, _kernels.count(at_each(emit)), "fail")

    @overload
    def sum(
        self: KeyedStream[K_co, bool], emit: Emit = "end", name: str = "sum", on_error: OnError = "fail"
    ) -> KeyedStream[K_co, int]: ...
    @overload
    def sum(
        self: KeyedStream[K_co, Adds], emit: Emit = "end", name: str = "sum", on_error: OnError = "fail"
    ) -> KeyedStream[K_co, V_co]: ...
    def sum(
        self, emit: Emit = "end", name: str = "sum", on_error: OnError = "fail"
    ) -> KeyedStream[K_co, Any]:
        """The sum of each key's values."""
        return self._keep("sum", name, _kernels.sum_values(at_each(emit), on_error != "fail"), on_error)

    def min(
        self: KeyedStream[K_co, Compares], emit: Emit = "end", name: str = "min", on_error: OnError = "fail"
    ) -> KeyedStream[K_co, V_co]:
        """The least of each key's values; the earlier of two equal ones."""

        def least(a: Any, b: Any) -> Any:
            return b if b < a else a

        kernel = _kernels.aggregate(least, lambda value: value, at_each(emit), on_error != "fail")
        return self._keep("min", name, kernel, on_error)

    def max(
        self: KeyedStream[K_co, Compares], emit: Emit = "end", name: str = "max", on_error: OnError = "fail"
    ) -> KeyedStream[K_co, V_co]:
        """The greatest of each key's values; the earlier of two equal ones."""

        def greatest(a: Any, b: Any) -> Any:
            return b if b > a else a

        kernel = _kernels.aggregate(greatest, lambda value: value, at_each(emit), on_error != "fail")
        return self._keep("max", name, kernel, on_error)

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
        return KeyedStream([pipe], True, False)

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
        return KeyedStream([pipe.ticking("map_async", name or "", make, on_error)], False, False)

    def items(self) -> Stream[tuple[K_co, V_co]]:
        """Keys and values as pairs."""
        return Stream(self._joined()[0].step("items", "", "unkey", _kernels.pairs, "fail"), self._timed)

    def values(self) -> Stream[V_co]:
        """The values without their keys."""
        return Stream(self._joined()[0].step("values", "", "unkey", _kernels.values, "fail"), self._timed)

    def sink(self, name: str, sink: AnySink[tuple[K_co, V_co]]) -> None:
        """Ends the stream in a sink, which is given pairs of key and value."""
        self.items().sink(name, sink)


class LateStream(KeyedStream[K_co, V_co], Generic[K_co, V_co, L_co]):
    """What comes out of a window or a join; ``late`` are the values that came too late for it."""

    __slots__ = ("late",)

    def __init__(self, pipes: list[_millstream.Pipe], timed: bool, late: list[_millstream.Pipe]) -> None:
        super().__init__(pipes, True, timed)
        self.late: KeyedStream[K_co, L_co] = KeyedStream(late, True, timed)
