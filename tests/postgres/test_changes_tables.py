"""Which tables are read: those added later, children and partitions; and each way out that a message names.

What is compared is the result: a copy that follows the changes has the rows of the tables.
"""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import psycopg
import pytest
from postgres_server import Database, Server
from reading import Reading, replayed, rows_of


@pytest.fixture
def items(database: Database) -> Database:
    database.execute("CREATE TABLE items (id int PRIMARY KEY, text text)")
    database.execute("INSERT INTO items SELECT n, 't' || n FROM generate_series(1, 5) n")
    return database


def followed(reading: Reading, *tables: str) -> list[Any]:
    """Waits until a copy has the rows of the tables (``*``: with partitions); returns the changes."""
    expected = rows_of(reading.database, *tables)

    def is_equal() -> bool:
        found = replayed(reading.everything())
        return {name: rows for name, rows in found.items() if rows or name in expected} == expected

    reading.wait(is_equal)
    return reading.everything()


def add_table(database: Database) -> None:
    database.execute("CREATE TABLE others (id int PRIMARY KEY, number int)")
    database.execute("INSERT INTO others SELECT n, n * n FROM generate_series(1, 4) n")


def begin(reading: Reading, *tables: str) -> None:
    """Runs it until it reads the stream, and stops it."""
    reading.start()
    reading.wait(reading.is_active)
    followed(reading, *tables)
    reading.stop()


def advice(failure: str) -> str:
    """The statement that a message names."""
    found = re.search(r"(ALTER PUBLICATION .*?); or name", failure)
    assert found, failure
    return found[1]


def test_a_table_is_added_as_the_message_says(items: Database, tmp_path: Path) -> None:
    reading = Reading(tmp_path, items)
    begin(reading, "items")
    add_table(items)
    reading.options = reading.options.replace("'items'", "['items', 'others']")
    items.execute("UPDATE items SET text = 'new' WHERE id = 1")
    items.execute(advice(reading.failure()))  # type: ignore[arg-type]
    items.execute("UPDATE items SET text = 'newer' WHERE id = 2")
    items.execute("UPDATE others SET number = 0 WHERE id = 1")
    before = len(reading.everything())
    reading.start()
    reading.wait(reading.is_active)
    items.execute("DELETE FROM others WHERE id = 4")
    items.execute("DELETE FROM items WHERE id = 5")
    changes = followed(reading, "items", "others")[before:]
    assert [change[2]["id"] for change in changes if change[0] == "update"] == [1, 2]
    assert [change[1] for change in changes if change[0] in ("truncate", "snapshot")] == ["public.others"] * 5
    reading.stop()
    # The next start reads nothing again.
    before = len(reading.everything())
    reading.start()
    reading.wait(reading.is_active)
    reading.stop()
    assert reading.everything()[before:] == []
    # And one table fewer, as the message says.
    reading.options = reading.options.replace("['items', 'others']", "'others'")
    statement = advice(reading.failure())
    assert "DROP TABLE" in statement
    items.execute(statement)  # type: ignore[arg-type]
    items.execute("INSERT INTO others VALUES (7, 7)")
    reading.start()
    followed(reading, "others", "items")
    reading.stop()


def test_another_publication_is_named_as_the_message_says(items: Database, tmp_path: Path) -> None:
    reading = Reading(tmp_path, items)
    begin(reading, "items")
    add_table(items)
    # The log has changes from before the other publication existed.
    items.execute("DELETE FROM items WHERE id = 1")
    reading.options = reading.options.replace("'items'", "['items', 'others'], 'publication': 'more'")
    reading.start()
    reading.wait(reading.is_active)
    items.execute("UPDATE items SET text = 'new' WHERE id = 2")
    followed(reading, "items", "others")
    reading.stop()


def test_a_publication_of_all_tables(items: Database, tmp_path: Path) -> None:
    items.execute("CREATE PUBLICATION mine FOR ALL TABLES")
    reading = Reading(tmp_path, items, "'tables': 'items', 'publication': 'mine'")
    add_table(items)
    failure = reading.failure()
    assert "since it is of all tables; name another one with publication=, which is created, or" in failure
    reading.options = reading.options.replace("'tables': 'items', ", "")
    begin(reading, "items", "others")
    items.execute("CREATE TABLE third (id int PRIMARY KEY)")
    items.execute("INSERT INTO third VALUES (1), (2)")
    reading.start()
    followed(reading, "items", "others", "third")
    reading.stop()


@pytest.mark.parametrize("writes", [False, True])
def test_a_table_is_added_while_the_flow_runs(items: Database, tmp_path: Path, writes: bool) -> None:
    items.execute("CREATE PUBLICATION mine FOR TABLE items")
    reading = Reading(tmp_path, items, "'publication': 'mine'")
    reading.watch_seconds = 3600 if writes else 0.2
    reading.start()
    reading.wait(reading.is_active)
    add_table(items)
    items.execute("ALTER PUBLICATION mine ADD TABLE others")
    if writes:
        # A change of the table shows that it is there.
        for number in range(10, 40):
            items.execute("INSERT INTO others VALUES (%s, 1)", number)
            items.execute("UPDATE others SET number = number + 1 WHERE id % 3 = 0")
            items.execute("UPDATE items SET text = text || 'x' WHERE id = %s", number % 5 + 1)
    followed(reading, "items", "others")
    assert sum(change[0] == "truncate" for change in reading.everything()) == 2
    reading.stop()


def test_killed_in_the_snapshot_of_an_added_table(items: Database, tmp_path: Path) -> None:
    items.execute("CREATE PUBLICATION mine FOR TABLE items")
    reading = Reading(tmp_path, items, "'publication': 'mine'")
    begin(reading, "items")
    items.execute("CREATE TABLE others (id int PRIMARY KEY, number int)")
    items.execute("INSERT INTO others SELECT n, n FROM generate_series(1, 20000) n")
    items.execute("ALTER PUBLICATION mine ADD TABLE others")
    for round_ in range(3):
        before = len(reading.everything())
        reading.start()
        reading.wait(lambda before=before: len(reading.everything()) > before)  # type: ignore[misc]
        reading.kill()
        items.execute("UPDATE others SET number = %s WHERE id < 100", round_)
        items.execute("DELETE FROM others WHERE id = %s", 20_000 - round_)
    reading.start()
    followed(reading, "items", "others")
    reading.stop_reading()


def test_a_table_that_was_removed_and_added_again(items: Database, tmp_path: Path) -> None:
    add_table(items)
    items.execute("CREATE PUBLICATION mine FOR TABLE items, others")
    reading = Reading(tmp_path, items, "'publication': 'mine'")
    begin(reading, "items", "others")
    items.execute("ALTER PUBLICATION mine DROP TABLE others")
    items.execute("DELETE FROM others WHERE id < 3")
    items.execute("ALTER PUBLICATION mine ADD TABLE others")
    items.execute("INSERT INTO others VALUES (9, 9)")
    reading.start()
    followed(reading, "items", "others")
    reading.stop()


def test_a_table_that_was_made_anew(items: Database, tmp_path: Path) -> None:
    items.execute("CREATE PUBLICATION mine FOR ALL TABLES")
    reading = Reading(tmp_path, items, "'publication': 'mine'")
    begin(reading, "items")
    items.execute("INSERT INTO items VALUES (6, 'of the old one')")
    items.execute("CREATE TABLE later (id int PRIMARY KEY, text text)")
    items.execute("INSERT INTO later VALUES (1, 'new')")
    items.execute("DROP TABLE items")
    items.execute("ALTER TABLE later RENAME TO items")
    items.execute("INSERT INTO items VALUES (2, 'newer')")
    reading.start()
    reading.wait(lambda: rows_of(items, "items").items() <= replayed(reading.everything()).items())
    reading.stop()


def test_a_lost_slot_and_dropped_state(items: Database, tmp_path: Path) -> None:
    """The way out of the message: rows that were deleted meanwhile are gone, and nothing counts twice."""
    reading = Reading(tmp_path, items)
    begin(reading, "items")
    items.execute("SELECT pg_drop_replication_slot(current_database())")
    items.execute("DELETE FROM items WHERE id IN (1, 3)")
    items.execute("INSERT INTO items VALUES (8, 'new')")
    assert "--drop-state SOURCE" in reading.failure()
    reading.start("--drop-state", "changes")
    followed(reading, "items")
    reading.stop()
    # Once is enough.
    items.execute("DELETE FROM items WHERE id = 2")
    reading.start()
    followed(reading, "items")
    reading.stop()


def follow_way_out(reading: Reading, problem: str) -> None:
    """Does what the message says, step by step; a copy has the rows afterwards."""
    failure = reading.failure()
    assert problem in failure, failure
    drop = re.search(r"(SELECT pg_drop_replication_slot\('\w+'\)) on the server, and", failure)
    if drop is not None:
        reading.database.execute(drop[1])  # type: ignore[arg-type]
    assert "--drop-state SOURCE" in failure, failure
    reading.start("--drop-state", "changes")
    followed(reading, "items")
    reading.stop()


def test_another_program_has_used_the_slot(items: Database, tmp_path: Path) -> None:
    reading = Reading(tmp_path, items)
    begin(reading, "items")
    items.execute("DELETE FROM items WHERE id = 1")
    items.execute("SELECT pg_replication_slot_advance(current_database(), pg_current_wal_lsn())")
    follow_way_out(reading, "changes in between are lost to it")


def test_another_cluster(items: Database, mortal: Server, tmp_path: Path) -> None:
    reading = Reading(tmp_path, items)
    begin(reading, "items")
    other = mortal.create_database()
    other.execute("CREATE TABLE items (id int PRIMARY KEY, text text)")
    other.execute("INSERT INTO items VALUES (3, 'three'), (9, 'nine')")
    reading.database = other
    reading.dsn = other.dsn
    follow_way_out(reading, "is another cluster")


def test_a_slot_that_exists_is_dropped_as_the_message_says(items: Database, tmp_path: Path) -> None:
    items.execute("SELECT pg_create_logical_replication_slot(current_database(), 'pgoutput')")
    reading = Reading(tmp_path, items)
    found = re.search(r"To begin anew: (SELECT .*?\))$", reading.failure(), re.MULTILINE)
    assert found, reading.errors()
    items.execute(found[1])  # type: ignore[arg-type]
    reading.start()
    followed(reading, "items")
    reading.stop()


def test_a_table_without_a_key_gets_an_identity_as_the_message_says(items: Database, tmp_path: Path) -> None:
    items.execute('CREATE TABLE "Key less" (id int, text text)')
    items.execute("""INSERT INTO "Key less" VALUES (1, 'a'), (2, 'b')""")
    reading = Reading(tmp_path, items, "'tables': ['items', 'Key less']")
    found = re.search(r"(ALTER TABLE .* REPLICA IDENTITY FULL)", reading.failure())
    assert found, reading.errors()
    items.execute(found[1])  # type: ignore[arg-type]
    reading.start()
    reading.wait(reading.is_active)
    items.execute("""UPDATE "Key less" SET text = 'c' WHERE id = 1""")
    items.execute('DELETE FROM "Key less" WHERE id = 2')
    reading.wait(lambda: reading.everything()[-1][0] == "delete")
    reading.stop()
    of_table = [change[4] for change in reading.everything() if change[1] == "public.Key less"]
    assert of_table == [
        None,
        {"id": 1, "text": "a"},
        {"id": 2, "text": "b"},
        {"id": 1, "text": "c"},
        None,
    ]


def test_a_table_with_children(items: Database, tmp_path: Path) -> None:
    items.execute("CREATE TABLE child (more int, PRIMARY KEY (id)) INHERITS (items)")
    items.execute("INSERT INTO child VALUES (11, 'c', 1), (12, 'c', 2)")
    reading = Reading(tmp_path, items)
    begin(reading, "items", "child")
    for number in (13, 14):
        items.execute("INSERT INTO child VALUES (%s, 'c', 3)", number)
        items.execute("UPDATE items SET text = 'all'")
        reading.start()
        followed(reading, "items", "child")
        reading.stop()
    # A child that is added later, as the message says.
    items.execute("CREATE TABLE late (PRIMARY KEY (id)) INHERITS (items)")
    items.execute("INSERT INTO late VALUES (21, 'l')")
    items.execute(advice(reading.failure()))  # type: ignore[arg-type]
    reading.start()
    followed(reading, "items", "child", "late")
    reading.stop()


def partition(database: Database) -> None:
    database.execute("CREATE TABLE parts (id int PRIMARY KEY, text text) PARTITION BY RANGE (id)")
    database.execute("CREATE TABLE parts_low PARTITION OF parts FOR VALUES FROM (0) TO (10)")
    database.execute("CREATE TABLE parts_high PARTITION OF parts FOR VALUES FROM (10) TO (20)")
    database.execute("INSERT INTO parts SELECT n, 'p' FROM generate_series(5, 14) n")


def test_a_partitioned_table_is_read_by_its_root(database: Database, tmp_path: Path) -> None:
    partition(database)
    reading = Reading(tmp_path, database, "'tables': 'parts'")
    begin(reading, "parts*")
    for number in (1, 2):
        database.execute("INSERT INTO parts VALUES (%s, 'new')", number)
        database.execute("UPDATE parts SET id = id + 15 WHERE id = %s", number)
        database.execute("UPDATE parts SET text = text || 'x'")
        reading.start()
        followed(reading, "parts*")
        reading.stop()
    database.execute("CREATE TABLE parts_more PARTITION OF parts FOR VALUES FROM (20) TO (30)")
    database.execute("INSERT INTO parts VALUES (25, 'more')")
    reading.start()
    followed(reading, "parts*")
    reading.stop()


@pytest.mark.parametrize("named", ["'tables': 'parts', ", ""])
def test_partitions_by_their_names(database: Database, tmp_path: Path, named: str) -> None:
    partition(database)
    database.execute("CREATE PUBLICATION mine FOR TABLE parts")
    reading = Reading(tmp_path, database, f"{named}'publication': 'mine'")
    reading.watch_seconds = 0.2
    begin(reading, "parts_low", "parts_high")
    reading.start()
    reading.wait(reading.is_active)
    database.execute("UPDATE parts SET text = text || 'x'")
    database.execute("CREATE TABLE parts_more PARTITION OF parts FOR VALUES FROM (20) TO (30)")
    database.execute("INSERT INTO parts VALUES (25, 'more')")
    followed(reading, "parts_low", "parts_high", "parts_more")
    reading.stop()


def test_changes_of_other_tables_of_the_publication(items: Database, tmp_path: Path) -> None:
    """The publication is altered before the program: the old program goes on, the new one misses nothing."""
    reading = Reading(tmp_path, items)
    reading.start()
    reading.wait(reading.is_active)
    add_table(items)
    items.execute(f'ALTER PUBLICATION "{reading.slot}" ADD TABLE others')  # type: ignore[arg-type]
    items.execute("INSERT INTO others VALUES (30, 30)")
    items.execute("INSERT INTO items VALUES (30, 'thirty')")
    followed(reading, "items")
    reading.stop()
    reading.options = reading.options.replace("'items'", "['items', 'others']")
    reading.start()
    followed(reading, "items", "others")
    reading.stop()


def test_policies_that_hide_rows_are_an_error(items: Database, tmp_path: Path) -> None:
    items.execute(
        "DO $$ BEGIN CREATE ROLE replicator LOGIN REPLICATION PASSWORD 'secret'; "
        "EXCEPTION WHEN duplicate_object THEN END $$"
    )
    items.execute("ALTER TABLE items ENABLE ROW LEVEL SECURITY")
    items.execute("GRANT SELECT ON items TO replicator")
    items.execute("CREATE PUBLICATION mine FOR TABLE items")
    dsn = items.dsn.replace("user=postgres", "user=replicator")
    reading = Reading(tmp_path, items, "'publication': 'mine'", dsn)
    assert "would be affected by row-level security policy" in reading.failure()


def test_rows_and_changes_of_a_table_that_is_written_while_it_is_added(
    items: Database, tmp_path: Path
) -> None:
    add_table(items)
    items.execute("CREATE PUBLICATION mine FOR TABLE items")
    reading = Reading(tmp_path, items, "'publication': 'mine'")
    reading.watch_seconds = 0.3
    reading.start()
    reading.wait(reading.is_active)
    with psycopg.connect(items.dsn, autocommit=True) as writer:
        for number in range(100, 500):
            if number == 250:
                writer.execute("ALTER PUBLICATION mine ADD TABLE others")
            with writer.transaction():
                writer.execute("INSERT INTO others VALUES (%s, 0)", (number,))
                writer.execute("UPDATE others SET number = number + 1 WHERE id = %s", (number // 2,))
                writer.execute("UPDATE items SET text = %s WHERE id = 1", (str(number),))
            time.sleep(0.002)
    followed(reading, "items", "others")
    assert sum(change[0] == "truncate" for change in reading.everything()) == 2
    reading.stop()
