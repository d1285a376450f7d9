"""Saving the states of steps: how an object becomes bytes.

A state is saved, in this order of preference, by its own ``snapshot()``, which gives a value that
``restore(value)`` takes back; by msgspec if it is a ``msgspec.Struct``; or by pickle, protocol 5.
"""

from __future__ import annotations

import io
import pickle
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

__all__ = ["dump", "is_plain", "read"]

SNAPSHOT, STRUCT, PICKLE = ord("l"), ord("s"), ord("p")
PROGRAMS = ("__main__", "__millstream__", "__mp_main__")
"""The names under which the file of a flow may have been run."""


def saves_itself(kind: type) -> bool:
    return hasattr(kind, "snapshot") and hasattr(kind, "restore")


def is_plain(kind: type) -> bool:
    """True when objects of this type are written by pickle."""
    msgspec = sys.modules.get("msgspec")
    return not saves_itself(kind) and (msgspec is None or not issubclass(kind, msgspec.Struct))


def dump(state: Any) -> tuple[int, bytes]:
    """How a state is written, and its bytes."""
    kind = type(state)
    if is_plain(kind):
        return PICKLE, pickle.dumps(state, 5)
    if saves_itself(kind):
        return SNAPSHOT, pickle.dumps((kind, state.snapshot()), 5)
    from importlib import import_module

    encoded = import_module("msgspec").msgpack.encode(state)
    return STRUCT, pickle.dumps((kind, encoded), 5)


def read(how: int, written: bytes, make: Callable[[], Any] | None) -> Any:
    """The state that was written."""
    value = read_items(written)
    if how == PICKLE:
        return value
    if how == STRUCT:
        from importlib import import_module

        msgspec = import_module("msgspec")
        return msgspec.msgpack.decode(value[1], type=value[0])
    if how == SNAPSHOT:
        kind, snapshot = value
        state = make() if make is not None else kind()
        state.restore(snapshot)
        return state
    raise ValueError(f"it is written in a way ({how}) that this version does not read")


def dump_items(items: list[Any]) -> bytes:
    """A batch of a durable source's input."""
    return pickle.dumps(items, 5)


def read_items(written: bytes) -> Any:
    """The batch that was recorded."""
    return Reader(io.BytesIO(written)).load()


class Reader(pickle.Unpickler):
    """Finds the classes of the flow's own file under whatever name it is run."""

    def find_class(self, module: str, name: str) -> Any:
        if module in PROGRAMS:
            for program in PROGRAMS:
                if hasattr(sys.modules.get(program), name.partition(".")[0]):
                    return super().find_class(program, name)
        return super().find_class(module, name)
