"""Outputs of a flow that others write too: another run, a program that appends, a tool that cuts a file."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import millstream as ms
import pytest

ENDLESS = """
import itertools, os, time
import millstream as ms

flow = ms.Flow("numbers")

@ms.source(resume=True)
def numbers(resume=None):
    for number in range(resume or 0, int(os.environ.get("END", 1 << 40))):
        time.sleep(0.001)
        yield ms.At(number + 1, number)

flow.source("in", numbers)SINK
"""
SINKS = {
    "file": '.sink("out", ms.files.write("out.txt", encode=str))',
    "keys": '.map(lambda n: (str(n % 3), str(n))).sink("out", ms.files.write_by_key("out"))',
    "journal": '.sink("out", ms.journals.append("out", encode=str))',
}


class Runs:
    """Runs of the flow in a directory, each with a state of its own."""

    def __init__(self, folder: Path, sink: str) -> None:
        self.folder = folder
        self.program = folder / "flow.py"
        self.program.write_text(ENDLESS.replace("SINK", SINKS[sink]))

    def start(self, state: str = "state", *more: str, **variables: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "millstream", "run", "flow.py", "--state", state, "--epoch", "10ms"]
        return subprocess.Popen(
            [*command, *more],
            cwd=self.folder,
            env=os.environ | variables,
            stderr=subprocess.PIPE,
            text=True,
        )

    def end(self, running: subprocess.Popen[str], sent: int = signal.SIGTERM) -> str:
        running.send_signal(sent)
        return running.communicate(timeout=60)[1]

    def go_on(self, length: Callable[[], int]) -> None:
        """Runs it until its output has grown, and ends it in order."""
        before = length()
        running = self.start()
        until(lambda: length() > before, running)
        told = self.end(running)
        assert running.returncode == 0, told

    def finish(self, *more: str, code: int = 0, end: int = 20) -> str:
        """Runs it to the end of its first numbers, or as far as it is; returns what it says."""
        _, told = (running := self.start("state", *more, END=str(end))).communicate(timeout=60)
        assert running.returncode == code, told
        return told


def until(true: Callable[[], object], running: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 60
    while not true():
        assert running.poll() is None, running.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.01)


def append(journal: Path, record: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "millstream", "journal", "append", str(journal)]
    return subprocess.run(command, input=f"{record}\n", capture_output=True, text=True, timeout=60)


def records(journal: Path) -> list[str]:
    with ms.Journal(journal, "r") as opened:
        return [bytes(record).decode() for record in opened]


@pytest.mark.parametrize("sink", SINKS)
def test_a_second_run_is_refused(tmp_path: Path, sink: str) -> None:
    runs = Runs(tmp_path, sink)
    output = tmp_path / ("out.txt" if sink == "file" else "out")
    some = {"file": output, "keys": output / "0", "journal": output / "writers" / "0"}[sink]
    first = runs.start("first")
    until(lambda: some.exists() and (sink == "journal" or some.stat().st_size), first)
    second = runs.start("second", END="20")
    _, told = second.communicate(timeout=60)
    assert second.returncode == 1 and str(output.name) in told, told
    told = runs.end(first)
    assert first.returncode == 0, told
    if sink == "file":
        lines = output.read_text().splitlines()
        assert lines == [str(number) for number in range(len(lines))] and lines


@pytest.mark.parametrize("tool", ["cut", "move", "append"])
def test_a_file_that_a_tool_changes_ends_the_run(tmp_path: Path, tool: str) -> None:
    runs = Runs(tmp_path, "file")
    output = tmp_path / "out.txt"
    running = runs.start()
    until(lambda: output.exists() and output.stat().st_size > 100, running)
    before = output.read_bytes()
    if tool == "cut":
        os.truncate(output, 0)
    elif tool == "move":
        output.rename(tmp_path / "old.txt")
    else:
        with output.open("a") as other:
            other.write("mine\n")
    _, told = running.communicate(timeout=60)
    assert running.returncode == 1 and "out.txt" in told, told
    if tool != "append":
        # The file as it was: the advice.
        runs.finish(code=1)
        if tool == "move":
            (tmp_path / "old.txt").rename(output)
        else:
            output.write_bytes(before)
    if tool != "cut":
        runs.go_on(lambda: output.stat().st_size)
        lines = output.read_text().splitlines()
        assert lines == [str(number) for number in range(len(lines))]
    told = runs.finish("--drop-state", "out")
    assert b"\0" not in output.read_bytes()


def test_records_of_others_after_the_end_are_kept(tmp_path: Path) -> None:
    runs, journal = Runs(tmp_path, "journal"), tmp_path / "out"
    runs.finish()
    numbers = [str(number) for number in range(20)]
    assert records(journal) == numbers
    assert append(journal, "mine").returncode == 0
    runs.finish()
    assert records(journal) == [*numbers, "mine"]
    for sent in (signal.SIGTERM, signal.SIGKILL):
        running = runs.start()
        length = len(records(journal))
        until(lambda length=length: len(records(journal)) > length, running)
        told = append(journal, "refused")
        assert told.returncode == 1 and "only one that appends" in told.stderr, told.stderr
        runs.end(running, sent)
        if sent == signal.SIGTERM:
            assert append(journal, "mine").returncode == 0
    # It was killed: what it has not committed is still to be removed.
    told = append(journal, "refused")
    assert told.returncode == 1 and "has not ended in order" in told.stderr, told.stderr
    runs.finish(end=len(records(journal)) + 20)
    assert append(journal, "mine").returncode == 0
    seen = records(journal)
    assert seen.count("mine") == 3 and "refused" not in seen
    own = [record for record in seen if record != "mine"]
    assert own == [str(number) for number in range(len(own))]


def test_the_journal_of_another_state_is_not_cut(tmp_path: Path) -> None:
    runs, journal = Runs(tmp_path, "journal"), tmp_path / "out"
    runs.finish()
    other = runs.start("other", END="5")
    assert other.wait(timeout=60) == 0, other.communicate()[1]
    before = records(journal)
    assert len(before) == 25
    told = runs.finish(code=1)
    assert "records 20 to 24 are not of this state" in told, told
    assert records(journal) == before
    runs.finish("--drop-state", "out")
    assert records(journal) == before


def test_a_claim_that_is_left_for_ever_is_removed_by_hand(tmp_path: Path) -> None:
    runs, journal = Runs(tmp_path, "journal"), tmp_path / "out"
    running = runs.start()
    until((journal / "is-claimed").exists, running)
    until(lambda: records(journal), running)
    runs.end(running, signal.SIGKILL)
    told = append(journal, "mine").stderr
    claim = Path(told.rsplit("remove ", 1)[1].strip())
    claim.unlink()
    assert append(journal, "mine").returncode == 0
    assert records(journal)[-1] == "mine"


def test_a_flow_that_died_after_its_last_commit_gives_its_journal_back(tmp_path: Path) -> None:
    runs, journal = Runs(tmp_path, "journal"), tmp_path / "out"
    claim, closed = journal / "is-claimed", journal / "is-closed"
    running = runs.start()
    until(claim.exists, running)
    claimed = claim.read_bytes()
    until(lambda: records(journal), running)
    runs.end(running)
    end = len(records(journal)) + 20
    runs.finish(end=end)
    closed.unlink()
    claim.write_bytes(claimed)
    assert append(journal, "refused").returncode == 1
    # The advice: start it, and append after its end.
    runs.finish(end=end)
    assert append(journal, "mine").returncode == 0
    assert records(journal) == [*map(str, range(end)), "mine"]


def test_a_start_that_fails_keeps_what_others_wrote(tmp_path: Path) -> None:
    runs, journal = Runs(tmp_path, "journal"), tmp_path / "out"
    runs.finish()
    assert append(journal, "mine").returncode == 0
    before = records(journal)
    program = runs.program.read_text()
    second = '\nnumbers_again = flow.source("again", numbers).sink("file", ms.files.write("gone/out.txt"))\n'
    for _ in range(2):
        runs.program.write_text(program + second)
        assert "gone/out.txt" in runs.finish(code=1)
        assert records(journal) == before
    runs.program.write_text(program)
    runs.finish()
    assert append(journal, "mine").returncode == 0
    assert records(journal) == [*before, "mine"]
