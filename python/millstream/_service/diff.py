"""Compares the outputs of two components for the same records, call by call."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone
from typing import NamedTuple


class Effect(NamedTuple):
    """A call of a component, and the calls that it made, each as YAML."""

    #: The origin: ``orders, record 7``, or ``timer beat`` with the time.
    origin: tuple[str, int]
    #: The method that was called.
    method: str
    #: When, in ns since 1970.
    time_ns: int
    calls: list[str]

    def place(self) -> str:
        """Where the call is recorded, and when it was: the line above its difference."""
        where, number = self.origin
        record = where if where.startswith("timer ") else f"{where}, record {number}, {self.method}"
        return f"{record} at {shown_time(self.time_ns)}"


def merged(a: list[Effect], b: list[Effect]) -> Iterator[tuple[Effect | None, Effect | None]]:
    """The calls of both in one order, those with the same origin together."""
    of_a, of_b = ({effect.origin: effect for effect in effects} for effects in (a, b))
    rest = iter(b)
    for one in a:
        if one.origin in of_b:
            for other in rest:
                if other.origin == one.origin:
                    break
                if other.origin not in of_a:
                    yield None, other
        yield one, of_b.get(one.origin)
    yield from ((None, other) for other in rest if other.origin not in of_a)


def differences(a: list[Effect], b: list[Effect]) -> tuple[list[str], int]:
    """The text for each call whose outputs differ, and how many calls there are."""
    import difflib

    shown = []
    count = 0
    for one, other in merged(a, b):
        count += 1
        calls_a, calls_b = (effect.calls if effect else [] for effect in (one, other))
        if calls_a == calls_b:
            continue
        lines_a, lines_b = ("---\n".join(calls).splitlines(keepends=True) for calls in (calls_a, calls_b))
        _, _, *lines = difflib.unified_diff(lines_a, lines_b, n=9)
        place = (one or other or a[0]).place()
        shown.append(f"@@ {place} @@\n" + "".join(line for line in lines if not line.startswith("@@")))
    return shown, count


def shown_time(time_ns: int) -> str:
    """The time as RFC 3339."""
    seconds, ns = divmod(time_ns, 1_000_000_000)
    return f"{datetime.fromtimestamp(seconds, timezone.utc):%Y-%m-%dT%H:%M:%S}.{ns:09}Z"
