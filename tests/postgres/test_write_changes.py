"""What changes of another table need of the sink: columns that stay as they are, tables that are emptied."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import millstream as ms
import pytest
from postgres_server import Database, Server
from writing import deliver, fails

SAME = ms.postgres.UNCHANGED
Row = dict[str, Any]


def sink(database: Database, **options: Any) -> ms.OutboxSink[Any]:
    given: dict[str, Any] = {"key": "id", "columns": ["id", "text", "more"]} | options
    return ms.postgres.write(
        database.dsn,
        "items",
        delete=lambda row: "gone" in row,
        truncate=lambda row: "empty" in row,
        **given,
    )


@pytest.fixture
def items(database: Database) -> Database:
    database.execute("CREATE TABLE items (id int PRIMARY KEY, text text NOT NULL, more jsonb)")
    database.execute("INSERT INTO items VALUES (1, 'one', '1'), (2, 'two', '2')")
    return database


def rows(database: Database) -> list[tuple[Any, ...]]:
    return database.rows("SELECT id, text, more FROM items ORDER BY id")


@pytest.mark.parametrize("batch", [1, 2, 100])
def test_an_unchanged_value_leaves_the_column_as_it_is(items: Database, tmp_path: Path, batch: int) -> None:
    changes: list[Row] = [
        {"id": 1, "text": SAME, "more": {"n": 1}},
        {"id": 2, "text": "zwei", "more": SAME},
        {"id": 3, "text": "three", "more": [3]},
        {"id": 3, "text": SAME, "more": SAME},
        {"id": 3, "text": "drei", "more": SAME},
        {"id": 1, "text": SAME, "more": SAME},
        {"id": 2, "gone": True},
        {"id": 2, "text": "again", "more": None},
        {"id": 2, "text": SAME, "more": 5},
    ]
    deliver(changes, sink(items, batch=batch), tmp_path)
    assert rows(items) == [(1, "one", {"n": 1}), (2, "again", 5), (3, "drei", [3])]


def test_random_changes_against_a_model(items: Database, tmp_path: Path) -> None:
    seed = random.randrange(1 << 31)
    print(f"seed {seed}")
    chance = random.Random(seed)
    model: dict[int, tuple[Any, Any]] = {1: ("one", 1), 2: ("two", 2)}
    changes: list[Row] = []
    for number in range(400):
        key = chance.randrange(6)
        if chance.random() < 0.02:
            model.clear()
            changes.append({"empty": True})
        elif chance.random() < 0.2:
            model.pop(key, None)
            changes.append({"id": key, "gone": True})
        else:
            values: list[Any] = [f"t{number}", number]
            if key in model:
                values = [SAME if chance.random() < 0.5 else value for value in values]
            changes.append({"id": key, "text": values[0], "more": values[1]})
            before = model.get(key, (None, None))
            kept = [old if new is SAME else new for old, new in zip(before, values, strict=True)]
            model[key] = (kept[0], kept[1])
    deliver(changes, sink(items, batch=chance.choice([1, 3, 20, 1000])), tmp_path)
    assert rows(items) == [(key, *values) for key, values in sorted(model.items())]


@pytest.mark.parametrize(
    "before", [[], [{"id": 7, "text": "seven", "more": 7}, {"id": 7, "gone": True}], [{"empty": True}]]
)
def test_an_unchanged_value_of_a_row_that_is_not_there(
    items: Database, tmp_path: Path, before: list[Row]
) -> None:
    changes = [*before, {"id": 7, "text": "new", "more": SAME}, {"id": 3, "text": "good", "more": None}]
    failure = fails(changes, sink(items), tmp_path / "fails")
    assert f"record {len(before)} is refused: column" in failure, failure
    assert 'column "more" is UNCHANGED, and the table has no row with this key' in failure
    assert rows(items) == [(1, "one", 1), (2, "two", 2)]
    deliver(changes, sink(items), tmp_path / "skips", "skip")
    assert rows(items)[-1] == (3, "good", None)
    assert not items.rows("SELECT 1 FROM items WHERE id = 7")


@pytest.mark.parametrize(
    ("options", "text"), [({"key": None}, "rows are added"), ({}, 'column "id" of the key')]
)
def test_an_unchanged_value_needs_a_key(items: Database, options: dict[str, Any], text: str) -> None:
    row = (SAME, "a", 1) if not options else (9, "a", SAME)
    failure = fails([row], ms.postgres.write(items.dsn, "items", **{"key": "id", **options}))
    assert "UNCHANGED" in failure and text in failure, failure


def test_rows_before_a_truncation_are_removed(items: Database, tmp_path: Path) -> None:
    changes: list[Row] = [
        {"id": 5, "text": "five", "more": 1},
        {"empty": True},
        {"id": 6, "text": "six", "more": 1},
        {"empty": True},
        {"id": 1, "text": "new", "more": 1},
    ]
    deliver(changes, sink(items), tmp_path)
    assert rows(items) == [(1, "new", 1)]
    # Also where a row is refused; and alone.
    deliver([*changes, {"id": 2, "text": None, "more": 1}], sink(items), tmp_path / "more", "skip")
    assert rows(items) == [(1, "new", 1)]
    deliver([{"empty": True}], sink(items), tmp_path / "last")
    assert rows(items) == []


@pytest.fixture
def tree(database: Database) -> Database:
    """A table whose foreign key is checked at the end of a transaction."""
    database.execute(
        "CREATE TABLE tree (id int PRIMARY KEY, parent int REFERENCES tree DEFERRABLE INITIALLY DEFERRED)"
    )
    return database


@pytest.mark.parametrize("key", [None, "id"])
def test_a_deferred_constraint_obeys_on_error(tree: Database, tmp_path: Path, key: str | None) -> None:
    # 1 and 3 need rows that come later; 2 and 5 need one that never comes, and 6 needs 5.
    nodes = [(1, 4), (2, 99), (3, 1), (4, None), (5, 98), (6, 5), (7, 7)]
    failure = fails(nodes, ms.postgres.write(tree.dsn, "tree", key=key), tmp_path / "fails")
    assert 'table "public.tree": record 1' in failure and "(99) is not present" in failure, failure
    assert tree.rows("SELECT * FROM tree") == []
    skipping = ms.postgres.write(tree.dsn, "tree", key=key)
    report = deliver(nodes, skipping, tmp_path / "skips", "skip")
    assert tree.rows("SELECT id FROM tree ORDER BY id") == [(1,), (3,), (4,), (7,)]
    assert (report.outboxes[0]["refused_records"], report.outboxes[0]["delivered_records"]) == (3, 4)


def test_a_later_row_of_a_key_is_not_replaced_by_a_late_one(tree: Database, tmp_path: Path) -> None:
    nodes = [(1, 4), (1, None), (2, 99), (4, None), (4, 1)]
    deliver(nodes, ms.postgres.write(tree.dsn, "tree", key="id"), tmp_path, "skip")
    assert tree.rows("SELECT * FROM tree ORDER BY id") == [(1, None), (4, 1)]


def test_a_constraint_trigger_obeys_on_error(database: Database, tmp_path: Path) -> None:
    database.execute("CREATE TABLE numbers (number int)")
    database.execute(
        "CREATE FUNCTION check_it() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN IF NEW.number = 3 THEN RAISE 'not three'; END IF; RETURN NULL; END $$"
    )
    database.execute(
        "CREATE CONSTRAINT TRIGGER odd AFTER INSERT ON numbers DEFERRABLE INITIALLY DEFERRED "
        "FOR EACH ROW EXECUTE FUNCTION check_it()"
    )
    deliver([(n,) for n in range(6)], ms.postgres.write(database.dsn, "numbers"), tmp_path, "skip")
    assert database.rows("SELECT number FROM numbers ORDER BY number") == [(0,), (1,), (2,), (4,), (5,)]


def test_intervals_keep_their_months(database: Database, tmp_path: Path) -> None:
    """From table to table: the copy equals the original, as text."""
    database.execute("CREATE TABLE items (id int PRIMARY KEY, length interval, lengths interval[])")
    database.execute("CREATE TABLE copies (LIKE items INCLUDING ALL)")
    texts = [
        "1 mon",
        "-1 year -2 mons +3 days 04:05:06.5",
        "3 days 04:05:06",
        "30 days",
        "13 mons",
        "00:00:01.5",
    ]
    for number, text in enumerate(texts):
        database.execute("INSERT INTO items VALUES (%s, %s, ARRAY[%s]::interval[])", number, text, text)
    flow = ms.Flow("copy")
    source = ms.postgres.changes(database.dsn, database.name, tables="items")
    changes = flow.source("items", source).filter(lambda change: change.kind == "snapshot")
    changes.map(lambda change: change.new).sink("copies", ms.postgres.write(database.dsn, "copies"))
    query = "SELECT id, length::text, lengths::text FROM {} ORDER BY id"
    expected = database.rows(query.format("items"))  # type: ignore[arg-type]
    with flow.start(state=tmp_path / "state", epoch=0.05) as running:
        for _ in range(600):
            found = database.rows(query.format("copies"))  # type: ignore[arg-type]
            if found == expected:
                break
            with pytest.raises(TimeoutError):
                running.wait(timeout=0.1)
    assert found == expected


@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1"])
def test_databases_of_other_encodings(server: Server, tmp_path: Path, encoding: str) -> None:
    database = server.create_database(encoding)
    database.execute('CREATE TABLE "\u00e9t\u00e9" (id int PRIMARY KEY, "\u00fc" text)')
    # As a user connects, whose client has the encoding of the database by default.
    dsn = server.dsn(database.name)
    for key in (None, "id"):
        sink = ms.postgres.write(dsn, "\u00e9t\u00e9", key=key)
        deliver([{"id": 1 if key else 2, "\u00fc": "caf\u00e9"}], sink, tmp_path / str(key))
    assert database.rows('SELECT "\u00fc" FROM "\u00e9t\u00e9"') == [("caf\u00e9",)] * 2
    database.drop()
