"""Interfaces read from annotations, once for each class.

>>> from typing import Protocol
>>> class Prices(Protocol):
...     def price(self, symbol: str, value: float) -> None: ...
>>> methods_of(Prices)
['price']
>>> described(Prices) is described(Prices)
True
"""

from __future__ import annotations

import dataclasses
import enum
import inspect
import types
import typing
from collections.abc import Callable
from decimal import Decimal
from typing import Annotated, Any, Union

from .. import _millstream
from .._errors.flow import ServiceError
from .checks import check_members, check_recordable, hints_of

BUILTINS: dict[object, str] = {
    bool: "bool",
    int: "i64",
    float: "f64",
    str: "str",
    bytes: "bytes",
    Decimal: "decimal",
}


#: The types of ``A | B`` and ``Union[A, B]``.
UNIONS = (Union, types.UnionType)


class aliases:
    """Former names of a field or an argument.

    Args:
        names: the earlier names.

    Example:
        >>> from typing import Annotated, Protocol
        >>> from millstream.service import aliases
        >>> class Orders(Protocol):
        ...     def place(self, quantity: Annotated[int, aliases("qty")]) -> None: ...
    """

    def __init__(self, *names: str) -> None:
        self.names = names


class Described:
    """Types of an interface as the native half takes them, each struct and enum once."""

    def __init__(self, interface: type) -> None:
        self.interface = interface
        self.definitions: list[tuple[Any, ...]] = []
        self.classes: list[Any] = []

    def kind(self, annotation: Any, place: str) -> tuple[object, list[str]]:
        """The type and the aliases of an annotation."""
        if typing.get_origin(annotation) is Annotated:
            base, *notes = typing.get_args(annotation)
            names = [name for note in notes if isinstance(note, aliases) for name in note.names]
            narrow = [note for note in notes if isinstance(note, str)]
            if narrow and typing.get_origin(base) in UNIONS:
                return self.union(base, place, narrow[0]), names
            inner, more = self.kind(base, place)
            return (narrow[0] if narrow and base in BUILTINS else inner), names + more
        if annotation in BUILTINS:
            return BUILTINS[annotation], []
        return self.compound(annotation, place), []

    def compound(self, annotation: Any, place: str) -> object:
        origin = typing.get_origin(annotation)
        arguments = typing.get_args(annotation)
        if origin in UNIONS:
            return self.union(annotation, place)
        if origin is list and len(arguments) == 1:
            return ("list", self.kind(arguments[0], place)[0])
        if origin is dict and len(arguments) == 2:
            return ("map", self.kind(arguments[0], place)[0], self.kind(arguments[1], place)[0])
        if isinstance(annotation, type):
            if annotation in self.classes:
                return ("named", self.classes.index(annotation))
            if issubclass(annotation, enum.Enum):
                return self.define(annotation, lambda: (list(annotation.__members__.items()),))
            if is_struct(annotation):
                return self.define(annotation, lambda: self.struct(annotation))
        raise self.refused(annotation, place)

    def refused(self, annotation: Any, place: str, why: str = "") -> ServiceError:
        shown = annotation.__name__ if isinstance(annotation, type) else annotation
        return ServiceError(
            f"interface {self.interface.__name__}, {place}: {shown} cannot be part of a record{why}"
        )

    def union(self, annotation: Any, place: str, name: str | None = None) -> object:
        """The type of an optional value, or of a union of classes: an enum with fields, of this name."""
        members = typing.get_args(annotation)
        classes = [member for member in members if member is not type(None)]
        kind = self.tagged(annotation, classes, place, name)
        return ("option", kind) if len(classes) < len(members) else kind

    def tagged(self, annotation: Any, classes: list[Any], place: str, name: str | None) -> object:
        if len(classes) == 1 and name is None:
            return self.kind(classes[0], place)[0]
        if len(classes) == 1 or not all(map(is_struct, classes)):
            raise self.refused(annotation, place, ": a union is of dataclasses or msgspec.Structs")
        variants: dict[str, type] = {}
        for of in classes:
            variant = variant_name(of)
            if not isinstance(variant, str):
                raise self.refused(annotation, place, f": the tag of {of.__name__} is no text")
            if variants.setdefault(variant, of) is not of:
                raise self.refused(annotation, place, f": two of its classes are called {variant}")
        name = name or "|".join(variants)
        key = (name, *classes)
        if key in self.classes:
            return ("named", self.classes.index(key))
        return self.define(key, lambda: (self.variants(variants), "union"), name)

    def variants(self, classes: dict[str, type]) -> list[tuple[Any, ...]]:
        return [(name, *self.struct(of)) for name, of in classes.items()]

    def define(self, of: Any, parts: Callable[[], tuple[Any, ...]], name: str | None = None) -> object:
        index = len(self.classes)
        self.classes.append(of)
        self.definitions.append(())
        self.definitions[index] = (name or of.__name__, *parts())
        return ("named", index)

    def struct(self, of: type) -> tuple[Any, ...]:
        hints = typing.get_type_hints(of, include_extras=True)
        fields = []
        for name, default in struct_fields(of):
            kind, names = self.kind(hints[name], f"{of.__name__}.{name}")
            fields.append((name, kind, names, default))
        positional = not any(
            parameter.kind is inspect.Parameter.KEYWORD_ONLY
            for parameter in inspect.signature(of).parameters.values()
        )
        return (of, fields, positional)


def is_struct(of: object) -> bool:
    """A dataclass or a ``msgspec.Struct``."""
    return isinstance(of, type) and (dataclasses.is_dataclass(of) or hasattr(of, "__struct_fields__"))


def variant_name(of: type) -> object:
    """The name of a class of a union in records: its tag, if it has one, else its own name."""
    tag = getattr(getattr(of, "__struct_config__", None), "tag", None)
    return of.__name__ if tag is None else tag


def struct_fields(of: type) -> list[tuple[str, tuple[Any, ...]]]:
    """Each field's name, and its default in a tuple, which is empty where there is none."""
    if not dataclasses.is_dataclass(of):
        import msgspec

        return [
            (field.name, default_of(field.default, field.default_factory, msgspec.NODEFAULT))
            for field in msgspec.structs.fields(of)
        ]
    return [
        (field.name, default_of(field.default, field.default_factory, dataclasses.MISSING))
        for field in dataclasses.fields(of)
        if field.init
    ]


def default_of(default: Any, factory: Any, missing: Any) -> tuple[Any, ...]:
    if default is not missing:
        return (default,)
    return () if factory is missing else (factory(),)


def methods_of(interface: Callable[..., object]) -> list[str]:
    """The names of an interface's methods, in the order in which they are written, inherited ones first."""
    names: dict[str, None] = {}
    for base in reversed(inspect.getmro(typing.cast(type, interface))):
        if base is not object and base is not typing.Protocol and base is not typing.Generic:
            for name, member in vars(base).items():
                if inspect.isfunction(member) and not name.startswith("_"):
                    names[name] = None
    return list(names)


def is_interface(of: object) -> bool:
    """A protocol or abstract class with methods."""
    if not isinstance(of, type) or of is typing.Protocol:
        return False
    return bool(getattr(of, "_is_protocol", False) or inspect.isabstract(of)) and bool(methods_of(of))


def described(interface: Callable[..., object]) -> _millstream.Interface:
    """The native form of an interface; made once for each class."""
    if not isinstance(interface, type):
        raise ServiceError(f"{interface!r} is no interface: it is no class")
    known = vars(interface).get("__millstream_interface__")
    if known is not None:
        return typing.cast("_millstream.Interface", known)
    check_members(interface)
    parts = Described(interface)
    methods = []
    for name in methods_of(interface):
        function = getattr(interface, name)
        check_recordable(interface, name, function)
        hints = hints_of(function, f"interface {interface.__name__}, {name}")
        fields = []
        for argument in list(inspect.signature(function).parameters.values())[1:]:
            place = f"{name}.{argument.name}"
            if argument.name not in hints:
                raise ServiceError(f"interface {interface.__name__}, {place}: has no annotation")
            kind, names = parts.kind(hints[argument.name], place)
            default = () if argument.default is inspect.Parameter.empty else (argument.default,)
            fields.append((argument.name, kind, names, default))
        methods.append((name, list(getattr(function, "__millstream_aliases__", ())), fields))
    if not methods:
        raise ServiceError(f"{interface.__name__} is no interface: it has no methods")
    version = getattr(interface, "__version__", 1)
    made = _millstream.Interface(interface.__name__, version, parts.definitions, methods)
    interface.__millstream_interface__ = made  # type: ignore[attr-defined]
    return made
