"""Which objects can be the state of a key, and how a stateful function takes its arguments.

``stateful`` passes the state of a key to a function and keeps that object: the function must change it in
place. An immutable state would silently never change. It is refused where the flow is
described if the type shows it, else at the first value of a key.
"""

from __future__ import annotations

import enum
from functools import cache

from .._errors.flow import FlowUsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


VALUE_NAMES = frozenset(
    {"item", "value", "val", "v", "x", "data", "event", "msg", "message", "record", "row"}
)
"""Common names of the argument that is not the state."""


@cache
def atoms() -> tuple[type, ...]:
    """Types whose objects never change, and those of whose subclasses only where they have attributes."""
    from datetime import date, time, timedelta, tzinfo
    from decimal import Decimal
    from fractions import Fraction
    from uuid import UUID

    plain = (type(None), bool, int, float, complex, str, bytes, range)
    return (*plain, date, time, timedelta, tzinfo, Decimal, Fraction, UUID, enum.Enum)


def is_frozen(kind: type) -> bool:
    """True for a frozen dataclass or ``msgspec.Struct``."""
    how = getattr(kind, "__dataclass_params__", None) or getattr(kind, "__struct_config__", None)
    return how is not None and bool(how.frozen)


def is_immutable(value: Any) -> bool:
    """True for an object that no function can change, and that holds none that it could.

    >>> is_immutable((1, "a")), is_immutable(([], "a")), is_immutable({})
    (True, False, False)
    """
    kind = type(value)
    if isinstance(value, enum.Enum):
        return True
    if isinstance(value, (tuple, frozenset)):
        return not has_attributes(value) and all(map(is_immutable, value))
    if isinstance(value, atoms()):
        return not has_attributes(value)
    if is_frozen(kind):
        names = getattr(kind, "__struct_fields__", None) or kind.__dataclass_fields__
        return all(is_immutable(getattr(value, name, None)) for name in names)
    return False


def has_attributes(value: Any) -> bool:
    """Whether attributes can be set on an object."""
    return hasattr(value, "__dict__")


def refusal(name: str, shown: str) -> FlowUsageError:
    """The error for an immutable state."""
    return FlowUsageError(
        f'stateful "{name}" changes the state in place, and {shown} cannot be changed: '
        "stateful_map takes a function (state, value) that returns the new state and the output"
    )


def own_state_or_raise(name: str, state: Callable[[], Any]) -> None:
    """Raises where the type that makes the states of a ``stateful`` step is immutable."""
    if not isinstance(state, type):
        return
    if not (issubclass(state, (*atoms(), tuple, frozenset)) or is_frozen(state)):
        return
    try:
        made = state()
    except Exception:
        # An enum cannot be made like that; anything else raises at the first value.
        if issubclass(state, enum.Enum):
            raise refusal(name, state.__name__) from None
        return
    if is_immutable(made):
        raise refusal(name, state.__name__)


def changeable(name: str, state: Callable[[], Any]) -> Callable[[], Any]:
    """``state``, wrapped so that it raises for an immutable object."""
    known: set[type] = set()

    def make() -> Any:
        made = state()
        kind = type(made)
        if kind not in known:
            if is_immutable(made):
                raise refusal(name, f"{made!r}"[:80])
            if not isinstance(made, (tuple, frozenset)) and not is_frozen(kind):
                known.add(kind)
        return made

    return make


def state_first_or_raise(verb: str, f: Callable[..., Any], state: Any) -> None:
    """Raises for a function that takes the value first and the state second, as Wallaroo has it."""
    from inspect import signature

    try:
        arguments = list(signature(f).parameters.values())
    except (TypeError, ValueError):
        return  # a builtin without a signature
    if len(arguments) != 2 or any(
        one.kind not in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD) for one in arguments
    ):
        return
    first, second = arguments
    by_name = second.name == "state" and first.name in VALUE_NAMES
    own = isinstance(state, type) and state.__module__ != "builtins"
    by_type = own and is_named(second.annotation, state) and differs(first.annotation, state)
    if by_name or by_type:
        function = getattr(f, "__name__", repr(f))
        raise FlowUsageError(
            f"{verb} calls {function} with the state first and the value second: "
            f"write {function}({second.name}, {first.name})"
        )


def nothing() -> None:
    """The state of a key that has none, where no maker is given."""


def is_named(annotation: Any, state: type) -> bool:
    """Whether an annotation is this class, or its name."""
    return annotation is state or annotation == state.__name__


def differs(annotation: Any, state: type) -> bool:
    """Whether there is an annotation, of another class."""
    from inspect import Parameter

    return annotation is not Parameter.empty and state.__name__ not in str(annotation)


def without_arguments_or_raise(logic: Callable[..., Any]) -> None:
    """Raises when the logic of a key cannot be made without arguments."""
    from inspect import signature

    try:
        signature(logic).bind()
    except TypeError:
        name = getattr(logic, "__name__", repr(logic))
        raise FlowUsageError(
            f"stateful calls {name} without arguments, which it does not take; "
            "a function (state, value) needs state="
        ) from None
    except ValueError:
        return  # a builtin without a signature
