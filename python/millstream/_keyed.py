"""Keyed streams: each value beside its key, and the steps that keep state for each key."""

from __future__ import annotations

from . import _kernels, _logic, _millstream
from ._errors import FlowUsageError
from ._flow import Stream, callable_or_raise, same_times
from ._time import nanos

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any, Literal

    from ._flow import OnError
    from ._time import Seconds
    from ._windowed import Windows
    from .windows import Window

    Emit = Literal["end", "each"]

__all__ = ["KeyedStream"]


def at_each(emit: str) -> bool:
    """True for ``"each"``, false for ``"end"``; anything else is a mistake."""
    if emit not in ("end", "each"):
        raise FlowUsageError(f'emit is "end" or "each", not {emit!r}')
    return emit == "each"


def without_arguments_or_raise(logic: Callable[..., Any]) -> None:
    """Raises when what is to make the logic of a key cannot be called for that."""
    from inspect import signature

    try:
        signature(logic).bind()
    except TypeError:
        name = getattr(logic, "__name__", repr(logic))
        raise FlowUsageError(
            f"stateful calls {name} without arguments, which it does not take; "
            "a function (state, value) needs state="
        ) from None
    except ValueError:
        return  # a builtin that does not tell


def named_or_raise(kind: str, name: object) -> None:
    """Raises for a step that keeps state and has no name."""
    if not isinstance(name, str) or not name:
        raise FlowUsageError(f"a {kind} step keeps state and needs a name")


class KeyedStream:
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

    def _step(self, kind: str, shape: str, kernel: Any, name: str | None, on_error: OnError) -> KeyedStream:
        pipe, placed = self._joined()
        return KeyedStream([pipe.step(kind, name or "", shape, kernel, on_error)], placed, self._timed)

    def _produce(
        self, kind: str, f: Callable[[Any], Any], name: str | None, on_error: OnError
    ) -> KeyedStream:
        callable_or_raise(kind, f)
        kernel = _kernels.keyed(_kernels.PRODUCE[kind](f), on_error != "fail")
        return self._step(kind, "produce", kernel, name, on_error)

    def map(
        self, f: Callable[[Any], Any], name: str | None = None, on_error: OnError = "fail"
    ) -> KeyedStream:
        """One value out for each value in."""
        if on_error == "fail":
            callable_or_raise("map", f)
            return self._step("map", "values", _kernels.map_values(f, False), name, on_error)
        return self._produce("map", f, name, on_error)

    def filter(
        self, f: Callable[[Any], object], name: str | None = None, on_error: OnError = "fail"
    ) -> KeyedStream:
        """The values for which ``f`` is true."""
        return self._produce("filter", f, name, on_error)

    def flat_map(
        self, f: Callable[[Any], Iterable[Any]], name: str | None = None, on_error: OnError = "fail"
    ) -> KeyedStream:
        """Any number of values out for each value in."""
        return self._produce("flat_map", f, name, on_error)

    def filter_map(
        self, f: Callable[[Any], Any | None], name: str | None = None, on_error: OnError = "fail"
    ) -> KeyedStream:
        """As ``map``, but nothing comes out where ``f`` gives None."""
        return self._produce("filter_map", f, name, on_error)

    def inspect(
        self, f: Callable[[Any], object], name: str | None = None, on_error: OnError = "fail"
    ) -> KeyedStream:
        """Calls ``f`` with each value, which goes on as it is."""
        return self._produce("inspect", f, name, on_error)

    def map_batch(
        self, f: Callable[[list[Any]], list[Any]], name: str | None = None, on_error: OnError = "fail"
    ) -> KeyedStream:
        """The values of a whole batch at once; ``f`` gives as many as it is given, or none."""
        callable_or_raise("map_batch", f)
        return self._step("map_batch", "batch", _kernels.batch(f), name, on_error)

    def branch(
        self, f: Callable[[Any], object], name: str | None = None, on_error: OnError = "fail"
    ) -> tuple[KeyedStream, KeyedStream]:
        """Two streams: the values for which ``f`` is true, and the others; one nobody reads is dropped."""
        callable_or_raise("branch", f)
        pipe, placed = self._joined()
        yes, no = pipe.divide(name or "", _kernels.judge(f, on_error != "fail"), on_error)
        return KeyedStream([yes], placed, self._timed), KeyedStream([no], placed, self._timed)

    def merge(self, *others: KeyedStream) -> KeyedStream:
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

    def _keep(self, kind: str, name: str, kernel: Any, on_error: OnError) -> KeyedStream:
        named_or_raise(kind, name)
        return KeyedStream([self._home().step(kind, name, "pairs", kernel, on_error)], True, False)

    def stateful(
        self,
        name: str,
        logic: Callable[..., Any],
        state: Callable[[], Any] | None = None,
        on_error: OnError = "fail",
        ttl: Seconds | None = None,
    ) -> KeyedStream:
        """State of one's own for each key, in one of two ways.

        A *class*, or a function that makes an object: it is called without arguments for each key, at the
        key's first value. ``on_item(key, value)`` gives an iterable of outputs or None, and so does
        ``on_end(key)``, called when all input has ended, if it is there. A method that takes one argument
        more is given a :class:`millstream.KeyContext`, with which it sets timers; ``on_timer(key, at, ctx)``
        is called when one fires.

        A *function* ``(state, value)`` with ``state=``, which makes the state of a key, an object that the
        function changes. What it gives is the output; None is no output. The state keeps what the function
        did to it before it failed.

        ``ttl``: a key that has had no value for so long is forgotten; in event time where the stream has it.

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
        else:
            without_arguments_or_raise(logic)
        plain = state is not None or (isinstance(logic, type) and _logic.is_plain(logic))
        if plain and ttl is None and not self._timed:
            # Loops in Python beat calls from native code where time does not matter.
            tolerant = on_error != "fail"
            if state is None:
                return self._keep("stateful", name, _kernels.stateful_logic(logic, tolerant), on_error)
            return self._keep("stateful", name, _kernels.stateful_function(logic, state, tolerant), on_error)
        life = None if ttl is None else nanos("ttl", ttl)
        make, function = (logic, None) if state is None else (state, logic)
        pipe = self._home().stateful(name, make, function, self._timed, life, on_error)
        return KeyedStream([pipe], True, self._timed)

    def window(
        self, name: str, window: Window, early: int | None = None, on_error: OnError = "fail"
    ) -> Windows:
        """Groups the values of each key into windows, made by ``ms.windows``; the verbs of
        :class:`millstream.Windows` say what becomes of them.

        ``early``: the result so far is given too, after every so many values of a window (of a pane, where
        windows slide).
        """
        from ._windowed import Windows
        from .windows import Window

        named_or_raise("window", name)
        if not isinstance(window, Window):
            raise FlowUsageError(f"window takes a window made by ms.windows, not {window!r}")
        if not self._timed and window._kind != "count":
            raise FlowUsageError(f"{window!r} needs times: put event_time or processing_time before key_by")
        if early is not None and (not isinstance(early, int) or early < 1):
            raise FlowUsageError(f"early is a number of values, 1 or more, not {early!r}")
        return Windows(self, name, window, early, on_error)

    def fold(
        self,
        name: str,
        init: Callable[[], Any],
        f: Callable[[Any, Any], Any],
        emit: Emit = "end",
        on_error: OnError = "fail",
    ) -> KeyedStream:
        """``acc = f(acc, value)`` for each key, from ``init()``."""
        callable_or_raise("fold", init)
        callable_or_raise("fold", f)
        kernel = _kernels.aggregate(f, lambda value: f(init(), value), at_each(emit), on_error != "fail")
        return self._keep("fold", name, kernel, on_error)

    def reduce(
        self, name: str, f: Callable[[Any, Any], Any], emit: Emit = "end", on_error: OnError = "fail"
    ) -> KeyedStream:
        """The first value of each key, combined with the later ones by ``f``."""
        callable_or_raise("reduce", f)
        kernel = _kernels.aggregate(f, lambda value: value, at_each(emit), on_error != "fail")
        return self._keep("reduce", name, kernel, on_error)

    def count(self, emit: Emit = "end", name: str = "count") -> KeyedStream:
        """How many values each key has.

        >>> import millstream as ms
        >>> flow, out = ms.Flow("letters"), ms.testing.collect()
        >>> flow.source("text", ms.testing.items("abracadabra")).key_by(str).count().sink("out", out)
        >>> _ = ms.run(flow)
        >>> out
        [('a', 5), ('b', 2), ('r', 2), ('c', 1), ('d', 1)]
        """
        return self._keep("count", name, _kernels.count(at_each(emit)), "fail")

    def sum(self, emit: Emit = "end", name: str = "sum", on_error: OnError = "fail") -> KeyedStream:
        """The sum of each key's values."""
        return self._keep("sum", name, _kernels.sum_values(at_each(emit), on_error != "fail"), on_error)

    def min(self, emit: Emit = "end", name: str = "min", on_error: OnError = "fail") -> KeyedStream:
        """The least of each key's values; the earlier of two equal ones."""

        def least(a: Any, b: Any) -> Any:
            return b if b < a else a

        kernel = _kernels.aggregate(least, lambda value: value, at_each(emit), on_error != "fail")
        return self._keep("min", name, kernel, on_error)

    def max(self, emit: Emit = "end", name: str = "max", on_error: OnError = "fail") -> KeyedStream:
        """The greatest of each key's values; the earlier of two equal ones."""

        def greatest(a: Any, b: Any) -> Any:
            return b if b > a else a

        kernel = _kernels.aggregate(greatest, lambda value: value, at_each(emit), on_error != "fail")
        return self._keep("max", name, kernel, on_error)

    def items(self) -> Stream:
        """Keys and values as pairs."""
        return Stream(self._joined()[0].step("items", "", "unkey", _kernels.pairs, "fail"), self._timed)

    def values(self) -> Stream:
        """The values without their keys."""
        return Stream(self._joined()[0].step("values", "", "unkey", _kernels.values, "fail"), self._timed)

    def sink(self, name: str, sink: object) -> None:
        """Ends the stream in a sink, which is given pairs of key and value."""
        self.items().sink(name, sink)
