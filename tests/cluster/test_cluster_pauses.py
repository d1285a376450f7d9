"""A process is stopped for longer than the others wait: they start again, and it commits nothing later."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from shapes import Shape, command
from supervised import Supervised, wait_for


@pytest.mark.parametrize("stopped", [0, 1])
def test_a_stopped_process_is_replaced(stopped: int, tmp_path: Path) -> None:
    shape = Shape("words", tmp_path, seed=1, count=1000)
    out = tmp_path / "out" / "out.txt"
    ready = tmp_path / "ready"
    options = ["--processes", 2, "--state", tmp_path / "state", "--epoch", "20ms", "--dead-after", "1s"]
    environment = shape.environment(out, seconds=6.0)
    running = Supervised(command(shape.flow, *options, "--ready-file", ready), environment)
    wait_for(ready.exists, "the flow")
    running.kill(running.members(2)[stopped], signal.SIGSTOP)
    running.said("are started again from the last commit")
    text = running.end(0)
    [line] = [line for line in text.splitlines() if "started again" in line]
    assert f"process {stopped}" in line, line
    shape.check(out)


@pytest.mark.parametrize("stopped", [0, 1])
def test_a_process_that_wakes_up_commits_nothing(
    stopped: int, tmp_path: Path, free_port: Callable[[], int]
) -> None:
    """Without a supervisor: the stopped process lives on while the other one has started anew."""
    shape = Shape("words", tmp_path, seed=1, count=1000)
    out = tmp_path / "out" / "out.txt"
    environment = shape.environment(out, seconds=6.0)
    hosts = f"127.0.0.1:{free_port()},127.0.0.1:{free_port()}"
    options = ["--hosts", hosts, "--state", tmp_path / "state", "--epoch", "20ms", "--dead-after", "1s"]

    def start(process: int) -> Supervised:
        ready = ["--ready-file", tmp_path / f"ready{process}"]
        return Supervised(command(shape.flow, "--process", process, *options, *ready), environment)

    run = [start(0), start(1)]
    for process in range(2):
        wait_for((tmp_path / f"ready{process}").exists, f"process {process}")
    zombie = run[stopped]
    other = 1 - stopped
    zombie.process.send_signal(signal.SIGSTOP)
    assert f"process {stopped}" in run[other].end(75)
    again = start(other)
    zombie.process.send_signal(signal.SIGCONT)
    assert "process" in zombie.end(75)
    replaced = start(stopped)
    again.end(0)
    replaced.end(0)
    shape.check(out)
