"""Saved states when a run begins: classes that were renamed, attributes that were added, states to migrate.

Each saved state of a step is read before the run does anything. A state that does not fit the
program is an error at the start, which names step and key, and not at the first value of that key.

A state is loaded in this order: its class is found, under the names in ``aliases=`` too; ``migrate=``
converts it; attributes that its class has gained get the defaults of the dataclass
(msgspec gives a struct its own); and it is compared with a new state.
"""

from __future__ import annotations

from .._errors.flow import FlowUsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any, TypeAlias

    Aliases: TypeAlias = "Mapping[str, type] | Iterable[str]"
    Migrate: TypeAlias = "Callable[[Any], Any]"


CONTAINERS = (dict, list, set, bytearray)
MISSING = object()


def reviving(
    make: Callable[[], Any],
    kind: object,
    aliases: Aliases | None = None,
    migrate: Migrate | None = None,
    strict: bool = True,
) -> Callable[[], Any]:
    """``make``, with the rules for restoring saved states.

    ``kind`` is what the user gave to make states: a class, or a function. ``strict``: a state is of
    that class.
    """

    def made() -> Any:
        return make()

    made.revival = Revival(make, kind, aliases, migrate, strict)  # type: ignore[attr-defined]
    return made


def reading(aliases: Aliases | None, migrate: Migrate | None) -> Callable[[], Any]:
    """The rules for saved objects that no function of the step makes: values that were reduced or retained.

    Those that are dataclasses get the fields that their class has gained.
    """

    def made() -> Any:
        raise TypeError("no function of the step makes its state")

    made.revival = Revival(None, None, aliases, migrate, False)  # type: ignore[attr-defined]
    return made


class Revival:
    """The rules for restoring each saved state. The engine reads the attributes ``aliases`` and
    ``plain``.
    """

    def __init__(
        self,
        make: Callable[[], Any] | None,
        kind: object,
        aliases: Aliases | None,
        migrate: Migrate | None,
        strict: bool,
    ) -> None:
        if migrate is not None and not callable(migrate):
            raise FlowUsageError(f"migrate= takes a function, not {migrate!r}")
        self.make = make
        self.kind = kind if isinstance(kind, type) else None
        self.aliases = named(aliases, kind)
        self.migrate = migrate
        self.strict = strict
        self.plain = kind if migrate is None and kind in CONTAINERS else None
        self.new: tuple[type, set[str]] | None = None
        """The class of a new state and its attributes, set at once: several workers restore states."""

    def finish(self, state: Any) -> Any:
        """The state with which a run continues, converted from a saved one.

        Raises:
            TypeError: it is of another class than the states of the step are.
            AttributeError: it lacks an attribute for which there is no default.
        """
        if self.migrate is not None:
            state = self.migrate(state)
            if state is None:
                raise TypeError("migrate= returned None, not a state")
        if self.strict and self.kind is not None and not isinstance(state, self.kind):
            wanted = self.kind.__name__
            raise TypeError(
                f"it is of the class {type(state).__name__}, and the step has states of {wanted}: "
                f"give the step migrate=, a function that makes a {wanted} of it"
            )
        if self.make is None:
            self.fill(state, set(getattr(type(state), "__dataclass_fields__", ())))
            return state
        if self.new is None:
            fresh = self.make()
            self.new = type(fresh), attributes(fresh)
        kind, names = self.new
        if type(state) is kind and not names <= vars_or_nothing(state):
            self.fill(state, names)
        return state

    def fill(self, state: Any, names: set[str]) -> None:
        """Adds to a state the attributes that its class has gained."""
        fields = getattr(type(state), "__dataclass_fields__", {})
        for name in sorted(names):
            if hasattr(state, name):
                continue
            default = default_of(fields.get(name))
            if default is MISSING:
                raise AttributeError(
                    f"it was saved without the attribute {name!r} that a new {type(state).__name__} has: "
                    "give the step migrate=, a function that sets it, or make it a dataclass with a default"
                )
            object.__setattr__(state, name, default)


def default_of(field: Any) -> Any:
    """The default of a dataclass's field, if there is one."""
    from dataclasses import MISSING as NONE

    if field is None:
        return MISSING
    if field.default is not NONE:
        return field.default
    return MISSING if field.default_factory is NONE else field.default_factory()


def vars_or_nothing(state: Any) -> Any:
    """The names in the dictionary of an object."""
    return getattr(state, "__dict__", {}).keys()


def attributes(state: Any) -> set[str]:
    """The attributes that an object has of its own, in its dictionary or in slots."""
    names = set(vars_or_nothing(state))
    for kind in type(state).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        slots = (slots,) if isinstance(slots, str) else slots
        names.update(name for name in slots if not name.startswith("__") and hasattr(state, name))
    return names


def named(aliases: Aliases | None, kind: object) -> dict[str, type] | None:
    """The current classes by their earlier names."""
    from collections.abc import Mapping

    if aliases is None:
        return None
    if isinstance(aliases, str):
        raise FlowUsageError(f"aliases= takes several names, or names and classes, not {aliases!r}")
    if not isinstance(aliases, Mapping):
        if not isinstance(kind, type):
            raise FlowUsageError("aliases= without classes needs a class that makes the states")
        aliases = dict.fromkeys(aliases, kind)
    for name, today in aliases.items():
        if not isinstance(name, str) or not name or not isinstance(today, type):
            raise FlowUsageError(f"aliases= takes names and classes, not {name!r} and {today!r}")
    return dict(aliases) or None
