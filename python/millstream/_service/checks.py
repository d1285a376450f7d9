"""Checks, at the start of a service, that classes can be interfaces and components.

A call is recorded with its arguments by position and returns nothing: the answer of a component is a call of
its own. A method for which this is impossible is an error that names component, interface and method.

>>> from typing import Protocol
>>> class Orders(Protocol):
...     async def place(self, symbol: str) -> None: ...
>>> check_recordable(Orders, "place", Orders.place)
Traceback (most recent call last):
...
millstream.ServiceError: interface Orders, place: is async; services call plain methods
"""

from __future__ import annotations

import dis
import inspect
import types
import typing
from collections.abc import Callable, Iterable
from typing import Any

from .._errors.flow import ServiceError

#: Annotations of functions that return nothing, as objects and as texts.
NOTHING = (None, type(None), typing.NoReturn, "None", "NoReturn", "Never")
#: Instructions that compute nothing.
IDLE = ("RESUME", "NOP", "CACHE", "COPY_FREE_VARS")
#: Instructions that leave a value which is never None.
VALUES = (
    "BUILD_",
    "COMPARE_OP",
    "CONTAINS_OP",
    "IS_OP",
    "FORMAT_",
    "LOAD_SMALL_INT",
    "UNARY_",
    "MAKE_FUNCTION",
)


def hints_of(of: object, where: str) -> dict[str, Any]:
    """The annotations of a class or a function.

    :raises ServiceError: with ``where``, if one of them refers to an unknown name.
    """
    try:
        return typing.get_type_hints(of, include_extras=True)
    except (NameError, AttributeError, TypeError, SyntaxError) as error:
        raise ServiceError(f"{where}: its annotations cannot be read: {error}") from error


def check_members(interface: type) -> None:
    """Raises for members that look like a part of an interface but cannot be called through a journal."""
    for base in interface.__mro__:
        if base in (object, typing.Protocol, typing.Generic):
            continue
        for name, member in vars(base).items():
            kind = type(member).__name__
            if not name.startswith("_") and isinstance(member, (property, staticmethod, classmethod)):
                raise ServiceError(f"interface {interface.__name__}, {name}: is a {kind}, not a method")


def check_recordable(interface: type, name: str, function: Callable[..., object]) -> None:
    """Refuses a method of an interface whose calls cannot be recorded."""
    where = f"interface {interface.__name__}, {name}"
    parameters = list(inspect.signature(function).parameters.values())
    if not parameters:
        raise ServiceError(f"{where}: has no self")
    for parameter in parameters:
        shown = {"VAR_POSITIONAL": "*", "VAR_KEYWORD": "**"}.get(parameter.kind.name, "") + parameter.name
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise ServiceError(f"{where}: takes {shown}; each argument needs a name and a type")
        if parameter.kind is parameter.KEYWORD_ONLY:
            raise ServiceError(f"{where}: takes {shown} by keyword only; arguments are recorded by position")
    check_returns_nothing(where, function)


def check_returns_nothing(where: str, function: Callable[..., object]) -> None:
    """Raises for a method that is async, a generator, or returns a value."""
    plain = inspect.unwrap(function)
    if inspect.iscoroutinefunction(plain) or inspect.isasyncgenfunction(plain):
        raise ServiceError(f"{where}: is async; services call plain methods")
    if inspect.isgeneratorfunction(plain):
        raise ServiceError(f"{where}: is a generator, whose body would never run")
    annotations: dict[str, object] = getattr(plain, "__annotations__", {})
    kind = annotations.get("return")
    if kind not in NOTHING and kind is not getattr(typing, "Never", None):
        shown = kind.__name__ if isinstance(kind, type) else kind
        raise ServiceError(f"{where}: returns {shown}; a method of a service returns None")
    if "return" not in annotations and returns_value(plain):
        raise ServiceError(f"{where}: returns a value; a method of a service returns None")


def returns_value(function: object) -> bool:
    """Whether a function without annotation returns what is certainly not None."""
    before = None
    for instruction in instructions_of(function):
        if instruction.opname == "RETURN_CONST" and instruction.argval is not None:
            return True
        if instruction.opname == "RETURN_VALUE" and before is not None:
            constant = before.opname == "LOAD_CONST" and before.argval is not None
            if constant or before.opname.startswith(VALUES):
                return True
            if before.opname.startswith("BINARY_") and before.argrepr not in ("", "[]"):
                return True
        before = instruction
    return False


def instructions_of(function: object) -> Iterable[dis.Instruction]:
    """The instructions of a function, if it is written in Python."""
    code = getattr(function, "__code__", None)
    if not isinstance(code, types.CodeType):
        return []
    return [found for found in dis.get_instructions(code) if found.opname not in IDLE]


def is_stub(function: object) -> bool:
    """Whether a method has no body: ``...``, ``pass``, a docstring, or ``raise NotImplementedError``."""
    if getattr(function, "__isabstractmethod__", False):
        return True
    code = getattr(inspect.unwrap(function) if callable(function) else None, "__code__", None)
    if not isinstance(code, types.CodeType):
        return False
    found = list(instructions_of(inspect.unwrap(function)))  # type: ignore[arg-type]
    if [one.opname for one in found] in (["RETURN_CONST"], ["LOAD_CONST", "RETURN_VALUE"]):
        return found[0].argval is None
    raises = bool(found) and found[-1].opname == "RAISE_VARARGS"
    return raises and code.co_names == ("NotImplementedError",)


def check_implements(
    component: type,
    instance: object | None,
    interface: type,
    name: str,
    is_interface: Callable[[object], bool],
) -> None:
    """Raises for a component that lacks a method of an interface, or cannot be called as the interface says.

    Without an ``instance`` only the class is checked: whether it has the method at all.
    """
    where = f"{component.__name__}, {name} of interface {interface.__name__}"
    if instance is None or name not in getattr(instance, "__dict__", {}):
        owner = next((base for base in component.__mro__ if name in vars(base)), interface)
        member = vars(owner).get(name)
        if is_interface(owner) and is_stub(member):
            raise ServiceError(f"{where}: the component has no such method")
    if instance is None:
        return
    count = len(inspect.signature(getattr(interface, name)).parameters) - 1
    check_callback(where, getattr(instance, name), count)


def check_callback(where: str, method: object, count: int) -> None:
    """Raises for a callable that does not take this many arguments, or does not return None."""
    if not callable(method):
        raise ServiceError(f"{where}: is no method")
    check_returns_nothing(where, method)
    try:
        signature = inspect.signature(method)
    except ValueError:  # written in C, without a signature
        return
    try:
        signature.bind(*[None] * count)
    except TypeError as error:
        raise ServiceError(f"{where}: cannot be called with {count} arguments: {error}") from None
