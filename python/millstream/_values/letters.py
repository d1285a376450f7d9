"""Dead letters as lines of JSON, which ``millstream redrive`` reads.

A line has ``step``, ``key``, ``item``, ``error`` and, of a source, ``position``. A key or an item that JSON
would change is there twice: as ``item_repr`` for people, and as ``item_pickle`` in base64.

>>> fields = fields_of("age", None, "x", "ValueError: no number", None, repr)
>>> fields
{'step': 'age', 'key': None, 'item': 'x', 'error': 'ValueError: no number'}
>>> values_of(fields)
(None, 'x')
>>> values_of(fields_of("age", (1, 2), b"x", "ValueError: no number", None, repr))
((1, 2), b'x')
"""

from __future__ import annotations

import base64
import io
import math

from .json import load

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def fields_of(
    step: str, key: Any, item: Any, error: str, position: str | None, show: Callable[[object], str]
) -> dict[str, Any]:
    """The fields of a letter; ``show`` makes the text of a value."""
    line: dict[str, Any] = {"step": step}
    line |= value_written("key", key, show) | value_written("item", item, show)
    line["error"] = text_of(error)
    if position is not None:
        line["position"] = position
    return line


def value_written(name: str, value: Any, show: Callable[[object], str]) -> dict[str, Any]:
    """The fields of a key or an item."""
    from .saving import dump_items

    try:
        if is_json(value):
            return {name: value}
        found: dict[str, Any] = {f"{name}_repr": text_of(show(value))}
        found[f"{name}_pickle"] = base64.b64encode(dump_items([value])).decode("ascii")
    except Exception:
        # It cannot be pickled, or is nested too deeply: its text is what is left.
        return {f"{name}_repr": text_of(show(value))}
    return found


def text_of(text: str) -> str:
    """The text without halves of surrogate pairs, which JSON has not."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def is_json(value: Any) -> bool:
    """Whether a value that is written as JSON is read as the same one."""
    kind = type(value)
    if kind is str:
        return bool(text_of(value) == value)
    if kind is float:
        return math.isfinite(value)
    if kind is list:
        return all(map(is_json, value))
    if kind is dict:
        return all(type(name) is str and is_json(name) and is_json(one) for name, one in value.items())
    return kind in (int, bool, type(None))


def read(line: bytes) -> dict[str, Any]:
    """The fields of a letter, which has a step.

    Raises:
        ValueError: the line is no dead letter.
    """
    try:
        found = load(line)
    except ValueError:
        found = None
    if not isinstance(found, dict) or not isinstance(found.get("step"), str):
        raise ValueError("it is no dead letter, an object with step, key, item and error")
    return found


def values_of(letter: dict[str, Any]) -> tuple[Any, Any]:
    """Key and item of a letter. Their classes are imported.

    Raises:
        ValueError: one could not be written, so that it cannot be sent again.
    """
    return value_read("key", letter), value_read("item", letter)


def value_read(name: str, found: dict[str, Any]) -> Any:
    from .saving import Reader

    if name in found:
        return found[name]
    pickled = found.get(f"{name}_pickle")
    if not isinstance(pickled, str):
        raise ValueError(f"its {name} could not be written, so that it cannot be sent again")
    (value,) = Reader(io.BytesIO(base64.b64decode(pickled, validate=True))).load()
    return value
