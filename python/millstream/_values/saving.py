"""Saving the states of steps: how an object becomes bytes.

A state is saved, in this order of preference, by its own ``snapshot()``, which returns a value for
``restore(value)``; by msgspec if it is a ``msgspec.Struct``; or by pickle, protocol 5.
"""

from __future__ import annotations

import copyreg
import io
import pickle
import sys
from types import MemberDescriptorType

from .._run.programs import DESCRIBING, PROGRAMS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any


SNAPSHOT = ord("l")
STRUCT = ord("s")
PICKLE = ord("p")
NEW = object().__reduce_ex__(5)[0]
"""The function that makes an object of a class without one of its own."""


def saves_itself(kind: type) -> bool:
    return hasattr(kind, "snapshot") and hasattr(kind, "restore")


def is_plain(kind: type) -> bool:
    """True when objects of this type are written by pickle."""
    msgspec = sys.modules.get("msgspec")
    return not saves_itself(kind) and (msgspec is None or not issubclass(kind, msgspec.Struct))


def way(state: Any) -> tuple[bytes, tuple[str, ...] | None] | bool:
    """How objects of the type of this one are written: False by :func:`dump`; True by ``pickle.dumps``.

    Else so, while their attributes are plain values: the pickle of an object without attributes, less its
    last byte, and the names of its attributes where these are slots.
    """
    kind = type(state)
    if not is_plain(kind):
        return False
    if not is_simple(state):
        return True
    members = [vars(base).items() for base in kind.__mro__]
    slots = tuple(name for base in members for name, slot in base if isinstance(slot, MemberDescriptorType))
    if slots and kind.__dictoffset__:
        return True
    head = [pickle.PROTO, b"\x05", text(kind.__module__), text(kind.__qualname__), pickle.STACK_GLOBAL]
    return b"".join([*head, pickle.EMPTY_TUPLE, pickle.NEWOBJ]), slots or None


def text(words: str) -> bytes:
    """The opcode that loads a text."""
    encoded = words.encode()
    return pickle.BINUNICODE + len(encoded).to_bytes(4, "little") + encoded


def is_simple(state: Any) -> bool:
    """True when pickle writes only the class of such objects and their attributes."""
    kind = type(state)
    own = [getattr(kind, name) is getattr(object, name) for name in ("__reduce__", "__reduce_ex__")]
    own.append(getattr(kind, "__getstate__", None) is getattr(object, "__getstate__", None))
    if not all(own) or kind in copyreg.dispatch_table:
        return False
    try:
        make, arguments, _, *items = state.__reduce_ex__(5)
    except Exception:
        # Pickle raises the same error.
        return False
    # Pickle raises for a class that cannot be found again.
    found: Any = sys.modules.get(kind.__module__)
    for name in kind.__qualname__.split("."):
        found = getattr(found, name, None)
    return make is NEW and arguments == (kind,) and not any(items) and found is kind


def dump(state: Any) -> tuple[int, bytes]:
    """How a state is written, and its bytes."""
    kind = type(state)
    if is_plain(kind):
        return PICKLE, pickled(state)
    if saves_itself(kind):
        return SNAPSHOT, pickled((kind, state.snapshot()))
    from importlib import import_module

    encoded = import_module("msgspec").msgpack.encode(state)
    return STRUCT, pickle.dumps((kind, encoded), 5)


def pickled(value: Any) -> bytes:
    """The pickle of a value.

    Raises:
        TypeError: it has none.
    """
    try:
        return pickle.dumps(value, 5)
    except Exception as error:
        raise TypeError(
            f"{error}; keep plain data in it and classes at the top of a module, or give its class "
            "snapshot() and restore(value)"
        ) from error


def read(how: int, written: bytes, make: Callable[[], Any] | None) -> Any:
    """The state that was written."""
    aliases = getattr(getattr(make, "revival", None), "aliases", None) or {}
    value = Reader(io.BytesIO(written), aliases).load()
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
    raise ValueError(f"it is written in an unknown way ({how})")


def dump_items(items: list[Any]) -> bytes:
    """A batch of a durable source's input."""
    return pickle.dumps(items, 5)


def read_items(written: bytes) -> Any:
    """The batch that was recorded."""
    return Reader(io.BytesIO(written)).load()


class Reader(pickle.Unpickler):
    """Finds the classes of the flow's own file under whatever name it is run, and renamed ones by their
    aliases.
    """

    def __init__(self, file: io.BytesIO, aliases: Mapping[str, type] | None = None) -> None:
        super().__init__(file)
        self.aliases = aliases or {}

    def find_class(self, module: str, name: str) -> Any:
        for known in (f"{module}.{name}", name):
            if known in self.aliases:
                return self.aliases[known]
        if module in PROGRAMS:
            for program in (*PROGRAMS, *DESCRIBING):
                if hasattr(sys.modules.get(program), name.partition(".")[0]):
                    return super().find_class(program, name)
        try:
            return super().find_class(module, name)
        except (AttributeError, ImportError) as error:
            raise type(error)(
                f"its class {module}.{name} is not there any more; if it has another name now, give the step "
                f'aliases={{"{module}.{name}": ...}} with the class of today'
            ) from error
