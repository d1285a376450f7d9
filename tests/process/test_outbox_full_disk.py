"""A flow whose outbox is on a full file system ends with a clear error. With room, the command delivers all.

The state directory is on a small file system, the destination is not. Room is taken and given at random while
the destination is away or works, and flows are killed in between. ``make kills`` does more rounds
(``MILLSTREAM_KILLS``). A failure prints the seed.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from outbox_table import SINKS, Table
from small_disk import small_disk
from soak import variations
from test_flow_full_disk import MIB, Room

ROUNDS = int(os.environ.get("MILLSTREAM_KILLS", "0")) // 5 or 4
SEED = int(os.environ.get("MILLSTREAM_SEED", "0")) or random.randrange(1 << 31)
DISK_MIB = 160
"""Three segments of 16 MiB of the state journal, and two of 32 MiB of the outbox."""
ITEMS = 200_000
TEXT = 400
"""Output of all items is more than the room of one round."""

FLOW = (
    SINKS
    + """
def paced(n):
    if n % 100 == 0:
        time.sleep(float(os.environ["PAUSE_S"]))
    return f"{n} ".ljust(TEXT, "x")

flow = ms.Flow("wide")
source = ms.generate(lambda: range(ITEMS), batch_size=100)
flow.source("in", source).map(paced).sink("table", table)
"""
).replace("TEXT,", f"{TEXT},")


DISKS = [("tmpfs", 1, "never"), ("ext4", 2, "always"), ("xfs", 1, "never")]


@pytest.mark.parametrize(("kind", "workers", "sync"), variations(DISKS, lambda case: case[0] == "tmpfs"))
def test_a_full_disk_loses_and_repeats_nothing(kind: str, workers: int, sync: str, tmp_path: Path) -> None:
    print(f"seed {SEED}")
    chance = random.Random(SEED)
    ended = Counter[str]()
    flow = tmp_path / "flow.py"
    table = Table(tmp_path / "table")
    flow.write_text(FLOW.replace("ITEMS", str(ITEMS)))
    with small_disk(kind, DISK_MIB, tmp_path / "small") as disk:
        room = Room(disk)
        options = ["--workers", str(workers), "--state", str(disk.path / "state"), "--epoch", "20ms"]
        command = [sys.executable, "-m", "millstream", "run", str(flow), *options, "--sync", sync]
        environment = os.environ | {"TABLE": str(table.path), "KIND": "remembers"}

        def run(pause_s: float, kill_after_s: float | None = None) -> None:
            variables = environment | {"PAUSE_S": str(pause_s)}
            running = subprocess.Popen(command, env=variables, stderr=subprocess.PIPE, text=True)
            try:
                running.wait(kill_after_s)
            except subprocess.TimeoutExpired:
                running.kill()
            _, errors = running.communicate(timeout=120)
            if running.returncode == 1:
                # One line says which file, and why.
                said = [line for line in errors.splitlines() if "No space left on device" in line]
                assert len(said) == 1 and str(disk.path) in said[0], errors
                assert "panicked" not in errors, errors
                ended["full"] += 1
            else:
                assert running.returncode in (0, -9), errors
                ended["done" if running.returncode == 0 else "killed"] += 1

        room.leave(0)
        run(0.0)
        assert ended == {"full": 1}
        for _ in range(ROUNDS):
            room.leave(chance.randrange(10, 130) * MIB)
            if chance.random() < 0.5:
                table.behave("WRITE", "away")
            run(0.02, kill_after_s=chance.choice([1.5, 2.5, 5.0]))
            table.recover()
            # A disk that is full from the beginning.
            room.leave(0)
            run(0.02, kill_after_s=60.0)
        room.free()
        run(0.0)
        assert ended["done"] == 1 and ended["full"] > 1, ended
        used = shutil.disk_usage(disk.path).used - disk.empty
    expected = [f"{n} ".ljust(TEXT, "x") for n in range(ITEMS)]
    table.judge(expected, once=True, file_system=kind, workers=workers, sync=sync, **ended)
    # What is delivered is removed: 80 MB were in the outbox.
    assert used < 120 * MIB
