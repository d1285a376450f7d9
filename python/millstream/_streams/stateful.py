"""The verbs of keyed streams that keep a user's state for each key, and windows."""

from __future__ import annotations

from typing import Any, overload

from .._errors.flow import FlowUsageError
from .._values import revival as _revival, states as _states
from .._values.durations import nanos
from .._values.types import K_co, V_co
from . import kernels as _kernels, logic as _logic, window_options
from .arguments import callable_or_raise, named_or_raise
from .base import KeyedBase
from .batches import stateful_batch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Literal

    from .._values.durations import Seconds
    from .._values.revival import Aliases, Migrate
    from .._values.types import (
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
    from .streams import KeyedStream, LateStream, Windows


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
        *,
        ordered: Literal[False] = False,
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
        *,
        ordered: Literal[False] = False,
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
        *,
        ordered: Literal[False] = False,
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
        *,
        ordered: Literal[False] = False,
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
        *,
        ordered: Literal[False] = False,
    ) -> KeyedStream[K_co, R]: ...
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
        *,
        ordered: Literal[True],
    ) -> LateStream[K_co, R, V_co]: ...
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
        *,
        ordered: Literal[True],
    ) -> LateStream[K_co, R, V_co]: ...
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
        *,
        ordered: Literal[True],
    ) -> LateStream[K_co, R, V_co]: ...
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
        *,
        ordered: Literal[True],
    ) -> LateStream[K_co, R, V_co]: ...
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
        *,
        ordered: Literal[True],
    ) -> LateStream[K_co, R, V_co]: ...
    def stateful(
        self,
        name: str,
        logic: Callable[..., Any],
        state: Callable[[], Any] | None = None,
        on_error: OnError = "fail",
        ttl: Seconds | None = None,
        aliases: Aliases | None = None,
        migrate: Migrate | None = None,
        *,
        ordered: bool = False,
    ) -> KeyedStream[K_co, Any]:
        """Keeps a state of your own for each key.

        ``logic`` is one of two things:

        - A *class*, or a function that makes an object. It is called without arguments at the first value
          of a key. ``on_item(key, value)`` returns an iterable of outputs or None, and so does the optional
          ``on_end(key)``, which is called when all input has ended. A method that takes one argument more
          receives a :class:`millstream.KeyContext`, with which it sets timers; ``on_timer(key, at, ctx)``
          is called when a timer fires.
        - A *function* ``(state, value)``, with ``state=``. It changes the state in place and returns an
          output, or None for no output. If it raises, the state keeps the changes that it has made. A state
          that cannot be changed (a number, text, a tuple, a frozen dataclass) is an error: use
          :meth:`stateful_map`.

        Args:
            name: the name of the step; saved state is found by it, so it must stay the same.
            logic: the class or function.
            state: makes the state of a key, where ``logic`` is a function.
            on_error: what happens to a value on which ``logic`` raises.
            ttl: the time after which a key without values is forgotten; in event time where
                the stream has times. None keeps every key.
            aliases: names that the class of saved states had before, or a mapping from such names to
                classes.
            migrate: a function that is called with each saved state when a run begins, and returns the
                state to continue with. It may be called again with its own result.
            ordered: each key receives its values in the order of their times: a value waits until the
                watermark has passed it. Then the output does not depend on which partition, branch or
                merged stream was faster, except between values of one time. It needs ``event_time``.

        Returns:
            The keyed stream of the outputs; with ``ordered=True`` its attribute ``late`` is the stream of the
            values that came after the watermark had passed them.

        Raises:
            FlowUsageError: the step has no name, ``logic`` and ``state`` do not fit together, or
                ``ordered=True`` in a stream without times.

        Example:
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
        if plain and ttl is None and not self._timed and not ordered:
            # Loops in Python beat calls from native code where time does not matter.
            tolerant = on_error != "fail"
            if state is None:
                kernel = _kernels.stateful_logic(made, tolerant)
            else:
                kernel = _kernels.stateful_function(logic, made, tolerant)
            return self._keep("stateful", name, kernel, on_error, in_order=True)
        life = None if ttl is None else nanos("ttl", ttl)
        function = None if state is None else logic
        return self._with_state(name, (made, function, False), ordered, life, on_error)

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
        *,
        ordered: Literal[False] = False,
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
        *,
        ordered: Literal[False] = False,
    ) -> KeyedStream[K_co, R]: ...
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
        *,
        ordered: Literal[True],
    ) -> LateStream[K_co, R, V_co]: ...
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
        *,
        ordered: Literal[True],
    ) -> LateStream[K_co, R, V_co]: ...
    def stateful_map(
        self,
        name: str,
        f: Callable[[Any, Any], tuple[Any, Any]],
        state: Callable[[], Any] | None = None,
        on_error: OnError = "fail",
        ttl: Seconds | None = None,
        aliases: Aliases | None = None,
        migrate: Migrate | None = None,
        *,
        ordered: bool = False,
    ) -> KeyedStream[K_co, Any]:
        """Makes one output of each value with a function ``(state, value)`` that returns ``(new state,
        output)``.

        Args:
            name: the name of the step; saved state is found by it, so it must stay the same.
            f: the function. A new state of None forgets the key. The output is emitted as it is, None too.
            state: makes the state of a key that has none; without it the function receives None.
            on_error: what happens to a value on which the function raises; the state stays as it was.
            ttl: the time after which a key without values is forgotten; in event time where
                the stream has times. None keeps every key.
            aliases: names that the class of saved states had before, or a mapping from such names to
                classes.
            migrate: a function that is called with each saved state when a run begins, and returns the
                state to continue with. It may be called again with its own result.
            ordered: each key receives its values in the order of their times: a value waits until the
                watermark has passed it. Then the output does not depend on which partition, branch or
                merged stream was faster, except between values of one time. It needs ``event_time``.

        Returns:
            The keyed stream of the outputs; with ``ordered=True`` its attribute ``late`` is the stream of the
            values that came after the watermark had passed them.

        Raises:
            FlowUsageError: the step has no name, ``f`` or ``state`` is not callable, or ``ordered=True`` in a
                stream without times.

        Example:
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
        return self._with_state(name, (make, f, True), ordered, life, on_error)

    def _with_state(
        self,
        name: str,
        logic: tuple[Callable[[], Any], Callable[..., Any] | None, bool],
        ordered: bool,
        life: int | None,
        on_error: OnError,
    ) -> KeyedStream[K_co, Any]:
        if ordered and not self._timed:
            raise FlowUsageError(f'step "{name}": ordered=True needs times: put event_time before key_by')
        times = self._timed, ordered
        results, late = self._home().stateful("stateful", name, *logic, times, life, on_error)
        return (
            self._new_late(results, self._timed, late)
            if ordered
            else self._new_keyed([results], True, self._timed)
        )

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
        """Keeps a state for each key, like ``stateful``, and is called once with all values of a key in a
        batch.

        A class has ``on_batch(key, values)`` instead of ``on_item(key, value)``, with an optional context
        as third argument, and may have ``on_end`` and ``on_timer``; a function is ``(state, values)``. How
        many values a batch has depends on the source and on how fast its input arrives: results that depend
        on it may differ after a crash. After ``event_time`` a list has the latest time of its values.

        Args:
            name: the name of the step; saved state is found by it, so it must stay the same.
            logic: the class or function.
            state: makes the state of a key, where ``logic`` is a function.
            on_error: what happens to all values of the key in the batch if ``logic`` raises.
            ttl: the time after which a key without values is forgotten; in event time where
                the stream has times. None keeps every key.

        Returns:
            The keyed stream of the outputs.

        Raises:
            FlowUsageError: the step has no name, or ``logic`` and ``state`` do not fit together.

        Example:
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
        """Groups the values of each key into windows.

        The verbs of :class:`millstream.Windows` make results of the windows. With ``ordered=True`` the
        values themselves are kept until their window closes, in memory and in the saved state, instead of
        one accumulator. They are sorted then, and the functions are called for a whole window at once: once
        for each window that slides, and again for each early result. A value on which a function raises is
        handled when the window closes, once for each window that has it.

        Args:
            name: the name of the step; saved state is found by it, so it must stay the same.
            window: windows of ``ms.windows``, or an object with the method of
                :class:`millstream.windows.Windower`.
            early: emits the result so far, too, after every so many values of a window (of a pane, where
                windows slide).
            on_error: what happens to a value, or a window, on which a function raises.
            ordered: makes results of the values in the order of their times; values of the same time keep
                their order of arrival.
            watermark: ``"partition"`` judges lateness by the watermark of the source; ``"key"`` by the
                values of the same key alone.
            lateness: with ``watermark="key"``: how many seconds a value may be older than the newest value
                of its key.
            patience: with ``watermark="key"``: the windows of a silent key close when the watermark of the
                partitions is so many seconds past their end. None: they stay open until the input ends.

        Returns:
            The windows, with the verbs that make results of them.

        Raises:
            FlowUsageError: the step has no name, the stream has no times, or an option does not fit.

        Example:
            >>> import millstream as ms
            >>> flow, out = ms.Flow("firsts"), ms.testing.collect()
            >>> prices = flow.source("prices", ms.testing.items([(3, "b"), (1, "a"), (12, "c")]))
            >>> keyed = prices.event_time(lambda price: price[0], lateness=10).key_by(lambda price: "all")
            >>> tens = keyed.window("tens", ms.windows.tumbling(10), ordered=True)
            >>> firsts = tens.reduce(lambda first, _: first).values()
            >>> firsts.map(lambda first: first.value[1]).sink("out", out)
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
