"""Arguments that are checked when a function is called, by the annotations of the function.

The signature is the only description: what a type checker reads is what is checked. An error names the
function as users import it, the argument, its value and what is wanted.

>>> @checked
... def draw(width: int = 1, *, colour: Literal["red", "blue"] | None = None, at: Sequence[str] = ()) -> None:
...     if width > 9:
...         raise ValueError("width is at most 9")
>>> draw(2, colour="red", at=["a"])
>>> draw("2")
Traceback (most recent call last):
millstream.FlowUsageError: draw: width is a whole number from 0, not '2'
>>> draw(at="ab", colour="green")
Traceback (most recent call last):
millstream.FlowUsageError: draw: colour is "red", "blue" or None, not 'green'
>>> draw(at=["a", 1])
Traceback (most recent call last):
millstream.FlowUsageError: draw: at is a list of texts, not ['a', 1]
>>> draw(10)
Traceback (most recent call last):
millstream.FlowUsageError: draw: width is at most 9
"""

from __future__ import annotations

import sys
from functools import cache, wraps

from .._errors.flow import FlowUsageError, show
from .durations import WANTED, is_duration

TYPE_CHECKING = False
if TYPE_CHECKING:
    import ast
    from collections.abc import Callable, Iterator, Mapping
    from inspect import Signature
    from typing import Any, TypeVar

    F = TypeVar("F", bound=Callable[..., Any])


SECRET = ("config", "dsn", "headers", "password", "properties", "secret", "settings", "token", "url", "value")
"""Arguments that may be or have secrets: no error shows their values."""


def checked(function: F) -> F:
    """Decorates a function, or a class with the annotations of its ``__init__``.

    What it raises itself because of its arguments gets its name too.
    """
    made: Any = function
    if not isinstance(function, type):
        made = _naming(function, function)
    else:
        made.__init__ = _naming(made.__init__, function)
    return made  # type: ignore[no-any-return]


def checked_as(error: Callable[[str], Exception]) -> Callable[[F], F]:
    """A decorator of functions whose arguments are checked with another class of errors."""

    def decorate(function: Any) -> Any:
        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                _check(function, function, args, kwargs)
            except FlowUsageError as wrong:
                raise error(str(wrong)) from None
            return function(*args, **kwargs)

        return call

    return decorate


def _naming(function: Any, called: Any) -> Any:
    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        _check(function, called, args, kwargs)
        try:
            return function(*args, **kwargs)
        except (ValueError, OverflowError) as error:
            # What was called inside of this function is not what the user has called.
            text = vars(error).get("text", str(error))
            if type(error) not in (FlowUsageError, ValueError, OverflowError) or text.startswith("ms."):
                raise
            raise _error(called, text) from error.__cause__

    return call


def _check(function: Any, called: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    try:
        given = _signature(function).bind(*args, **kwargs).arguments
    except TypeError:
        # The call of the function raises the error of Python, which names it.
        return
    for name, value in given.items():
        kinds, several = _kinds(function, name)
        for each in value if several else (value,):
            if kinds is not None and not any(kind.fits(each) for kind in kinds):
                wanted = _either([kind.text for kind in kinds])
                shown = f"a value of type {type(each).__name__}" if name in SECRET else show(each)
                raise _error(called, f"{name} is {wanted}, not {shown}")


def positive(name: str, number: int) -> int:
    """Checks a number of at least 1.

    >>> positive("batch", 0)
    Traceback (most recent call last):
    millstream.FlowUsageError: batch is a number, 1 or more, not 0
    """
    if number < 1:
        raise FlowUsageError(f"{name} is a number, 1 or more, not {number!r}")
    return number


def _error(called: Any, text: str) -> FlowUsageError:
    error = FlowUsageError(f"{public_name(called)}: {text}")
    vars(error)["text"] = text
    return error


class Kind:
    """A kind of values: what it is called, what several are called, and what is one."""

    def __init__(self, text: str, several: str, fits: Callable[[Any], bool]) -> None:
        self.text = text
        self.several = several
        self.fits = fits


@cache
def _signature(function: Any) -> Signature:
    import inspect

    return inspect.signature(function)


@cache
def _kinds(function: Any, name: str) -> tuple[list[Kind] | None, bool]:
    """The kinds of an argument, None where any value is one; and whether it stands for several."""
    import inspect

    each = _signature(function).parameters[name]
    several = each.kind is each.VAR_POSITIONAL
    if each.annotation is each.empty or each.kind is each.VAR_KEYWORD:
        return None, several
    return kinds_of(each.annotation, inspect.unwrap(function).__globals__), several


def kinds_of(annotation: str, names: Mapping[str, Any]) -> list[Kind] | None:
    """The kinds of an annotation, in which names are those of a module, of this module or of the package.

    >>> [kind.text for kind in kinds_of("Mapping[str, int] | Backoff | None", {})]
    ['a mapping from texts to whole numbers', 'a ms.Backoff', 'None']
    >>> kinds_of("int | Any", {})
    """
    import ast

    found = list(_read(ast.parse(annotation, mode="eval").body, names))
    return None if any(kind is None for kind in found) else found  # type: ignore[return-value]


def _read(node: ast.expr, names: Mapping[str, Any]) -> Iterator[Kind | None]:
    import ast

    if isinstance(node, ast.BinOp):
        yield from _read(node.left, names)
        yield from _read(node.right, names)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield from _read(ast.parse(node.value, mode="eval").body, names)
    elif isinstance(node, ast.Constant):
        yield Kind("None", "None", lambda value: value is None)
    elif isinstance(node, ast.Subscript):
        inner = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        yield from _with_parts(_last_name(node.value), inner, node.value, names)
    elif _last_name(node) in SIMPLE:
        yield SIMPLE[_last_name(node)]
    else:
        yield from _named(node, names)


def _with_parts(
    head: str, parts: list[ast.expr], node: ast.expr, names: Mapping[str, Any]
) -> Iterator[Kind | None]:
    """The kind of ``HEAD[PARTS]``."""
    import ast

    if head == "Literal":
        for value in (part.value for part in parts if isinstance(part, ast.Constant)):
            text = f'"{value}"' if isinstance(value, str) else repr(value)
            yield Kind(text, text, lambda given, value=value: type(given) is type(value) and given == value)  # type: ignore[misc]
    elif head in ("Sequence", "list"):
        several, fits = _parts(parts[0], names)
        yield Kind(
            f"a list of {several}",
            f"lists of {several}",
            lambda value: _is_collection(value) and all(map(fits, value)),
        )
    elif head == "tuple":
        members = [_parts(part, names) for part in parts]
        text = f"of {', '.join(several for several, _ in members)}"
        yield Kind(
            f"a tuple {text}",
            f"tuples {text}",
            lambda value: (
                isinstance(value, (tuple, list))
                and len(value) == len(members)
                and all(fits(part) for (_, fits), part in zip(members, value, strict=True))
            ),
        )
    elif head in ("Mapping", "dict"):
        keys, is_key = _parts(parts[0], names)
        values, is_value = _parts(parts[1], names)
        text = f"from {keys} to {values}"
        yield Kind(
            f"a mapping {text}",
            f"mappings {text}",
            lambda value: _is_mapping(value) and all(is_key(k) and is_value(v) for k, v in value.items()),
        )
    else:
        yield from _read(node, names)


def _parts(node: ast.expr, names: Mapping[str, Any]) -> tuple[str, Callable[[Any], bool]]:
    """What several values of an annotation are called, and what is one."""
    found = list(_read(node, names))
    kinds = [kind for kind in found if kind is not None]
    if len(kinds) < len(found):
        return "values", lambda value: True
    return _either([kind.several for kind in kinds]), lambda value: any(kind.fits(value) for kind in kinds)


def _named(node: ast.expr, names: Mapping[str, Any]) -> Iterator[Kind | None]:
    """The kind of a name: an alias, a type variable, or a class."""
    import ast
    from typing import TypeVar

    text = ast.unparse(node)
    name = _last_name(node)
    found = names.get(text)
    for place in ("millstream", "millstream.http", "millstream._millstream"):
        found = found or getattr(sys.modules.get(place), name, None)
    if isinstance(found, str):
        yield from _read(ast.parse(found, mode="eval").body, names)
    elif isinstance(found, TypeVar):
        yield None
    elif isinstance(found, type):
        cls = found
        shown = public_name(cls)
        yield Kind(f"a {shown}", f"{shown}s", lambda value: isinstance(value, cls))
    else:
        raise NameError(f"the annotation {text} is not known when arguments are checked")


def _last_name(node: ast.expr) -> str:
    import ast

    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _either(texts: list[str]) -> str:
    *first, last = dict.fromkeys(texts)
    return f"{', '.join(first)} or {last}" if first else last


def public_name(it: Any) -> str:
    """The name by which users know a function or class: where it is exported, or else its own."""
    name: str = it.__qualname__.removesuffix(".__new__")
    top = name.partition(".")[0]
    for place in sorted(place for place in sys.modules if place.partition(".")[0] == "millstream"):
        exported = None if "._" in place else getattr(sys.modules[place], top, None)
        if getattr(exported, "__module__", None) == it.__module__:
            return f"{place.replace('millstream', 'ms', 1)}.{name}"
    return name


def _is_whole(value: Any) -> bool:
    from numbers import Integral

    return isinstance(value, Integral) and not isinstance(value, bool) and 0 <= int(value) < 1 << 63


def _is_number(value: Any) -> bool:
    from numbers import Real

    return isinstance(value, Real) and not isinstance(value, bool)


def _is_collection(value: Any) -> bool:
    from collections.abc import Collection

    return isinstance(value, Collection) and not isinstance(value, (str, bytes, bytearray))


def _is_iterable(value: Any) -> bool:
    from collections.abc import Iterable

    return isinstance(value, Iterable)


def _is_mapping(value: Any) -> bool:
    from collections.abc import Mapping

    return isinstance(value, Mapping)


def _is_datetime(value: Any) -> bool:
    from datetime import datetime

    return isinstance(value, datetime)


def _is_timedelta(value: Any) -> bool:
    from datetime import timedelta

    return isinstance(value, timedelta)


def _is_path(value: Any) -> bool:
    from os import PathLike

    return isinstance(value, PathLike)


SIMPLE: dict[str, Kind | None] = {
    "Any": None,
    "object": None,
    "str": Kind("a text", "texts", lambda value: isinstance(value, str)),
    "bytes": Kind("bytes", "bytes", lambda value: isinstance(value, (bytes, bytearray, memoryview))),
    "int": Kind("a whole number from 0", "whole numbers", _is_whole),
    "float": Kind("a number", "numbers", _is_number),
    "bool": Kind("True or False", "bools", lambda value: isinstance(value, bool)),
    "Callable": Kind("a function", "functions", callable),
    "type": Kind("a class", "classes", lambda value: isinstance(value, type)),
    "Iterable": Kind("an iterable", "iterables", _is_iterable),
    "InterfaceOf": Kind("an interface", "interfaces", callable),
    "PathLike": Kind("a path", "paths", _is_path),
    "datetime": Kind("a datetime", "datetimes", _is_datetime),
    "timedelta": Kind("a timedelta", "timedeltas", _is_timedelta),
    "Seconds": Kind(WANTED, "times", is_duration),
}
"""The kinds that have a name of their own. None: any value is one."""
