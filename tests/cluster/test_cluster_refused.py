"""Refused records in a run of several processes: each is a dead letter once, of its own process."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from shapes import TIMEOUT, command

FLOW = """
import json
import millstream as ms

@ms.sink(batch=20)
def picky(batch, first, last):
    if any(number % 3 == 0 for number in batch):
        raise ms.Refused("a multiple of three")
    with open("FOLDER/taken", "a") as taken:
        taken.writelines(f"{number}\\n" for number in batch)

flow = ms.Flow("refused")
numbers = flow.source("in", ms.testing.items(range(200))).redistribute()
letters = ms.files.write("FOLDER/letters", encode=lambda letter: str(letter.item))
numbers.sink("out", picky, gather=GATHER, on_error=ms.dead_letter(letters))
"""


@pytest.mark.parametrize("gather", [False, True])
def test_letters_of_several_processes(tmp_path: Path, gather: bool) -> None:
    flow = tmp_path / "flow.py"
    flow.write_text(FLOW.replace("FOLDER", str(tmp_path)).replace("GATHER", str(gather)))
    options = ["--processes", 2, "--workers", 2, "--state", tmp_path / "state", "--epoch", "20ms"]
    for _ in range(2):
        # The second run has nothing left to pass on.
        subprocess.run(command(flow, *options), check=True, timeout=TIMEOUT)
        taken = sorted(map(int, (tmp_path / "taken").read_text().split()))
        assert taken == [number for number in range(200) if number % 3]
        files = {path.name: path.read_text().split() for path in tmp_path.glob("letters*")}
        letters = sorted(int(number) for numbers in files.values() for number in numbers)
        assert letters == list(range(0, 200, 3)), files
        assert sorted(files) == ["letters.p0", "letters.p1"]
        assert bool(files["letters.p1"]) == (not gather)
