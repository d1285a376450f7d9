"""Links that are cut or stalled, slots that are lost or late, flows that are stopped while they wait."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from postgres_server import Database, Server
from reading import Reading, Writer, judge, replayed, rows_of
from soak import in_turns
from tcp_link import Link


@pytest.fixture
def items(database: Database) -> Database:
    database.execute("CREATE TABLE items (id int PRIMARY KEY, text text)")
    return database


@pytest.fixture
def narrow() -> Iterator[Server]:
    """A server that keeps little log for slots."""
    server = Server(max_slot_wal_keep_size="16MB", min_wal_size="32MB", max_wal_size="32MB")
    try:
        server.start()
        yield server
    finally:
        server.remove()


def through(database: Database, link: Link) -> str:
    return database.server.dsn(database.name, port=link.port)


def test_a_link_that_is_cut(tmp_path: Path, database: Database, link: Link) -> None:
    Writer.create_tables(database, 2000)
    writer = Writer(database, 1)
    reading = Reading(tmp_path, database, dsn=through(database, link))
    writer.start()
    link.cut_after = 30_000
    reading.start()
    for after in (100, 20_000, 100_001):
        before = len(reading.changes())
        reading.wait(lambda before=before: len(reading.changes()) > before)  # type: ignore[misc]
        link.cut_after = link.passed + after
        reading.wait(lambda: link.cut_after is None)
    writer.stop()
    judge(reading)
    assert "connected again after" in reading.stop()


def test_a_link_that_is_stalled(tmp_path: Path, database: Database, link: Link) -> None:
    Writer.create_tables(database, 300)
    writer = Writer(database, 1)
    options = "'tables': 'items', 'timeout': 1, 'heartbeat': 0.2"
    reading = Reading(tmp_path, database, options, through(database, link))
    reading.start()
    reading.wait(reading.is_active)
    reading.wait_for(300)
    writer.start()
    reading.wait_for(400)
    link.stall()
    time.sleep(2.5)
    link.resume()
    before = len(reading.changes())
    reading.wait(lambda: len(reading.changes()) > before)
    writer.stop()
    judge(reading)
    errors = reading.stop()
    assert "no answer for 1 s" in errors, errors


def test_back_pressure_does_not_end_the_connection(tmp_path: Path, mortal: Server) -> None:
    """The flow processes nothing for longer than the server waits for an answer."""
    database = mortal.create_database()
    database.execute("CREATE TABLE items (id int PRIMARY KEY, text text)")
    database.execute("ALTER SYSTEM SET wal_sender_timeout = '2s'")
    database.execute("SELECT pg_reload_conf()")
    reading = Reading(tmp_path, database, "'tables': 'items', 'heartbeat': 0.5")
    flow = reading.folder / "changes.py"
    slow = "\n\ndef slow(change):\n    import time\n    time.sleep(0.001)\n    return line(change)\n\n"
    text = flow.read_text().replace("\n\nchanges.map(line)", slow + "\n\nchanges.map(slow)")
    assert "map(slow)" in text
    flow.write_text(text)
    reading.start()
    reading.wait(reading.is_active)
    database.execute("INSERT INTO items SELECT n, 'n' FROM generate_series(1, 10000) n")
    changes = reading.wait_for(10_000)
    assert [change[2]["id"] for change in changes] == list(range(1, 10_001))
    assert "attempt" not in reading.stop()


def test_a_slot_that_the_server_gives_up(tmp_path: Path, narrow: Server) -> None:
    database = narrow.create_database()
    database.execute("CREATE TABLE items (id int PRIMARY KEY, text text)")
    database.execute("INSERT INTO items VALUES (1, 'one'), (2, 'two')")
    reading = Reading(tmp_path, database)
    reading.start()
    reading.wait(reading.is_active)
    reading.wait_for(2)
    reading.stop()
    for _ in range(6):
        database.execute("CREATE TABLE filler AS SELECT repeat('x', 1000) FROM generate_series(1, 20000)")
        database.execute("DROP TABLE filler")
        database.execute("SELECT pg_switch_wal()")
        database.execute("CHECKPOINT")
    failure = reading.failure()
    assert f'the replication slot "{reading.slot}" is lost: the server has removed log' in failure, failure
    assert "max_slot_wal_keep_size" in failure and "Traceback (most" not in failure
    # The way out, step by step: a copy has the rows afterwards.
    found = re.search(r"(SELECT pg_drop_replication_slot\('\w+'\)) on the server, and run the flow", failure)
    assert found, failure
    database.execute(found[1])  # type: ignore[arg-type]
    database.execute("DELETE FROM items WHERE id = 1")
    reading.start("--drop-state", "changes")
    reading.wait(lambda: replayed(reading.everything()) == rows_of(database, "items"))
    reading.stop()
    # The way out that the text names.
    database.execute("SELECT pg_drop_replication_slot(current_database())")
    database.execute("INSERT INTO items VALUES (1, 'one')")
    reading.start("--drop-state", "changes")
    reading.wait(lambda: replayed(reading.everything()) == rows_of(database, "items"))
    reading.stop()


def test_a_warning_when_the_server_keeps_much_log(items: Database, tmp_path: Path) -> None:
    reading = Reading(tmp_path, items, "'tables': 'items', 'warn_bytes': '1KiB', 'heartbeat': 3600")
    reading.watch_seconds = 0.2
    reading.start()
    reading.wait(reading.is_active)
    items.execute("CREATE TABLE filler AS SELECT repeat('x', 1000) FROM generate_series(1, 2000)")
    reading.wait(lambda: f'bytes of log for slot "{reading.slot}"' in reading.errors())
    assert "bytes late" in reading.stop()


SITUATIONS = ("waits for the slot", "slot in use", "snapshot", "refused", "stalled in the stream", "retries")


@pytest.mark.parametrize(("situation", "sent"), in_turns(SITUATIONS, [signal.SIGINT, signal.SIGTERM]))
def test_a_signal_ends_the_run(
    tmp_path: Path, database: Database, link: Link, situation: str, sent: signal.Signals
) -> None:
    Writer.create_tables(database, 20_000 if situation == "snapshot" else 10)
    reading = Reading(tmp_path, database, dsn=through(database, link))
    if situation == "waits for the slot":
        with psycopg.connect(database.dsn) as other:
            # A slot is created when all transactions have ended.
            other.execute("INSERT INTO items VALUES (-1)")
            reading.start()
            waiting = "SELECT 1 FROM pg_replication_slots WHERE slot_name = %s"
            reading.wait(lambda: database.rows(waiting, reading.slot))
            time.sleep(0.3)
            reading.stop(sent)
            other.rollback()
    elif situation == "slot in use":
        reading.start()
        reading.wait(reading.is_active)
        other_folder = tmp_path / "other"
        other_folder.mkdir()
        second = Reading(other_folder, database, "'tables': 'items', 'snapshot': False")
        second.start()
        second.wait(lambda: "is active for PID" in second.errors())
        second.stop(sent)
        reading.stop(sent)
    else:
        reading.start()
        if situation == "snapshot":
            reading.wait(lambda: reading.changes())
        else:
            reading.wait(reading.is_active)
        if situation == "stalled in the stream":
            link.stall()
        elif situation in ("refused", "retries"):
            link.refuses = True
            link.cut()
        if situation != "snapshot":
            time.sleep(0.5)
        reading.stop(sent)
    link.refuses = False
    link.resume()
    link.cut()
    database.execute("INSERT INTO items VALUES (900000, 900000, 'last')")
    database.execute("INSERT INTO audit (kind, id, version) VALUES ('insert', 900000, 900000)")
    reading.start()
    judge(reading)
    reading.stop_reading()
