"""Two copies of one state that have each gone on do not make one state: their directories are not mixed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from shapes import TIMEOUT, command, output

FLOW = """
import os
import millstream as ms


class Reader:
    def __init__(self, partition, position):
        self.partition, self.position_ = partition, position

    def next_batch(self):
        lines = open(f"in/{self.partition}").read().splitlines()
        if self.position_ >= len(lines):
            return None
        self.position_ += 1
        return [lines[self.position_ - 1]]

    def position(self):
        return self.position_


class Lines(ms.Source):
    def partitions(self):
        return list("0123")

    def open(self, partition, position):
        return Reader(partition, position or 0)


flow = ms.Flow("branches")
counts = flow.source("in", Lines()).key_by(lambda line: line.split()[0]).count("each", name="counts")
counts.items().map(lambda pair: f"{pair[0]} {pair[1]}").sink("out", ms.files.write("out/o.txt"), gather=True)
"""


class Branch:
    """A directory in which the flow runs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def put(self, count: int) -> None:
        for partition in range(4):
            with open(self.folder / "in" / str(partition), "a") as file:
                file.writelines(f"k{number % 9} x\n" for number in range(count))

    def run(self) -> subprocess.CompletedProcess[str]:
        options = ["--processes", 2, "--state", "state", "--sync", "never"]
        program = command(self.folder / "flow.py", *options)
        return subprocess.run(program, cwd=self.folder, capture_output=True, text=True, timeout=TIMEOUT)

    def wrong(self) -> dict[str, tuple[int, int]]:
        """The keys with another last count than their lines."""
        last: dict[str, int] = {}
        for line in output(self.folder / "out" / "o.txt"):
            key, count = line.split()
            last[key] = max(last.get(key, 0), int(count))
        lines = [line for path in (self.folder / "in").iterdir() for line in path.read_text().splitlines()]
        true = {f"k{number}": sum(line.split()[0] == f"k{number}" for line in lines) for number in range(9)}
        return {key: (last.get(key, 0), count) for key, count in true.items() if last.get(key) != count}

    def copy(self, name: str) -> Branch:
        shutil.copytree(self.folder, self.folder.with_name(name))
        return Branch(self.folder.with_name(name))


def refused(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 1, done.stderr
    assert "copies of one state" in done.stderr or "older copy" in done.stderr, done.stderr


@pytest.mark.parametrize("more", [10, 13], ids=["as many epochs", "more epochs"])
@pytest.mark.parametrize("mixed", [0, 1])
def test_directories_of_two_branches_are_not_mixed(mixed: int, more: int, tmp_path: Path) -> None:
    blue = Branch(tmp_path / "blue")
    for name in ("in", "out"):
        (blue.folder / name).mkdir(parents=True)
    (blue.folder / "flow.py").write_text(FLOW)
    blue.put(30)
    assert blue.run().returncode == 0
    green = blue.copy("green")
    blue.put(10)
    green.put(more)
    for branch in (blue, green):
        assert branch.run().returncode == 0
        assert not branch.wrong()
    both = blue.copy("mixed")
    shutil.rmtree(both.folder / "state" / f"p{mixed}")
    shutil.copytree(green.folder / "state" / f"p{mixed}", both.folder / "state" / f"p{mixed}")
    both.put(9)
    done = both.run()
    refused(done)
    scaled = subprocess.run(
        [sys.executable, "-m", "millstream", "scale", str(both.folder / "state"), "--processes", "3"],
        env=os.environ,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
    )
    refused(scaled)
