"""Docstrings of the public API: each function has the sections that apply, and examples run.

A docstring has sections in this order: ``Args:`` with a line for each argument, ``Returns:`` where there is a
result, ``Raises:`` where the function itself raises, and ``Example:``. Examples of Python code are run with
``pytest --doctest-modules``; those of native code here.
"""

from __future__ import annotations

import ast
import doctest
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import millstream as ms
import pytest
from millstream import _millstream

STUBS = sorted(Path(ms.__file__).parent.glob("_millstream*.pyi"))
SECTIONS = ("Args", "Returns", "Raises", "Example")
NATIVE = (type(_millstream.Journal.append), type(_millstream.Record.__dict__["pack"]))


def public(module: ModuleType, path: str) -> Iterator[tuple[str, Any]]:
    """Name and object of each class and function that a module exports, and of each public method."""
    for name in module.__all__:
        found = getattr(module, name)
        place = f"{path}.{name}"
        if isinstance(found, ModuleType):
            yield from public(found, place)
        elif isinstance(found, FunctionType):
            yield place, found
        elif inspect.isclass(found) and not issubclass(found, BaseException):
            yield place, found
            for base in found.__mro__:
                if base.__module__.partition(".")[0] == "millstream":
                    yield from methods(base, place)


def methods(cls: type, path: str) -> Iterator[tuple[str, Any]]:
    for name, found in vars(cls).items():
        if not name.startswith("_") and isinstance(found, (FunctionType, *NATIVE)):
            yield f"{path}.{name}", found


def unique(found: Iterator[tuple[str, Any]]) -> dict[str, Any]:
    """Without what was found under another name before, as a method of a base."""
    known: set[int] = set()
    return {name: it for name, it in found if id(it) not in known and not known.add(id(it))}  # type: ignore[func-returns-value]


def definition(found: Any, stub: dict[str, ast.FunctionDef]) -> ast.FunctionDef:
    """The code of a function; for native code that of the stub."""
    if isinstance(found, FunctionType):
        tree = ast.parse(textwrap.dedent(inspect.getsource(found)))
        assert isinstance(tree.body[0], ast.FunctionDef)
        return tree.body[0]
    return stub[f"{found.__objclass__.__name__}.{found.__name__}"]


def stub_functions(text: str) -> dict[str, ast.FunctionDef]:
    return {
        f"{cls.name}.{function.name}": function
        for cls in ast.parse(text).body
        if isinstance(cls, ast.ClassDef)
        for function in cls.body
        if isinstance(function, ast.FunctionDef)
    }


def sections(docstring: str) -> dict[str, str]:
    """The text of each section by its name."""
    parts = re.split(rf"^({'|'.join(SECTIONS)}):$", inspect.cleandoc(docstring), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def arguments(function: ast.FunctionDef) -> list[str]:
    given = function.args
    several = [argument for argument in (given.vararg, given.kwarg) if argument]
    named = [*given.posonlyargs, *given.args, *given.kwonlyargs, *several]
    return [argument.arg for argument in named if argument.arg not in ("self", "cls")]


def returns(function: ast.FunctionDef) -> bool:
    return function.returns is not None and ast.unparse(function.returns) not in ("None", "NoReturn")


def raises(function: ast.FunctionDef) -> bool:
    """Whether the function itself raises anything but what it has caught."""
    return any(isinstance(node, ast.Raise) and node.exc is not None for node in ast.walk(function))


def shown(found: Any) -> list[str] | None:
    """The arguments that a function in Python shows: with options those of its list."""
    if not isinstance(found, FunctionType):
        return None
    return [name for name in inspect.signature(found).parameters if name not in ("self", "cls")]


def faults(
    name: str, docstring: str | None, function: ast.FunctionDef | None, names: list[str] | None = None
) -> Iterator[str]:
    """What is missing in a docstring of a function, or of a class; with other arguments than in its code."""
    found = sections(docstring or "")
    if ">>> " not in found.get("Example", ""):
        yield f"{name}: no example"
    if list(found) != [section for section in SECTIONS if section in found]:
        yield f"{name}: sections in another order than {', '.join(SECTIONS)}"
    if function is None:
        return
    known = re.findall(r"^    (\w+): ", found.get("Args", ""), flags=re.MULTILINE)
    for argument in {*(names or arguments(function))} ^ {*known}:
        yield f"{name}: argument {argument} is in the signature or in Args, but not in both"
    if returns(function) != ("Returns" in found):
        yield f"{name}: Returns and the type of the result disagree"
    if raises(function) and "Raises" not in found:
        yield f"{name}: it raises, and has no Raises"


PUBLIC = unique(public(ms, "ms"))
NEVER_RAISE = {
    "ms.Journal.close",
    "ms.JournalCursor.close",
    "ms.JournalReader.close",
    "ms.KeyContext.discard",
    "ms.Queues.close",
    "ms.Record.to_dict",
    "ms.Report.to_json",
    "ms.SourceIo.wake",
    "ms.service.Clock.now_ns",
    "ms.service.Clock.record",
}
"""The functions of native code without an error."""


def test_public_functions_have_the_sections_that_apply() -> None:
    assert len(PUBLIC) > 150
    stub = stub_functions("\n".join(path.read_text("utf-8") for path in STUBS))
    found = [
        fault
        for name, it in PUBLIC.items()
        for fault in faults(
            name, it.__doc__, None if inspect.isclass(it) else definition(it, stub), shown(it)
        )
    ]
    assert not found, "\n" + "\n".join(found)


@pytest.mark.parametrize("kind", [ms.Flow, ms.Stream, ms.KeyedStream, ms.Windows])
def test_every_verb_has_one_line_of_help(kind: type) -> None:
    """What `help`, completions and editors show of a verb, with the arguments."""
    verbs = {verb: getattr(kind, verb) for verb in dir(kind) if not verb.startswith("_")}
    assert len(verbs) > 3
    for verb, it in verbs.items():
        first = (inspect.getdoc(it) or "").split("\n\n")[0]
        assert first.endswith(".") and len(first) < 160, f"{kind.__name__}.{verb}: {first!r}"
        if callable(it):
            assert list(inspect.signature(it).parameters)[:1] == ["self"], f"{kind.__name__}.{verb}"


def test_native_functions_state_what_they_raise() -> None:
    found = {
        name
        for name, it in PUBLIC.items()
        if isinstance(it, NATIVE) and "Raises" not in sections(it.__doc__ or "")
    }
    assert found == NEVER_RAISE


GOOD = '''
def add(n: int, *more: int) -> int:
    """Adds.

    Args:
        n: a number.
        more: numbers.

    Returns:
        The sum.

    Raises:
        ValueError: there is only one.

    Example:
        >>> add(1, 2)
        3
    """
    raise ValueError("one")
'''
BAD: dict[str, Callable[[str], str]] = {
    "no example": lambda good: good.replace(">>> ", "    "),
    "argument more": lambda good: good.replace("        more: numbers.\n", ""),
    "argument others": lambda good: good.replace("*more", "*others, more"),
    "Returns": lambda good: good.replace("-> int", "-> None"),
    "and the type": lambda good: good.replace("Returns:", "Gives:"),
    "has no Raises": lambda good: good.replace("Raises:", "Errors:"),
    "another order": lambda good: (
        good.replace("Args:", "X:").replace("Raises:", "Args:").replace("X:", "Raises:")
    ),
}


def faults_of(text: str) -> list[str]:
    function = ast.parse(text).body[0]
    assert isinstance(function, ast.FunctionDef)
    return list(faults(function.name, ast.get_docstring(function), function))


def test_a_docstring_with_all_sections_is_good() -> None:
    assert faults_of(GOOD) == []


@pytest.mark.parametrize("expected", BAD)
def test_the_check_can_fail(expected: str) -> None:
    found = faults_of(BAD[expected](GOOD))
    assert any(expected in fault for fault in found), found


def test_a_docstring_that_is_missing_is_found() -> None:
    function = ast.parse("def f(n: int) -> None: ...").body[0]
    assert isinstance(function, ast.FunctionDef)
    assert len(list(faults("f", None, function))) == 2


def native() -> dict[str, str]:
    """The docstrings of native code."""
    return {
        name: it.__doc__
        for name, it in PUBLIC.items()
        if isinstance(it, NATIVE) or it.__module__ == "millstream._millstream"
    }


@pytest.mark.parametrize("name", native())
def test_examples_of_native_code_run(name: str) -> None:
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    test = doctest.DocTestParser().get_doctest(inspect.cleandoc(native()[name]), {}, name, None, None)
    output: list[str] = []
    doctest.DocTestRunner(optionflags=flags).run(test, out=output.append)
    assert test.examples and not output, "".join(output)
