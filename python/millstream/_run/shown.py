"""Saved states as text, for ``millstream state``: without the flow, and without running any code of it.

A pickle names classes and functions. Those of the standard library are loaded; any other is replaced by a
placeholder that keeps and shows the contents of the pickle: ``Seen(times=3)``.
"""

from __future__ import annotations

import io
import pickle
from reprlib import recursive_repr

from .._values.saving import PICKLE, SNAPSHOT, STRUCT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


KNOWN = frozenset(
    ["array", "collections", "datetime", "decimal", "fractions", "ipaddress", "pathlib", "uuid", "zoneinfo"]
)
"""Modules whose classes only hold values."""
KNOWN_BUILTINS = frozenset(
    ["bool", "bytearray", "bytes", "complex", "dict", "float", "frozenset", "int", "list", "object"]
    + ["range", "set", "slice", "str", "tuple"]
)


def show(how: int, written: bytes) -> str | None:
    """The state as text; None when it was not written by Python.

    >>> from datetime import timedelta
    >>> show(PICKLE, pickle.dumps([timedelta(seconds=1), {"a": (1, None)}]))
    "[datetime.timedelta(seconds=1), {'a': (1, None)}]"
    """
    if how not in (PICKLE, STRUCT, SNAPSHOT):
        return None
    try:
        return repr(load(how, written))
    except Exception as error:
        return f"{len(written)} bytes that cannot be shown: {type(error).__name__}: {error}"


def read(how: int, written: bytes) -> Any:
    """The state as an object that can be compared, with placeholders; None when that is not possible."""
    try:
        return load(how, written) if how in (PICKLE, STRUCT, SNAPSHOT) else None
    except Exception:
        return None


def load(how: int, written: bytes) -> Any:
    value = Reader(io.BytesIO(written)).load()
    if how == PICKLE:
        return value
    kind, inner = value
    if how == SNAPSHOT:
        return stand_in(kind.__module__, f"{kind.__qualname__}.restore")(inner)
    return struct(kind, inner)


def struct(kind: Any, encoded: bytes) -> Any:
    """The output of msgspec, which is read by msgspec where it is installed."""
    try:
        from importlib import import_module

        fields = import_module("msgspec.msgpack").decode(encoded)
    except ImportError:
        return kind(encoded)
    return kind(**fields) if isinstance(fields, dict) else kind(*fields)


class StandIn:
    """An object of a class that cannot be imported: its arguments, and its state."""

    _parts: tuple[list[Any], dict[str, Any]]

    def __new__(cls, *args: Any, **named: Any) -> Any:
        made = super().__new__(cls)
        made.__dict__["_parts"] = ([(value,) for value in args], named)
        return made

    def __init__(self, *args: Any, **named: Any) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        # With __slots__ a state is a pair: what is in __dict__, and what is in slots.
        for part in state if isinstance(state, tuple) and len(state) == 2 else (state,):
            if isinstance(part, dict):
                self._parts[1].update(part)
            elif part is not None:
                self._parts[0].append((part,))

    def append(self, value: Any) -> None:
        """An item of a list of its own kind."""
        self._parts[0].append((value,))

    add = append

    def extend(self, values: Any) -> None:
        """Items of a list of its own kind."""
        for value in values:
            self.append(value)

    def __setitem__(self, key: Any, value: Any) -> None:
        self._parts[0].append((key, value))

    def __call__(self, *args: Any, **named: Any) -> Any:
        return stand_in(type(self).__module__, "call")(self, *args, **named)

    def __hash__(self) -> int:
        return hash(type(self).__qualname__)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, StandIn):
            return NotImplemented
        kinds = [(type(one).__module__, type(one).__qualname__) for one in (self, other)]
        return kinds[0] == kinds[1] and bool(self._parts == other._parts)

    @recursive_repr("...")
    def __repr__(self) -> str:
        parts, named = self._parts
        inside = [": ".join(map(repr, part)) for part in parts]
        inside += [f"{name}={value!r}" for name, value in named.items()]
        return f"{type(self).__qualname__}({', '.join(inside)})"


def stand_in(module: str, name: str) -> Any:
    """A class of this name that shows its contents."""
    return type(name.rpartition(".")[2], (StandIn,), {"__module__": module, "__qualname__": name})


class Reader(pickle.Unpickler):
    """Finds a placeholder for every class and function that is not known to hold only values."""

    def find_class(self, module: str, name: str) -> Any:
        if module.partition(".")[0] in KNOWN or (module == "builtins" and name in KNOWN_BUILTINS):
            if "." not in name:
                return super().find_class(module, name)
        return stand_in(module, name)
