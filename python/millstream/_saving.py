"""Saving the states of a step: what changed since the last epoch, and how an object becomes bytes.

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

__all__ = ["Keeper"]

SNAPSHOT, STRUCT, PICKLE = ord("l"), ord("s"), ord("p")
PROGRAMS = ("__main__", "__millstream__", "__mp_main__")
"""The names under which the file of a flow may have been run."""


class Keeper:
    """The states of a step on one worker, and which of them changed in this epoch."""

    def __init__(self, states: dict[Any, Any]) -> None:
        self.states = states
        self.changed: dict[Any, None] = {}
        self.births: dict[Any, int] = {}

    def touch(self, keys: list[Any]) -> None:
        """Items of these keys were processed."""
        self.changed.update(dict.fromkeys(keys))

    def save(self) -> list[tuple[Any, int, int, bytes]]:
        """The keys that changed: key, number of its birth, how it is written, and its state.

        Raises Unsaved with the key.
        """
        saved = []
        states, births = self.states, self.births
        for key in self.changed:
            if key in states:
                try:
                    how, written = dump(states[key])
                except Exception as error:
                    error.__millstream_key__ = key  # type: ignore[attr-defined]
                    raise
                saved.append((key, births.setdefault(key, len(births)), how, written))
        self.changed.clear()
        return saved

    def load(self, key: Any, how: int, written: bytes, moved: bool) -> None:
        """Takes up a key that was saved; where it came from another worker it is to be saved anew."""
        self.states[key] = read(how, written, getattr(self.states, "make", None))
        self.births[key] = len(self.births)
        if moved:
            self.changed[key] = None


def dump(state: Any) -> tuple[int, bytes]:
    """How a state is written, and its bytes."""
    kind = type(state)
    if hasattr(kind, "snapshot") and hasattr(kind, "restore"):
        return SNAPSHOT, pickle.dumps((kind, state.snapshot()), 5)
    msgspec = sys.modules.get("msgspec")
    if msgspec is not None and isinstance(state, msgspec.Struct):
        return STRUCT, pickle.dumps((kind, msgspec.msgpack.encode(state)), 5)
    return PICKLE, pickle.dumps(state, 5)


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
