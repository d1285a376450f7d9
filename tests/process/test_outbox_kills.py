"""Flows that deliver to SQLite, killed with -9 at random: a reader of the table finds each item.

Where the destination stores its position in the same transaction, each item is there once. ``make kills``
kills more often (``MILLSTREAM_KILLS``). A failure prints the seed.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from flow_traffic import KILLS, PATIENCE, Killed
from outbox_table import NUMBERS, Table

SEED = int(os.environ.get("MILLSTREAM_SEED", "0")) or random.randrange(1 << 31)


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("kind", ["remembers", "forgets", "async"])
def test_kills_lose_nothing(tmp_path: Path, kind: str, workers: int) -> None:
    print(f"seed {SEED}")
    flow = tmp_path / "flow.py"
    table = Table(tmp_path / "table")
    flow.write_text(NUMBERS)
    options = ["--workers", str(workers), "--state", str(tmp_path / "state"), "--epoch", "20ms"]
    command = [sys.executable, "-m", "millstream", "run", str(flow), *options, "--sync", "never"]
    expected = tmp_path / "expected"
    environment = os.environ | {"TABLE": str(table.path), "KIND": kind, "EXPECTED": str(expected)}
    killed = Killed(command, environment | {"END": str(1 << 41)}, table.length, random.Random(SEED))
    killed.kill(KILLS)
    # The source has passed this number, so that the last run delivers what waits, and ends.
    last = subprocess.run(
        command, env=environment | {"END": "1"}, stderr=subprocess.PIPE, text=True, timeout=PATIENCE
    )
    assert last.returncode == 0, last.stderr
    lines = expected.read_text().splitlines()
    assert sorted(map(int, lines)) == list(range(len(lines)))
    table.judge(lines, kind != "forgets", flow=kind, workers=workers, first_seed=SEED, **killed.figures())
