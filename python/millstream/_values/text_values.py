"""Text among the values of ``sum``, ``mean``, ``min`` and ``max``, as the fields of a CSV file are.

``sum`` would join it and ``min`` and ``max`` would compare its characters, where numbers are meant. Only the
first value of an accumulator is examined: what follows is combined with it, and a number and text do not
combine.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

TEXT = (str, bytes, bytearray)
REMEDY = 'make numbers of it: types={"v": float} for the fields of ms.files.csv, or map(float)'


def refused(rule: str, text: Any) -> TypeError:
    """The error for text where a rule asks for numbers."""
    from .._errors.flow import show

    return TypeError(f"{rule}, and {show(text)} is text; {REMEDY}")


def adding(verb: str) -> Callable[[Any], Any]:
    """The first value of a sum, which is not text.

    >>> adding("sum")(2)
    2
    >>> adding("sum")("2")
    Traceback (most recent call last):
    TypeError: sum adds numbers, and '2' is text; make numbers of it: types={"v": float} for the fields of \
ms.files.csv, or map(float)
    """

    def first(value: Any) -> Any:
        if isinstance(value, TEXT):
            raise refused(f"{verb} adds numbers", value)
        return value

    return first


def comparing(verb: str, step: str) -> Callable[[Any], Any]:
    """The first value of a comparison: the first text that is a number is logged, once."""
    said = False

    def first(value: Any) -> Any:
        nonlocal said
        if not said and isinstance(value, TEXT) and _is_number(value):
            import logging  # not at each import of millstream

            said = True
            logging.getLogger("millstream.flow").warning(
                'step "%s": %s compares text by its characters, "9" after "10", and %r is a number; %s',
                step,
                verb,
                value,
                REMEDY,
            )
        return value

    return first


def _is_number(text: str | bytes | bytearray) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
