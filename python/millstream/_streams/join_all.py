"""``join_all``: joins of any number of streams.

The engine has the same for Rust (`join/all.rs`), with a type for each stream. This one is a logic as that of
``stateful``, and has its time to live and saved states. It receives values with times in their order.
"""

from __future__ import annotations

from itertools import product

from .._errors.flow import FlowUsageError
from .._values.durations import nanos
from .arguments import named_or_raise, same_times
from .base import KeyedBase

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any, Literal, TypeAlias

    from .._millstream import KeyContext
    from .._values.durations import Seconds
    from .streams import KeyedStream, LateStream

    EmitMode: TypeAlias = Literal["complete", "running", "final"]
    InsertMode: TypeAlias = Literal["first", "last", "product"]

EMIT = ("complete", "running", "final")
INSERT = ("first", "last", "product")


def join_all(
    stream: KeyedStream,
    name: str,
    others: tuple[KeyedStream, ...],
    emit: EmitMode,
    insert: InsertMode,
    ttl: Seconds | None,
) -> LateStream[Any, Any, Any]:
    """Implements :meth:`KeyedStream.join_all`."""
    named_or_raise("join_all", name)
    if not others:
        raise FlowUsageError("join_all joins this stream with one or more others")
    for other in others:
        if not isinstance(other, KeyedBase):
            raise FlowUsageError(f"a keyed stream is joined with keyed streams, not with {other!r}")
        same_times(stream._timed, other._timed)
    if emit not in EMIT:
        raise FlowUsageError(f'emit is "complete", "running" or "final", not {emit!r}')
    if insert not in INSERT:
        raise FlowUsageError(f'insert is "first", "last" or "product", not {insert!r}')
    life = None if ttl is None else nanos("ttl", ttl)
    sides = [side.map(_tagged(place)) for place, side in enumerate((stream, *others))]
    count = len(sides)
    merged = sides[0].merge(*sides[1:])
    made = count, insert == "product", lambda: Sides(count, emit, insert)
    pipe, late = merged._home().join_all(name, made, merged._timed, life)
    pipe.joins([side._pipes for side in sides])
    joined = merged._new_late(pipe, merged._timed, late)
    return merged._new_joined(joined, joined.late)


def _tagged(place: int) -> Callable[[Any], tuple[int, Any]]:
    return lambda value: (place, value)


class Sides:
    """The values of one key, by the stream that they came from."""

    __slots__ = ("emit", "insert", "seen")

    def __init__(self, count: int, emit: str, insert: str) -> None:
        self.emit = emit
        self.insert = insert
        self.seen: list[list[Any]] = [[] for _ in range(count)]

    def rows(self) -> Iterable[tuple[Any, ...]]:
        return product(*[values or (None,) for values in self.seen])

    def on_item(self, key: Any, item: tuple[int, Any], ctx: KeyContext) -> Iterable[tuple[Any, ...]]:
        place, value = item
        if self.insert == "product":
            self.seen[place].append(value)
        elif self.insert == "last" or not self.seen[place]:
            self.seen[place] = [value]
        if self.emit == "running":
            return self.rows()
        if self.emit == "complete" and all(self.seen):
            ctx.discard()
            return self.rows()
        return ()

    def on_end(self, key: Any) -> Iterable[tuple[Any, ...]]:
        return self.rows() if self.emit == "final" else ()

    def snapshot(self) -> list[list[Any]]:
        return self.seen

    def restore(self, seen: list[list[Any]]) -> None:
        self.seen = seen
