"""JSON as every connector reads and writes it: RFC 8259, so that what is read can be written.

The parser of the standard library reads more: NaN and infinities, numbers that become infinite, and halves of
surrogate pairs, which are no text in UTF-8.
"""

from __future__ import annotations

import json
import math
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError(f"the number {digits[:40]} is too large")
    return number


_decoder = json.JSONDecoder(parse_constant=_refuse)
_careful = json.JSONDecoder(parse_constant=_refuse, parse_float=_finite)
DEPTH_MAX = 256
"""How deep lists and objects are nested at most: what is read here must be saved at a commit, and pickle ends
at some 500."""
_exponent = re.compile(rb"\d[eE]\+?0*[1-9]\d\d").search
_many_digits = re.compile(rb"\d{300}").search


def load(text: bytes) -> Any:
    """Reads a JSON document.

    Args:
        text: the document in UTF-8.

    Returns:
        The value, as ``json.loads`` returns it.

    Raises:
        ValueError: it is no JSON, nested more than 256 deep, a number is out of range, or a string is no
            text.

    Example:
        >>> load(b'{"n": [1, 2.5]}')
        {'n': [1, 2.5]}
        >>> load(b'1e999')
        Traceback (most recent call last):
        ValueError: the number 1e999 is too large
    """
    try:
        # Only such a number may be out of range; to call a function for each takes longer.
        is_large = _exponent(text) or (len(text) >= 300 and _many_digits(text))
        decoder = _careful if is_large else _decoder
        value = decoder.decode(text.decode(json.detect_encoding(text)))
    except RecursionError:
        raise ValueError(f"it is nested more than {DEPTH_MAX} deep") from None
    # Only a text with so many brackets may be too deep; to measure each takes longer.
    if text.count(b"[") + text.count(b"{") > DEPTH_MAX and is_deep(value):
        raise ValueError(f"it is nested more than {DEPTH_MAX} deep")
    if b"\\u" in text:
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise ValueError("a string has half of a surrogate pair") from None
    return value


def has_parts(value: Any) -> bool:
    return isinstance(value, (dict, list))


def is_deep(value: Any) -> bool:
    """Whether a value is nested deeper than the limit."""
    level = [value]
    for _ in range(DEPTH_MAX + 1):
        inner = [one.values() if isinstance(one, dict) else one for one in level if has_parts(one)]
        if not inner:
            return False
        level = [each for one in inner for each in one]
    return True


def _fields(value: Any) -> Any:
    """What is written for a value that is not of JSON: the fields of a dead letter."""
    fields = getattr(type(value), "_json_fields", None)
    if fields is None:
        raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")
    return fields(value)


_encoder = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_fields)
"""Made once: ``json.dumps`` makes one for each value."""


def dump(item: object) -> str:
    """Writes a value as a JSON document.

    Args:
        item: the value.

    Returns:
        The document.

    Raises:
        ValueError: a number is NaN or infinite.
        TypeError: a value has no form in JSON.

    Example:
        >>> dump({"name": "Käse", "n": [1, None]})
        '{"name":"Käse","n":[1,null]}'
    """
    return _encoder.encode(item)
