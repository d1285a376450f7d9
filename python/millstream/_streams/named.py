"""The name that the first argument of a source or sink is."""

from __future__ import annotations

from .._errors.flow import FlowUsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


MISSING: Any = object()
"""Stands for a source or sink that is not given: its name was forgotten, as a rule."""


def check_name(kind: str, name: object, given: object) -> None:
    """Checks what a call of ``source`` or ``sink`` was given.

    Args:
        kind: ``"source"`` or ``"sink"``.
        name: the name.
        given: the source or sink, or ``MISSING``.

    Raises:
        FlowUsageError: the name is missing or no text, or the source or sink is missing or a class.

    >>> check_name("sink", print, MISSING)
    Traceback (most recent call last):
    millstream.FlowUsageError: a sink has a name, which comes first: sink("NAME", ...)
    """
    if isinstance(name, str) and given is not MISSING:
        if not name:
            raise FlowUsageError(f"a {kind} needs a name")
        # `ms.sink` wraps a class in a function.
        made = given if isinstance(given, type) else getattr(given, "__wrapped__", None)
        if isinstance(made, type):
            raise FlowUsageError(f"{made.__name__} is a class: a {kind} is an object, {made.__name__}(...)")
    elif isinstance(name, str):
        raise FlowUsageError(f'{kind}("{name}") has a name and no {kind}: {kind}("{name}", {kind.upper()})')
    else:
        # Also a name that comes second: the types of both say so.
        raise FlowUsageError(f'a {kind} has a name, which comes first: {kind}("NAME", ...)')
