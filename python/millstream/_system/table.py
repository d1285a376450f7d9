"""Tables of a file of TOML, read key by key: an error names its line."""

from __future__ import annotations

import importlib
import json
import os
import re
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

from .._connectors.durable import BYTES
from .._errors.command import UsageError
from .._errors.flow import ServiceError
from .._service.options import checked_sync
from .._values.durations import of_text

Place = tuple[str, ...]


class Source(NamedTuple):
    """A file and its contents."""

    path: str
    text: str
    values: dict[str, Any]

    def error(self, place: Place, key: str | None, what: str) -> UsageError:
        """A mistake in a table, with its line where it can be found."""
        line = line_of(self.text, place, key)
        where = [self.path] if line is None else [self.path, f"line {line}"]
        if place:
            where.append(f"[{'.'.join(map(shown_name, place))}]")
        if key is not None:
            where.append(key)
        return UsageError(f"{', '.join(where)}: {what}")


def shown_name(name: str) -> str:
    """A name as TOML has it in the head of a table."""
    return name if re.fullmatch(r"[\w-]+", name) else json.dumps(name)


def line_of(text: str, place: Place, key: str | None) -> int | None:
    """The line of a key in a table, or else that of the table's head.

    >>> text = '[a.b]\\nx = 1\\n["c.d"]\\nx = 2\\n'
    >>> line_of(text, ("c.d",), "x"), line_of(text, ("a", "b"), "y"), line_of(text, ("e",), "x")
    (4, 1, None)
    """
    tomllib: Any = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    at: Place = ()
    head = None
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("["):
            try:
                values = tomllib.loads(line)
            except tomllib.TOMLDecodeError:
                continue
            at = ()
            while values and isinstance(values, dict):
                (name,) = values
                at = (*at, name)
                values = values[name]
            if same(at, place):
                head = head or number
        elif key is not None and same(at, place):
            if re.match(rf"""\s*["']?{re.escape(key)}["']?\s*[=.]""", line):
                return number
    return head


def same(a: Place, b: Place) -> bool:
    """Whether two paths name one directory; paths of journals may be written in several ways."""
    return a == b or (a[:1] == b[:1] == ("journals",) and [*map(os.path.normpath, a)] == list(b))


class Table:
    """One table. Each method takes a key; ``end`` raises for keys that are left."""

    def __init__(self, source: Source, place: Place, values: dict[str, Any]) -> None:
        self.source = source
        self.place = place
        self.left = dict(values)
        self.known: list[str] = []

    @property
    def name(self) -> str:
        return self.place[-1]

    def error(self, key: str | None, what: str) -> UsageError:
        return self.source.error(self.place, key, what)

    def take(self, key: str, default: Any = ...) -> Any:
        self.known.append(key)
        if key not in self.left and default is ...:
            raise self.error(None, f"{key} is missing")
        return self.left.pop(key, default)

    def end(self) -> None:
        for key in self.left:
            raise self.error(key, f"is not known here; known are {', '.join(self.known)}")

    def table(self, key: str, *, required: bool) -> Table:
        values = self.take(key) if required else self.take(key, {})
        if not isinstance(values, dict):
            raise self.error(key, f"is a table, not {values!r}")
        return Table(self.source, (*self.place, key), values)

    def tables(self, key: str, *, required: bool = False) -> list[Table]:
        """The tables in a table, in the order of the file."""
        outer = self.table(key, required=required)
        for name, values in outer.left.items():
            if not isinstance(values, dict):
                raise outer.error(name, f"is a table, not {values!r}")
        if required and not outer.left:
            raise outer.error(None, "is empty")
        return [Table(self.source, (*outer.place, name), values) for name, values in outer.left.items()]

    def text(self, key: str, default: Any = ...) -> Any:
        value = self.take(key, default)
        if value is not default and (not isinstance(value, str) or not value):
            raise self.error(key, f"is a text, not {value!r}")
        return value

    def texts(self, key: str, default: Any = ..., *, one: bool = False) -> Sequence[str]:
        value = self.take(key, default)
        if one and isinstance(value, str) and value:
            return [value]
        if value is default:
            return list(value)
        if not isinstance(value, list) or not all(isinstance(text, str) and text for text in value):
            what = "a text or a list of texts" if one else "a list of texts"
            raise self.error(key, f"is {what}, not {value!r}")
        return value

    def choice(self, key: str, known: Sequence[str], default: str) -> str:
        value = self.take(key, default)
        if value not in known:
            raise self.error(key, f"is one of {', '.join(known)}, not {value!r}")
        return str(value)

    def number(self, key: str, default: int, *, least: int = 0, most: int = 1 << 62) -> int:
        value = self.take(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            bound = f"from {least}" + (f" to {most}" if most < 1 << 62 else " on")
            raise self.error(key, f"is a whole number {bound}, not {value!r}")
        return value

    def cores(self, key: str) -> tuple[int, ...]:
        value = self.take(key, [])
        there = sorted(os.sched_getaffinity(0))
        if not isinstance(value, list) or any(isinstance(core, bool) or core not in there for core in value):
            shown = ", ".join(map(str, there))
            raise self.error(key, f"is a list of cores of this machine ({shown}), not {value!r}")
        return tuple(value)

    def flag(self, key: str) -> bool:
        value = self.take(key, False)
        if not isinstance(value, bool):
            raise self.error(key, f"is true or false, not {value!r}")
        return value

    def time(self, key: str, default: Any) -> Any:
        """A length of time, in seconds."""
        value = self.take(key, default)
        if value is default:
            return value
        time_s = of_text(value) if isinstance(value, str) else None
        if time_s is None:
            raise self.error(key, f"is a time like 100ms, 5s or 7d, not {value!r}")
        return time_s

    def sync(self, key: str, default: str = "never") -> str:
        value = self.take(key, default)
        try:
            if not isinstance(value, str):
                raise ServiceError
            checked_sync(value)
        except ServiceError:
            raise self.error(key, f"is never, always, or a time like 10ms, not {value!r}") from None
        return value

    def bytes(self, key: str) -> int | None:
        value = self.take(key, None)
        if value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 0):
            return value
        found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(\w*)", value) if isinstance(value, str) else None
        unit = "B" if found is None else found[2] or "B"
        if found is None or unit not in BYTES:
            raise self.error(key, f"is a number of bytes, or a text like 10 GiB, not {value!r}")
        return round(float(found[1]) * BYTES[unit])

    def environment(self, key: str) -> dict[str, str]:
        table = self.table(key, required=False)
        for name, value in table.left.items():
            if not isinstance(value, str):
                raise table.error(name, f"is a text, not {value!r}")
        return table.left
