"""Keyed streams in windows: the verbs that make one result of the values of each."""

from __future__ import annotations

from ._errors import FlowUsageError
from ._flow import callable_or_raise
from ._keyed import LateStream

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ._flow import OnError
    from ._keyed import KeyedStream
    from .windows import Bounds, Window, Windower

__all__ = ["Windows"]


class Windows:
    """The values of each key, grouped into windows: what is to be made of them?

    Each verb gives a stream of :class:`millstream.windows.Windowed`, with ``start``, ``end`` and ``value``,
    when the watermark has come to the end of a window. Its attribute ``late`` is the stream of the values
    that came too late.
    """

    __slots__ = ("_described", "_name", "_on_error", "_stream", "_window", "_windower")

    def __init__(
        self,
        stream: KeyedStream,
        name: str,
        window: Window | Windower,
        options: tuple[int, bool, tuple[int, int | None] | None],
        on_error: OnError,
    ) -> None:
        from .windows import Described, Window

        self._stream = stream
        self._name = name
        self._window = window
        self._on_error = on_error
        if isinstance(window, Window):
            self._described = Described(window._kind, window._numbers, *options)
            self._windower = None
        else:
            self._described = Described("chosen", (0, 0, 0), *options)
            self._windower = window

    def _make(self, kind: str, *functions: Callable[..., Any] | None) -> LateStream:
        stream = self._stream
        outcome = stream._home().window(
            self._name, self._described, self._windower, kind, functions, stream._timed, self._on_error
        )
        return LateStream([outcome[0]], stream._timed, [outcome[1]])

    def _merge(self, verb: str, merge: Callable[[Any, Any], Any] | None) -> Callable[[Any, Any], Any] | None:
        """The function that merges; sliding windows and sessions cannot do without."""
        kind, numbers, _, ordered, _ = self._described
        whole = kind in ("count", "chosen") or (kind == "aligned" and numbers[0] == numbers[1])
        if merge is not None:
            callable_or_raise("merge=", merge)
        elif not whole and not ordered:
            raise FlowUsageError(f"{verb} over {self._window!r} needs merge=, which joins two accumulators")
        return merge

    def count(self) -> LateStream:
        """How many values a window holds.

        >>> import millstream as ms
        >>> flow, out = ms.Flow("clicks"), ms.testing.collect()
        >>> clicks = flow.source("clicks", ms.testing.items([1, 2, 61, 200])).event_time(lambda time: time)
        >>> minutes = clicks.key_by(lambda time: "all").window("minutes", ms.windows.tumbling(60))
        >>> minutes.count().values().map(lambda count: (count.start, count.value)).sink("out", out)
        >>> _ = ms.run(flow)
        >>> out
        [(0.0, 2), (60.0, 1), (180.0, 1)]
        """
        return self._make("count")

    def sum(self) -> LateStream:
        """The sum of the values."""
        return self._make("sum")

    def min(self) -> LateStream:
        """The least of the values; the earlier of two equal ones."""
        return self._make("min")

    def max(self) -> LateStream:
        """The greatest of the values; the earlier of two equal ones."""
        return self._make("max")

    def mean(self) -> LateStream:
        """The mean of the values."""
        return self._make("mean")

    def collect(self) -> LateStream:
        """A list of the values."""
        return self._make("collect")

    def reduce(self, f: Callable[[Any, Any], Any]) -> LateStream:
        """The values combined by ``f``, for which the order of the calls must not matter."""
        callable_or_raise("reduce", f)
        return self._make("reduce", f)

    def fold(
        self,
        init: Callable[[], Any],
        f: Callable[[Any, Any], Any],
        merge: Callable[[Any, Any], Any] | None = None,
    ) -> LateStream:
        """``acc = f(acc, value)`` from ``init()``.

        ``merge(acc, later)`` joins the accumulators of parts of a window: the panes of sliding windows, and
        sessions that turn out to be one. Windows with ``ordered=True`` do without.
        """
        callable_or_raise("fold", init)
        callable_or_raise("fold", f)
        return self._make("functions", init, f, self._merge("fold", merge), None)

    def aggregate(
        self,
        initial: Callable[[], Any],
        add: Callable[[Any, Any], Any],
        merge: Callable[[Any, Any], Any] | None = None,
        result: Callable[[Any, Bounds], Any] | None = None,
    ) -> LateStream:
        """As ``fold``; ``result(acc, bounds)`` makes the result, knowing from when to when a window goes."""
        callable_or_raise("aggregate", initial)
        callable_or_raise("aggregate", add)
        if result is not None:
            callable_or_raise("result=", result)
        return self._make("functions", initial, add, self._merge("aggregate", merge), result)
