"""The types of streams, as type checkers see them."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

TIMEOUT = 240
TYPES = Path(__file__).parent / "fixtures" / "types"
OLDEST = "3.10"
MARK = "# MISTAKE"

Found = dict[int, str]


def run(*command: str, cwd: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=cwd, capture_output=True, text=True, timeout=TIMEOUT
    )
    assert done.returncode in (0, 1) and not done.stderr, done.stdout + done.stderr
    return done.stdout


def mypy(program: Path, folder: Path) -> Found:
    """The lines on which mypy --strict reports an error, with what it says first."""
    wish = ("--strict", "--python-version", OLDEST, "--output", "json", "--cache-dir", str(folder / "cache"))
    said = run("mypy", *wish, str(program), cwd=folder).splitlines()
    errors = [json.loads(line) for line in said if line.startswith("{")]
    return {error["line"]: error["message"] for error in reversed(errors) if error["severity"] == "error"}


def pyright(program: Path, folder: Path) -> Found:
    """The lines on which pyright reports an error, with what it says first."""
    wish = ("--pythonversion", OLDEST, "--pythonpath", sys.executable, "--outputjson")
    errors = json.loads(run("pyright", *wish, str(program), cwd=folder))["generalDiagnostics"]
    return {
        error["range"]["start"]["line"] + 1: error["message"]
        for error in reversed(errors)
        if error["severity"] == "error"
    }


@pytest.mark.parametrize("check", [mypy, pyright])
def test_what_is_right_is_accepted(check: Callable[[Path, Path], Found], tmp_path: Path) -> None:
    assert check(TYPES / "right.py", tmp_path) == {}


def test_what_is_right_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The streams in the type assertions exist: each line of the file is executed."""
    monkeypatch.chdir(tmp_path)
    made = runpy.run_path(str(TYPES / "right.py"))
    assert made["flow"].describe().count("\n") > 100


@pytest.mark.parametrize("check", [mypy, pyright])
def test_each_mistake_is_found_on_its_line(check: Callable[[Path, Path], Found], tmp_path: Path) -> None:
    program = TYPES / "wrong.py"
    lines = enumerate(program.read_text().splitlines(), 1)
    planted = {number: line for number, line in lines if MARK in line}
    assert len(planted) > 60
    found = check(program, tmp_path)
    assert {number: line for number, line in planted.items() if number not in found} == {}, "not found"
    assert {number: said for number, said in found.items() if number not in planted} == {}, "no mistakes"
