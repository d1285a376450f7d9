"""Arguments of the command line for the function that makes a flow.

``millstream run orders.py:make eu --limit 5`` calls ``make("eu", limit=5)``: one program, many topics. A
parameter is converted by its annotation: ``int``, ``float``, ``bool``, ``str``, ``Path``, each of which may
be optional; without an annotation it is text.
"""

from __future__ import annotations

from .._errors.command import UsageError
from .logic import is_async

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from inspect import Parameter, Signature
    from typing import Any


TRUTHS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def call(place: str, factory: Callable[..., Any], arguments: list[str]) -> Any:
    """What a factory returns for these arguments.

    Raises:
        UsageError: they do not fit; the text names parameter and value.

    Example:
        >>> def make(topic: str, limit: int = 3, dry: bool = False): return topic, limit, dry
        >>> call("orders.py:make", make, ["eu", "--limit", "5", "--dry"])
        ('eu', 5, True)
    """
    import inspect

    if is_async(factory):
        raise UsageError(f"{place} is async: a flow is made by a function that returns it")
    try:
        signature = inspect.signature(factory)
    except (TypeError, ValueError):
        signature = inspect.Signature()
    kinds = types_of(factory)
    by_position, by_name = divided(place, signature, kinds, arguments)
    try:
        bound = signature.bind(*by_position, **by_name)
    except TypeError as error:
        raise UsageError(f"{place}{shown(signature)}: {error}") from None
    for name, value in bound.arguments.items():
        parameter = signature.parameters[name]
        kind = kinds.get(name, str)
        if parameter.kind is parameter.VAR_POSITIONAL:
            bound.arguments[name] = tuple(converted(place, name, text, kind) for text in value)
        elif parameter.kind is parameter.VAR_KEYWORD:
            bound.arguments[name] = {key: converted(place, key, text, kind) for key, text in value.items()}
        else:
            bound.arguments[name] = converted(place, name, value, kind)
    return factory(*bound.args, **bound.kwargs)


def shown(signature: Signature) -> str:
    """The parameters as a user has written them, without the result."""
    return str(signature.replace(return_annotation=signature.empty))


def types_of(factory: Callable[..., Any]) -> dict[str, Any]:
    """The types of the parameters."""
    import typing

    described = factory.__init__ if isinstance(factory, type) else factory  # type: ignore[misc]
    try:
        return typing.get_type_hints(described)
    except (NameError, TypeError):
        # A name that only type checkers know: the text of the annotation is all that there is.
        return dict(getattr(described, "__annotations__", {}))


def divided(
    place: str, signature: Signature, kinds: dict[str, Any], arguments: list[str]
) -> tuple[list[str], dict[str, str]]:
    """The arguments by position, and the options by the names of their parameters."""
    by_position: list[str] = []
    by_name: dict[str, str] = {}
    rest = list(arguments)
    while rest:
        argument = rest.pop(0)
        if not argument.startswith("--"):
            by_position.append(argument)
            continue
        option, equals, value = argument[2:].partition("=")
        name = option.replace("-", "_")
        takes_any = any(each.kind is each.VAR_KEYWORD for each in signature.parameters.values())
        if not takes_any and not is_option(signature.parameters.get(name)):
            known = [each.name for each in signature.parameters.values() if is_option(each)]
            has = f"it has {', '.join(known)}" if known else "it has none"
            raise UsageError(f"{place} has no parameter {name}: {has}")
        if name in by_name:
            raise UsageError(f"{place}: --{option} is given twice")
        if not equals:
            if inner(kinds.get(name)) is bool and (not rest or rest[0].startswith("--")):
                value = "true"
            elif rest:
                value = rest.pop(0)
            else:
                raise UsageError(f"{place}: --{option} needs a value")
        by_name[name] = value
    return by_position, by_name


def is_option(parameter: Parameter | None) -> bool:
    """Whether a parameter may be given by its name."""
    return parameter is not None and parameter.kind in (
        parameter.POSITIONAL_OR_KEYWORD,
        parameter.KEYWORD_ONLY,
    )


def inner(kind: Any) -> Any:
    """The type of an optional one; another type itself."""
    import types
    import typing

    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        members = [member for member in typing.get_args(kind) if member is not type(None)]
        return members[0] if len(members) == 1 else kind
    return kind


def converted(place: str, name: str, text: str, kind: Any) -> Any:
    """The value of a parameter of this type."""
    from pathlib import Path

    kind = inner(kind)
    try:
        if kind in (int, float, Path):
            return kind(text)
        if kind is bool:
            return TRUTHS[text.lower()]
    except (ValueError, KeyError):
        truths = f": say {' or '.join(TRUTHS)}" if kind is bool else ""
        raise UsageError(
            f"{place}: {name} is of the type {kind.__name__}, and {text!r} is none{truths}"
        ) from None
    if kind is str or not isinstance(kind, type):
        return text
    raise UsageError(
        f"{place}: {name} is of the type {kind.__name__}, which no argument is: annotate it with int, float, "
        "bool, str or Path, and convert it in the function"
    )
