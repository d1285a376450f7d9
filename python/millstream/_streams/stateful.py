"""The verbs of keyed streams that keep a user's state for each key, and windows."""

from __future__ import annotations

from typing import Any, overload

from .. import _kernels, _logic, _revival, _states
from .._durations import nanos
from .._errors import FlowUsageError
from .._types import K_co, V_co
from . import window_options
from .arguments import callable_or_raise, named_or_raise
from .base import KeyedBase
from .batches import stateful_batch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Literal

    from .._durations import Seconds
    from .._revival import Aliases, Migrate
    from .._types import (
        BatchLogic,
        EndingBatchLogic,
        EndingLogic,
        EndingTimedBatchLogic,
        EndingTimedLogic,
        Logic,
        OnError,
        R,
        S,
        TimedBatchLogic,
        TimedLogic,
    )
    from ..windows import Window, Windower
    from .base import KeyedBase
    from .streams import KeyedStream, Windows


__all__ = ["StatefulVerbs"]


class StatefulVerbs(KeyedBase[K_co, V_co]):
    """The verbs of :class:`KeyedStream` with state of the user's own."""

    __slots__ = ()

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
        return self._new_keyed([pipe], True, self._timed)

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
        return self._new_keyed([pipe], True, self._timed)

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
        return stateful_batch(self, name, logic, state, on_error, ttl)

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
        named_or_raise("window", name)
        needs_times = window_options.checked_or_raise(window, early, watermark, lateness, patience)
        if not self._timed and needs_times:
            raise FlowUsageError(f"{window!r} needs times: put event_time or processing_time before key_by")
        if ordered and not self._timed:
            raise FlowUsageError("ordered=True needs times: put event_time before key_by")
        options = early or 0, ordered, window_options.per_key(watermark, lateness, patience)
        return self._new_windows(name, window, options, on_error)
