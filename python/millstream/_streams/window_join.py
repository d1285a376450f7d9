"""Joins within windows: windows over the values of both streams, each with the number of its stream."""

from __future__ import annotations

from typing import Any

from .._errors.flow import FlowUsageError
from .arguments import same_times
from .base import KeyedBase

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Literal, TypeAlias

    from .._values.durations import Seconds
    from ..windows import Window, Windowed, Windower
    from .streams import KeyedStream, LateStream

    Sides: TypeAlias = "tuple[list[Any], list[Any]]"


def pairs(how: str) -> Callable[[Windowed[Sides]], list[Windowed[Any]]]:
    """The function that makes pairs of the values of a window."""

    def pairs_of(window: Windowed[Any]) -> list[Windowed[Any]]:
        left, right = window.value
        lefts: list[Any] = left or ([None] if how == "full" else [])
        rights: list[Any] = right or ([None] if how != "inner" else [])
        return [window._replace(value=(a, b)) for a in lefts for b in rights]

    return pairs_of


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
    same_times(own._timed, other._timed)
    watermark, lateness, patience = options
    # What is wrong with the windows is said before any step is added.
    own.window(name, window, watermark=watermark, lateness=lateness, patience=patience)
    right = other.map(lambda value: (1, value))
    # The step learns which keys are those of which stream.
    marked = own._new_keyed([pipe.to_the_right() for pipe in right._pipes], right._placed, right._timed)
    both = own.map(lambda value: (0, value)).merge(marked)
    windows = both.window(name, window, watermark=watermark, lateness=lateness, patience=patience)
    windows._described = windows._described._replace(joins=True)
    sides = windows._make("join")
    sides._pipes[0].joins([own._pipes, right._pipes])
    return own._new_joined(sides.flat_map(pairs(how)), sides.late)
