"""Rows that a flow writes to PostgreSQL, read by another connection."""

from __future__ import annotations

import datetime
import decimal
import logging
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import millstream as ms
import pytest
from postgres_server import Database, Server
from writing import deliver, fails

NEVER = ms.Backoff(first=0.01, tries=2)


@pytest.fixture
def orders(database: Database) -> Database:
    database.execute("CREATE TABLE orders (id int PRIMARY KEY, item text NOT NULL, count int DEFAULT 1)")
    return database


def test_rows_are_added_once(database: Database, tmp_path: Path) -> None:
    database.execute("CREATE TABLE numbers (number int, text text)")
    for first in (0, 100):
        rows = [(number, f"n{number}") for number in range(first, first + 100)]
        deliver(rows, ms.postgres.write(database.dsn, "numbers", batch=7), tmp_path / str(first))
    assert database.rows("SELECT * FROM numbers ORDER BY number") == [(n, f"n{n}") for n in range(200)]
    progress = database.rows("SELECT flow, sink, position FROM millstream_progress")
    assert progress == [("rows", "table", 99)] * 2


def test_a_row_replaces_that_of_its_key(orders: Database, tmp_path: Path) -> None:
    rows = [{"id": number % 3, "item": f"i{number}", "count": number} for number in range(10)]
    deliver(rows, ms.postgres.write(orders.dsn, "orders", key="id", batch=5), tmp_path)
    assert orders.rows("SELECT * FROM orders ORDER BY id") == [(0, "i9", 9), (1, "i7", 7), (2, "i8", 8)]


def test_an_item_deletes_the_row_of_its_key(orders: Database, tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"id": 1, "item": "a", "gone": False},
        {"id": 2, "item": "b", "gone": False},
    ]
    rows += [{"id": 1, "gone": True}, {"id": 3, "item": "c", "gone": False}, {"id": 3, "gone": True}]
    rows += [{"id": 2, "gone": True}, {"id": 2, "item": "again", "gone": False}]
    sink = ms.postgres.write(
        orders.dsn, "orders", columns=["id", "item"], key=["id"], delete=lambda row: row["gone"]
    )
    deliver(rows, sink, tmp_path)
    assert orders.rows("SELECT id, item FROM orders") == [(2, "again")]


def test_columns_that_are_not_written_have_their_defaults(orders: Database) -> None:
    sink = ms.postgres.write(orders.dsn, "public.orders", columns=["item", "id"])
    deliver([("a", 1), {"item": "b", "id": 2, "ignored": 3}], sink)
    assert orders.rows("SELECT id, item, count FROM orders ORDER BY id") == [(1, "a", 1), (2, "b", 1)]


def test_a_table_of_keys_alone(database: Database) -> None:
    database.execute("CREATE TABLE seen (a int, b int, PRIMARY KEY (a, b))")
    deliver([(1, 2), (1, 2), (2, 1)], ms.postgres.write(database.dsn, "seen", key=["a", "b"]))
    assert database.rows("SELECT a, b FROM seen ORDER BY a") == [(1, 2), (2, 1)]


def test_types(database: Database) -> None:
    database.execute(
        'CREATE TABLE "Odd, Table" (i bigint, t text, b bytea, d timestamptz, n numeric, f float8, '
        'o boolean, j jsonb, a int[], u uuid, z text, s serial, "q%s" text, '
        "g int GENERATED ALWAYS AS (1) STORED)"
    )
    when = datetime.datetime(2026, 11, 24, 12, 30, tzinfo=datetime.timezone.utc)
    row = (1 << 60, "tab\tline\n\\N", b"\0\xff", when, decimal.Decimal("1.50"), float("inf"), True)
    row += ({"a": [1, None]}, [1, 2], uuid.UUID(int=7), None, 5, "%")  # type: ignore[assignment]
    deliver([row], ms.postgres.write(database.dsn, "Odd, Table"))
    assert database.rows('SELECT * FROM "Odd, Table"') == [(*row, 1)]


WRONG: dict[str, tuple[Any, str]] = {
    "type": (
        {"id": "x1", "item": "a", "count": 1},
        'is refused: column "id": invalid input syntax for type int',
    ),
    "no value": ({"id": 5, "count": 1}, 'is refused: it has no value for column "item"'),
    "other column": ({"id": 5, "item": "a", "count": 1, "coutn": 2}, "'coutn', which is no column of the"),
    "null": ((5, None, 1), 'is refused: column "item": null value in column "item"'),
    "width": ((5, "a"), "is refused: it has 2 values for 3 columns"),
    "no row": ("text", "is refused: a row is a mapping, a tuple or a list, not str"),
    "zero byte": ((5, "a\0b", 1), "is refused: "),
    "object": ((5, object(), 1), "is refused: cannot adapt type 'object'"),
    "twice": (
        (2, "again", 1),
        'is refused: duplicate key value violates unique constraint "orders_pkey"; Key (id)=(2)',
    ),
    "range": ((1 << 40, "a", 1), 'is refused: column "id": value "1099511627776" is out of range'),
}


# With a key it is no error that a row has a key that exists.
CASES = [(wrong, False) for wrong in WRONG] + [(wrong, True) for wrong in WRONG if wrong != "twice"]


@pytest.mark.parametrize("policy", ["skip", "letters"])
@pytest.mark.parametrize(("wrong", "keyed"), CASES)
def test_a_refused_row_is_named(
    orders: Database, tmp_path: Path, wrong: str, keyed: bool, policy: str
) -> None:
    row, text = WRONG[wrong]
    good = [(number, "good", 1) for number in range(5)]
    options: dict[str, Any] = {"key": "id"} if keyed else {}
    failure = fails([*good[:4], row, good[4]], ms.postgres.write(orders.dsn, "orders", **options), tmp_path)
    assert 'table "public.orders": record 4' in failure and "127.0.0.1" in failure
    if not keyed:
        assert text in failure
    assert "secret" not in failure
    # What came before it may have been written with an earlier batch.
    assert orders.rows("SELECT * FROM orders ORDER BY id") in [good[:count] for count in range(5)]
    # The same row with the other policy: the others are written.
    sink = ms.postgres.write(orders.dsn, "orders", **options)
    letters: list[ms.DeadLetter] = []
    on_error = "skip" if policy == "skip" else ms.dead_letter(letters)
    deliver([*good[:4], row, good[4]], sink, tmp_path, on_error)
    assert orders.rows("SELECT * FROM orders ORDER BY id") == good
    if policy == "letters":
        [letter] = letters
        assert letter.position == "record 4" and repr(letter.item)[:10] == repr(row)[:10]


@pytest.mark.parametrize("value", [object(), "\ud800"])
def test_a_value_that_cannot_be_converted(database: Database, tmp_path: Path, value: object) -> None:
    database.execute("CREATE TABLE documents (id int, document jsonb, text text)")
    row = (1, {"a": 1 if isinstance(value, str) else value}, value if isinstance(value, str) else "")
    sink = ms.postgres.write(database.dsn, "documents")
    deliver([(0, {"a": 1}, "a"), row, (2, [None], "b")], sink, on_error="skip")
    assert database.rows("SELECT id FROM documents ORDER BY id") == [(0,), (2,)]
    failure = fails([row], ms.postgres.write(database.dsn, "documents"))
    assert "record 0 is refused: " in failure, failure


def test_a_skipped_row_is_in_the_log(orders: Database, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "millstream")
    deliver([(1, "a", "many")], ms.postgres.write(orders.dsn, "orders"), on_error="skip")
    assert (
        "record 0 is refused and skipped: PostgreSQL at" in caplog.text
        and ', table "public.orders": column "count": ' in caplog.text
        and "'many'" in caplog.text
    )


REFUSED: dict[str, tuple[Callable[[Database], ms.OutboxSink[Any]], str]] = {
    "password": (
        lambda it: ms.postgres.write(it.server.dsn(it.name, password="wrong"), "orders"),
        'password authentication failed for user "postgres"',
    ),
    "database": (
        lambda it: ms.postgres.write(it.server.dsn("nothing"), "orders"),
        'database "nothing" does not',
    ),
    "table": (lambda it: ms.postgres.write(it.dsn, "order"), 'there is no table "order"'),
    "schema": (lambda it: ms.postgres.write(it.dsn, "shop.orders"), 'there is no table "shop.orders"'),
    "column": (
        lambda it: ms.postgres.write(it.dsn, "orders", columns=["id", "itme"]),
        'table "public.orders" has no column "itme"; it has id, item, count',
    ),
    "key": (
        lambda it: ms.postgres.write(it.dsn, "orders", key="item"),
        "the key (item) needs a primary key or a",
    ),
    "rights": (
        lambda it: ms.postgres.write(it.dsn.replace("user=postgres", "user=guest"), "orders"),
        "the table public.millstream_progress cannot be created: permission denied for schema public. Create",
    ),
}


@pytest.mark.parametrize("refusal", REFUSED)
def test_what_cannot_work_is_an_error_at_once(orders: Database, tmp_path: Path, refusal: str) -> None:
    if refusal == "rights":
        orders.execute(
            "DO $$ BEGIN CREATE ROLE guest LOGIN PASSWORD 'secret'; "
            "EXCEPTION WHEN duplicate_object THEN END $$"
        )
        orders.execute("GRANT INSERT ON orders TO guest")
    make, text = REFUSED[refusal]
    failure = fails([(1, "a", 1)], make(orders), tmp_path)
    assert text in failure and "PostgreSQL at 127.0.0.1" in failure and "secret" not in failure, failure


def test_a_progress_table_is_made_as_the_message_says(orders: Database, tmp_path: Path) -> None:
    make, text = REFUSED["rights"]
    orders.execute(
        "DO $$ BEGIN CREATE ROLE guest LOGIN PASSWORD 'secret'; EXCEPTION WHEN duplicate_object THEN END $$"
    )
    orders.execute("GRANT INSERT ON orders TO guest")
    failure = fails([(1, "a", 1)], make(orders), tmp_path)
    statements = failure.partition("with a user that has the right: ")[2].split("; ")
    assert len(statements) == 2, failure
    for statement in statements:
        orders.execute(statement)  # type: ignore[arg-type]
    deliver([(1, "a", 1)], make(orders), tmp_path)
    assert orders.rows("SELECT * FROM orders") == [(1, "a", 1)]


def test_an_unreachable_server_is_retried(
    free_port: Callable[[], int], server: Server, tmp_path: Path
) -> None:
    sink = ms.postgres.write(server.dsn("postgres", port=free_port()), "orders", retry=NEVER)
    assert "ConnectionError: PostgreSQL at 127.0.0.1" in fails([(1,)], sink, tmp_path)


@pytest.mark.parametrize(
    "options",
    [
        {"delete": len},
        {"key": []},
        {"columns": ["a", "a"]},
        {"timeout": 0},
        {"dsn": "no dsn"},
        {"table": ""},
    ],
)
def test_wrong_options(options: dict[str, Any]) -> None:
    given: dict[str, Any] = {"dsn": "host=db", "table": "orders"} | options
    with pytest.raises(ms.FlowUsageError):
        ms.postgres.write(**given)
