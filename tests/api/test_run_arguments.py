"""``millstream run FILE.py:make`` and ``MODULE:make`` with arguments for the function that makes the flow."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
from __future__ import annotations

from pathlib import Path
from typing import Optional

import millstream as ms

flow = ms.Flow("plain")
flow.source("in", ms.testing.items(["plain"])).sink("out", ms.stdout())
number = 3


def make(topic, limit: int = 3, *more: float, rate: float = 1.0, dry_run: bool = False, folder: Path = None):
    made = ms.Flow(f"orders of {topic}")
    said = [topic, limit, more, rate, dry_run, folder and folder.name]
    made.source("in", ms.testing.items([said])).sink("out", ms.stdout())
    return made


def any_option(**options: int):
    return make(str(options))


def old_style(count: Optional[int] = None, *, kind: "str" = "x"):
    return make(f"{count!r} {kind!r}")


class Make:
    def __init__(self, topic: str):
        self.topic = topic


def nothing(topic: str = "x"):
    print("called with", topic)


def odd(when: complex):
    return make(when)


async def later():
    return make("x")


def fails(topic: str):
    raise KeyError(topic)
"""


def run(folder: Path, *arguments: str, module: bool = False) -> subprocess.CompletedProcess[str]:
    (folder / "orders.py").write_text(PROGRAM)
    place, *rest = arguments
    place = f"orders{place}" if module else f"orders.py{place}"
    command = [sys.executable, "-m", "millstream", "run", place, *rest]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=folder)


GOOD: dict[str, tuple[list[str], str]] = {
    "none": ([":flow"], "plain"),
    "by position": ([":make", "eu"], "['eu', 3, (), 1.0, False, None]"),
    "all by position": ([":make", "eu", "-5", "1", "2.5"], "['eu', -5, (1.0, 2.5), 1.0, False, None]"),
    "options": (
        [":make", "eu", "--limit", "5", "--rate=0.5", "--dry-run", "--folder", "/tmp/x"],
        "['eu', 5, (), 0.5, True, 'x']",
    ),
    "among options of the run": (
        [":make", "--workers", "1", "--dry-run", "--topic", "eu", "--log-level", "warning", "--limit", "7"],
        "['eu', 7, (), 1.0, True, None]",
    ),
    "after dashes": (
        [":make", "--workers", "1", "--", "--topic", "eu", "--dry-run", "no"],
        "['eu', 3, (), 1.0, False, None]",
    ),
    "options of the same name": (
        [":any_option", "--", "--workers", "7"],
        "[\"{'workers': 7}\", 3, (), 1.0, False, None]",
    ),
    "an optional type": ([":old_style", "5", "--kind", "7"], "[\"5 '7'\", 3, (), 1.0, False, None]"),
}


@pytest.mark.parametrize("module", [False, True])
@pytest.mark.parametrize("case", GOOD)
def test_a_function_makes_the_flow(case: str, module: bool, tmp_path: Path) -> None:
    arguments, says = GOOD[case]
    ended = run(tmp_path, *arguments, module=module)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, f"{says}\n", "")


@pytest.mark.parametrize("dashes", [False, True])
def test_each_process_gets_the_arguments(dashes: bool, tmp_path: Path) -> None:
    of_factory = ["eu", "--limit", "5"]
    arguments = ["--processes", "2", "--", *of_factory] if dashes else [*of_factory, "--processes", "2"]
    ended = run(tmp_path, ":make", *arguments)
    assert (ended.returncode, ended.stdout) == (0, "['eu', 5, (), 1.0, False, None]\n"), ended


BAD: dict[str, tuple[list[str], str]] = {
    "a value": ([":make", "eu", "--limit", "x"], "orders.py:make: limit is of the type int, and 'x' is none"),
    "a truth": (
        [":make", "eu", "--dry-run", "perhaps"],
        "dry_run is of the type bool, and 'perhaps' is none: say true",
    ),
    "one of several": (
        [":make", "eu", "1", "2", "x"],
        "orders.py:make: more is of the type float, and 'x' is none",
    ),
    "a parameter": (
        [":make", "eu", "--limits", "5"],
        "orders.py:make has no parameter limits: it has topic, limit, rate, dry_run, folder",
    ),
    "a missing one": ([":make"], "missing a required argument: 'topic'"),
    "one too many": ([":old_style", "1", "2"], "too many positional arguments"),
    "twice": ([":make", "eu", "--limit", "5", "--limit", "6"], "--limit is given twice"),
    "by both ways": ([":make", "eu", "--topic", "us"], "multiple values for argument 'topic'"),
    "no value": ([":make", "eu", "--limit"], "--limit needs a value"),
    "a type": ([":odd", "3"], "when is of the type complex, which no argument is: annotate it with int"),
    "no function": ([":number"], "number is no flow, and no function that makes one"),
    "no such name": ([":absent"], "has no absent"),
    "of a flow": ([":flow", "eu"], "unrecognized arguments: eu; orders.py:flow is a flow"),
    "of a file": (["", "eu", "--limit", "5"], "unrecognized arguments: eu --limit 5"),
    "no flow": ([":nothing", "eu"], "orders.py:nothing returned NoneType, not a Flow"),
    "a class": ([":Make", "eu"], "orders.py:Make returned Make, not a Flow"),
    "async": ([":later"], "orders.py:later is async"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_does_not_fit_is_an_error(case: str, tmp_path: Path) -> None:
    arguments, says = BAD[case]
    ended = run(tmp_path, *arguments)
    assert ended.returncode == 2 and says in ended.stderr, ended
    assert ended.stderr.startswith("millstream run: ") and ended.stderr.count("\n") == 1


def test_an_error_of_the_function_is_its_own(tmp_path: Path) -> None:
    ended = run(tmp_path, ":fails", "eu")
    assert ended.returncode == 1 and "KeyError: 'eu'" in ended.stderr and "in fails" in ended.stderr
    assert "python/millstream" not in ended.stderr


def test_a_module_that_is_not_there(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "millstream", "run", "absent.flows:make"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert (ended.returncode, ended.stderr) == (
        2,
        "millstream run: absent.flows: no such file, and no such module\n",
    )


STATEFUL = """
import millstream as ms


class Total:
    def __init__(self):
        self.total = 0


def add(state, value):
    state.total += value
    return state.total


def make(script):
    flow = ms.Flow("totals")
    keyed = flow.source("in", ms.testing.items(script, 1)).key_by(lambda n: "k")
    keyed.stateful("totals", add, state=Total).values().sink("out", ms.stdout())
    return flow


def begin():
    return make([1, 2, 4, ms.testing.ABORT])


def proceed():
    return make([1, 2, 4, 8])


if __name__ == "__main__":
    ms.run(proceed(), state="state", epoch=0.0)
"""
WAYS: dict[str, list[str]] = {
    "file": ["-m", "millstream", "run", "totals.py:{}", "--state", "state", "--epoch", "0"],
    "module": ["-m", "millstream", "run", "totals:{}", "--state", "state", "--epoch", "0"],
    "imported": ["-c", "import totals, millstream; millstream.run(totals.{}(), state='state', epoch=0.0)"],
}


@pytest.mark.parametrize("after", [*WAYS, "program"])
@pytest.mark.parametrize("before", WAYS)
def test_state_opens_however_the_file_is_run(before: str, after: str, tmp_path: Path) -> None:
    (tmp_path / "totals.py").write_text(STATEFUL)

    def run(way: list[str], name: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, *(part.format(name) for part in way)]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=tmp_path)

    first = run(WAYS[before], "begin")
    assert first.returncode == 1 and "the input was aborted" in first.stderr, first
    second = run(WAYS.get(after, ["totals.py"]), "proceed")
    assert second.returncode == 0 and second.stdout.endswith("15\n"), second
