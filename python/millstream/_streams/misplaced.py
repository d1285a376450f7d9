"""The error of a stream for a verb of another kind of stream.

Streams are of several kinds, and a verb is where it has a meaning: `event_time` is a verb of `Stream` and has
to come before `key_by`. An attribute that a class has costs nothing; one that it lacks is looked for here.
"""

from __future__ import annotations

from types import FunctionType
from typing import TypeVar

TYPE_CHECKING = False


C = TypeVar("C")

WAYS = {
    ("Flow", "Stream"): "call source first",
    ("Flow", "KeyedStream"): "call source and key_by first",
    ("Flow", "Windows"): "call source, key_by and window first",
    ("Stream", "KeyedStream"): "call key_by first",
    ("Stream", "Windows"): "call key_by and window first",
    ("KeyedStream", "Stream"): "call values() or items() first",
    ("KeyedStream", "Windows"): "call window first",
    ("Windows", "KeyedStream"): "make a result of each window first, as count() does",
    ("Windows", "Stream"): "make a result of each window first, as count() does, then call values()",
}
"""How to get from a kind of stream to another; the nearest one first."""

KINDS: dict[str, type] = {}
"""The classes that have verbs, by their names."""

ELSEWHERE = {
    "agg": "aggregate",
    "apply": "map",
    "concat": "merge",
    "foreach": "map",
    "group_by": "key_by",
    "groupby": "key_by",
    "keyby": "key_by",
    "output": "sink",
    "print": "inspect_debug",
    "select": "map",
    "to": "sink",
    "union": "merge",
    "where": "filter",
    "write": "sink",
}
"""Verbs of other systems, and ours for the same."""

BEFORE_KEYS = {"event_clock", "event_time", "processing_time"}
"""Verbs that are too late once there are keys."""


def hint(kind: str, verb: str) -> str | None:
    """Where ``verb`` belongs, as a hint for its use on the class ``kind``.

    >>> hint("KeyedStream", "event_time")
    'event_time is a verb of Stream: call it before key_by'
    >>> hint("Stream", "count")
    'count is a verb of KeyedStream: call key_by first'
    >>> hint("Stream", "colour")
    """
    if verb.startswith("_"):
        return None
    if verb == "late":
        return "late is an attribute of what windows and joins give"
    if verb == "run" and kind == "Flow":
        return "call ms.run(flow)"
    if verb in BEFORE_KEYS and kind in ("KeyedStream", "Windows"):
        return f"{verb} is a verb of Stream: call it before key_by"
    for (origin, home), way in WAYS.items():
        if origin == kind and callable(getattr(KINDS.get(home), verb, None)):
            return f"{verb} is a verb of {home}: {way}"
    if callable(getattr(KINDS.get("Flow"), verb, None)):
        return f"{verb} is a verb of Flow"
    return near(kind, verb)


def near(kind: str, verb: str) -> str | None:
    """The verb that was meant: one of another system, or one with another spelling.

    >>> near("Stream", "groupBy")
    'did you mean key_by?'
    >>> near("Stream", "flatmap")
    'did you mean flat_map?'
    >>> near("KeyedStream", "print")
    'did you mean inspect_debug?'
    """
    from difflib import get_close_matches

    ours = ELSEWHERE.get(verb.lower(), "")
    known = [name for name in dir(KINDS.get(kind)) if not name.startswith("_")]
    meant = [ours] if ours in known else get_close_matches(verb.lower(), known, n=1, cutoff=0.75)
    if meant:
        return f"did you mean {meant[0]}?"
    return hint(kind, ours) if ours else None


def verbs_are_found(cls: type[C]) -> type[C]:
    """Decorates a class whose verbs are named when they are looked for elsewhere. Errors of Python for their
    arguments name them after it, and not after the part of it in which they are written."""
    KINDS[cls.__name__] = cls
    for base in cls.__mro__:
        for name, verb in vars(base).items():
            if base is not cls and not name.startswith("_") and isinstance(verb, FunctionType):
                if verb.__qualname__ == f"{base.__name__}.{name}":
                    verb.__qualname__ = f"{cls.__name__}.{name}"
    return cls


class Verbs:
    """A class with verbs. Its AttributeError says where a verb that it lacks belongs."""

    __slots__ = ()

    # Type checkers take a class with `__getattr__` for one that has every attribute.
    if not TYPE_CHECKING:

        def __getattr__(self, name):
            said = f"{type(self).__name__!r} object has no attribute {name!r}"
            for cls in KINDS.values():
                if isinstance(self, cls) and (suggestion := hint(cls.__name__, name)):
                    said = f"{said}: {suggestion}"
            raise AttributeError(said, name=name, obj=self)
