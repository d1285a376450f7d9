"""How the values of a key are grouped into windows, and what comes out of them.

Lengths and gaps are seconds or a ``timedelta``.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from ._durations import nanos
from ._errors import FlowUsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime
    from typing import Generic, TypeAlias

    from ._durations import Seconds
    from ._types import V_co

    Time: TypeAlias = "float | datetime"

__all__ = ["Bounds", "Window", "Windowed", "Windower", "count", "session", "sliding", "tumbling"]


class Bounds(NamedTuple):
    """From when to when a window goes: in seconds, or as datetimes in UTC where event times were datetimes.

    Of windows that count these are the least and the greatest time of their values, None without times.
    """

    # A float, a datetime or None. The type of a stream does not tell which.
    start: Any
    end: Any
    early: bool
    """True for a result so far, of a window that is still open."""


if TYPE_CHECKING:

    class Windowed(NamedTuple, Generic[V_co]):
        """A result with the window that it is of; see :class:`Bounds`."""

        start: Any
        end: Any
        value: V_co
        early: bool = False

else:
    # Python 3.10 has no generic named tuples. `Windowed[int]` is understood all the same: a tuple is generic.
    class Windowed(NamedTuple):
        """A result with the window that it is of; see :class:`Bounds`."""

        start: Any
        end: Any
        value: Any
        early: bool = False


class Windower(Protocol):
    """Windows of one's own: months, trading days. Any object with this method is one.

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
        """The windows that hold the moment ``time``, in seconds, each from its start to before its end.

        They have to be the same for one moment each time. A value that no window holds is dropped; a
        window that does not hold its value is an error.
        """
        ...


class Described(NamedTuple):
    """Windows, as the engine reads them."""

    kind: str
    numbers: tuple[int, ...]
    early: int
    ordered: bool
    per_key: tuple[int, int | None] | None


class Window:
    """How values are grouped; made by the functions of this module."""

    __slots__ = ("_kind", "_numbers", "_text")

    def __init__(self, text: str, kind: str, *numbers: int) -> None:
        self._text = text
        self._kind = kind
        self._numbers = (*numbers, 0, 0)[:3]

    def __repr__(self) -> str:
        return f"ms.windows.{self._text}"


def _aligned(text: str, length: Seconds, every: Seconds, offset: Seconds) -> Window:
    whole, step = nanos("length", length), nanos("every", every)
    if step > whole:
        raise FlowUsageError(f"sliding windows begin at least as often as they are long, not every {every!r}")
    return Window(text, "aligned", whole, step, nanos("offset", offset, 0))


def tumbling(length: Seconds, offset: Seconds = 0) -> Window:
    """Windows of one length, one after the other; they begin at ``offset`` and multiples of the length."""
    return _aligned(f"tumbling({length})", length, length, offset)


def sliding(length: Seconds, every: Seconds, offset: Seconds = 0) -> Window:
    """Windows of one length, one beginning ``every`` so many seconds: they overlap."""
    return _aligned(f"sliding({length}, every={every})", length, every, offset)


def session(gap: Seconds) -> Window:
    """Values with at most ``gap`` from one to the next: two that are exactly ``gap`` apart are of one
    session.

    A session ends ``gap`` after its last value, and closes when the watermark is past that.
    """
    return Window(f"session({gap})", "session", nanos("gap", gap))


def count(items: int) -> Window:
    """So many values, one group after the other. Needs no times."""
    if not isinstance(items, int) or items < 1:
        raise FlowUsageError(f"a window that counts holds 1 item or more, not {items!r}")
    return Window(f"count({items})", "count", items)
