"""The number of shards: chosen at the first start, kept with the state, also when that is divided anew."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import millstream as ms
import pytest
from millstream.__main__ import main
from shapes import Shape, command
from supervised import Supervised, wait_for

Info = Callable[[Path], dict[str, object]]


@pytest.fixture
def info(capfd: pytest.CaptureFixture[str]) -> Info:
    """What ``millstream state info`` says of a directory."""

    def info(state: Path) -> dict[str, object]:
        capfd.readouterr()
        assert main(["state", "info", str(state), "--json"]) == 0
        found: dict[str, object] = json.loads(capfd.readouterr().out)
        return found

    return info


@pytest.mark.parametrize("name", ["words", "windows", "joins"])
def test_a_large_number_is_kept_when_the_state_is_divided_anew(name: str, tmp_path: Path, info: Info) -> None:
    shape = Shape(name, tmp_path, seed=1, count=1500)
    out = tmp_path / "out" / "out.txt"
    ready = tmp_path / "ready"
    state = tmp_path / "state"
    layouts = [(2, 2), (1, 3), (3, 1)]
    for at, (processes, workers) in enumerate(layouts):
        last = at == len(layouts) - 1
        if at:
            assert main(["scale", str(state), "--processes", str(processes), "--workers", str(workers)]) == 0
        environment = shape.environment(out, seconds=0.0 if last else 20.0)
        options = ["--processes", processes, "--workers", workers, "--state", state, "--epoch", "20ms"]
        options += ["--ready-file", ready, *(() if at else ("--shards", 32768))]
        running = Supervised(command(shape.flow, *options), environment)
        if not last:
            wait_for(ready.exists, "the flow")
            before = info(state)["epoch"]
            assert isinstance(before, int)
            wait_for(lambda before=before: info(state)["epoch"] > before + 2, "commits")
            running.process.terminate()
        running.end(0)
        assert info(state)["shards"] == 32768
    shape.check(out)


def test_one_shard_is_of_one_worker(tmp_path: Path, info: Info) -> None:
    shape = Shape("words", tmp_path, seed=1, count=1000)
    out = tmp_path / "out" / "out.txt"
    state = tmp_path / "state"
    ready = tmp_path / "ready"
    options = ["--state", state, "--epoch", "20ms", "--ready-file", ready]
    text = Supervised(
        command(shape.flow, *options, "--shards", 1, "--workers", 2), shape.environment(out)
    ).end(2)
    assert "2 workers in all are more than the 1 shards" in text and "--shards 2" in text
    running = Supervised(command(shape.flow, *options, "--shards", 1), shape.environment(out, seconds=10.0))
    running.is_ready(ready)
    wait_for(lambda: (state / "epochs").exists() and info(state)["epoch"] != 1, "a commit")
    running.process.kill()
    running.process.wait()
    text = Supervised(command(shape.flow, *options, "--shards", 256), shape.environment(out)).end(1)
    assert "divided into 1 shards since its first start" in text
    Supervised(command(shape.flow, *options), shape.environment(out)).end(0)
    assert info(state)["shards"] == 1
    assert main(["scale", str(state), "--processes", "2"]) == 2
    shape.check(out)
    # From scratch the state may have others.
    Supervised(command(shape.flow, *options, "--shards", 4, "--fresh"), shape.environment(out)).end(0)
    assert info(state)["shards"] == 4


def test_processes_have_the_same_number(tmp_path: Path, free_port: Callable[[], int]) -> None:
    shape = Shape("words", tmp_path, seed=1, count=100)
    hosts = f"127.0.0.1:{free_port()},127.0.0.1:{free_port()}"
    environment = shape.environment(tmp_path / "out" / "out.txt")
    first = Supervised(command(shape.flow, "--process", 0, "--hosts", hosts), environment)
    text = Supervised(
        command(shape.flow, "--process", 1, "--hosts", hosts, "--shards", 512), environment
    ).end(1)
    assert "keys in 512 shards" in text and "keys in 256 shards" in text, text
    first.process.kill()


@pytest.mark.parametrize("wrong", ["0", "3", "65536"])
def test_a_wrong_number_is_named(wrong: str, tmp_path: Path) -> None:
    (tmp_path / "flow.py").write_text("")
    text = Supervised(command(tmp_path / "flow.py", "--shards", wrong)).end(2)
    assert f"--shards is a power of two from 1 to 32768, not {wrong}" in text


def test_what_is_no_number_is_named(tmp_path: Path) -> None:
    (tmp_path / "flow.py").write_text("")
    text = Supervised(command(tmp_path / "flow.py", "--shards", "many")).end(2)
    assert "--shards: invalid int value: 'many'" in text


def test_a_wrong_number_of_a_program_is_named() -> None:
    flow = ms.Flow("none")
    flow.source("in", ms.testing.items([1])).sink("out", ms.testing.collect())
    with pytest.raises(ms.FlowUsageError, match="a power of two from 1 to 32768, not 100"):
        ms.run(flow, shards=100)
