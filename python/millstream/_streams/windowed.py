"""The verbs of windows: one result of the values of each."""

from __future__ import annotations

from typing import Any, Generic, overload

from .._errors.flow import FlowUsageError
from .._values import revival as _revival, text_values as _text_values
from .._values.types import K_co, V_co
from . import agg as _agg
from .arguments import callable_or_raise, reading
from .base import StreamMakers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from .._values.revival import Aliases, Migrate
    from .._values.types import (
        A,
        Adds,
        C,
        Compares,
        N,
        OnError,
        R,
    )
    from ..windows import Bounds, Window, Windowed, Windower
    from .agg import Aggregate
    from .streams import KeyedStream, LateStream


class WindowVerbs(StreamMakers, Generic[K_co, V_co]):
    """The verbs of :class:`Windows`."""

    __slots__ = ("_described", "_name", "_on_error", "_source", "_window", "_windower")

    def __init__(
        self,
        stream: KeyedStream[K_co, V_co],
        name: str,
        window: Window | Windower,
        options: tuple[int, bool, tuple[int, int | None] | None],
        on_error: OnError,
    ) -> None:
        from ..windows import Described, Window

        self._source = stream
        self._name = name
        self._window = window
        self._on_error = on_error
        if isinstance(window, Window):
            self._described = Described(window._kind, window._numbers, *options)
            self._windower = None
        else:
            self._described = Described("chosen", (0, 0, 0), *options)
            self._windower = window

    def _make(self, kind: str, *functions: Callable[..., Any] | None) -> LateStream[K_co, Any, Any]:
        stream = self._source
        outcome = stream._home().window(
            self._name, self._described, self._windower, kind, functions, stream._timed, self._on_error
        )
        return self._new_late(outcome[0], stream._timed, outcome[1])

    def _read(
        self, kind: str, f: Callable[[Any], Any] | str | None, first: Callable[[Any], Any]
    ) -> LateStream[K_co, Any, Any]:
        """An aggregate of what ``f`` reads of each value; ``first`` examines the first of a window."""
        made = self._make(kind, first, None if f is None else reading(kind, f))
        # Ordered windows keep the values.
        if not self._described.ordered:
            made._reading(f)
        return made

    def _merge(self, verb: str, merge: Callable[[Any, Any], Any] | None) -> Callable[[Any, Any], Any] | None:
        """The function that merges; sliding windows and sessions require it."""
        kind = self._described.kind
        numbers = self._described.numbers
        ordered = self._described.ordered
        whole = kind in ("count", "chosen") or (kind == "aligned" and numbers[0] == numbers[1])
        if merge is not None:
            callable_or_raise("merge=", merge)
        elif not whole and not ordered:
            raise FlowUsageError(f"{verb} over {self._window!r} needs merge=, which joins two accumulators")
        return merge

    def _reviving(
        self, init: Callable[[], Any], aliases: Aliases | None, migrate: Migrate | None
    ) -> Callable[[], Any]:
        """The rules for saved state: accumulators, or values where they are kept for their order."""
        if self._described.ordered:
            return _revival.reading(aliases, migrate)
        return _revival.reviving(init, init, aliases, migrate, strict=False)

    def count(self) -> LateStream[K_co, Windowed[int], V_co]:
        """Counts the values of each window.

        Returns:
            The keyed stream of the results, each a :class:`millstream.windows.Windowed`; its ``late`` has
            the late values.

        Example:
            >>> import millstream as ms
            >>> flow, out = ms.Flow("clicks"), ms.testing.collect()
            >>> clicks = flow.source("clicks", ms.testing.items([1, 2, 61, 200])).event_time(float)
            >>> minutes = clicks.key_by(lambda time: "all").window("minutes", ms.windows.tumbling(60))
            >>> minutes.count().values().map(lambda count: (count.start, count.value)).sink("out", out)
            >>> _ = ms.run(flow)
            >>> out
            [(0.0, 2), (60.0, 1), (180.0, 1)]
        """
        return self._make("count")

    @overload
    def sum(self: WindowVerbs[K_co, bool], f: None = None) -> LateStream[K_co, Windowed[int], bool]: ...
    @overload
    def sum(self: WindowVerbs[K_co, Adds], f: None = None) -> LateStream[K_co, Windowed[V_co], V_co]: ...
    @overload
    def sum(self, f: Callable[[V_co], N] | str) -> LateStream[K_co, Windowed[N], V_co]: ...
    def sum(self, f: Callable[[Any], Any] | str | None = None) -> LateStream[Any, Any, Any]:
        """Adds the values of each window, or a field of each. Text is refused.

        Args:
            f: what is added of each value: a function of it, or the name of its field. None: the value.

        Returns:
            The keyed stream of the results, each a :class:`millstream.windows.Windowed`; its ``late`` has
            the late values.

        Raises:
            FlowUsageError: ``f`` is neither a function nor a ``str``.

        Example:
            >>> import millstream as ms
            >>> flow, out = ms.Flow("example"), ms.testing.collect()
            >>> numbers = flow.source("in", ms.testing.items([1, 5, 12])).event_time(float)
            >>> tens = numbers.key_by(lambda n: "all").window("tens", ms.windows.tumbling(10))
            >>> tens.sum().values().map(lambda ten: ten.value).sink("out", out)
            >>> _ = ms.run(flow)
            >>> out
            [6, 12]
        """
        return self._read("sum", f, _text_values.adding("sum"))

    @overload
    def min(self: WindowVerbs[K_co, Compares], f: None = None) -> LateStream[K_co, Windowed[V_co], V_co]: ...
    @overload
    def min(self, f: Callable[[V_co], C] | str) -> LateStream[K_co, Windowed[C], V_co]: ...
    def min(self, f: Callable[[Any], Any] | str | None = None) -> LateStream[K_co, Any, V_co]:
        """Finds the least value of each window, or of a field; of two equal ones the earlier.

        Text is compared by its characters; the first text that is a number is logged.

        Args:
            f: what is compared of each value: a function of it, or the name of its field. None: the value.

        Returns:
            The keyed stream of the results, each a :class:`millstream.windows.Windowed`; its ``late`` has
            the late values.

        Raises:
            FlowUsageError: ``f`` is neither a function nor a ``str``.

        Example:
            >>> import millstream as ms
            >>> flow, out = ms.Flow("example"), ms.testing.collect()
            >>> numbers = flow.source("in", ms.testing.items([1, 5, 12])).event_time(float)
            >>> tens = numbers.key_by(lambda n: "all").window("tens", ms.windows.tumbling(10))
            >>> tens.min().values().map(lambda ten: ten.value).sink("out", out)
            >>> _ = ms.run(flow)
            >>> out
            [1, 12]
        """
        return self._read("min", f, _text_values.comparing("min", self._name))

    @overload
    def max(self: WindowVerbs[K_co, Compares], f: None = None) -> LateStream[K_co, Windowed[V_co], V_co]: ...
    @overload
    def max(self, f: Callable[[V_co], C] | str) -> LateStream[K_co, Windowed[C], V_co]: ...
    def max(self, f: Callable[[Any], Any] | str | None = None) -> LateStream[K_co, Any, V_co]:
        """Finds the greatest value of each window, or of a field; of two equal ones the earlier.

        Text is compared by its characters; the first text that is a number is logged.

        Args:
            f: what is compared of each value: a function of it, or the name of its field. None: the value.

        Returns:
            The keyed stream of the results, each a :class:`millstream.windows.Windowed`; its ``late`` has
            the late values.

        Raises:
            FlowUsageError: ``f`` is neither a function nor a ``str``.

        Example:
            >>> import millstream as ms
            >>> flow, out = ms.Flow("example"), ms.testing.collect()
            >>> numbers = flow.source("in", ms.testing.items([1, 5, 12])).event_time(float)
            >>> tens = numbers.key_by(lambda n: "all").window("tens", ms.windows.tumbling(10))
            >>> tens.max().values().map(lambda ten: ten.value).sink("out", out)
            >>> _ = ms.run(flow)
            >>> out
            [5, 12]
        """
        return self._read("max", f, _text_values.comparing("max", self._name))

    @overload
    def mean(self: WindowVerbs[K_co, float], f: None = None) -> LateStream[K_co, Windowed[float], V_co]: ...
    @overload
    def mean(self: WindowVerbs[K_co, Adds], f: None = None) -> LateStream[K_co, Windowed[Any], V_co]: ...
    @overload
    def mean(self, f: Callable[[V_co], Adds] | str) -> LateStream[K_co, Windowed[Any], V_co]: ...
    def mean(self, f: Callable[[Any], Any] | str | None = None) -> LateStream[K_co, Any, V_co]:
        """Computes the mean of the values of each window, or of a field of each. Text is refused.

        Args:
            f: what is added of each value: a function of it, or the name of its field. None: the value.

        Returns:
            The keyed stream of the results, each a :class:`millstream.windows.Windowed`; its ``late`` has
            the late values.

        Raises:
            FlowUsageError: ``f`` is neither a function nor a ``str``.

        Example:
            >>> import millstream as ms
            >>> flow, out = ms.Flow("example"), ms.testing.collect()
            >>> readings = [{"at": 1, "celsius": 3}, {"at": 5, "celsius": 6}, {"at": 12, "celsius": 9}]
            >>> timed = flow.source("in", ms.testing.items(readings)).event_time("at")
            >>> tens = timed.key_by(lambda reading: "all").window("tens", ms.windows.tumbling(10))
            >>> tens.mean("celsius").values().map(lambda ten: ten.value).sink("out", out)
            >>> _ = ms.run(flow)
            >>> out
            [4.5, 9.0]
        """
        return self._read("mean", f, _text_values.adding("mean"))

    def collect(self) -> LateStream[K_co, Windowed[list[V_co]], V_co]:
        """Collects the values of each window in a list.

        Returns:
            The keyed stream of the results, each a :class:`millstream.windows.Windowed`; its ``late`` has
            the late values.

        Example:
            >>> import millstream as ms
            >>> flow, out = ms.Flow("example"), ms.testing.collect()
            >>> numbers = flow.source("in", ms.testing.items([1, 5, 12])).event_time(float)
            >>> tens = numbers.key_by(lambda n: "all").window("tens", ms.windows.tumbling(10))
            >>> tens.collect().values().map(lambda ten: ten.value).sink("out", out)
            >>> _ = ms.run(flow)
            >>> out
            [[1, 5], [12]]
        """
        return self._make("collect")

    def reduce(
        self,
        f: Callable[[V_co, V_co], V_co],
        aliases: Aliases | None = None,
        migrate: Migrate | None = None,
    ) -> LateStream[K_co, Windowed[V_co], V_co]:
        """Combines the values of each window. The result must not depend on the order of the calls.

        Args:
            f: is called with two values or results, and returns their combination.
            aliases: a mapping from names that the class of saved values had before to classes.
            migrate: a function that is called with each saved state when a run begins, and returns the
                state to continue with. It may be called again with its own result.

        Returns:
            The keyed stream of the results, each a :class:`millstream.windows.Windowed`; its ``late`` has
            the late values.

        Raises:
            FlowUsageError: ``f`` is not callable.

        Example:
            >>> import millstream as ms
            >>> flow, out = ms.Flow("example"), ms.testing.collect()
            >>> numbers = flow.source("in", ms.testing.items([1, 5, 12])).event_time(float)
            >>> tens = numbers.key_by(lambda n: "all").window("tens", ms.windows.tumbling(10))
            >>> tens.reduce(lambda a, b: a * b).values().map(lambda ten: ten.value).sink("out", out)
            >>> _ = ms.run(flow)
            >>> out
            [5, 12]
        """
        callable_or_raise("reduce", f)
        return self._make("reduce", f, None, None, None, _revival.reading(aliases, migrate))

    def fold(
        self,
        init: Callable[[], A],
        f: Callable[[A, V_co], A],
        merge: Callable[[A, A], A] | None = None,
        aliases: Aliases | None = None,
        migrate: Migrate | None = None,
    ) -> LateStream[K_co, Windowed[A], V_co]:
        """Folds the values of each window into an accumulator: ``acc = f(acc, value)``, beginning with
        ``init()``.

        With ``ordered=True`` the values are saved instead of accumulators: ``aliases`` and ``migrate`` are
        for the class of the values then, and ``aliases`` is a mapping.

        Args:
            init: makes the first accumulator of a window.
            f: is called with the accumulator and a value, and returns the new accumulator.
            merge: is called with the accumulators of two parts of a window, and returns theirs together.
                Sliding windows and sessions need it, unless they are ordered.
            aliases: names that the class of saved states had before, or a mapping from such names to
                classes.
            migrate: a function that is called with each saved state when a run begins, and returns the
                state to continue with. It may be called again with its own result.

        Returns:
            The keyed stream of the results, each a :class:`millstream.windows.Windowed`; its ``late`` has
            the late values.

        Raises:
            FlowUsageError: a function is not callable, or ``merge`` is missing.

        Example:
            >>> import millstream as ms
            >>> flow, out = ms.Flow("example"), ms.testing.collect()
            >>> numbers = flow.source("in", ms.testing.items([1, 5, 12])).event_time(float)
            >>> tens = numbers.key_by(lambda n: "all").window("tens", ms.windows.tumbling(10))
            >>> sums = tens.fold(int, lambda total, n: total + n)
            >>> sums.values().map(lambda ten: ten.value).sink("out", out)
            >>> _ = ms.run(flow)
            >>> out
            [6, 12]
        """
        callable_or_raise("fold", init)
        callable_or_raise("fold", f)
        made = self._reviving(init, aliases, migrate)
        return self._make("fold", init, f, self._merge("fold", merge), None, made)

    @overload
    def aggregate(
        self,
        initial: Callable[[], A],
        add: Callable[[A, V_co], A],
        merge: Callable[[A, A], A] | None = None,
        result: None = None,
        aliases: Aliases | None = None,
        migrate: Migrate | None = None,
    ) -> LateStream[K_co, Windowed[A], V_co]: ...
    @overload
    def aggregate(
        self,
        initial: Callable[[], A],
        add: Callable[[A, V_co], A],
        merge: Callable[[A, A], A] | None = None,
        result: Callable[[A, Bounds], R] = ...,
        aliases: Aliases | None = None,
        migrate: Migrate | None = None,
    ) -> LateStream[K_co, Windowed[R], V_co]: ...
    def aggregate(
        self,
        initial: Callable[[], A],
        add: Callable[[A, V_co], A],
        merge: Callable[[A, A], A] | None = None,
        result: Callable[[A, Bounds], Any] | None = None,
        aliases: Aliases | None = None,
        migrate: Migrate | None = None,
    ) -> LateStream[K_co, Any, V_co]:
        """Folds the values of each window, like ``fold``, and makes the result of the accumulator.

        Args:
            initial: makes the first accumulator of a window.
            add: is called with the accumulator and a value, and returns the new accumulator.
            merge: is called with the accumulators of two parts of a window, and returns theirs together.
                Sliding windows and sessions need it, unless they are ordered.
            result: is called with the accumulator and the :class:`millstream.windows.Bounds` of the window,
                and returns the result. None: the accumulator is the result.
            aliases: names that the class of saved states had before, or a mapping from such names to
                classes.
            migrate: a function that is called with each saved state when a run begins, and returns the
                state to continue with. It may be called again with its own result.

        Returns:
            The keyed stream of the results, each a :class:`millstream.windows.Windowed`; its ``late`` has
            the late values.

        Raises:
            FlowUsageError: a function is not callable, or ``merge`` is missing.

        Example:
            >>> import millstream as ms
            >>> flow, out = ms.Flow("example"), ms.testing.collect()
            >>> numbers = flow.source("in", ms.testing.items([1, 5, 12])).event_time(float)
            >>> tens = numbers.key_by(lambda n: "all").window("tens", ms.windows.tumbling(10))
            >>> sums = tens.aggregate(int, lambda total, n: total + n, result=lambda total, _: -total)
            >>> sums.values().map(lambda ten: ten.value).sink("out", out)
            >>> _ = ms.run(flow)
            >>> out
            [-6, -12]
        """
        callable_or_raise("aggregate", initial)
        callable_or_raise("aggregate", add)
        if result is not None:
            callable_or_raise("result=", result)
        made = self._reviving(initial, aliases, migrate)
        return self._make("aggregate", initial, add, self._merge("aggregate", merge), result, made)

    def agg(
        self, results: Mapping[str, Aggregate[V_co]] | None = None, /, **more: Aggregate[V_co]
    ) -> LateStream[K_co, Windowed[dict[str, Any]], V_co]:
        """Computes several aggregates of the values of each window, in a dict with the given names.

        A value for which one of them raises counts in none. Each aggregate is saved by the name of its
        result, as with :meth:`KeyedStream.agg`. ``ms.first`` and ``ms.last`` of windows by time need
        ``window(..., ordered=True)``.

        Args:
            results: aggregates by their names, where a name is no argument.
            more: aggregates by the names of their results.

        Returns:
            The keyed stream of the results, each a :class:`millstream.windows.Windowed` of a dict; its
            ``late`` has the late values.

        Raises:
            FlowUsageError: there is no aggregate, or one needs an order.

        Example:
            >>> import millstream as ms
            >>> flow, out = ms.Flow("example"), ms.testing.collect()
            >>> trades = [{"at": 1, "price": 3}, {"at": 5, "price": 4}, {"at": 12, "price": 2}]
            >>> timed = flow.source("in", ms.testing.items(trades)).event_time("at")
            >>> keyed = timed.key_by(lambda trade: "tea")
            >>> tens = keyed.window("tens", ms.windows.tumbling(10), ordered=True)
            >>> bars = tens.agg(open=ms.first("price"), high=ms.max("price"), n=ms.count()).values()
            >>> bars.map(lambda bar: bar.value).sink("out", out)
            >>> _ = ms.run(flow)
            >>> out
            [{'open': 3, 'high': 4, 'n': 2}, {'open': 2, 'high': 2, 'n': 1}]
        """
        kind = self._described.kind
        ordered = self._described.ordered
        made = _agg.aggregation(self._name, results, more, ordered or kind == "count")
        revived = self._reviving(made.initial, None, None if ordered else made.restored)

        def result(state: Any, bounds: Bounds) -> dict[str, Any]:
            return made.result(state)

        # The merge leaves the later part as it is.
        return self._make("agg", made.initial, made.add, made.merge, result, revived, made.merge)
