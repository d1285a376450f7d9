"""Joins within windows: windows over the values of both streams, each with the number of its stream."""

from __future__ import annotations

from typing import Any

from .._errors import FlowUsageError
from .base import KeyedBase

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Literal, TypeAlias

    from .._durations import Seconds
    from ..windows import Bounds, Window, Windowed, Windower
    from .streams import KeyedStream, LateStream

    Sides: TypeAlias = "tuple[list[Any], list[Any]]"

__all__ = ["join"]


def no_values() -> Sides:
    """The accumulator of a join: the values of a window, by their streams."""
    return [], []


def add(sides: Sides, value: tuple[int, Any]) -> Sides:
    """Adds a value, which follows the number of its stream."""
    sides[value[0]].append(value[1])
    return sides


def merge(sides: Sides, later: Sides) -> Sides:
    """Adds the values of a later part of the window."""
    for own, more in zip(sides, later):  # noqa: B905 - they are two
        own.extend(more)
    return sides


def pairs(how: str) -> Callable[[Sides, Bounds], list[Windowed[Any]]]:
    """The function that makes pairs of the values of a window."""
    from ..windows import Windowed

    def result(sides: Sides, bounds: Bounds) -> list[Windowed[Any]]:
        left, right = sides
        lefts: list[Any] = left or ([None] if how == "full" else [])
        rights: list[Any] = right or ([None] if how != "inner" else [])
        return [Windowed(bounds.start, bounds.end, (a, b), bounds.early) for a in lefts for b in rights]

    return result


def join(
    own: KeyedStream[Any, Any],
    name: str,
    other: KeyedStream[Any, Any],
    how: str,
    window: Window | Windower,
    options: tuple[Literal["partition", "key"], Seconds, Seconds | None],
) -> LateStream[Any, Any, Any]:
    """Pairs of the values of two streams that are in one window of their key.

    ``options``: which watermark counts, and lateness and patience of one for each key.
    """
    if not isinstance(other, KeyedBase):
        raise FlowUsageError(f"a keyed stream is joined with a keyed stream, not with {other!r}")
    right = other.map(lambda value: (1, value))
    # The step learns which keys are those of which stream.
    marked = own._new_keyed([pipe.to_the_right() for pipe in right._pipes], right._placed, right._timed)
    both = own.map(lambda value: (0, value)).merge(marked)
    watermark, lateness, patience = options
    windows = both.window(name, window, watermark=watermark, lateness=lateness, patience=patience)
    windows._described = windows._described._replace(joins=True)
    windowed = windows.aggregate(no_values, add, merge, pairs(how))
    return own._new_joined(windowed.flat_map(lambda window: window.value), windowed.late)
