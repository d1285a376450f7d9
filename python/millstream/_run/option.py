"""How an option of a run is described, and what is made of its description.

A class of options is a frozen dataclass without the import of :mod:`dataclasses`, which costs a program ten
milliseconds. Its fields are made by :func:`option`. From the one description of each come its argument in
Python with default, type, check and help (:func:`takes`), and its option on the command line
(``arguments.py``).

>>> class Size(Options):
...     width: int = option(default=1, help="how wide", check=number(1, 9), kw_only=False)
...     height: int = option(default=1, help="how high")
>>> Size(2).height
1
>>> Size(10)
Traceback (most recent call last):
millstream.FlowUsageError: width is a number from 1 to 9, not 10
>>> @takes(Size)
... def draw(paper: str, size: Size) -> int:
...     return size.width * size.height
>>> draw("a4", 3, height=2)
6
"""

from __future__ import annotations

from types import FunctionType

from .._errors.flow import FlowUsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, ClassVar, Concatenate, ParamSpec, TypeVar

    from typing_extensions import Self, dataclass_transform

    P = ParamSpec("P")
    Made = TypeVar("Made")
    Subject = TypeVar("Subject")
    T = TypeVar("T")
else:

    def dataclass_transform(**about):
        return lambda decorated: decorated


class Option:
    """The description of an option; its parts are those of :func:`option`."""

    def __init__(self, **parts: Any) -> None:
        self.name: str = ""
        self.default: Any = parts["default"]
        self.help: str = parts["help"]
        self.more: str = parts["more"]
        self.kw_only: bool = parts["kw_only"]
        self.check: Callable[[str, Any], Any] | None = parts["check"]
        self.needs: tuple[str, ...] = parts["needs"]
        self.noun: str = parts["noun"]
        self.flags: tuple[str, ...] | None = parts["flags"]
        self.shown: str | None = parts["shown"]
        self.metavar: str | None = parts["metavar"]
        self.read: Callable[[str], Any] | None = parts["read"]
        self.words: Mapping[str, Any] = parts["words"] or {}
        self.repeats: bool = parts["repeats"]
        self.group: str = parts["group"]
        self.passed: str = parts["passed"]

    @property
    def flag(self) -> str:
        """Its name on the command line."""
        return self.flags[0] if self.flags else "--" + self.name.replace("_", "-")

    @property
    def has_value(self) -> bool:
        """Whether a value follows it on the command line."""
        return not isinstance(self.default, bool) or bool(self.words)


def option(
    *,
    default: T,
    help: str,
    more: str = "",
    kw_only: bool = True,
    check: Callable[[str, Any], Any] | None = None,
    needs: tuple[str, ...] = (),
    noun: str = "",
    flags: tuple[str, ...] | None = None,
    shown: str | None = None,
    metavar: str | None = None,
    read: Callable[[str], Any] | None = None,
    words: Mapping[str, Any] | None = None,
    repeats: bool = False,
    group: str = "",
    passed: str = "always",
) -> T:
    """Describes an option.

    Args:
        default: its value where it is not given.
        help: what it is, in Python and on the command line.
        more: what only Python's help adds to it.
        kw_only: whether Python takes it only by its name.
        check: takes its name and its value; returns the value that holds, or raises FlowUsageError.
        needs: other options, without which it has no effect.
        noun: what it is, for errors of others that need it.
        flags: its names on the command line: none for one of Python alone, by default one made of its name.
        shown: its help on the command line, where that differs.
        metavar: its value in the help of the command line.
        read: reads its value from the command line.
        words: the values that the command line has words for.
        repeats: whether the command line may have it more than once.
        group: its heading in the help of the command line; ``-`` leaves it out.
        passed: to which processes of a supervisor it is passed: ``always``, only at the first start
            (``once``), or ``never``.

    Returns:
        The description; in an instance of the class its value.
    """
    return Option(**locals())  # type: ignore[return-value]


def is_given(value: Any) -> bool:
    """Whether an option with this value has an effect."""
    return value is not None and value is not False and value != []


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(option,))
class Options:
    """A class of options: frozen, and checked when it is made.

    Raises:
        FlowUsageError: a value is out of range, or an option lacks another one that it needs.
    """

    ALL: ClassVar[Mapping[str, Option]] = {}
    """The options by their names, those of base classes first."""

    def __init_subclass__(cls) -> None:
        own = {name: value for name, value in vars(cls).items() if isinstance(value, Option)}
        for name, each in own.items():
            each.name = name
            setattr(cls, name, each.default)
        cls.ALL = {**cls.ALL, **own}

    def __init__(self, *given: Any, **named: Any) -> None:
        values = dict(zip(self.ALL, given, strict=False))
        for name, value in named.items():
            if name not in self.ALL or name in values:
                raise TypeError(f"{name} is given twice, or is no option")
            values[name] = value
        for name, each in self.ALL.items():
            self.__dict__[name] = self._checked(each, values.get(name, each.default))
        for each in self.ALL.values():
            for other in each.needs:
                if is_given(getattr(self, each.name)) and not is_given(getattr(self, other)):
                    raise FlowUsageError(self.lacks(each, self.ALL[other]))

    def _checked(self, each: Option, value: Any) -> Any:
        if isinstance(each.default, bool):
            if not isinstance(value, int) or value not in (False, True):
                raise FlowUsageError(f"{self.named(each)} is True or False, not {value!r}")
            return bool(value)
        return value if each.check is None else each.check(self.named(each), value)

    @classmethod
    def named(cls, each: Option) -> str:
        """The name of an option, as its user gives it."""
        return each.name

    @classmethod
    def lacks(cls, each: Option, other: Option) -> str:
        """The error of an option that is given without another one."""
        return f"{each.name} needs {other.noun}: {other.name}="

    def but(self, **changes: Any) -> Self:
        """The same options with these changes."""
        return type(self)(**{**vars(self), **changes})

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"options are frozen: {name}")

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in vars(self).items() if is_given(value))
        return f"{type(self).__name__}({given})"


def number(least: int, most: int) -> Callable[[str, Any], int]:
    """A check of whole numbers."""

    def check(name: str, value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise FlowUsageError(f"{name} is a number from {least} to {most}, not {value!r}")
        return value

    return check


def takes(
    made: Callable[P, Made],
) -> Callable[[Callable[[Subject, Made], T]], Callable[Concatenate[Subject, P], T]]:
    """A decorator of functions of a subject and options: callers give the options as arguments.

    The function has them in its signature, and in the section ``Args`` of its docstring.

    Args:
        made: the class of the options.

    Returns:
        The decorator.
    """

    def decorate(body: Callable[[Subject, Made], T]) -> Callable[Concatenate[Subject, P], T]:
        assert isinstance(made, type) and issubclass(made, Options)
        decorated: Callable[Concatenate[Subject, P], T] = with_arguments(body, made)
        return decorated

    return decorate


def with_arguments(body: Any, made: type[Options]) -> Any:
    """The function with the arguments of ``made`` in place of an instance of it.

    It is compiled, as dataclasses compile their functions, so that Python itself checks the arguments and
    shows the signature.
    """
    assert isinstance(body, FunctionType)
    subject = body.__code__.co_varnames[0]
    by_place = [each.name for each in made.ALL.values() if not each.kw_only]
    by_name = [each.name for each in made.ALL.values() if each.kw_only]
    given = ", ".join(f"{name}={name}" for name in made.ALL)
    text = f"""\
def outer(body, made):
    def {body.__name__}({", ".join([subject, *by_place, "*", *by_name])}):
        return body({subject}, made({given}))
    return {body.__name__}
"""
    names: dict[str, Any] = {}
    exec(text, names)
    compiled = names["outer"](body, made)
    # As far as tools can see, it is the function that is written in the module.
    place = {"co_filename": body.__code__.co_filename, "co_firstlineno": body.__code__.co_firstlineno}
    code = compiled.__code__.replace(**place)
    function = FunctionType(code, body.__globals__, body.__name__, None, compiled.__closure__)
    function.__defaults__ = tuple(made.ALL[name].default for name in by_place)
    function.__kwdefaults__ = {name: made.ALL[name].default for name in by_name}
    annotations = {name: kind for each in reversed(made.__mro__) for name, kind in annotated(each).items()}
    own = annotated(body)
    function.__annotations__ = {
        **{name: kind for name, kind in own.items() if name == subject},
        **{name: annotations[name] for name in [*by_place, *by_name]},
        **{name: kind for name, kind in own.items() if name == "return"},
    }
    function.__qualname__ = body.__qualname__
    function.__module__ = body.__module__
    function.__doc__ = with_help(body.__doc__ or "", made)
    return function


def annotated(of: Any) -> dict[str, Any]:
    """The annotations of a class or function itself."""
    found: dict[str, Any] = getattr(of, "__annotations__", {})
    return found


def with_help(docstring: str, made: type[Options]) -> str:
    """The docstring with a line for each option in its section ``Args``, which comes before ``Returns``."""
    before, returns, after = docstring.partition("Returns:")
    indent = before[before.rfind("\n") + 1 :]
    lines = [f"{indent}    {each.name}: {each.help}{each.more}." for each in made.ALL.values()]
    head = [] if "Args:\n" in before else ["", f"{indent}Args:"]
    return "\n".join([before.rstrip(), *head, *lines, "", indent + returns + after])
