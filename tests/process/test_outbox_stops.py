"""Ctrl-C, SIGTERM, and destinations that are away, hang or refuse: the next run delivers the rest.

Calls that hang take an hour: a run that waited for one would not end within the time of a test.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from flow_traffic import PATIENCE
from outbox_table import NUMBERS, Table
from soak import in_turns

ENDLESS = 1 << 41


class Runs:
    """Runs of the flow in processes of their own."""

    def __init__(
        self, folder: Path, kind: str, workers: int, options: str = "{}", state: bool = True
    ) -> None:
        self.table = Table(folder / "table")
        self.expected = folder / "expected"
        (folder / "flow.py").write_text(NUMBERS)
        self.command = [sys.executable, "-m", "millstream", "run", str(folder / "flow.py")]
        self.command += ["--workers", str(workers)]
        if state:
            self.command += ["--state", str(folder / "state"), "--epoch", "20ms", "--sync", "never"]
        variables = {"TABLE": str(self.table.path), "KIND": kind, "OPTIONS": options}
        self.environment = os.environ | variables | {"EXPECTED": str(self.expected)}

    def start(self, end: int = ENDLESS) -> subprocess.Popen[str]:
        environment = self.environment | {"END": str(end)}
        return subprocess.Popen(self.command, env=environment, stderr=subprocess.PIPE, text=True)

    def complete(self) -> None:
        """Runs it with a destination that works, until what waits is delivered, and judges the table."""
        self.table.recover()
        last = self.start(1)
        _, errors = last.communicate(timeout=PATIENCE)
        assert last.returncode == 0, errors
        self.table.judge(self.expected.read_text().splitlines(), once=True)


def wait_for(condition: Callable[[], object], running: subprocess.Popen[str]) -> None:
    started = time.monotonic()
    while not condition():
        assert running.poll() is None, running.communicate()[1]
        assert time.monotonic() < started + PATIENCE, "it does not come"
        time.sleep(0.01)


SITUATIONS = {
    "delivers": ("remembers", "", "", "{}", ENDLESS),
    "cannot connect": ("remembers", "CONNECT", "away", "{'retry': ms.Backoff(first=600, most=600)}", ENDLESS),
    "is away": ("remembers", "WRITE", "away", "{'retry': ms.Backoff(first=600, most=600)}", ENDLESS),
    "hangs in connect": ("remembers", "CONNECT", "hangs", "{}", ENDLESS),
    "hangs in write": ("remembers", "WRITE", "hangs", "{}", ENDLESS),
    "hangs in an asynchronous write": ("async", "WRITE", "hangs", "{}", ENDLESS),
    "is full": ("remembers", "WRITE", "away", "{'max_bytes': 1000}", ENDLESS),
    "is old": ("remembers", "WRITE", "away", "{'max_age': 0.01}", ENDLESS),
    "hangs and is full": ("remembers", "WRITE", "hangs", "{'max_bytes': 1000}", ENDLESS),
    "waits at the end": ("remembers", "WRITE", "away", "{'wait_at_end': 3600}", 1000),
    "hangs at the end": ("remembers", "WRITE", "hangs", "{}", 1000),
}


@pytest.mark.parametrize(
    ("situation", "sent", "workers"), in_turns(SITUATIONS, [(signal.SIGINT, 1), (signal.SIGTERM, 3)])
)
def test_a_signal_ends_the_run(tmp_path: Path, situation: str, sent: signal.Signals, workers: int) -> None:
    kind, verb, word, options, end = SITUATIONS[situation]
    runs = Runs(tmp_path, kind, workers, options)
    if verb:
        runs.table.behave(verb, word)
    running = runs.start(end)
    wait_for(runs.table.seen.exists if verb else runs.table.length, running)
    if (verb, word) == ("CONNECT", "away"):
        # It connects before there are records; those of the file are in the outbox too.
        wait_for(lambda: runs.expected.exists() and runs.expected.read_text(), running)
    running.send_signal(sent)
    _, errors = running.communicate(timeout=60)
    assert running.returncode == 0, errors
    assert "Traceback" not in errors and "panicked" not in errors, errors
    if word == "away":
        assert "records wait for the next start, which delivers them" in errors, errors
    elif word:
        assert "stopped during a delivery of 1 of its sinks" in errors, errors
    runs.complete()


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_does_not_wait_for_a_write_that_hangs(tmp_path: Path, sent: signal.Signals) -> None:
    for state in (True, False):
        folder = tmp_path / str(state)
        folder.mkdir()
        runs = Runs(folder, "remembers", 1, state=state)
        runs.table.behave("WRITE", "hangs")
        running = runs.start()
        wait_for(runs.table.seen.exists, running)
        running.send_signal(sent)
        time.sleep(0.5)
        running.send_signal(sent)
        _, errors = running.communicate(timeout=60)
        assert running.returncode in (0, 130), errors
        assert "panicked" not in errors, errors


def test_without_a_state_directory_a_signal_drops_what_cannot_be_delivered(tmp_path: Path) -> None:
    runs = Runs(tmp_path, "remembers", 1, "{'retry': ms.Backoff(first=600, most=600)}", state=False)
    runs.table.behave("WRITE", "away")
    running = runs.start()
    wait_for(runs.table.seen.exists, running)
    running.send_signal(signal.SIGINT)
    _, errors = running.communicate(timeout=60)
    assert running.returncode == 0 and "they are dropped" in errors, errors


@pytest.mark.parametrize("workers", [1, 3])
def test_an_outage_does_not_stop_the_flow(tmp_path: Path, workers: int) -> None:
    """The destination is away at the start, comes, goes, and comes again."""
    runs = Runs(tmp_path, "remembers", workers, "{'retry': ms.Backoff(first=0.01, most=0.1)}")
    runs.table.behave("CONNECT", "away")
    running = runs.start()

    def grows(path: Path) -> None:
        before = path.stat().st_size if path.exists() else 0
        wait_for(lambda: path.exists() and path.stat().st_size > before, running)

    for _ in range(3):
        wait_for(runs.table.seen.exists, running)
        # The flow goes on while nothing is delivered.
        before = runs.table.length()
        grows(runs.expected)
        assert runs.table.length() == before
        runs.table.recover()
        wait_for(lambda before=before: runs.table.length() > before, running)
        runs.table.behave("WRITE", "away")
    running.send_signal(signal.SIGINT)
    _, errors = running.communicate(timeout=60)
    assert running.returncode == 0, errors
    runs.complete()


@pytest.mark.parametrize("kind", ["remembers", "async"])
def test_a_refusal_fails_the_flow_with_its_records_and_a_traceback(tmp_path: Path, kind: str) -> None:
    runs = Runs(tmp_path, kind, 1)
    runs.table.behave("WRITE", "refuses")
    running = runs.start()
    _, errors = running.communicate(timeout=60)
    assert running.returncode == 1
    assert "ValueError: no such column" in errors and "in behave" in errors, errors
    assert re.search('step "table", item records? 0[: ]', errors), errors
    runs.complete()
