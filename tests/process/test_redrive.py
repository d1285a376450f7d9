"""``millstream redrive``: after the flow was mended, its output is that of one without the fault."""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
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
lines = other.source("in", ms.files.lines("in.txt")).map(str, name="strip", on_error=bad)
timed = lines.event_time(float, name="time", on_error=bad)
timed.map(parse, name="parse", on_error=bad).sink("out", ms.stdout())
other.source("more", ms.files.lines("in.txt")).sink("more out", ms.stdout())
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


CRASHES = """
import sys
from functools import partial

from millstream._run import run
from millstream.__main__ import main

run.run_with = partial(run.run_with, crash=(sys.argv.pop(1), int(sys.argv.pop(1))))
sys.exit(main())
"""


def test_a_crash_at_each_moment_of_a_commit_loses_nothing_and_repeats_nothing(
    failed: Place, expected: object
) -> None:
    redrive = ("redrive", "bad.jsonl", "flow.py", "--state", "state", "--epoch", "20ms")
    environment = {**os.environ, "MENDED": "yes", "SLOW": "0.01"}
    crashes = 0
    while True:
        moment = ("before", "within", "after")[crashes % 3]
        command = [sys.executable, "-c", CRASHES, moment, str(1 + crashes % 2), *redrive]
        done = subprocess.run(
            command, cwd=failed.folder, env=environment, capture_output=True, text=True, timeout=120
        )
        if done.returncode == 0:
            break
        assert "a test ended the flow" in done.stderr, done.stderr
        crashes += 1
    assert crashes > 4
    assert failed.run("run", "flow.py", MENDED="yes")[0] == 0
    assert failed.output() == expected


def interrupt(place: Place, number: signal.Signals = signal.SIGKILL) -> tuple[int, str]:
    """Ends a redrive when some letters are committed; returns its exit code and what it said."""
    process = place.start("redrive", "bad.jsonl", "flow.py", MENDED="yes", SLOW="0.05")
    info = [sys.executable, "-m", "millstream", "state", "info", "state"]
    positions: set[str] = set()
    # The first one may be that before the first letter.
    while len(positions) < 2:
        assert process.poll() is None, process.communicate()
        said = subprocess.check_output(info, cwd=place.folder, text=True)
        positions.update(line for line in said.splitlines() if "double.redriven" in line)
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    return process.returncode, said


def test_a_run_in_the_middle_keeps_what_is_left(failed: Place, expected: object) -> None:
    interrupt(failed)
    code, said = failed.run("run", "flow.py", MENDED="yes")
    assert code == 0, said
    bad = failed.folder / "bad.jsonl"
    letters = bad.read_text()
    bad.write_text(letters.replace("#", "##"))
    code, said = failed.run("redrive", "bad.jsonl", "flow.py", MENDED="yes")
    assert code == 2 and "does not begin with the letters that were redriven" in said, said
    assert '--drop-state "double.redriven" --drop-state "parse.redriven"' in said, said
    bad.write_text(letters)
    assert failed.run("redrive", "bad.jsonl", "flow.py", MENDED="yes")[0] == 0
    assert failed.output() == expected


def test_sigterm_ends_it_in_an_orderly_way(failed: Place, expected: object) -> None:
    code, said = interrupt(failed, signal.SIGTERM)
    assert code == 0 and "bad.jsonl: stopped; run it again for the rest of the letters" in said, said
    assert failed.run("redrive", "bad.jsonl", "flow.py", MENDED="yes")[0] == 0
    assert failed.output() == expected


def scale(place: Place, processes: int) -> None:
    command = [sys.executable, "-m", "millstream", "scale", "state", "--processes", str(processes)]
    # What a process that was killed has written is removed by its next start.
    subprocess.run([*command, "--leave-output"], cwd=place.folder, check=True, capture_output=True)


def test_a_state_that_is_divided_in_between_keeps_the_positions(failed: Place, expected: object) -> None:
    interrupt(failed)
    assert failed.run("run", "flow.py", MENDED="yes")[0] == 0
    scale(failed, 2)
    code, said = failed.run("redrive", "bad.jsonl", "flow.py", MENDED="yes")
    assert code == 1 and "millstream scale state --processes 1" in said, said
    code, said = failed.run("run", "flow.py", "--processes", "2", MENDED="yes")
    assert code == 0, said
    scale(failed, 1)
    assert failed.run("redrive", "bad.jsonl", "flow.py", MENDED="yes")[0] == 0
    assert failed.output() == expected


def begin_anew(place: Place) -> None:
    """The flow begins anew, with its fault."""
    assert place.run("run", "flow.py", "--fresh")[0] == 0


def remove(place: Place) -> None:
    """The flow gets another state directory."""
    shutil.rmtree(place.folder / "state")
    assert place.run("run", "flow.py")[0] == 0


def restore_begun(place: Place) -> None:
    """The state is that from before the redrive. The flow rolls its output back to it."""
    shutil.rmtree(place.folder / "state")
    shutil.copytree(place.folder / "begun", place.folder / "state")


def restore_middle(place: Place) -> None:
    """The state is that from the middle of the redrive."""
    shutil.rmtree(place.folder / "state")
    shutil.copytree(place.folder / "middle", place.folder / "state")


@pytest.mark.parametrize("change", [begin_anew, remove, restore_begun, restore_middle])
def test_each_state_gets_the_letters_that_it_has_not(
    change: Callable[[Place], None], failed: Place, expected: object
) -> None:
    folder = failed.folder
    shutil.copytree(folder / "state", folder / "begun")
    interrupt(failed)
    shutil.copytree(folder / "state", folder / "middle")
    assert failed.run("redrive", "bad.jsonl", "flow.py", MENDED="yes")[0] == 0
    assert failed.output() == expected
    change(failed)
    code, said = failed.run("redrive", "bad.jsonl", "flow.py", MENDED="yes")
    assert code == 0 and "bad.jsonl: " in said and " redriven (parse " in said, said
    assert failed.output() == expected
    code, said = failed.run("redrive", "bad.jsonl", "flow.py", MENDED="yes")
    assert code == 0 and "all letters have been redriven" in said, said


def test_letters_that_no_commit_has_are_not_sent(tmp_path: Path) -> None:
    """A flow that is killed leaves such letters in its file, and processes their items again."""
    model, killed = (Place(tmp_path / name) for name in ("model", "killed"))
    assert killed.run("run", "flow.py")[0] == 0
    bad = killed.folder / "bad.jsonl"
    committed = bad.read_text()
    bad.write_text(committed + committed.splitlines(keepends=True)[0].replace("#3", "#153"))
    for place in (model, killed):
        with (place.folder / "in.txt").open("a") as file:
            file.write("#153\n")
    code, said = killed.run("redrive", "bad.jsonl", "flow.py", MENDED="yes")
    assert code == 0 and "double 20); without 1 that no commit had" in said, said
    for place in (model, killed):
        assert place.run("run", "flow.py", MENDED="yes")[0] == 0
    assert killed.output() == model.output()


def test_a_file_that_has_grown_is_continued_under_each_of_its_names(failed: Place, expected: object) -> None:
    folder = failed.folder
    letters = (folder / "bad.jsonl").read_text().splitlines(keepends=True)
    (folder / "some").write_text("".join(letters[:30]))
    code, said = failed.run("redrive", "some", "flow.py", MENDED="yes")
    assert code == 0 and "some: 30 redriven" in said, said
    (folder / "some").write_text("".join(letters))
    code, said = failed.run("redrive", str(folder / "some"), "flow.py", MENDED="yes")
    assert code == 0 and "some: 40 redriven" in said, said
    assert failed.output() == expected


@pytest.mark.parametrize("way", ["copy", "drop"])
def test_another_file_of_the_name_is_sent_as_the_error_says(
    way: str, failed: Place, expected: object
) -> None:
    folder = failed.folder
    letters = (folder / "bad.jsonl").read_text().splitlines(keepends=True)
    (folder / "part").write_text("".join(letters[:30]))
    assert failed.run("redrive", "part", "flow.py", MENDED="yes")[0] == 0
    (folder / "part").write_text("".join(letters[30:]))
    code, said = failed.run("redrive", "part", "flow.py", MENDED="yes")
    assert code == 2 and "redrive a copy under another name, or run the flow with --drop-state" in said, said
    name = "part"
    if way == "copy":
        name = "copy"
        shutil.copy(folder / "part", folder / name)
    else:
        dropped = re.findall('--drop-state "([^"]*)"', said)
        options = [word for source in dropped for word in ("--drop-state", source)]
        assert dropped and failed.run("run", "flow.py", *options, MENDED="yes")[0] == 0
    code, said = failed.run("redrive", name, "flow.py", MENDED="yes")
    assert code == 0 and f"{name}: 40 redriven" in said, said
    assert failed.output() == expected


@pytest.mark.parametrize("sink", ['"bad.gz"', '"bad.zst"', '"bad", compression="gzip"'])
def test_a_compressed_file_of_the_flow_is_read(sink: str, tmp_path: Path, expected: object) -> None:
    place = Place(tmp_path / "flow")
    (place.folder / "flow.py").write_text(PROGRAM.replace('"bad.jsonl"', sink))
    assert place.run("run", "flow.py")[0] == 0
    (bad,) = place.folder.glob("bad*")
    letters = bad.read_bytes()
    bad.write_bytes(letters + letters[:40])
    code, said = place.run("redrive", bad.name, "flow.py", MENDED="half")
    assert code == 2 and "run that flow before: its start removes" in said, said
    assert place.run("run", "flow.py", MENDED="half")[0] == 0
    code, said = place.run("redrive", bad.name, "flow.py", MENDED="half")
    assert code == 0 and "70 redriven" in said, said
    code, said = place.run("redrive", bad.name, "flow.py", MENDED="yes")
    assert code == 0 and "5 redriven (parse 5)" in said, said
    assert place.output() == expected


def test_a_flow_that_runs_is_stopped_first(failed: Place, expected: object) -> None:
    redrive = failed.start("redrive", "bad.jsonl", "flow.py", MENDED="yes", SLOW="0.5")
    log = failed.folder / "doubled.txt"
    before = log.stat().st_size
    while log.stat().st_size == before:
        assert redrive.poll() is None, redrive.communicate()
        time.sleep(0.05)
    code, said = failed.run("redrive", "bad.jsonl", "flow.py", MENDED="yes")
    assert code == 1 and "a run has it open: stop the flow first, by Ctrl-C or SIGTERM" in said, said
    redrive.terminate()
    redrive.communicate(timeout=60)
    assert failed.run("redrive", "bad.jsonl", "flow.py", MENDED="yes")[0] == 0
    assert failed.output() == expected


def test_letters_that_fail_again_are_redriven_next(failed: Place, expected: object) -> None:
    bad = failed.folder / "bad.jsonl"
    assert failed.run("redrive", "bad.jsonl", "flow.py", MENDED="half")[0] == 0
    assert len(bad.read_text().splitlines()) == 70 + 5
    code, said = failed.run("redrive", "bad.jsonl", "flow.py", MENDED="yes")
    assert code == 0 and "bad.jsonl: 5 redriven (parse 5)" in said, said
    assert failed.output() == expected


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
    (
        '{"step": "strip", "key": null, "item": "1"}',
        ["flow.py:other"],
        'step "strip" comes before event_time',
    ),
    ('{"step": "time", "key": null, "item": "1"}', ["flow.py:other"], 'step "time" comes before event_time'),
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
