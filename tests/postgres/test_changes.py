"""Changes of tables as a flow receives them: kinds, types, schemas, snapshots, slots."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest
from postgres_server import Database
from reading import Reading, Writer, judge


@pytest.fixture
def items(database: Database) -> Database:
    database.execute("CREATE TABLE items (id int PRIMARY KEY, text text, large text)")
    return database


def streaming(reading: Reading) -> None:
    """Waits until the flow reads the stream."""
    reading.start()
    reading.wait(reading.is_active)


def test_kinds_of_changes(items: Database, tmp_path: Path) -> None:
    items.execute("INSERT INTO items VALUES (1, 'one', NULL)")
    reading = Reading(tmp_path, items)
    reading.start()
    reading.wait_for(1)
    items.execute("INSERT INTO items VALUES (2, 'two', 'x')")
    items.execute("UPDATE items SET text = 'zwei' WHERE id = 2")
    items.execute("UPDATE items SET id = 3 WHERE id = 2")
    items.execute("DELETE FROM items WHERE id = 1")
    items.execute("TRUNCATE items")
    changes = [change[:5] for change in reading.wait_for(6)]
    table = "public.items"
    assert changes == [
        ["snapshot", table, {"id": 1}, None, {"id": 1, "text": "one", "large": None}],
        ["insert", table, {"id": 2}, None, {"id": 2, "text": "two", "large": "x"}],
        ["update", table, {"id": 2}, None, {"id": 2, "text": "zwei", "large": "x"}],
        ["update", table, {"id": 3}, {"id": 2}, {"id": 3, "text": "zwei", "large": "x"}],
        ["delete", table, {"id": 1}, {"id": 1}, None],
        ["truncate", table, None, None, None],
    ]
    reading.stop()


def test_the_slot_is_confirmed_when_changes_are_committed(items: Database, tmp_path: Path) -> None:
    reading = Reading(tmp_path, items)
    streaming(reading)
    items.execute("INSERT INTO items VALUES (1, 'one', NULL)")
    (change,) = reading.wait_for(1)
    reading.wait(lambda: reading.confirmed() > change[5])
    reading.stop()
    confirmed = reading.confirmed()
    items.execute("INSERT INTO items VALUES (2, 'two', NULL)")
    time.sleep(0.3)
    assert reading.confirmed() == confirmed
    reading.start()
    assert [found[2]["id"] for found in reading.wait_for(2)] == [1, 2]
    reading.stop()


def test_an_idle_table_does_not_hold_the_log(items: Database, tmp_path: Path) -> None:
    items.execute("CREATE TABLE others (number int)")
    reading = Reading(tmp_path, items, "'tables': 'items', 'heartbeat': 0.2")
    streaming(reading)
    for _ in range(3):
        items.execute("INSERT INTO others SELECT generate_series(1, 1000)")
        before = int(items.rows("SELECT (pg_current_wal_flush_lsn() - '0/0')::int8")[0][0])
        # The background processes of the server write to the log, too.
        reading.wait(lambda before=before: reading.confirmed() >= before)  # type: ignore[misc]
    reading.stop()
    # The heartbeat is a position: the slot is not ahead of the flow.
    reading.start()
    reading.wait(reading.is_active)
    items.execute("INSERT INTO items VALUES (1, 'one', NULL)")
    reading.wait_for(1)
    reading.stop()


def test_large_values_that_do_not_change(items: Database, tmp_path: Path) -> None:
    items.execute("ALTER TABLE items ALTER large SET STORAGE EXTERNAL")
    items.execute("INSERT INTO items VALUES (1, 'one', repeat('x', 10000))")
    reading = Reading(tmp_path, items)
    reading.start()
    assert reading.wait_for(1)[0][4]["large"] == "x" * 10_000
    reading.wait(reading.is_active)
    items.execute("UPDATE items SET text = 'new'")
    assert reading.wait_for(2)[1][4] == {"id": 1, "text": "new", "large": "UNCHANGED"}
    items.execute("ALTER TABLE items REPLICA IDENTITY FULL")
    items.execute("UPDATE items SET text = 'newer'")
    change = reading.wait_for(3)[2]
    assert change[4] == {"id": 1, "text": "newer", "large": "x" * 10_000}
    assert change[3] == {"id": 1, "text": "new", "large": "x" * 10_000}
    reading.stop()


def test_a_table_that_changes(items: Database, tmp_path: Path) -> None:
    reading = Reading(tmp_path, items)
    streaming(reading)
    items.execute("INSERT INTO items VALUES (1, 'one', NULL)")
    items.execute("ALTER TABLE items ADD more int DEFAULT 7")
    items.execute("INSERT INTO items VALUES (2, 'two', NULL)")
    items.execute("ALTER TABLE items DROP large")
    items.execute("ALTER TABLE items RENAME text TO name")
    items.execute("INSERT INTO items VALUES (3, 'three')")
    assert [change[4] for change in reading.wait_for(3)] == [
        {"id": 1, "text": "one", "large": None},
        {"id": 2, "text": "two", "large": None, "more": 7},
        {"id": 3, "name": "three", "more": 7},
    ]
    reading.stop()


def test_types_are_the_same_in_the_snapshot_and_the_stream(database: Database, tmp_path: Path) -> None:
    database.execute("CREATE TYPE color AS ENUM ('red')")
    database.execute("CREATE DOMAIN small AS int")
    database.execute(
        "CREATE TABLE items (id int PRIMARY KEY, t timestamptz, n numeric, f float8, b bytea, j jsonb, "
        "a int[], c color, d small, i interval, s text, z text, day date, "
        "g int GENERATED ALWAYS AS (1) STORED)"
    )
    database.execute("ALTER DATABASE " + database.name + " SET timezone = 'Asia/Tokyo'")  # type: ignore[arg-type]
    database.execute("ALTER DATABASE " + database.name + " SET datestyle = 'German'")  # type: ignore[arg-type]
    insert = (
        (
            "INSERT INTO items VALUES (%s, '2026-11-24 12:00:00+00', 1.50, 'infinity', '\\x00ff', "
            "'{{\"a\": [1]}}', '{{1,2}}', 'red', 7, '1 day', E'tab\\tline\\n\\\\N', NULL, 'infinity')"
        )
        .replace("{{", "{")
        .replace("}}", "}")
    )
    database.execute(insert, 1)  # type: ignore[arg-type]
    reading = Reading(tmp_path, database)
    reading.start()
    reading.wait_for(1)
    database.execute(insert, 2)  # type: ignore[arg-type]
    first, second = (change[4] for change in reading.wait_for(2))
    assert first | {"id": 2} == second
    assert first == {
        "id": 1,
        "t": "2026-11-24 12:00:00+00:00",
        "n": "1.50",
        "f": float("inf"),
        "b": str(b"\0\xff"),
        "j": {"a": [1]},
        "a": [1, 2],
        "c": "red",
        "d": 7,
        "i": "1 day, 0:00:00",
        "s": "tab\tline\n\\N",
        "z": None,
        "day": "infinity",
    }
    reading.stop()


def test_a_snapshot_while_the_table_is_written(database: Database, tmp_path: Path) -> None:
    Writer.create_tables(database, 3000)
    writer = Writer(database, 1)
    writer.start()
    reading = Reading(tmp_path, database)
    reading.start()
    reading.wait(lambda: any(change[0] == "update" for change in reading.changes()))
    time.sleep(0.5)
    writer.stop()
    judge(reading)
    reading.stop()


def test_a_transaction_is_larger_than_a_chunk(items: Database, tmp_path: Path) -> None:
    reading = Reading(tmp_path, items)
    streaming(reading)
    items.execute("INSERT INTO items SELECT n, 'n' FROM generate_series(1, 20000) n")
    items.execute("DELETE FROM items WHERE id > 10000")
    reading.wait(lambda: len(reading.changes()) >= 5000)
    reading.kill()
    reading.start()
    changes = reading.wait_for(30_000)
    assert [change[2]["id"] for change in changes] == [*range(1, 20_001), *range(10_001, 20_001)]
    reading.stop_reading()


def test_large_rows(items: Database, tmp_path: Path) -> None:
    items.execute("INSERT INTO items SELECT n, 'n', repeat('x', 300000) FROM generate_series(1, 20) n")
    reading = Reading(tmp_path, items)
    reading.start()
    reading.wait_for(20)
    items.execute("INSERT INTO items SELECT n, 'n', repeat('x', 300000) FROM generate_series(21, 40) n")
    assert [change[2]["id"] for change in reading.wait_for(40)] == list(range(1, 41))
    reading.stop()


def test_a_publication_with_a_filter(items: Database, tmp_path: Path) -> None:
    items.execute("INSERT INTO items SELECT n, 't', 'l' FROM generate_series(1, 6) n")
    items.execute("CREATE PUBLICATION mine FOR TABLE items (id, text) WHERE (id > 4)")
    reading = Reading(tmp_path, items, "'publication': 'mine'")
    reading.start()
    reading.wait_for(2)
    items.execute("INSERT INTO items VALUES (0, 'no', 'l'), (7, 'yes', 'l')")
    assert [change[4] for change in reading.wait_for(3)] == [
        {"id": 5, "text": "t"},
        {"id": 6, "text": "t"},
        {"id": 7, "text": "yes"},
    ]
    reading.stop()


def test_without_a_snapshot(items: Database, tmp_path: Path) -> None:
    items.execute("INSERT INTO items VALUES (1, 'old', NULL)")
    reading = Reading(tmp_path, items, "'tables': 'items', 'snapshot': False")
    streaming(reading)
    items.execute("INSERT INTO items VALUES (2, 'new', NULL)")
    assert [change[2]["id"] for change in reading.wait_for(1)] == [2]
    reading.stop()


def test_without_a_state_directory(items: Database, tmp_path: Path) -> None:
    items.execute("INSERT INTO items VALUES (1, 'one', NULL)")
    reading = Reading(tmp_path, items)
    reading.has_state = False
    streaming(reading)
    items.execute("INSERT INTO items VALUES (2, 'two', NULL)")
    changes = reading.wait_for(2)
    assert [change[0] for change in changes] == ["snapshot", "insert"]
    reading.wait(lambda: reading.confirmed() > changes[1][5])
    reading.stop()
    # The next run has no position, and does not take the slot.
    assert "exists, and the flow has no position in it" in reading.failure()


def test_a_lost_slot_is_an_error_with_ways_out(items: Database, tmp_path: Path) -> None:
    reading = Reading(tmp_path, items)
    streaming(reading)
    # With a change in the output the position is one of the stream, not of the snapshot.
    items.execute("INSERT INTO items VALUES (1, 'one', NULL)")
    reading.wait_for(1)
    reading.stop()
    items.execute("SELECT pg_drop_replication_slot(current_database())")
    failure = reading.failure()
    assert f'the replication slot "{reading.slot}" does not exist any more' in failure, failure
    assert "--drop-state SOURCE" in failure and "Traceback (most" not in failure


def test_a_slot_of_another_is_not_taken(items: Database, tmp_path: Path) -> None:
    items.execute("SELECT pg_create_logical_replication_slot(current_database(), 'pgoutput')")
    reading = Reading(tmp_path, items)
    failure = reading.failure()
    assert f'the replication slot "{reading.slot}" exists, and the flow has no position in it' in failure
    # Nothing was dropped, and the slot may be continued on purpose.
    items.execute("CREATE PUBLICATION later FOR TABLE items")
    more = tmp_path / "more"
    more.mkdir()
    continuing = Reading(more, items, "'publication': 'later', 'snapshot': False")
    # The server decodes changes with the publications of their time.
    items.execute("SELECT pg_replication_slot_advance(current_database(), pg_current_wal_lsn())")
    streaming(continuing)
    items.execute("INSERT INTO items VALUES (1, 'one', NULL)")
    continuing.wait_for(1)
    continuing.stop()


def test_an_older_copy_of_the_state_directory(items: Database, tmp_path: Path) -> None:
    import shutil

    reading = Reading(tmp_path, items)
    streaming(reading)
    items.execute("INSERT INTO items VALUES (1, 'one', NULL)")
    reading.wait_for(1)
    reading.stop()
    for name in ("state", "out"):
        path = tmp_path / name
        (shutil.copytree if path.is_dir() else shutil.copyfile)(path, tmp_path / f"{name} copy")
    reading.start()
    items.execute("INSERT INTO items VALUES (2, 'two', NULL)")
    change = reading.wait_for(2)[1]
    reading.wait(lambda: reading.confirmed() > change[5])
    reading.stop()
    reading.state = tmp_path / "state copy"
    reading.out = tmp_path / "out copy"
    failure = reading.failure()
    assert "changes in between are lost to it" in failure, failure


REFUSALS = {
    "password": ("'tables': 'items'", "password=wrong", "password authentication failed"),
    "database": ("'tables': 'items'", "dbname=nothing", 'database "nothing" does not exist'),
    "table": ("'tables': ['items', 'missing']", "", 'there is no table "public.missing"'),
    "publication": ("'publication': 'missing'", "", 'there is no publication "missing"'),
    "key": ("'tables': 'keyless'", "", 'table "public.keyless" has no primary key'),
    "role": ("'tables': 'items'", "user=reader", "must be superuser or replication role"),
}


@pytest.mark.parametrize("refusal", REFUSALS)
def test_what_cannot_work_is_an_error_at_once(items: Database, tmp_path: Path, refusal: str) -> None:
    items.execute("CREATE TABLE keyless (number int)")
    items.execute(
        "DO $$ BEGIN CREATE ROLE reader LOGIN PASSWORD 'secret'; EXCEPTION WHEN duplicate_object THEN END $$"
    )
    options, parameter, text = REFUSALS[refusal]
    failure = Reading(tmp_path, items, options, f"{items.dsn} {parameter}").failure()
    assert text in failure and "PostgreSQL at 127.0.0.1" in failure and "secret" not in failure, failure
    assert "Traceback (most" not in failure, failure
    assert items.rows("SELECT 1 FROM pg_replication_slots WHERE database = current_database()") == []


def test_a_publication_with_other_tables(items: Database, tmp_path: Path) -> None:
    items.execute("CREATE TABLE others (id int PRIMARY KEY)")
    items.execute("CREATE PUBLICATION mine FOR TABLE others")
    failure = Reading(tmp_path, items, "'tables': 'items', 'publication': 'mine'").failure()
    assert 'publication "mine" has the tables public.others, and not public.items' in failure, failure


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_an_idle_stream(items: Database, tmp_path: Path, sent: signal.Signals) -> None:
    reading = Reading(tmp_path, items)
    streaming(reading)
    reading.stop(sent)
    assert not reading.is_active()
