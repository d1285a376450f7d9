"""What ``window`` is told, checked; and joins within windows, which are windows over the values of both
streams.
"""

from __future__ import annotations

from ._errors import FlowUsageError
from ._time import nanos

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeAlias

    from ._keyed import KeyedStream, LateStream
    from ._time import Seconds
    from .windows import Bounds, Window, Windowed, Windower

    Sides: TypeAlias = "tuple[list[Any], list[Any]]"


def checked_or_raise(
    window: object, early: object, watermark: object, lateness: object, patience: object
) -> bool:
    """Whether the windows need times; raises for what is no window, or no option of one."""
    from .windows import Window

    known = isinstance(window, Window)
    if not known and (isinstance(window, type) or not callable(getattr(window, "windows", None))):
        raise FlowUsageError(
            "window takes a window made by ms.windows, or an object with a method windows(time), "
            f"not {window!r}"
        )
    if early is not None and (not isinstance(early, int) or early < 1):
        raise FlowUsageError(f"early is a number of values, 1 or more, not {early!r}")
    if watermark not in ("partition", "key"):
        raise FlowUsageError(f'watermark is "partition" or "key", not {watermark!r}')
    if watermark == "partition" and (lateness != 0 or patience is not None):
        raise FlowUsageError('lateness and patience of a window need watermark="key"; event_time has its own')
    if isinstance(window, Window) and window._kind == "count":
        if watermark == "key":
            raise FlowUsageError("windows that count have no watermark")
        return False
    return True


def per_key(watermark: str, lateness: Seconds, patience: Seconds | None) -> tuple[int, int | None] | None:
    """Lateness and patience of a watermark for each key, in nanoseconds."""
    if watermark != "key":
        return None
    return nanos("lateness", lateness, 0), None if patience is None else nanos("patience", patience, 0)


def no_values() -> Sides:
    """The accumulator of a join: the values of a window, by their streams."""
    return [], []


def add(sides: Sides, value: tuple[int, Any]) -> Sides:
    """Takes in a value, which has the number of its stream before it."""
    sides[value[0]].append(value[1])
    return sides


def merge(sides: Sides, later: Sides) -> Sides:
    """Takes in those of a later part of the window."""
    for own, more in zip(sides, later, strict=True):
        own.extend(more)
    return sides


def pairs(how: str) -> Callable[[Sides, Bounds], list[Windowed]]:
    """What is made of the values of a window."""
    from .windows import Windowed

    def result(sides: Sides, bounds: Bounds) -> list[Windowed]:
        left, right = sides
        lefts: list[Any] = left or ([None] if how == "full" else [])
        rights: list[Any] = right or ([None] if how != "inner" else [])
        return [Windowed(bounds.start, bounds.end, (a, b), bounds.early) for a in lefts for b in rights]

    return result


def join(own: KeyedStream, name: str, other: KeyedStream, how: str, window: Window | Windower) -> LateStream:
    """Pairs of the values of two streams that are in one window of their key."""
    from ._keyed import KeyedStream, LateStream

    if not isinstance(other, KeyedStream):
        raise FlowUsageError(f"a keyed stream is joined with a keyed stream, not with {other!r}")
    both = own.map(lambda value: (0, value)).merge(other.map(lambda value: (1, value)))
    windowed = both.window(name, window).aggregate(no_values, add, merge, pairs(how))
    results = windowed.flat_map(lambda window: window.value)
    late = windowed.late.map(lambda value: value[1])
    return LateStream(results._pipes, results._timed, late._pipes)
