"""Flows that write to SQLite by ``ms.sqlite.write``, killed with -9 at random: each row is there once, and
each that the database refuses is a dead letter once.

``make kills`` kills more often (``MILLSTREAM_KILLS``). A failure prints the seed.
"""

from __future__ import annotations

import json
import os
import random
import sqlite3
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from flow_traffic import KILLS, PATIENCE, Killed

SEED = int(os.environ.get("MILLSTREAM_SEED", "0")) or random.randrange(1 << 31)
FLOW = """
import os
import millstream as ms

end = int(os.environ["END"])
flow = ms.Flow("numbers")
source = ms.generate(lambda: range(end), rate=20_000 if end > 1 << 40 else None, batch_size=50)
numbers = flow.source("in", source).key_by(lambda n: n % 7).map(lambda n: n, name="spread").values()
key = os.environ["KEY"] or None
table = ms.sqlite.write(os.environ["TABLE"], "numbers", key=key, batch=200)
letters = ms.files.write(os.environ["LETTERS"], encode=lambda letter: f"{letter.item[0]}")
numbers.map(lambda n: (n, f"n{n}")).sink("table", table, on_error=ms.dead_letter(letters))
numbers.sink("expected", ms.files.write(os.environ["EXPECTED"]))
"""


@pytest.mark.parametrize(("key", "workers"), [("", 1), ("number", 2)])
def test_killed_flows(tmp_path: Path, key: str, workers: int) -> None:
    print(f"seed {SEED}")
    flow = tmp_path / "flow.py"
    path = tmp_path / "numbers.db"
    expected = tmp_path / "expected"
    flow.write_text(FLOW)
    table = sqlite3.connect(path, isolation_level=None, timeout=PATIENCE)
    table.execute("PRAGMA journal_mode = WAL")
    primary = "PRIMARY KEY" if key else ""
    table.execute(f"CREATE TABLE numbers (number INTEGER {primary} CHECK (number % 10 <> 3), text TEXT)")

    def length() -> int:
        return int(table.execute("SELECT count(*) FROM numbers").fetchone()[0])

    command = [sys.executable, "-m", "millstream", "run", str(flow), "--workers", str(workers)]
    command += ["--state", str(tmp_path / "state"), "--epoch", "20ms", "--sync", "never"]
    letters = tmp_path / "letters"
    environment = os.environ | {"TABLE": str(path), "EXPECTED": str(expected), "KEY": key}
    environment |= {"LETTERS": str(letters)}
    killed = Killed(command, environment | {"END": str(1 << 41)}, length, random.Random(SEED))
    killed.kill(KILLS)
    # The source has passed this number, so that the last run delivers what waits, and ends.
    last = subprocess.run(
        command, env=environment | {"END": "1"}, stderr=subprocess.PIPE, text=True, timeout=PATIENCE
    )
    assert last.returncode == 0, last.stderr
    rows = table.execute("SELECT number, text FROM numbers").fetchall()
    assert all(text == f"n{number}" for number, text in rows)
    refused = Counter(map(int, letters.read_text().splitlines()))
    assert all(number % 10 == 3 for number in refused)
    found = Counter(number for number, _ in rows) + refused
    given = Counter(map(int, expected.read_text().splitlines()))
    assert sorted(given) == list(range(len(given)))
    figures = {
        "items": len(given),
        "refused": refused.total(),
        "lost": (given - found).total(),
        "twice": (found - given).total(),
    }
    print(json.dumps({"destination": "sqlite", "keyed": bool(key)} | figures | killed.figures()))
    assert figures["lost"] == figures["twice"] == 0 < figures["refused"] < figures["items"], figures
    assert table.execute("SELECT flow, sink FROM millstream_progress").fetchall() == [("numbers", "table")]
