"""The number of processes changes in the middle of windows and joins: 1, 4, 2, 3."""

from __future__ import annotations

from pathlib import Path

import pytest
from millstream.__main__ import main
from shapes import SHAPES, Shape, command
from soak import variations
from supervised import Supervised, wait_for


@pytest.mark.parametrize("name", variations(SHAPES, lambda name: name in ("windows", "joins")))
def test_the_output_survives_a_change_of_the_number_of_processes(
    name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    shape = Shape(name, tmp_path, seed=1, count=2000)
    out = tmp_path / "out" / "out.txt"
    ready = tmp_path / "ready"
    state = tmp_path / "state"
    numbers = [1, 4, 2, 3]
    for at, processes in enumerate(numbers):
        last = at == len(numbers) - 1
        if at:
            capfd.readouterr()
            assert main(["scale", str(state), "--processes", str(processes)]) == 0
            said = capfd.readouterr()
            assert f"{processes} process" in said.out, said
        environment = shape.environment(out, seconds=0.0 if last else 20.0)
        options = ["--processes", processes, "--state", state, "--epoch", "20ms", "--ready-file", ready]
        running = Supervised(command(shape.flow, *options), environment)
        if not last:
            wait_for(ready.exists, "the flow")
            size = total(out)
            if name in ("words", "market"):
                wait_for(lambda size=size: total(out) > size, "output")
            running.process.terminate()
        running.end(0)
    shape.check(out)


def total(out: Path) -> int:
    """The bytes of the output of all processes."""
    return sum(file.stat().st_size for file in out.parent.glob(f"{out.stem}*"))


def test_another_number_of_processes_is_refused_and_the_advice_helps(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    shape = Shape("words", tmp_path, seed=1, count=200)
    out = tmp_path / "out" / "out.txt"
    environment = shape.environment(out)
    options = ["--state", tmp_path / "state"]
    Supervised(command(shape.flow, "--processes", 2, *options), environment).end(0)
    text = Supervised(command(shape.flow, "--processes", 3, *options), environment).end(1)
    assert "millstream scale" in text
    # The refused start of the third process has left a directory with nothing in it.
    assert main(["scale", str(tmp_path / "state"), "--processes", "3"]) == 0, capfd.readouterr()
    Supervised(command(shape.flow, "--processes", 3, *options), environment).end(0)
    shape.check(out)


def test_a_running_flow_is_not_scaled(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    shape = Shape("words", tmp_path, seed=1, count=2000)
    environment = shape.environment(tmp_path / "out" / "out.txt", seconds=60.0)
    ready = tmp_path / "ready"
    options = ["--processes", 2, "--state", tmp_path / "state", "--ready-file", ready]
    running = Supervised(command(shape.flow, *options), environment)
    wait_for(ready.exists, "the flow")
    assert main(["scale", str(tmp_path / "state"), "--processes", "3"]) == 1
    assert "stop" in capfd.readouterr().err
    running.process.terminate()
    running.end(0)


def test_a_killed_flow_of_one_process_is_not_scaled(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its files may have output that no commit knows, which only a start of that flow truncates."""
    shape = Shape("words", tmp_path, seed=1, count=1000)
    out = tmp_path / "out" / "out.txt"
    state = tmp_path / "state"
    ready = tmp_path / "ready"
    options = ["--state", state, "--ready-file", ready]
    running = Supervised(
        command(shape.flow, *options, "--epoch", "10m"), shape.environment(out, seconds=20.0)
    )
    running.is_ready(ready)
    wait_for(lambda: total(out) > 0, "output that is not committed")
    running.process.kill()
    running.process.wait()
    assert main(["scale", str(state), "--processes", "2"]) == 1
    assert "start the flow once more as before" in capfd.readouterr().err
    ready.unlink()
    running = Supervised(command(shape.flow, *options), shape.environment(out, seconds=20.0))
    running.is_ready(ready)
    running.process.terminate()
    running.end(0)
    assert main(["scale", str(state), "--processes", "2"]) == 0
    Supervised(command(shape.flow, "--processes", 2, *options), shape.environment(out)).end(0)
    shape.check(out)
