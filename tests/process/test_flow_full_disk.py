"""A flow on a full file system ends with a clear error. Once there is room, the same command resumes exactly.

State directory, file sink and journal sink are on one small file system. Room is taken and given at random,
and flows are killed in between. ``make kills`` does more rounds (``MILLSTREAM_KILLS``). A failure prints the
seed.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import millstream as ms
import pytest
from small_disk import SmallDisk, small_disk
from soak import variations

ROUNDS = int(os.environ.get("MILLSTREAM_KILLS", "0"))
SEED = int(os.environ.get("MILLSTREAM_SEED", "0")) or random.randrange(1 << 31)
MIB = 1 << 20
KEYS = 400
LINES = 60_000
TEXT = 200
"""Characters of an input line: output of all lines is more than the room of one round."""

DISK_MIB = 96
"""The file system: three segments of 16 MiB of the state journal, and what the sinks write."""

FLOW = """
import os
import time
import millstream as ms

def add(state: list, line: str) -> str:
    state.append(line[:60])
    del state[:-50]
    return f"{len(state)} {line}"

def paced(line: str) -> str:
    if int(line.split()[1]) % 100 == 0:
        time.sleep(float(os.environ["PAUSE_S"]))
    return line

disk = os.environ["DISK"]
flow = ms.Flow("recent")
lines = flow.source("lines", ms.files.lines(os.environ["INPUT"])).map(paced)
recent = lines.key_by(lambda line: line.split()[0]).stateful("recent", add, state=list).values()
recent.sink("file", ms.files.write(disk + "/out"))
recent.sink("journal", ms.journals.append(disk + "/journal"))
"""


class Room:
    """Allocates and frees space on a small file system."""

    def __init__(self, disk: SmallDisk) -> None:
        self.disk = disk
        self.ballast = disk.path / "ballast"

    def leave(self, room: int) -> None:
        """About so many bytes are left; 0 for not a single block."""
        self.free()
        with self.ballast.open("wb", buffering=0) as file:
            for length in (MIB, 4096):
                try:
                    while room == 0 or shutil.disk_usage(self.disk.path).free > room + length:
                        file.write(bytes(length))
                except OSError:
                    pass

    def free(self) -> None:
        self.ballast.unlink(missing_ok=True)


class Runs:
    """The runs of the flow, and how they ended."""

    def __init__(self, folder: Path, disk: Path, workers: int, sync: str) -> None:
        (folder / "flow.py").write_text(FLOW)
        self.disk = disk
        options = [
            "--workers",
            str(workers),
            "--state",
            str(disk / "state"),
            "--epoch",
            "20ms",
            "--sync",
            sync,
        ]
        self.command = [sys.executable, "-m", "millstream", "run", str(folder / "flow.py"), *options]
        self.environment = os.environ | {"INPUT": str(folder / "in"), "DISK": str(disk)}
        self.ended: Counter[str] = Counter()

    def once(self, kill_after_s: float | None = None, pause_s: float = 0.0) -> bool:
        """Runs it, until it ends or is killed. Whether all input was processed."""
        environment = self.environment | {"PAUSE_S": str(pause_s)}
        running = subprocess.Popen(self.command, env=environment, stderr=subprocess.PIPE, text=True)
        try:
            running.wait(kill_after_s)
        except subprocess.TimeoutExpired:
            running.send_signal(signal.SIGKILL)
        _, told = running.communicate(timeout=120)
        if running.returncode == -signal.SIGKILL:
            self.ended["killed"] += 1
        elif running.returncode == 0:
            self.ended["done"] += 1
        else:
            # One line says which file, and why; it is no traceback of the program.
            assert running.returncode == 1, told
            last = told.partition("\nsee https:")[0].strip().splitlines()[-1]
            assert "No space left on device" in last and str(self.disk) in last, told
            assert "panicked" not in told, told
            named = re.search(rf"{self.disk}/(\w+)", last)
            assert named, last
            self.ended[f"full_{named[1]}"] += 1
        return running.returncode == 0


DISKS = [("tmpfs", 1, "never"), ("ext4", 2, "always"), ("xfs", 1, "never")]


@pytest.mark.parametrize(("kind", "workers", "sync"), variations(DISKS, lambda case: case[0] == "ext4"))
def test_a_flow_whose_disk_fills_under_kills_loses_and_repeats_nothing(
    kind: str, workers: int, sync: str, tmp_path: Path
) -> None:
    print(f"seed {SEED}")
    chance = random.Random(SEED)
    lines = [f"k{chance.randrange(KEYS)} {number} ".ljust(TEXT, "x") for number in range(LINES)]
    (tmp_path / "in").write_text("\n".join(lines) + "\n")
    rounds = ROUNDS // 5 or 5
    with small_disk(kind, DISK_MIB, tmp_path / "small") as disk:
        ms.Journal(disk.path / "journal", segment_bytes=MIB).close()
        runs = Runs(tmp_path, disk.path, workers, sync)
        room = Room(disk)
        # Not even the first commit has room.
        room.leave(0)
        assert not runs.once()
        for _ in range(rounds):
            room.leave(chance.randrange(60) * MIB)
            runs.once(kill_after_s=chance.choice([1.5, 2.5, 5.0]), pause_s=0.02)
            room.leave(0)
            # A disk that is full from the beginning: the state is opened, the sinks are cut back.
            runs.once(kill_after_s=5.0, pause_s=0.02)
        room.free()
        assert runs.once()
        found = Counter((disk.path / "out").read_text().splitlines())
        with ms.Journal(disk.path / "journal", "r") as journal:
            appended = Counter(record.body.decode() for record in journal)
    counts: Counter[str] = Counter()
    expected: Counter[str] = Counter()
    for line in lines:
        key = line.split()[0]
        counts[key] += 1
        expected[f"{min(counts[key], 50)} {line}"] += 1
    figures = {
        "promise": 9,
        "flow": "full disk",
        "file_system": kind,
        "workers": workers,
        "sync": sync,
        **runs.ended,
        "lost": ((expected - found) + (expected - appended)).total(),
        "repeated": ((found - expected) + (appended - expected)).total(),
        "first_seed": SEED,
    }
    print(json.dumps(figures))
    assert figures["lost"] == figures["repeated"] == 0, figures
    assert any(ended.startswith("full") for ended in runs.ended), figures


@pytest.mark.parametrize(("full", "error"), [("state", ms.FlowError), ("out", ms.StepError)])
def test_a_python_program_gets_an_error_that_names_the_file(
    full: str, error: type[Exception], tmp_path: Path
) -> None:
    with small_disk("tmpfs", DISK_MIB, tmp_path / "small") as disk:
        room = Room(disk)

        def flow() -> ms.Flow:
            flow = ms.Flow("wide")
            numbers = flow.source("numbers", ms.testing.items(range(60_000)))
            numbers.map(lambda number: f"{number} ".ljust(TEXT, "x")).sink("out", ms.files.write(path))
            return flow

        path = disk.path / "out"
        # A segment of the state journal takes 16 MiB.
        room.leave(MIB if full == "state" else 20 * MIB)
        with pytest.raises(error, match=rf"{disk.path / full}.*No space left on device"):
            ms.run(flow(), state=disk.path / "state")
        room.free()
        ms.run(flow(), state=disk.path / "state")
        out = path.read_text().splitlines()
    assert [int(line.split()[0]) for line in out] == list(range(60_000))
