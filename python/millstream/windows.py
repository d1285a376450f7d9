"""How the values of a key are grouped into windows, and what comes out of them.

Lengths and gaps are seconds or a ``timedelta``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ._errors import FlowUsageError
from ._time import nanos

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Generic

    from ._time import Seconds
    from ._types import V_co

__all__ = ["Bounds", "Window", "Windowed", "count", "session", "sliding", "tumbling"]


class Bounds(NamedTuple):
    """From when to when a window goes, in seconds.

    Of windows that count these are the least and the greatest time of their values, None without times.
    """

    start: float | None
    end: float | None
    early: bool
    """True for a result so far, of a window that is still open."""


if TYPE_CHECKING:

    class Windowed(NamedTuple, Generic[V_co]):
        """A result with the window that it is of; see :class:`Bounds`."""

        start: float | None
        end: float | None
        value: V_co
        early: bool = False

else:
    # Python 3.10 has no generic named tuples. `Windowed[int]` is understood all the same: a tuple is generic.
    class Windowed(NamedTuple):
        """A result with the window that it is of; see :class:`Bounds`."""

        start: float | None
        end: float | None
        value: Any
        early: bool = False


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
    """Values with less than ``gap`` from one to the next. A session ends ``gap`` behind its last value."""
    return Window(f"session({gap})", "session", nanos("gap", gap))


def count(items: int) -> Window:
    """So many values, one group after the other. Needs no times."""
    if not isinstance(items, int) or items < 1:
        raise FlowUsageError(f"a window that counts holds 1 item or more, not {items!r}")
    return Window(f"count({items})", "count", items)
