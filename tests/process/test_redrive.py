"""``millstream redrive``: after the flow was mended, its output is that of one without the fault."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import millstream as ms
import pytest

PROGRAM = """
import os
import time
from dataclasses import dataclass

import millstream as ms

MENDED = os.environ.get("MENDED", "no")


@dataclass(frozen=True)
class Order:
    number: int


def parse(text):
    if MENDED == "no":
        return Order(int(text))
    time.sleep(float(os.environ.get("SLOW", "0")))
    if MENDED == "half" and text.endswith("9"):
        raise ValueError("nine")
    return Order(int(text.removeprefix("#")))


def double(order):
    if MENDED == "no" and order.number % 5 == 0:
        raise ValueError("five")
    return order.number * 2


flow = ms.Flow("orders")
bad = ms.dead_letter(ms.files.write("bad.jsonl"))
orders = flow.source("in", ms.files.lines("in.txt")).map(parse, name="parse", on_error=bad)
doubled = orders.key_by(lambda order: (order.number % 7, "x")).map(double, name="double", on_error=bad)
doubled.values().map(str).sink("doubled", ms.files.write("doubled.txt"))
doubled.count("each").items().map(str).sink("counts", ms.files.write("counts.txt"))

other = ms.Flow("other")
timed = other.source("in", ms.files.lines("in.txt")).event_time(float, on_error="skip")
timed.map(parse, name="parse", on_error=bad).sink("out", ms.stdout())
"""
LINES = [f"#{n}" if n % 3 == 0 else str(n) for n in range(1, 151)]


class Place:
    """A folder with the program, its input and its output."""

    def __init__(self, folder: Path, lines: list[str] = LINES) -> None:
        folder.mkdir()
        self.folder = folder
        (folder / "flow.py").write_text(PROGRAM)
        (folder / "in.txt").write_text("".join(f"{line}\n" for line in lines))

    def start(self, verb: str, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        command = [
            sys.executable,
            "-m",
            "millstream",
            verb,
            *arguments,
            "--state",
            "state",
            "--epoch",
            "20ms",
        ]
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen(command, cwd=self.folder, env={**os.environ, **environment}, **pipes)

    def run(self, verb: str, *arguments: str, **environment: str) -> tuple[int, str]:
        process = self.start(verb, *arguments, **environment)
        _, said = process.communicate(timeout=120)
        return process.returncode, said

    def output(self) -> tuple[list[str], list[str]]:
        doubled, counts = (
            sorted((self.folder / f"{name}.txt").read_text().splitlines()) for name in ("doubled", "counts")
        )
        return doubled, counts


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], list[str]]:
    place = Place(tmp_path_factory.mktemp("model") / "flow")
    assert place.run("run", "flow.py", MENDED="yes")[0] == 0
    return place.output()


@pytest.fixture
def failed(tmp_path: Path) -> Place:
    """A flow that has ended, with letters of both steps."""
    place = Place(tmp_path / "flow")
    assert place.run("run", "flow.py")[0] == 0
    assert len((place.folder / "bad.jsonl").read_text().splitlines()) == 50 + 20
    return place


def test_the_output_is_that_of_a_flow_without_the_fault(failed: Place, expected: object) -> None:
    code, said = failed.run("redrive", "bad.jsonl", "flow.py", MENDED="yes")
    assert code == 0 and "bad.jsonl: 70 redriven (parse 50, double 20)" in said, said
    assert failed.output() == expected
    code, said = failed.run("redrive", "bad.jsonl", "flow.py", MENDED="yes")
    assert code == 0 and "all letters have been redriven" in said
    assert failed.run("run", "flow.py", MENDED="yes")[0] == 0
    assert failed.output() == expected


def test_a_kill_at_any_moment_loses_nothing_and_repeats_nothing(failed: Place, expected: object) -> None:
    seed = int(os.environ.get("MILLSTREAM_SEED", random.randrange(10**6)))
    moments = random.Random(seed)
    kills = 0
    for _ in range(200):
        process = failed.start("redrive", "bad.jsonl", "flow.py", MENDED="yes", SLOW="0.03")
        try:
            _, said = process.communicate(timeout=moments.uniform(0.3, 1.2))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.communicate()
            kills += 1
            continue
        assert process.returncode == 0, (seed, said)
        break
    assert kills, seed
    assert failed.run("run", "flow.py", MENDED="yes")[0] == 0
    assert failed.output() == expected, seed


def test_a_run_in_the_middle_is_refused(failed: Place, expected: object) -> None:
    process = failed.start("redrive", "bad.jsonl", "flow.py", MENDED="yes", SLOW="0.05")
    info = [sys.executable, "-m", "millstream", "state", "info", "state"]
    positions: set[str] = set()
    # The first one may be that before the first letter.
    while len(positions) < 2:
        assert process.poll() is None, process.communicate()
        said = subprocess.check_output(info, cwd=failed.folder, text=True)
        positions.update(line for line in said.splitlines() if "double.redriven" in line)
    process.kill()
    process.communicate()
    code, said = failed.run("run", "flow.py", MENDED="yes")
    assert code == 1 and "a redrive of dead letters was interrupted: run it again" in said, said
    assert 'state of source "double.redriven", source "parse.redriven", which' in said, said
    bad = failed.folder / "bad.jsonl"
    letters = bad.read_text()
    bad.write_text(letters.replace("#", "##"))
    code, said = failed.run("redrive", "bad.jsonl", "flow.py", MENDED="yes")
    assert code == 1 and "is not the file whose redrive was interrupted" in said, said
    bad.write_text(letters)
    assert failed.run("redrive", "bad.jsonl", "flow.py", MENDED="yes")[0] == 0
    assert failed.output() == expected


DIES = """
import os
import sys

from millstream._run import redrive_command as redrive
from millstream.__main__ import main

forget = redrive.forget


def dies_before(*_):
    os._exit(9)


def dies_after(steps, options):
    forget(steps, options)
    os._exit(9)


redrive.forget = {"before": dies_before, "after": dies_after}[sys.argv.pop(1)]
sys.exit(main())
"""


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_death_when_all_is_sent_leaves_a_state_that_runs(
    moment: str, failed: Place, expected: object
) -> None:
    command = [
        *(sys.executable, "-c", DIES, moment, "redrive", "bad.jsonl", "flow.py", "--state", "state"),
        *("--epoch", "20ms"),
    ]
    died = subprocess.run(command, cwd=failed.folder, env={**os.environ, "MENDED": "yes"}, timeout=120)
    assert died.returncode == 9
    code, said = failed.run("redrive", "bad.jsonl", "flow.py", MENDED="yes")
    assert code == 0 and "all letters have been redriven" in said, said
    code, said = failed.run("run", "flow.py", MENDED="yes")
    assert code == 0, said
    assert failed.output() == expected


def test_letters_that_fail_again_are_redriven_next(failed: Place, expected: object) -> None:
    bad = failed.folder / "bad.jsonl"
    assert failed.run("redrive", "bad.jsonl", "flow.py", MENDED="half")[0] == 0
    assert len(bad.read_text().splitlines()) == 70 + 5
    code, said = failed.run("redrive", "bad.jsonl", "flow.py", MENDED="yes")
    assert code == 0 and "bad.jsonl: 5 redriven (parse 5)" in said, said
    assert failed.output() == expected
    bad.write_text(bad.read_text().replace("#", "##"))
    code, said = failed.run("redrive", "bad.jsonl", "flow.py", MENDED="yes")
    assert code == 2 and "remove bad.jsonl.redriven" in said, said


def test_an_item_may_be_mended_in_the_file(failed: Place, expected: object) -> None:
    letters = (failed.folder / "bad.jsonl").read_text()
    # The flow writes to the file itself: a copy is edited.
    (failed.folder / "edited").write_text(letters.replace('"#', '"'))
    code, said = failed.run("redrive", "edited", "flow.py", MENDED="yes")
    assert code == 0, said
    assert failed.output() == expected


BATCHES = """
import os

import millstream as ms

MENDED = "MENDED" in os.environ
flow = ms.Flow("orders")
bad = ms.dead_letter(ms.files.write("bad.jsonl"))


def batch(numbers):
    if not MENDED and 7 in numbers:
        raise ValueError("seven")
    return [number * 2 for number in numbers]


class Sum:
    def __init__(self):
        self.sum = 0

    def on_batch(self, key, values):
        if not MENDED and 5 in values:
            raise ValueError("five")
        self.sum += sum(values)
        return [self.sum]


numbers = flow.source("in", ms.files.lines("in.txt")).map(int)
numbers.map_batch(batch, name="batch", on_error=bad).map(str).sink("out", ms.files.write("doubled.txt"))
sums = numbers.key_by(lambda number: number % 2).stateful_batch("sums", Sum, on_error=bad)
sums.items().map(str).sink("counts", ms.files.write("counts.txt"))
"""


def test_the_items_of_a_batch_are_redriven_one_by_one(tmp_path: Path) -> None:
    place = Place(tmp_path / "flow", [str(number) for number in range(20)])
    (place.folder / "flow.py").write_text(BATCHES)
    assert place.run("run", "flow.py")[0] == 0
    code, said = place.run("redrive", "bad.jsonl", "flow.py", MENDED="yes")
    assert code == 0 and "batch 1" in said and "sums 1" in said, said
    doubled, sums = place.output()
    assert sorted(map(int, doubled)) == [2 * number for number in range(20)]
    # The state of the odd key has them all.
    assert f"(1, {sum(range(1, 20, 2))})" in sums


def test_a_last_letter_without_an_end_is_not_left_out(failed: Place) -> None:
    edited = failed.folder / "edited"
    letters = (failed.folder / "bad.jsonl").read_text()
    edited.write_text(letters.removesuffix("\n"))
    code, said = failed.run("redrive", "edited", "flow.py", MENDED="yes")
    assert code == 2 and "edited, line 70: it has no end: end it with a line feed" in said, said
    # What a kill has left of a line is no letter.
    edited.write_text(letters[:-9])
    code, said = failed.run("redrive", "edited", "flow.py", MENDED="yes")
    assert code == 0 and "69 redriven" in said, said


def test_a_directory_without_a_state_is_refused(failed: Place) -> None:
    (failed.folder / "state").rename(failed.folder / "moved")
    code, said = failed.run("redrive", "bad.jsonl", "flow.py", MENDED="yes")
    assert code == 2 and "state: there is no state of a flow" in said, said
    assert not (failed.folder / "state").exists()


WRONG = [
    ('{"step": "pars", "key": null, "item": 1}', [], 'no step of the name "pars"'),
    ('{"item": 1}', [], "bad, line 1: it is no dead letter"),
    ("x", [], "bad, line 1: it is no dead letter"),
    ('{"step": "parse", "key": null, "item_repr": "<a lock>"}', [], "line 1: its item could not be written"),
    ('{"step": "parse", "key": null, "item": "1"}', ["flow.py:other"], "comes after event_time"),
]


@pytest.mark.parametrize(("line", "arguments", "message"), WRONG)
def test_what_cannot_be_redriven_is_named(
    line: str, arguments: list[str], message: str, tmp_path: Path
) -> None:
    place = Place(tmp_path / "flow")
    assert place.run("run", *(arguments or ["flow.py"]), MENDED="yes")[0] == 0
    before = place.output() if not arguments else None
    (place.folder / "bad").write_text(f"{line}\n")
    code, said = place.run("redrive", "bad", *(arguments or ["flow.py"]), MENDED="yes")
    assert code == 2 and message in said, said
    assert before is None or place.output() == before


def test_it_needs_a_state(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "millstream", "redrive", "bad", "flow.py"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 2 and "it needs --state" in done.stderr


@pytest.mark.parametrize(
    "item", [None, True, 1, 1.5, float("nan"), "x", "\ud800", b"x", (1,), [1, (2,)], {1: 2}]
)
def test_each_item_is_read_as_it_was(item: object) -> None:
    from millstream._values.letters import read, values_of

    line = str(ms.DeadLetter("step", item, item, ValueError("\ud800")))
    letter = read(line.encode())
    key, found = values_of(letter)
    assert letter["step"] == "step" and repr(key) == repr(found) == repr(item)
    assert type(found) is type(item)


def test_an_item_without_a_pickle_has_its_text() -> None:
    assert '"item_repr":"<function ' in str(ms.DeadLetter("step", None, lambda: None, ValueError()))
