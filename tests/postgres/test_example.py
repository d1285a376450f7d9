"""The example in examples/postgres, killed with -9 on its way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from flow_traffic import PATIENCE
from postgres_server import Database

EXAMPLE = Path(__file__).parents[2] / "examples" / "postgres"


def wait(running: subprocess.Popen[str], condition: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE
    while not condition():
        assert running.poll() is None, running.communicate()[1]
        assert time.monotonic() < until, "it does not come"
        time.sleep(0.05)


def stop(running: subprocess.Popen[str]) -> None:
    running.send_signal(signal.SIGINT)
    _, errors = running.communicate(timeout=PATIENCE)
    assert running.returncode == 0, errors


def test_a_table_follows_another(database: Database, tmp_path: Path) -> None:
    database.execute((EXAMPLE / "schema.sql").read_text())  # type: ignore[arg-type]
    database.execute("INSERT INTO orders SELECT n, 'c' || n % 7, n FROM generate_series(1, 2500) n")
    command = [sys.executable, "-m", "millstream", "run", str(EXAMPLE / "copy_table.py")]
    command += ["--state", str(tmp_path / "state"), "--epoch", "100ms"]
    environment = os.environ | {"DSN": database.dsn, "SLOT": database.name}

    def start() -> subprocess.Popen[str]:
        return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)

    def is_equal() -> bool:
        query = "SELECT count(*) FROM (TABLE {} EXCEPT TABLE {}) AS others"
        orders = database.rows(query.format("orders", "orders_copy"))  # type: ignore[arg-type]
        copies = database.rows(query.format("orders_copy", "orders"))  # type: ignore[arg-type]
        return orders == copies == [(0,)]

    running = start()
    wait(running, is_equal)
    database.execute("UPDATE orders SET cents = cents + 1 WHERE id % 3 = 0")
    running.kill()
    running.communicate()
    database.execute("DELETE FROM orders WHERE id % 5 = 0")
    database.execute("UPDATE orders SET id = -id WHERE id % 7 = 0")
    running = start()
    wait(running, is_equal)
    stop(running)
    # The way out after a lost slot: rows that were deleted meanwhile are deleted in the copy.
    database.execute("SELECT pg_drop_replication_slot(current_database())")
    database.execute("DELETE FROM orders WHERE id % 4 = 1")
    running = start()
    _, errors = running.communicate(timeout=PATIENCE)
    assert running.returncode == 1 and "--drop-state SOURCE" in errors, errors
    command += ["--drop-state", "orders"]
    running = start()
    wait(running, is_equal)
    stop(running)
