"""What an import of the package loads: a program pays for what it uses of it."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import millstream as ms
import pytest

FACADE = Path(ms.__file__)


def loaded(program: str) -> set[str]:
    """The modules that a program has loaded at its end, beyond those of an empty one."""
    code = f"import sys; before = set(sys.modules)\n{program}\nprint(*(set(sys.modules) - before))"
    return set(subprocess.check_output([sys.executable, "-c", code], text=True).split())


def test_the_package_alone_loads_nothing_else() -> None:
    assert loaded("import millstream") == {"millstream"}


FLOW = "import millstream as ms; flow = ms.Flow('f'); ms.run"
DEAR = {"asyncio", "dataclasses", "inspect", "json", "logging", "tempfile"}
ROOMS = {f"millstream.{name}" for name in "http files kafka objects postgres service testing".split()}


@pytest.mark.parametrize(
    ("program", "without"),
    [
        (FLOW, DEAR | ROOMS),
        ("import millstream as ms; ms.Journal", DEAR | ROOMS | {"typing"}),
        ("import millstream.__main__", DEAR | ROOMS | {"typing"}),
        ("import millstream._run.command", DEAR | ROOMS),
        (f"{FLOW}; ms.testing", DEAR | ROOMS - {"millstream.testing"}),
    ],
)
def test_a_program_loads_what_it_uses(program: str, without: set[str]) -> None:
    assert not loaded(program) & without


def test_a_connector_is_loaded_by_its_name() -> None:
    assert {"millstream.kafka", "millstream.tcp"} <= loaded("import millstream as ms; ms.kafka; ms.tcp")


def test_programs_and_type_checkers_find_each_name_in_one_module() -> None:
    for_checkers = {
        (alias.asname, node.module or alias.name)
        for node in ast.walk(ast.parse(FACADE.read_text()))
        if isinstance(node, ast.ImportFrom) and node.level
        for alias in node.names
    }
    for_programs = {*ms._HOME.items(), *((name, name) for name in ms._MODULES.split())}
    assert for_programs == for_checkers


def test_all_names_are_there_and_listed() -> None:
    names = {*ms.__all__, "max", "min", "sum"}
    assert names <= set(dir(ms))
    for name in names:
        getattr(ms, name)
    with pytest.raises(AttributeError, match="module 'millstream' has no attribute 'Flwo'"):
        ms.Flwo  # type: ignore[attr-defined]  # noqa: B018


def test_all_errors_are_in_one_module() -> None:
    modules = [ms, *(getattr(ms, name) for name in ms._MODULES.split() if name != "errors")]
    public = {getattr(module, name) for module in modules for name in module.__all__}
    errors = {found for found in public if isinstance(found, type) and issubclass(found, Exception)}
    assert errors | {ms.errors.page} == {getattr(ms.errors, name) for name in ms.errors.__all__}


def test_the_package_has_the_version_of_the_program() -> None:
    said = subprocess.check_output([sys.executable, "-m", "millstream", "--version"], text=True)
    assert said.split() == ["millstream", ms.__version__]


def test_a_star_import_leaves_builtins_alone() -> None:
    names: dict[str, object] = {}
    exec("from millstream import *", names)
    assert "Flow" in names and not {"max", "min", "sum"} & names.keys()
