"""The durability options of publishers and services, from Python and the command line."""

from __future__ import annotations

import subprocess
import sys
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol

import followed
import millstream as ms
import pytest
from millstream._values.durations import Sync

TIMEOUT = 60


class Numbers(Protocol):
    def number(self, n: int) -> None: ...


class Sums(Protocol):
    def sum(self, total: int) -> None: ...


class Adder(Numbers):
    def __init__(self, sums: Sums) -> None:
        self.sums = sums
        self.total = 0

    def number(self, n: int) -> None:
        self.total += n
        self.sums.sum(self.total)


def journal(path: Path) -> ms.Journal:
    return ms.Journal(path, "r")


def test_a_call_of_a_publisher_is_as_durable_as_asked(tmp_path: Path) -> None:
    for name, sync, is_durable in (("always", "always", True), ("never", "never", False)):
        ms.publisher(Numbers, tmp_path / name, sync=sync).number(1)  # type: ignore[type-abstract]
        with journal(tmp_path / name) as found:
            assert (found.durable == found.next == 2) is is_durable
    for sync in ("5ms", 0.005, timedelta(milliseconds=5)):
        out: Any = ms.publisher(Numbers, tmp_path / str(sync), sync=sync)  # type: ignore[type-abstract]
        out.number(1)
        with journal(tmp_path / str(sync)) as found:
            while found.durable < 2:
                pass


def test_a_call_returns_when_it_is_followed(tmp_path: Path) -> None:
    out = ms.publisher(Numbers, tmp_path / "n", wait_follower=2, timeout=0.01)  # type: ignore[type-abstract]
    with pytest.raises(TimeoutError, match="record 1 is in the journal, but 0 of 2") as error:
        out.number(1)
    assert isinstance(error.value, ms.RecordNotFollowedError)
    patient = ms.publisher(Numbers, tmp_path / "n", sync="always", wait_follower=2)  # type: ignore[type-abstract]
    waiting = threading.Thread(target=patient.number, args=(2,))
    waiting.start()
    with ms.Journal(tmp_path / "n") as numbers:
        followers = [followed.follower(numbers, name) for name in "ab"]
        while numbers.next < 4:  # the second publisher tells the schema too
            pass
        followers[0].position = 4
        waiting.join(0.05)
        assert waiting.is_alive(), "one of two"
        followers[1].position = 4
        waiting.join(TIMEOUT)
        assert not waiting.is_alive()


def test_publishers_of_several_threads_wait_without_the_interpreter(tmp_path: Path) -> None:
    out = ms.publisher(Numbers, tmp_path / "n", sync="always")  # type: ignore[type-abstract]
    threads = [
        threading.Thread(target=lambda: [out.number(n) for n in range(50)], daemon=True) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT)
        assert not thread.is_alive()
    with journal(tmp_path / "n") as found:
        assert found.durable == found.next == 201


@pytest.mark.parametrize("sync", ["", "often", "0s", 0, -1, None, "10"])
def test_a_sync_that_makes_no_sense(tmp_path: Path, sync: Any) -> None:
    with pytest.raises(ms.ServiceError, match="sync is "):
        ms.publisher(Numbers, tmp_path / "n", sync=sync)  # type: ignore[type-abstract]
    with pytest.raises(ms.ServiceError, match="sync is "):
        ms.serve(Adder, tmp_path / "n", out=tmp_path / "s", sync=sync)
    assert not (tmp_path / "n").exists() and not (tmp_path / "s").exists()


def test_other_options_that_make_no_sense(tmp_path: Path) -> None:
    for count in (-1, 65, True, 1.5, "1"):
        with pytest.raises(ms.ServiceError, match="wait_follower.* is a .*number"):
            ms.publisher(Numbers, tmp_path / "n", wait_follower=count)  # type: ignore
    with pytest.raises(ms.ServiceError, match="timeout is a number of seconds from 0 to"):
        ms.publisher(Numbers, tmp_path / "n", timeout=-1.0)  # type: ignore[type-abstract]
    always: list[tuple[Sync, int]] = [("always", 0), ("never", 1)]
    for sync, followers in always:
        with pytest.raises(ms.ServiceError, match="they need out"):
            ms.serve(Adder, tmp_path / "n", sync=sync, wait_follower=followers)
    assert not (tmp_path / "n").exists()


def test_the_outputs_of_a_service_are_as_durable_as_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = ms.publisher(Numbers, tmp_path / "n")  # type: ignore[type-abstract]
    for n in range(20):
        out.number(n)
    (tmp_path / "parts.py").write_text(Path(__file__).read_text())
    monkeypatch.setenv("PYTHONPATH", str(Path(followed.__file__).parent))
    for sync, is_durable in (("always", True), ("never", False)):
        run = ["service", "run", "parts.py:Adder", "--in", "n", "--out", sync, "--drain", "--sync", sync]
        command = [sys.executable, "-m", "millstream", *run]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=TIMEOUT)
        assert (done.returncode, done.stdout[:8]) == (0, "calls 20"), done.stderr
        with journal(tmp_path / sync) as found:
            assert (found.durable == found.next) is is_durable
    with journal(tmp_path / "n") as found:
        assert found.durable == found.next, "the service with always has synced its input"
    command = [
        sys.executable,
        "-m",
        "millstream",
        "service",
        "run",
        "parts.py:Adder",
        "--in",
        "n",
        "--sync",
        "x",
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=TIMEOUT)
    assert done.returncode == 1 and "sync is " in done.stderr.splitlines()[-1]


def test_a_service_ends_by_drain_when_its_outputs_are_followed(tmp_path: Path) -> None:
    out = ms.publisher(Numbers, tmp_path / "n")  # type: ignore[type-abstract]
    for n in range(1_000):
        out.number(n)
    done: list[ms.service.Report] = []

    def serve() -> None:
        done.append(ms.serve(Adder, tmp_path / "n", out=tmp_path / "s", wait_follower=1, drain=True))

    running = threading.Thread(target=serve)
    running.start()
    with ms.Journal(tmp_path / "s") as outputs, followed.follower(outputs, "a") as follower:
        while outputs.next < 258:
            pass
        running.join(0.2)
        assert outputs.next == 258, "256 inputs, the schema, and the name of the input"
        while running.is_alive():
            follower.position = outputs.next
        assert outputs.next == follower.position == 1_002
    assert done[0].calls == 1_000
