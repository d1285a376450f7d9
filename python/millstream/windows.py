"""How the values of a key are grouped into windows, and the results of windows.

Lengths and gaps are seconds or a ``timedelta``.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from ._errors.flow import FlowUsageError
from ._values.durations import nanos

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime
    from typing import Generic, TypeAlias

    from ._values.durations import Seconds
    from ._values.types import V_co

    Time: TypeAlias = "float | datetime"

ITEM_WINDOWS_MAX = 100_000
"""In how many sliding windows a value may be. Each of them has a result."""

__all__ = ["Bounds", "Window", "Windowed", "Windower", "count", "session", "sliding", "tumbling"]


class Bounds(NamedTuple):
    """The start and end of a window: in seconds, or as datetimes in UTC where event times are datetimes.

    Bounds of windows that count are the least and the greatest time of their values, None without times.
    ``early`` is True for a result so far, of a window that is still open.

    Example:
        >>> from millstream.windows import Bounds
        >>> Bounds(0.0, 60.0, early=False).end
        60.0
    """

    # A float, a datetime or None. The type of a stream does not say which.
    start: Any
    end: Any
    early: bool
    """True for a result so far, of a window that is still open."""


if TYPE_CHECKING:

    class Windowed(NamedTuple, Generic[V_co]):
        """The result of a window: its bounds, as :class:`Bounds` has them, and its value."""

        start: Any
        end: Any
        value: V_co
        early: bool = False

else:
    # Python 3.10 has no generic named tuples. `Windowed[int]` is understood all the same: a tuple is generic.
    class Windowed(NamedTuple):
        """The result of a window: its bounds, as :class:`Bounds` has them, and its value.

        Example:
            >>> from millstream.windows import Windowed
            >>> Windowed(0.0, 60.0, value=3).value
            3
        """

        start: Any
        end: Any
        value: Any
        early: bool = False


class Windower(Protocol):
    """Windows of your own: months, trading days. Any object with this method is one.

    Example:
        >>> import millstream as ms
        >>> class Weeks:  # of days that are numbered from a Monday on; a weekend is a window of its own
        ...     def windows(self, time):
        ...         monday = time - time % 7
        ...         return [(monday, monday + 5)] if time < monday + 5 else [(monday + 5, monday + 7)]
        >>> flow, out = ms.Flow("weeks"), ms.testing.collect()
        >>> days = flow.source("days", ms.testing.items([0, 4, 5, 6, 7])).event_time(float)
        >>> counts = days.key_by(lambda day: "all").window("weeks", Weeks()).count().values()
        >>> counts.map(lambda week: (week.start, week.end, week.value)).sink("out", out)
        >>> _ = ms.run(flow)
        >>> out
        [(0.0, 5.0, 2), (5.0, 7.0, 2), (7.0, 12.0, 1)]
    """

    def windows(self, time: float) -> Iterable[tuple[Time, Time]]:
        """Returns the windows that contain a moment.

        The result must be the same each time for one moment. A value that no window contains is dropped; a
        window that does not contain its value is an error.

        Args:
            time: the moment, in seconds.

        Returns:
            The windows, each as its start and its end, which is not part of it.

        Example:
            >>> class Decades:
            ...     def windows(self, time):
            ...         return [(time - time % 10, time - time % 10 + 10)]
            >>> Decades().windows(12.0)
            [(10.0, 20.0)]
        """
        ...


class Described(NamedTuple):
    """The options of windows, as the engine reads them."""

    kind: str
    numbers: tuple[int, ...]
    early: int
    ordered: bool
    per_key: tuple[int, int | None] | None
    joins: bool = False
    """Whether the values are those of two streams that are joined."""


class Window:
    """How values are grouped into windows. The functions of this module make it.

    Example:
        >>> import millstream as ms
        >>> ms.windows.tumbling(60)
        ms.windows.tumbling(60)
    """

    __slots__ = ("_kind", "_numbers", "_text")

    def __init__(self, text: str, kind: str, *numbers: int) -> None:
        self._text = text
        self._kind = kind
        self._numbers = (*numbers, 0, 0)[:3]

    def __repr__(self) -> str:
        return f"ms.windows.{self._text}"


def _aligned(text: str, length: Seconds, every: Seconds, offset: Seconds) -> Window:
    whole = nanos("length", length)
    step = nanos("every", every)
    if step > whole:
        raise FlowUsageError(f"sliding windows must start at least once in each length, not every {every!r}")
    if whole // step > ITEM_WINDOWS_MAX:
        raise FlowUsageError(
            f"each value would be in {whole // step:,} sliding windows, each with a result, and at most"
            f" {ITEM_WINDOWS_MAX:,} are possible: let them start less often than every {every!r}"
        )
    return Window(text, "aligned", whole, step, nanos("offset", offset, 0))


def tumbling(length: Seconds, offset: Seconds = 0) -> Window:
    """Makes windows of one length that follow one another.

    Args:
        length: the duration.
        offset: the start of one of the windows; the others begin at multiples of the length from there.

    Returns:
        The windows.

    Raises:
        FlowUsageError: a duration is out of range.

    Example:
        >>> import millstream as ms
        >>> flow, out = ms.Flow("example"), ms.testing.collect()
        >>> numbers = flow.source("in", ms.testing.items([1, 9, 12])).event_time(float)
        >>> windows = numbers.key_by(lambda n: "all").window("windows", ms.windows.tumbling(10))
        >>> windows.count().values().map(lambda window: (window.start, window.value)).sink("out", out)
        >>> _ = ms.run(flow)
        >>> out
        [(0.0, 2), (10.0, 1)]
    """
    return _aligned(f"tumbling({length})", length, length, offset)


def sliding(length: Seconds, every: Seconds, offset: Seconds = 0) -> Window:
    """Makes windows of one length that overlap.

    Args:
        length: the duration.
        every: the time from the start of one window to the start of the next, at most the
            length.
        offset: the start of one of the windows.

    Returns:
        The windows.

    Raises:
        FlowUsageError: a duration is out of range, ``every`` is longer than ``length``, or a value would
            be in more than 100,000 windows.

    Example:
        >>> import millstream as ms
        >>> flow, out = ms.Flow("example"), ms.testing.collect()
        >>> numbers = flow.source("in", ms.testing.items([1, 9, 12])).event_time(float)
        >>> windows = numbers.key_by(lambda n: "all").window("windows", ms.windows.sliding(10, every=5))
        >>> windows.count().values().map(lambda window: (window.start, window.value)).sink("out", out)
        >>> _ = ms.run(flow)
        >>> out
        [(-5.0, 1), (0.0, 2), (5.0, 2), (10.0, 1)]
    """
    return _aligned(f"sliding({length}, every={every})", length, every, offset)


def session(gap: Seconds) -> Window:
    """Makes windows of values with at most ``gap`` from one to the next.

    A session ends ``gap`` after its last value, and closes when the watermark is later. Two values that are
    exactly ``gap`` apart are in one session.

    Args:
        gap: the duration.

    Returns:
        The windows.

    Raises:
        FlowUsageError: the gap is out of range.

    Example:
        >>> import millstream as ms
        >>> flow, out = ms.Flow("example"), ms.testing.collect()
        >>> numbers = flow.source("in", ms.testing.items([1, 9, 12])).event_time(float)
        >>> windows = numbers.key_by(lambda n: "all").window("windows", ms.windows.session(5))
        >>> windows.count().values().map(lambda window: (window.start, window.value)).sink("out", out)
        >>> _ = ms.run(flow)
        >>> out
        [(1.0, 1), (9.0, 2)]
    """
    return Window(f"session({gap})", "session", nanos("gap", gap))


def count(items: int) -> Window:
    """Makes windows of a number of values each. They need no times.

    Args:
        items: the number of values of a window.

    Returns:
        The windows.

    Raises:
        FlowUsageError: the number is below 1.

    Example:
        >>> import millstream as ms
        >>> flow, out = ms.Flow("example"), ms.testing.collect()
        >>> numbers = flow.source("in", ms.testing.items([1, 9, 12])).event_time(float)
        >>> windows = numbers.key_by(lambda n: "all").window("windows", ms.windows.count(2))
        >>> windows.count().values().map(lambda window: (window.start, window.value)).sink("out", out)
        >>> _ = ms.run(flow)
        >>> out
        [(1.0, 2), (12.0, 1)]
    """
    if not isinstance(items, int) or items < 1:
        raise FlowUsageError(f"a window by number must have 1 item or more, not {items!r}")
    return Window(f"count({items})", "count", items)
