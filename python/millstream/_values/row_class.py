"""Rows of text as objects of a class: the annotations of its fields say what is made of each text."""

from __future__ import annotations

from .._errors.flow import FlowUsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


TRUTHS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def row_class(of: type[Any]) -> tuple[dict[str, Callable[[str], object]], Callable[..., Any]]:
    """For each field of the class the function that makes its value, and what makes a row of them by name.

    Args:
        of: a dataclass, a ``NamedTuple``, a ``TypedDict``, whose rows are dicts, or a ``msgspec.Struct``.

    Raises:
        FlowUsageError: it is no such class, or a field has a type that is not made of text.

    Example:
        >>> from typing import NamedTuple
        >>> class Trade(NamedTuple):
        ...     symbol: str
        ...     price: float | None
        >>> functions, make = row_class(Trade)
        >>> functions["price"]("3"), functions["price"]("")
        (3.0, None)
        >>> make(symbol="A", price=3.0)
        Trade(symbol='A', price=3.0)
    """
    import typing

    names = _fields(of)
    if names is None:
        raise FlowUsageError(
            "types is a dataclass, NamedTuple, TypedDict or msgspec.Struct, or functions by the names of "
            f"fields, not {of!r}"
        )
    try:
        hints = typing.get_type_hints(of)
    except NameError as error:
        raise FlowUsageError(
            f"types: an annotation of {of.__name__} is not known at run time: {error}"
        ) from None
    functions = {name: _function(of, name, hints[name]) for name in names}
    return functions, dict if typing.is_typeddict(of) else of


def _fields(of: Any) -> list[str] | None:
    """The names of the fields, or None if it is no class of rows."""
    import dataclasses
    import typing

    if not isinstance(of, type):
        return None
    if dataclasses.is_dataclass(of):
        return [field.name for field in dataclasses.fields(of) if field.init]
    if typing.is_typeddict(of):
        return list(of.__annotations__)
    found = getattr(of, "__struct_fields__", None) or (issubclass(of, tuple) and getattr(of, "_fields", None))
    return list(found) if found else None


def _function(of: type[Any], name: str, hint: Any) -> Callable[[str], object]:
    """What makes the value of a field of its text."""
    import typing
    from types import UnionType

    if typing.get_origin(hint) in (typing.Union, UnionType):
        members = [member for member in typing.get_args(hint) if member is not type(None)]
        if len(members) == 1:
            of_text = _function(of, name, members[0])
            return lambda text: of_text(text) if text else None
    found = _choices(hint) or _plain(hint)
    if found is None:
        raise FlowUsageError(
            f"types: {of.__name__}.{name} is of {hint!r}, which is not made of text: use str, a number, "
            "bool, a date or time, an Enum or Literal, each of which may be optional, or types={...} with "
            "a function"
        )
    return found


def _plain(hint: Any) -> Callable[[str], object] | None:
    """The function for a type that has one."""
    import datetime
    from decimal import Decimal
    from pathlib import Path
    from uuid import UUID

    if hint in (str, int, float, complex, Decimal, Path, UUID):
        found: Callable[[str], object] = hint
        return found
    if hint is datetime.datetime:
        # Python 3.10 does not know that Z is UTC.
        return lambda text: datetime.datetime.fromisoformat(
            text[:-1] + "+00:00" if text[-1:] in "zZ" else text
        )
    if hint in (datetime.date, datetime.time):
        parse: Callable[[str], object] = hint.fromisoformat
        return parse
    return None


def _choices(hint: Any) -> Callable[[str], object] | None:
    """The function for a type with some values: bool, an Enum by its values, a Literal."""
    import enum
    import typing

    if hint is bool:
        return lambda text: _chosen(TRUTHS, text.lower(), text)
    if typing.get_origin(hint) is typing.Literal:
        values = {str(value): value for value in typing.get_args(hint)}
    elif isinstance(hint, type) and issubclass(hint, enum.Enum):
        values = {str(member.value): member for member in hint}
    else:
        return None
    return lambda text: _chosen(values, text, text)


def _chosen(values: dict[str, Any], key: str, text: str) -> object:
    try:
        return values[key]
    except KeyError:
        raise ValueError(f"{text!r} is none of {', '.join(values)}") from None
