"""The state of two processes that a program of version 4 of its records has written: it is read, and resumes.

``fixtures/make.py`` made it. Process 1 has prepared an epoch of which its directory does not say that it was
committed.
"""

from __future__ import annotations

import json
import os
import tarfile
from collections import Counter
from pathlib import Path

import pytest
from millstream.__main__ import main
from shapes import command, output
from supervised import Supervised

FIXTURE = Path(__file__).parent / "fixtures" / "division-v4.tar.gz"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    with tarfile.open(FIXTURE) as archive:
        archive.extractall(tmp_path, filter="data")
    monkeypatch.chdir(tmp_path)
    return tmp_path


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


def test_a_killed_state_is_not_scaled(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["scale", "state", "--processes", "3"]) == 1
    assert "start the flow once more as before" in capfd.readouterr().err


def test_it_resumes_and_loses_nothing(folder: Path) -> None:
    options = ["--processes", 2, "--state", "state", "--epoch", "20ms"]
    Supervised(command(Path("flow.py"), *options), os.environ | {"FOLDER": "."}).end(0)
    assert output(Path("out.txt")) == expected(folder)
