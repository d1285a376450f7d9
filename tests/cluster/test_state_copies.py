"""``millstream state copy``: a copy that is made while the flow runs is its state as of one commit. A flow
that starts from it, with copies of the output files, ends with the output of an unbroken run."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from shapes import SHAPES, TIMEOUT, Shape, command, output
from supervised import Supervised, wait_for

COPIES = 3


def copied(state: Path, to: Path) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "-m", "millstream", "state", "copy", str(state), str(to)]
    return subprocess.run(program, capture_output=True, text=True, timeout=TIMEOUT)


@pytest.mark.parametrize(("name", "processes"), list(zip(SHAPES, [3, 2, 1, 2], strict=True)))
def test_copies_of_a_running_flow_end_with_its_output(name: str, processes: int, tmp_path: Path) -> None:
    shape = Shape(name, tmp_path, seed=processes, count=1500)
    state = tmp_path / "state"
    out = tmp_path / "out" / "out.txt"
    ready = tmp_path / "ready"
    number = ["--processes", processes] if processes > 1 else []
    options = [*number, "--epoch", "20ms", "--sync", "never"]
    running = Supervised(
        command(shape.flow, *options, "--state", state, "--ready-file", ready),
        shape.environment(out, seconds=120.0 * processes),
    )
    wait_for(ready.exists, "the flow")
    for copy in range(COPIES):
        before = output(out).total()
        if name in ("words", "market"):
            wait_for(lambda before=before: output(out).total() > before + 50, "output")
        done = copied(state, tmp_path / f"copy{copy}")
        assert done.returncode == 0, done.stderr
        assert f"{processes} process" in done.stdout
        # What is written after the copy is truncated by the flow that starts from it.
        shutil.copytree(out.parent, tmp_path / f"out{copy}")
    running.process.send_signal(signal.SIGKILL)
    running.process.wait(TIMEOUT)
    for copy in range(COPIES):
        own = tmp_path / f"out{copy}" / "out.txt"
        again = Supervised(
            command(shape.flow, *options, "--state", tmp_path / f"copy{copy}"), shape.environment(own)
        )
        again.end(0)
        shape.check(own)


def test_a_copy_of_a_stopped_state_can_be_divided_anew(tmp_path: Path) -> None:
    shape = Shape("words", tmp_path, seed=1, count=800)
    state = tmp_path / "state"
    out = tmp_path / "out" / "out.txt"
    ready = tmp_path / "ready"
    options = ["--processes", 2, "--state", state, "--epoch", "20ms", "--ready-file", ready]
    running = Supervised(command(shape.flow, *options), shape.environment(out, seconds=60.0))
    wait_for(lambda: output(out).total() > 50, "output")
    running.process.terminate()
    running.end(0)
    assert copied(state, tmp_path / "copy").returncode == 0
    scale = [sys.executable, "-m", "millstream", "scale", str(tmp_path / "copy"), "--processes", "3"]
    done = subprocess.run(scale, capture_output=True, text=True, timeout=TIMEOUT)
    assert done.returncode == 0, done.stderr
    options = ["--processes", 3, "--state", tmp_path / "copy"]
    Supervised(command(shape.flow, *options), shape.environment(out)).end(0)
    shape.check(out)


def test_what_cannot_be_copied_is_refused(tmp_path: Path) -> None:
    shape = Shape("words", tmp_path, seed=1, count=100)
    state = tmp_path / "state"
    out = tmp_path / "out" / "out.txt"
    assert "not the state directory of a flow" in copied(tmp_path, tmp_path / "copy").stderr
    Supervised(command(shape.flow, "--processes", 2, "--state", state), shape.environment(out)).end(0)
    (tmp_path / "there").mkdir()
    assert "it exists" in copied(state, tmp_path / "there").stderr
    (state / "p1").rename(tmp_path / "p1")
    done = copied(state, tmp_path / "copy")
    assert done.returncode == 1 and "copy it where all of them are" in done.stderr
    assert not list(tmp_path.glob("*copy*")) and not list(tmp_path.glob(".*copy*"))
