"""Flows that read changes, and servers, killed with -9: each change is in the output once, in order.

``make kills`` kills more often (``MILLSTREAM_KILLS``). A failure prints the seed.
"""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

from flow_traffic import KILLS
from postgres_server import Database, Server
from reading import Reading, Writer, judge

SEED = int(os.environ.get("MILLSTREAM_SEED", "0")) or random.randrange(1 << 31)
ROWS = 30_000
"""So many rows of a snapshot take long enough that flows are killed in it."""


def test_killed_flows(tmp_path: Path, database: Database) -> None:
    print(f"seed {SEED}")
    chance = random.Random(SEED)
    Writer.create_tables(database, 300)
    writer = Writer(database, SEED)
    reading = Reading(tmp_path, database)
    writer.start()
    for _ in range(KILLS):
        before = len(reading.changes())
        reading.start()
        if chance.random() < 0.7:
            reading.wait(lambda before=before: len(reading.changes()) > before)  # type: ignore[misc]
        time.sleep(chance.random() * 0.6)
        reading.kill()
    writer.stop()
    reading.start()
    judge(reading, kills=KILLS, seed=SEED)
    reading.stop_reading()


def test_flows_killed_in_their_snapshot(tmp_path: Path, database: Database) -> None:
    print(f"seed {SEED}")
    chance = random.Random(SEED)
    Writer.create_tables(database, ROWS)
    writer = Writer(database, SEED, 0.01)
    reading = Reading(tmp_path, database)
    writer.start()
    for _ in range(KILLS):
        reading.start()
        time.sleep(0.4 + chance.random() * 1.0)
        reading.kill()
    reading.start()
    reading.wait(lambda: reading.changes() and reading.changes()[-1][0] != "snapshot")
    writer.stop()
    judge(reading, kills_in_snapshot=KILLS, seed=SEED)
    reading.stop_reading()


def test_killed_servers(tmp_path: Path, mortal: Server) -> None:
    print(f"seed {SEED}")
    chance = random.Random(SEED)
    database = mortal.create_database()
    Writer.create_tables(database, 300)
    writer = Writer(database, SEED)
    reading = Reading(tmp_path, database)
    writer.start()
    reading.start()
    for _ in range(KILLS):
        before = len(reading.changes())
        reading.wait(lambda before=before: len(reading.changes()) > before)  # type: ignore[misc]
        time.sleep(chance.random() * 0.5)
        mortal.kill()
        if chance.random() < 0.5:
            time.sleep(chance.random())
        mortal.start()
    before = writer.committed
    reading.wait(lambda: writer.committed > before)
    writer.stop()
    judge(reading, kills_of_server=KILLS, seed=SEED)
    errors = reading.stop_reading()
    assert "connected again after" in errors, errors


def test_killed_flows_and_servers(tmp_path: Path, mortal: Server) -> None:
    print(f"seed {SEED}")
    chance = random.Random(SEED)
    database = mortal.create_database()
    Writer.create_tables(database, 300)
    writer = Writer(database, SEED)
    reading = Reading(tmp_path, database)
    writer.start()
    for _ in range(KILLS):
        reading.start()
        before = len(reading.changes())
        reading.wait(lambda before=before: len(reading.changes()) > before)  # type: ignore[misc]
        time.sleep(chance.random() * 0.3)
        first, second = (reading.kill, mortal.kill) if chance.random() < 0.5 else (mortal.kill, reading.kill)
        first()
        second()
        mortal.start()
    writer.stop()
    reading.start()
    judge(reading, kills_of_both=KILLS, seed=SEED)
    reading.stop_reading()
