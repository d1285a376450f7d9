"""Rows that Python cannot decode: the `on_error` of the source handles them, and the others flow on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from postgres_server import Database, Server
from reading import Reading

DIGITS = "9" * 5000
NESTED = "[" * 3000 + "]" * 3000
WRONG = {2: ("document", DIGITS), 3: ("document", NESTED), 4: ("documents", f"{{{DIGITS}}}")}
"""By key, rows that are not decoded: column and value, as the server sends it."""
ODD = {
    10: ("day", "infinity", "infinity"),
    11: ("day", "0044-03-15 BC", "0044-03-15 BC"),
    12: ("moment", "-infinity", "-infinity"),
    13: ("moment", "294276-12-31 23:59:59+00", "294276-12-31 23:59:59+00"),
    14: ("clock", "24:00:00", "24:00:00"),
    15: ("days", "[-infinity,infinity]", "[-infinity,infinity]"),
    16: ("number", "NaN", "NaN"),
}
"""By key, rows with values that Python does not have, which are text."""


@pytest.fixture
def items(database: Database) -> Database:
    database.execute(
        "CREATE TABLE items (id int PRIMARY KEY, document jsonb, documents json[], day date, "
        "moment timestamptz, clock time, days daterange, number numeric)"
    )
    return database


def insert(database: Database, more: int = 0) -> None:
    """Inserts a good row, wrong and odd ones, and a good one; ``more`` is added to their keys."""
    database.execute("INSERT INTO items (id) VALUES (%s)", more + 1)
    for key, (column, text) in WRONG.items():
        database.execute(f"INSERT INTO items (id, {column}) VALUES (%s, %s)", more + key, text)  # type: ignore[arg-type]
    for key, (column, text, _) in ODD.items():
        database.execute(f"INSERT INTO items (id, {column}) VALUES (%s, %s)", more + key, text)  # type: ignore[arg-type]
    database.execute("INSERT INTO items (id) VALUES (%s)", more + 20)


def check(changes: list[Any], more: int = 0) -> None:
    rows = {change[2]["id"]: change[4] for change in changes if change[2] is not None}
    assert set(rows) == {more + 1, *(more + key for key in ODD), more + 20}
    for key, (column, _, value) in ODD.items():
        assert rows[more + key][column] == value


def test_rows_that_are_not_decoded_are_skipped(items: Database, tmp_path: Path) -> None:
    reading = Reading(tmp_path, items)
    reading.on_error = "skip"
    insert(items)
    reading.start()
    reading.wait(lambda: any(change[2] == {"id": 20} for change in reading.changes()))
    before = len(reading.changes())
    check(reading.changes())
    insert(items, 100)
    reading.wait(lambda: any(change[2] == {"id": 120} for change in reading.changes()))
    check(reading.changes()[before:], 100)
    errors = reading.stop()
    assert 'column "document" of a row of public.items' in errors, errors


def test_dead_letters_have_what_the_server_sent(items: Database, tmp_path: Path) -> None:
    reading = Reading(tmp_path, items)
    reading.on_error = "dead"
    insert(items)
    reading.start()
    reading.wait(lambda: any(change[2] == {"id": 20} for change in reading.changes()))
    insert(items, 100)
    items.execute("UPDATE items SET day = '2026-01-01' WHERE id = 2")
    items.execute("DELETE FROM items WHERE id IN (2, 3)")
    reading.wait(lambda: len(reading.dead()) >= 7)
    # The delete has nothing but the key.
    reading.wait(lambda: [change[2] for change in reading.changes() if change[0] == "delete"])
    reading.stop()
    dead = reading.dead()
    expected = [("snapshot", key, *WRONG[key]) for key in WRONG]
    expected += [("insert", key + 100, *WRONG[key]) for key in WRONG] + [("update", 2, *WRONG[2])]
    assert len(dead) == len(expected)
    for letter, (kind, key, column, text) in zip(dead, expected, strict=True):
        step, found, kind_found, table, old, new, lsn, error, position = letter
        assert (step, found, kind_found, table, old) == ("changes", {"id": key}, kind, "public.items", None)
        assert new["id"] == repr(str(key).encode())
        assert new[column] == repr(text.encode())
        assert position == f"public.items at {lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"
        assert f'column "{column}" of a row of {position}' in error
    assert dead[-1][5]["day"] == repr(b"2026-01-01")
    assert [letter[6] for letter in dead] == sorted(letter[6] for letter in dead)


def test_the_flow_fails_at_such_a_row_until_the_policy_is_another(items: Database, tmp_path: Path) -> None:
    reading = Reading(tmp_path, items)
    reading.start()
    reading.wait(reading.is_active)
    items.execute("INSERT INTO items (id) VALUES (1)")
    reading.wait(lambda: any(change[2] == {"id": 1} for change in reading.changes()))
    reading.stop()
    items.execute("INSERT INTO items (id, document) VALUES (2, %s)", DIGITS)
    items.execute("INSERT INTO items (id) VALUES (3)")
    for _ in range(2):
        failure = reading.failure()
        assert 'column "document" of a row of public.items at 0/' in failure, failure
        assert "Exceeds the limit (4300 digits)" in failure and "{'id': 2}" in failure, failure
        assert "on_error= of the source can skip such rows or keep them as dead letters" in failure
    reading.on_error = "skip"
    reading.start()
    reading.wait(lambda: any(change[2] == {"id": 3} for change in reading.changes()))
    reading.stop()
    assert [change[2] for change in reading.changes() if change[2]] == [{"id": 1}, {"id": 3}]


def test_old_rows_that_are_not_decoded(items: Database, tmp_path: Path) -> None:
    items.execute("ALTER TABLE items REPLICA IDENTITY FULL")
    reading = Reading(tmp_path, items)
    reading.on_error = "dead"
    reading.start()
    reading.wait(reading.is_active)
    items.execute("INSERT INTO items (id, document) VALUES (1, %s)", DIGITS)
    items.execute("UPDATE items SET document = '1'")
    items.execute("UPDATE items SET document = '2'")
    reading.wait(lambda: any(change[0] == "update" for change in reading.changes()))
    reading.stop()
    (change,) = [change for change in reading.changes() if change[0] == "update"]
    assert (change[3]["document"], change[4]["document"]) == (1, 2)
    first, second = reading.dead()
    assert (first[2], second[2]) == ("insert", "update")
    assert first[5]["document"] == second[4]["document"] == repr(DIGITS.encode())
    assert second[5]["document"] == repr(b"1")


@pytest.fixture(params=["SQL_ASCII", "WIN1252"])
def encoded(server: Server, request: pytest.FixtureRequest) -> Iterator[Database]:
    """A database that takes bytes for text which are no text in its encoding."""
    database = server.create_database(request.param)
    yield database
    database.drop()


def test_bytes_that_are_no_text(encoded: Database, tmp_path: Path) -> None:
    encoding = encoded.encoding
    codec, byte = ("utf-8", b"\xe9") if encoding == "SQL_ASCII" else ("cp1252", b"\x81")

    def execute(statement: str) -> None:
        with psycopg.connect(encoded.dsn, autocommit=True) as connection:
            connection.pgconn.exec_(f"SET client_encoding TO '{encoding}'".encode())
            found = connection.pgconn.exec_(statement.encode("latin-1"))
            assert not found.error_message, found.error_message

    good = "\u00e9t\u00e9".encode(codec).decode("latin-1")
    bad = byte.decode("latin-1")
    execute(f'CREATE TABLE items (id int PRIMARY KEY, "{good}" text)')
    for number, text in enumerate((good, bad, "last"), 1):
        execute(f"INSERT INTO items VALUES ({number}, 'a{text}')")
    reading = Reading(tmp_path, encoded)
    reading.on_error = "dead"
    reading.start()
    reading.wait(lambda: any(change[2] == {"id": 3} for change in reading.changes()))
    for number, text in enumerate((good, bad, "last"), 11):
        execute(f"INSERT INTO items VALUES ({number}, 'a{text}')")
    reading.wait(lambda: any(change[2] == {"id": 13} for change in reading.changes()))
    reading.stop()
    rows = [change[4] for change in reading.changes() if change[4]]
    assert rows == [
        {"id": number, "\u00e9t\u00e9": text}
        for number, text in [(1, "a\u00e9t\u00e9"), (3, "alast"), (11, "a\u00e9t\u00e9"), (13, "alast")]
    ]
    assert [letter[5]["\u00e9t\u00e9"] for letter in reading.dead()] == [repr(b"a" + byte)] * 2
    assert [letter[1] for letter in reading.dead()] == [{"id": 2}, {"id": 12}]
