"""Flows that write to PostgreSQL, and servers, killed with -9: each row is there once.

``make kills`` kills more often (``MILLSTREAM_KILLS``). A failure prints the seed.
"""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import pytest
from flow_traffic import KILLS, PATIENCE
from postgres_server import Database, Server
from writing import Writing

SEED = int(os.environ.get("MILLSTREAM_SEED", "0")) or random.randrange(1 << 31)


@pytest.mark.parametrize(("keyed", "workers"), [(False, 1), (True, 2)])
def test_killed_flows(tmp_path: Path, database: Database, keyed: bool, workers: int) -> None:
    print(f"seed {SEED}")
    writing = Writing(tmp_path, database, keyed=keyed, workers=workers)
    killed = writing.killed(SEED)
    killed.kill(KILLS)
    writing.complete()
    writing.judge(keyed=keyed, workers=workers, seed=SEED, **killed.figures())


@pytest.mark.parametrize("keyed", [False, True])
def test_killed_servers(tmp_path: Path, mortal: Server, keyed: bool) -> None:
    print(f"seed {SEED}")
    chance = random.Random(SEED)
    writing = Writing(tmp_path, mortal.create_database(), keyed=keyed)
    running = writing.start()
    for _ in range(KILLS):
        writing.wait_for_rows(running)
        time.sleep(chance.random() * 0.3)
        mortal.kill()
        if chance.random() < 0.5:
            time.sleep(chance.random())
        mortal.start()
    writing.wait_for_rows(running)
    running.send_signal(signal.SIGINT)
    _, errors = running.communicate(timeout=PATIENCE)
    assert running.returncode == 0, errors
    assert "Traceback" not in errors, errors
    writing.complete()
    writing.judge(kills_of_server=KILLS, keyed=keyed, seed=SEED)


def test_killed_flows_and_servers(tmp_path: Path, mortal: Server) -> None:
    print(f"seed {SEED}")
    chance = random.Random(SEED)
    writing = Writing(tmp_path, mortal.create_database())
    for _ in range(KILLS):
        running = writing.start()
        writing.wait_for_rows(running)
        time.sleep(chance.random() * 0.2)
        first, second = (running.kill, mortal.kill) if chance.random() < 0.5 else (mortal.kill, running.kill)
        first()
        second()
        running.communicate(timeout=PATIENCE)
        mortal.start()
    writing.complete()
    writing.judge(kills_of_both=KILLS, seed=SEED)
