"""The lag of a flow that reads the changes of a table, in bytes of the server's log."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import millstream as ms
import pytest
from flow_traffic import PATIENCE
from millstream.postgres import session
from postgres_server import Server


def test_the_lag_grows_while_the_flow_is_busy(
    mortal: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log is that of the whole server, which therefore has no other writers here."""
    database = mortal.create_database()
    monkeypatch.setattr(session, "WATCH_SECONDS", 0.1)
    monkeypatch.setattr(session, "REPORT_SECONDS", 0.05)
    database.execute("CREATE TABLE items (id int PRIMARY KEY, text text)")
    is_open = threading.Event()
    is_open.set()

    def wait(change: ms.postgres.Change) -> ms.postgres.Change:
        is_open.wait(PATIENCE)
        return change

    flow = ms.Flow("lag")
    changes = ms.postgres.changes(database.dsn, database.name, tables="items", heartbeat=0.2)
    flow.source("changes", changes).map(wait).sink("out", ms.testing.discard())
    running = flow.start(state=tmp_path / "state", epoch=0.05)

    def lag() -> int | None:
        lags = running.report().lags
        if not lags:
            return None
        assert (lags[0]["source"], lags[0]["partition"]) == ("changes", "0")
        assert lags[0]["records"] is lags[0]["seconds"] is None
        return int(lags[0]["bytes"])

    def wait_until(low: int, high: int) -> None:
        until = time.monotonic() + PATIENCE
        while (found := lag()) is None or not low <= found <= high:
            assert time.monotonic() < until, f"the lag is {found}"
            time.sleep(0.02)

    try:
        wait_until(0, 0)
        is_open.clear()
        database.execute("INSERT INTO items SELECT n, repeat('x', 200) FROM generate_series(1, 20000) n")
        # The flow stands, and the rows alone are 4 MB.
        wait_until(1_000_000, 1 << 40)
        is_open.set()
        wait_until(0, 0)
    finally:
        is_open.set()
        running.stop()
