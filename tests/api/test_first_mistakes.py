"""What a new user writes first by mistake: each gets what is wrong, where, and the remedy."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import millstream as ms
import pytest


def stream(items: list[Any] | None = None) -> Any:
    return ms.Flow("f").source("in", ms.testing.items(items or [1]))


MISTAKES: dict[str, tuple[Callable[[], object], str]] = {
    "list": (
        lambda: ms.Flow("f").source("in", [1, 2]),  # type: ignore[arg-type]
        "[1, 2] is no source: ms.testing.items makes one of a list",
    ),
    "text": (
        lambda: ms.Flow("f").source("in", "orders.csv"),  # type: ignore[arg-type]
        "'orders.csv' is no source: it has no method open",
    ),
    "print": (
        lambda: stream().sink("out", print),
        "<built-in function print> is no sink: ms.stdout() prints each item, @ms.sink makes a sink of a "
        "function that delivers",
    ),
    "no name": (
        lambda: stream().sink(ms.stdout()),
        'a sink has a name, which comes first: sink("NAME", ...)',
    ),
    "name last": (
        lambda: stream().sink(ms.stdout(), "out"),
        'a sink has a name, which comes first: sink("NAME", ...)',
    ),
    "no name of a keyed one": (
        lambda: stream().key_by(str).sink(ms.stdout()),
        'a sink has a name, which comes first: sink("NAME", ...)',
    ),
    "no name of a source": (
        lambda: ms.Flow("f").source(ms.testing.items([1])),  # type: ignore[arg-type]
        'a source has a name, which comes first: source("NAME", ...)',
    ),
    "name alone": (lambda: stream().sink("out"), 'sink("out") has a name and no sink: sink("out", SINK)'),
    "groupby": (lambda: stream().groupby(str), "has no attribute 'groupby': did you mean key_by?"),
    "flatmap": (lambda: stream().flatmap(str), "did you mean flat_map?"),
    "reduce": (lambda: stream().reduce(max), "reduce is a verb of KeyedStream: call key_by first"),
    "keyed": (lambda: stream().key_by(str).groupby(str), "key_by is a verb of Stream: call values"),
    "keys": (lambda: stream().key_by(str).union(), "did you mean merge?"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_the_remedy_is_named(name: str) -> None:
    make, said = MISTAKES[name]
    with pytest.raises((ms.FlowUsageError, AttributeError), match=re.escape(said)):
        make()


def test_what_the_messages_advise_works(capsys: pytest.CaptureFixture[str]) -> None:
    delivered: list[int] = []

    @ms.sink
    def deliver(batch: list[int], first: int, last: int) -> None:
        delivered.extend(batch)

    for source in (ms.testing.items([1, 2]), ms.generate(lambda: [1, 2])):
        flow = ms.Flow("f")
        items = flow.source("in", source)
        items.sink("out", ms.stdout())
        items.sink("delivered", deliver)
        ms.run(flow)
    assert capsys.readouterr().out == "1\n2\n1\n2\n" and delivered == [1, 2, 1, 2]


DESCRIBED = """
import millstream as ms
flow = ms.Flow("orders")
flow.source("in", ms.testing.items(range(100_000))).sink("out", ms.stdout())
"""


@pytest.mark.parametrize(
    ("more", "is_said"),
    [
        ("", True),
        ("ms.run(flow)", False),
        ("flow.start().wait()", False),
        ("flow.describe()", False),
        ("raise ValueError", False),
    ],
)
def test_a_flow_that_is_never_run_is_named(more: str, is_said: bool, tmp_path: Path) -> None:
    path = tmp_path / "orders.py"
    path.write_text(DESCRIBED + more)
    done = subprocess.run([sys.executable, path], capture_output=True, text=True)
    assert ('flow "orders" was described and never run: call ms.run(flow)' in done.stderr) == is_said
    # The advice.
    done = subprocess.run([sys.executable, "-m", "millstream", "run", path], capture_output=True, text=True)
    assert "never run" not in done.stderr


def test_a_mistyped_option(tmp_path: Path) -> None:
    path = tmp_path / "orders.py"
    path.write_text(DESCRIBED)
    command = [sys.executable, "-m", "millstream", "run", path, "--wrokers", "2"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2 and "did you mean --workers?" in done.stderr


@pytest.mark.parametrize("options", [None, [], ["--workers", "2"], ["--processes", "2"]])
def test_a_run_ends_quietly_with_the_reader_of_its_output(options: list[str] | None, tmp_path: Path) -> None:
    path = tmp_path / "orders.py"
    path.write_text(DESCRIBED if options is not None else DESCRIBED + "ms.run(flow)")
    run = [] if options is None else ["-m", "millstream", "run", *options]
    command = [sys.executable, *run, str(path)]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert running.stdout is not None and running.stderr is not None
    assert running.stdout.readline() == "0\n"
    running.stdout.close()
    said = [line for line in running.stderr if "has joined the run" not in line]
    assert running.wait() == 141 and said == []


def test_a_replay_ends_quietly_with_the_reader_of_its_output(tmp_path: Path) -> None:
    path = tmp_path / "orders.py"
    path.write_text(DESCRIBED.replace("ms.testing.items(range(100_000))", 'ms.files.lines("recorded")'))
    with ms.Journal(tmp_path / "recorded") as journal:
        journal.append_many([b"%d" % number for number in range(50_000)])
    script = f"millstream run {path} --replay in={tmp_path}/recorded | head -1; exit ${{PIPESTATUS[0]}}"
    ran = subprocess.run(["bash", "-c", script], capture_output=True, text=True)
    assert ran.returncode == 141 and ran.stderr == "" and ran.stdout.count("\n") == 1
    # Less than is buffered, which is written at the end.
    script = (
        f"millstream run {path} --replay in={tmp_path}/recorded --from 49999 | true; exit ${{PIPESTATUS[0]}}"
    )
    ran = subprocess.run(["bash", "-c", script], capture_output=True, text=True)
    assert ran.returncode == 141 and ran.stderr == ""
