"""The state of two processes that were killed: it is read as one, and resumes.

Process 1 has prepared an epoch of which its directory does not say that it was committed.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from millstream.__main__ import main
from shapes import command, output
from supervised import Supervised, wait_for

FLOW = """
import os
import time

import millstream as ms

flow = ms.Flow("words")
paths = [os.path.join(os.environ["FOLDER"], f"in.{number}") for number in range(3)]
lines = flow.source("lines", ms.files.lines(paths))
paced = lines.map(lambda line: (time.sleep(float(os.environ.get("PAUSE", "0"))), line)[1], name="pace")
counts = paced.flat_map(str.split).key_by(str.lower).count("each", name="counts")
counts.items().sink("out", ms.files.write(os.path.join(os.environ["FOLDER"], "out.txt")))
"""


def run_and_kill(folder: Path, seconds_after_output: float) -> None:
    """Runs the flow on two processes until process 1 has written something, and kills all of them."""
    out = folder / "out.p1.txt"
    before = out.stat().st_size if out.exists() else 0
    environment = os.environ | {"FOLDER": ".", "PAUSE": "0.01"}
    running = subprocess.Popen(
        command(Path("flow.py"), "--processes", 2, "--state", "state", "--epoch", "5ms"),
        cwd=folder,
        env=environment,
        start_new_session=True,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_for(lambda: out.exists() and out.stat().st_size > before, "output")
        with pytest.raises(subprocess.TimeoutExpired):
            running.wait(seconds_after_output)
    finally:
        os.killpg(running.pid, 9)
        running.wait()


def has_prepared(folder: Path) -> bool:
    info = [sys.executable, "-m", "millstream", "state", "info", "state", "--json"]
    done = subprocess.run(info, cwd=folder, capture_output=True, check=False)
    parts = json.loads(done.stdout)["processes"] if done.returncode == 0 else []
    return len(parts) == 2 and parts[1]["prepared"] is not None and parts[1]["epoch"] > 0


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("killed")
    chance = random.Random(1)
    (folder / "flow.py").write_text(FLOW)
    for number in range(3):
        words = [f"w{chance.randrange(30)} v{chance.randrange(5)}\n" for _ in range(3000)]
        (folder / f"in.{number}").write_text("".join(words))
    for _ in range(20):
        run_and_kill(folder, 0.2 + chance.random() / 10)
        if has_prepared(folder):
            return folder
    raise AssertionError("process 1 never was killed between the two steps of a commit")


@pytest.fixture
def folder(killed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(killed, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def start(processes: int) -> None:
    """Runs the flow to its end."""
    options = ["--state", "state", "--epoch", "20ms"]
    if processes > 1:
        options += ["--processes", str(processes)]
    Supervised(command(Path("flow.py"), *options), os.environ | {"FOLDER": "."}).end(0)


def said(capfd: pytest.CaptureFixture[str], *arguments: str) -> str:
    capfd.readouterr()
    assert main(["state", *arguments]) == 0
    return capfd.readouterr().out


def expected(folder: Path) -> Counter[str]:
    """Each word of the input with the counts that it had."""
    words = Counter(word for number in range(3) for word in (folder / f"in.{number}").read_text().split())
    return Counter(f"('{word}', {count + 1})" for word, all_of in words.items() for count in range(all_of))


def test_a_divided_state_is_read_as_one(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}
    info = json.loads(said(capfd, "info", "state", "--json"))
    first, second = info["processes"]
    assert (first["process"], second["process"], info["shards"]) == (0, 1, 256)
    # An epoch is prepared after the last one of which the directory knows that it was committed.
    assert first["prepared"] is None or first["prepared"] > first["epoch"]
    assert second["prepared"] > second["epoch"] > 0
    assert f"epoch {second['prepared']} prepared" in said(capfd, "info", "state")
    assert len(info["sources"]) == 3 and {sink["name"] for sink in info["sinks"]} == {"out"}
    lines = said(capfd, "export", "state").splitlines()
    states = {row["key"]: row["state"] for row in map(json.loads, lines)}
    words = {word for number in range(3) for word in (folder / f"in.{number}").read_text().split()}
    assert len(lines) == len(states) == info["steps"][0]["keys"] and states.keys() <= words
    assert len(said(capfd, "keys", "state", "counts").splitlines()) == len(states)
    key = next(iter(states))
    assert json.loads(said(capfd, "get", "state", "counts", key, "--json"))["state"] == states[key]
    assert before == {path: path.stat().st_mtime_ns for path in before}, "looking changes nothing"


@pytest.mark.parametrize("processes", [1, 3])
def test_a_killed_state_is_scaled_and_loses_nothing(
    processes: int, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    if processes == 1:
        # No process of the number 1 comes that would remove what the killed one wrote last.
        assert main(["scale", "state", "--processes", "1"]) == 1
        assert "start the flow once more as before" in capfd.readouterr().err
        start(2)
    assert main(["scale", "state", "--processes", str(processes)]) == 0, capfd.readouterr().err
    start(processes)
    assert output(Path("out.txt")) == expected(folder)


def test_a_killed_state_is_scaled_without_the_output_of_a_removed_process(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["scale", "state", "--processes", "1", "--leave-output"]) == 0
    assert "process 1 was killed" in capfd.readouterr().out
    start(1)
    # What was committed is there once; a word may be there twice with the same count.
    assert output(Path("out.txt")).keys() == expected(folder).keys()


def test_it_resumes_and_loses_nothing(folder: Path) -> None:
    start(2)
    assert output(Path("out.txt")) == expected(folder)
