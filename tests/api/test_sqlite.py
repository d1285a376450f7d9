"""Rows that a flow writes to SQLite, read by another connection."""

from __future__ import annotations

import datetime
import decimal
import logging
import random
import sqlite3
from pathlib import Path
from typing import Any

import millstream as ms
import pytest

SAME = ms.postgres.UNCHANGED
NEVER = ms.Backoff(first=0.01, tries=2)


def execute(path: Path, *statements: str) -> list[Any]:
    """Executes statements; returns the rows of the last one."""
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        return [connection.execute(statement).fetchall() for statement in statements][-1]
    finally:
        connection.close()


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    path = tmp_path / "shop.db"
    execute(
        path,
        "CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT NOT NULL, count INTEGER CHECK (count < 100))",
    )
    return path


def deliver(
    items: list[Any], sink: ms.OutboxSink[Any], state: Path | None = None, on_error: Any = "fail"
) -> None:
    flow = ms.Flow("rows")
    flow.source("in", ms.testing.items(items)).sink("table", sink, on_error=on_error)
    ms.run(flow, state=state, epoch=0.02, sync=False) if state else ms.run(flow)


def fails(items: list[Any], sink: ms.OutboxSink[Any], state: Path | None = None) -> str:
    with pytest.raises(ms.FlowError) as caught:
        deliver(items, sink, state)
    return str(caught.value)


def test_rows_are_added_once(shop: Path, tmp_path: Path) -> None:
    for first in (0, 50):
        rows = [(number, f"n{number}", 1) for number in range(first, first + 50)]
        deliver(rows, ms.sqlite.write(shop, "orders", batch=7), tmp_path / str(first))
    assert execute(shop, "SELECT id, item FROM orders ORDER BY id") == [(n, f"n{n}") for n in range(100)]
    progress = execute(shop, "SELECT flow, sink, position FROM millstream_progress")
    assert progress == [("rows", "table", 49)] * 2


def test_random_changes_against_a_model(shop: Path, tmp_path: Path) -> None:
    seed = random.randrange(1 << 31)
    print(f"seed {seed}")
    chance = random.Random(seed)
    model: dict[int, list[Any]] = {}
    changes: list[dict[str, Any]] = []
    for number in range(500):
        key = chance.randrange(6)
        if chance.random() < 0.02:
            model.clear()
            changes.append({"empty": True})
        elif chance.random() < 0.2:
            model.pop(key, None)
            changes.append({"id": key, "gone": True})
        else:
            values: list[Any] = [f"t{number}", number % 100]
            if key in model:
                values = [SAME if chance.random() < 0.5 else value for value in values]
            changes.append({"id": key, "item": values[0], "count": values[1]})
            before = model.get(key, [None, None])
            model[key] = [old if new is SAME else new for old, new in zip(before, values, strict=True)]
    sink = ms.sqlite.write(
        shop,
        "orders",
        columns=["id", "item", "count"],
        key="id",
        delete=lambda row: "gone" in row,
        truncate=lambda row: "empty" in row,
        batch=chance.choice([1, 3, 20, 1000]),
    )
    deliver(changes, sink, tmp_path / "state")
    assert execute(shop, "SELECT * FROM orders ORDER BY id") == [(k, *v) for k, v in sorted(model.items())]


def test_values(tmp_path: Path) -> None:
    path = tmp_path / "odd.db"
    execute(path, 'CREATE TABLE "odd ""table" (a, "b c", d, e, f, g AS (a + 1))')
    when = datetime.datetime(2026, 11, 24, 12, 30, tzinfo=datetime.timezone.utc)
    deliver(
        [
            (1 << 62, "tab\t\0", b"\0\xff", when, None),
            (0, 1.5, decimal.Decimal("1.50"), {"a": ["\u00e9"]}, True),
        ],
        ms.sqlite.write(path, 'odd "table'),
    )
    assert execute(path, 'SELECT a, "b c", d, e, f FROM "odd ""table"') == [
        (1 << 62, "tab\t\0", b"\0\xff", "2026-11-24T12:30:00+00:00", None),
        (0, 1.5, "1.50", '{"a": ["\u00e9"]}', 1),
    ]


WRONG: dict[str, tuple[Any, str]] = {
    "type": (("x", "a", 1), "datatype mismatch"),
    "null": ((5, None, 1), "NOT NULL constraint failed: orders.item"),
    "check": ((5, "a", 100), "CHECK constraint failed"),
    "width": ((5, "a"), "it has 2 values for 3 columns"),
    "no row": ("text", "a row is a mapping, a tuple or a list, not str"),
    "object": ((5, object(), 1), ""),
    "number": ((1 << 64, "a", 1), "OverflowError"),
    "surrogate": ((5, "\ud800", 1), "UnicodeEncodeError"),
    "not a number": ((5, [float("nan")], 1), "ValueError"),
    "missing": (((7, "a", SAME)), 'column "count" is UNCHANGED'),
}


@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("wrong", WRONG)
def test_a_refused_row_is_named(
    shop: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, wrong: str, keyed: bool
) -> None:
    row, text = WRONG[wrong]
    good = [(number, "good", 1) for number in range(5)]
    key: Any = "id" if keyed else None
    failure = fails([*good[:4], row, good[4]], ms.sqlite.write(shop, "orders", key=key), tmp_path / "fails")
    assert f'{shop}, table "orders": record 4 is refused: ' in failure and text in failure, failure
    # An earlier batch may have been delivered.
    found = execute(shop, "SELECT * FROM orders")
    assert found == good[: len(found)] and len(found) <= 4
    execute(shop, "DELETE FROM orders")
    caplog.set_level(logging.WARNING, "millstream")
    skipping = ms.sqlite.write(shop, "orders", key=key)
    deliver([*good[:4], row, good[4]], skipping, tmp_path / "skips", "skip")
    assert execute(shop, "SELECT * FROM orders ORDER BY id") == good
    assert "record 4 is refused and skipped" in caplog.text


def test_what_cannot_work_is_an_error(shop: Path, tmp_path: Path) -> None:
    row = [(1, "a", 1)]
    assert "does not exist: create the database" in fails(
        row, ms.sqlite.write(tmp_path / "none.db", "orders")
    )
    assert not (tmp_path / "none.db").exists()
    assert 'there is no table "order"' in fails(row, ms.sqlite.write(shop, "order"))
    wrong = ms.sqlite.write(shop, "orders", columns=["id", "itme"])
    assert 'column "itme" cannot be written; it has id, item, count' in fails(row, wrong)
    assert "ON CONFLICT clause does not match" in fails(row, ms.sqlite.write(shop, "orders", key="item"))
    (tmp_path / "text").write_text("no database" * 100)
    assert "file is not a database" in fails(row, ms.sqlite.write(tmp_path / "text", "orders"))


@pytest.mark.parametrize(
    "options",
    [{"delete": len}, {"key": []}, {"timeout": 0}, {"truncate": 1}, {"table": ""}],
)
def test_wrong_options(options: dict[str, Any]) -> None:
    with pytest.raises(ms.FlowUsageError):
        ms.sqlite.write(**({"path": "shop.db", "table": "orders"} | options))


def test_a_lock_is_waited_for(shop: Path, tmp_path: Path) -> None:
    other = sqlite3.connect(shop, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    flow = ms.Flow("rows")
    sink = ms.sqlite.write(shop, "orders", timeout=0.01, retry=ms.Backoff(first=0.01, most=0.02))
    flow.source("in", ms.testing.items([(1, "a", 1)])).sink("table", sink)
    with flow.start(state=tmp_path / "state", epoch=0.02) as running:
        with pytest.raises(TimeoutError):
            running.wait(timeout=0.5)
        other.execute("COMMIT")
        running.wait(timeout=60)
    assert execute(shop, "SELECT * FROM orders") == [(1, "a", 1)]
    other.execute("BEGIN IMMEDIATE")
    failure = fails([(2, "b", 1)], ms.sqlite.write(shop, "orders", timeout=0.01, retry=NEVER), tmp_path / "b")
    assert "database is locked" in failure
    other.close()


def test_a_copy_of_the_state_directory_is_noticed(shop: Path, tmp_path: Path) -> None:
    from millstream._connectors.table_sink import TableOptions
    from millstream.sqlite.table import SqliteTable

    options = TableOptions(str(shop), "orders", None, (), None, None, 10)
    late = SqliteTable(options)
    other = SqliteTable(options)
    outbox = ms.OutboxIdentity("rows", "table", "0f" * 16)
    for made in (late, other):
        made.connect(outbox)
        assert made.position() is None
    other.write([(1, "other", 1)], 0, 0)
    with pytest.raises(ms.FlowError, match="another process delivers the same outbox"):
        late.write([(2, "late", 1)], 0, 0)
    assert late.position() == 0
    late.write([(3, "late", 1)], 1, 1)
    assert execute(shop, "SELECT id FROM orders ORDER BY id") == [(1,), (3,)]
    for made in (late, other):
        made.close()
