"""Tables of Apache Iceberg: a catalog in SQLite, and a warehouse in a local directory."""

from __future__ import annotations

import datetime
import json
import os
import random
import shutil
import sqlite3
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import millstream as ms
import pyarrow
import pytest
from flow_traffic import KILLS, PATIENCE, Killed
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import CommitFailedException, ServiceUnavailableError
from pyiceberg.table import Table, Transaction
from test_object_kills import ENDLESS, SEED, command, finish

SCHEMA = pyarrow.schema([pyarrow.field("n", "int64", nullable=False), ("name", "string")])


class Warehouse:
    """A catalog with one table."""

    def __init__(self, folder: Path, schema: Any = SCHEMA) -> None:
        (folder / "warehouse").mkdir()
        # Writers of several processes wait for one another.
        self.database = folder / "catalog.db"
        uri = f"sqlite:///{self.database}?timeout=60"
        self.properties = {"type": "sql", "uri": uri, "warehouse": f"file://{folder}/warehouse"}
        catalog = load_catalog("default", **self.properties)
        catalog.create_namespace("shop")
        catalog.create_table("shop.rows", schema)

    def table(self) -> Table:
        return load_catalog("default", **self.properties).load_table("shop.rows")

    def rows(self) -> list[dict[str, Any]]:
        return self.table().scan().to_arrow().to_pylist()  # type: ignore[no-any-return]

    def numbers(self) -> list[int]:
        return sorted(row["n"] for row in self.rows())

    def snapshots(self) -> int:
        """How many snapshots the sink has committed: a short way to it, which costs little."""
        with closing(sqlite3.connect(self.database, timeout=60)) as db:
            ((location,),) = db.execute("SELECT metadata_location FROM iceberg_tables").fetchall()
        found = json.loads(Path(location.removeprefix("file://")).read_text())["snapshots"]
        return sum("millstream.outbox" in each["summary"] for each in found)

    def sink(self, **options: Any) -> Any:
        options = {"batch_age": None, "retry": ms.Backoff(first=0.01)} | options
        return ms.objects.iceberg("shop.rows", properties=self.properties, **options)


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    return Warehouse(tmp_path)


def write(warehouse: Warehouse, rows: list[Any], state: Path, on_error: Any = "fail", **options: Any) -> None:
    flow = ms.Flow("rows")
    flow.source("in", ms.testing.items(rows)).sink("out", warehouse.sink(**options), on_error=on_error)
    ms.run(flow, state=state)


def numbered(*numbers: int) -> list[dict[str, Any]]:
    return [{"n": n, "name": f"row {n}"} for n in numbers]


def test_rows_of_several_runs(warehouse: Warehouse, tmp_path: Path) -> None:
    """Each delivery is a snapshot, which tells the position."""
    write(warehouse, numbered(0, 1, 2), tmp_path / "state", batch=2)
    write(warehouse, numbered(0, 1, 2), tmp_path / "state", batch=2)
    write(warehouse, numbered(0, 1, 2, 3), tmp_path / "state", batch=2)
    assert sorted(warehouse.rows(), key=lambda row: row["n"]) == numbered(0, 1, 2, 3)
    summaries = [snapshot.summary for snapshot in warehouse.table().metadata.snapshots]
    assert [each["millstream.last"] for each in summaries if each is not None] == ["1", "2", "3"]
    assert len({each["millstream.outbox"] for each in summaries if each is not None}) == 1


def test_two_sinks_and_another_writer(warehouse: Warehouse, tmp_path: Path) -> None:
    """The position of an outbox is found below the snapshots of others."""
    write(warehouse, numbered(0), tmp_path / "one")
    write(warehouse, numbered(100), tmp_path / "two")
    warehouse.table().append(pyarrow.Table.from_pylist(numbered(1000), schema=SCHEMA))
    write(warehouse, numbered(0, 1), tmp_path / "one")
    write(warehouse, numbered(100, 101), tmp_path / "two")
    assert warehouse.numbers() == [0, 1, 100, 101, 1000]


def test_columns_that_are_added_while_it_runs(warehouse: Warehouse, tmp_path: Path) -> None:
    write(warehouse, numbered(0), tmp_path / "state")
    with warehouse.table().update_schema() as update:
        from pyiceberg.types import TimestampType

        update.add_column("placed", TimestampType())
    placed = datetime.datetime(2026, 11, 28, 7)
    write(warehouse, numbered(0) + [{"n": 1, "placed": placed}], tmp_path / "state")
    rows = sorted(warehouse.rows(), key=lambda row: row["n"])
    assert rows == [{"n": 0, "name": "row 0", "placed": None}, {"n": 1, "name": None, "placed": placed}]


REFUSED = [
    ({"n": 1, "other": 2}, "the schema has no column 'other'"),
    ({"n": "x", "name": "a"}, "no row of Parquet"),
    ({"n": None, "name": "a"}, 'the column "n" is required'),
    ({"name": "a"}, 'the column "n" is required'),
    ("text", "a row is a mapping"),
]


@pytest.mark.parametrize(("row", "says"), REFUSED)
def test_rows_that_are_refused(warehouse: Warehouse, tmp_path: Path, row: Any, says: str) -> None:
    with pytest.raises(ms.FlowError, match=says):
        write(warehouse, [row], tmp_path / "fails")
    rows = [*numbered(0), row, *numbered(2)]
    write(warehouse, rows, tmp_path / "state", on_error="skip")
    write(warehouse, [*rows, *numbered(3)], tmp_path / "state", on_error="skip")
    assert warehouse.numbers() == [0, 2, 3]


Commit = Callable[[Transaction], Any]


def on_commit(monkeypatch: pytest.MonkeyPatch, *effects: Callable[[Commit, Transaction], Any]) -> None:
    """Each effect stands in for one commit of the sink."""
    commit = Transaction.commit_transaction
    waiting = list(effects)

    def committed(self: Transaction) -> Any:
        return waiting.pop(0)(commit, self) if waiting else commit(self)

    monkeypatch.setattr(Transaction, "commit_transaction", committed)


def no_answer(commit: Commit, transaction: Transaction) -> None:
    commit(transaction)
    raise ServiceUnavailableError("no answer")


def unavailable(commit: Commit, transaction: Transaction) -> None:
    raise ServiceUnavailableError("try later")


def offline(commit: Commit, transaction: Transaction) -> None:
    raise ConnectionError("connection refused")


@pytest.mark.parametrize("effect", [no_answer, unavailable, offline])
def test_a_commit_without_an_answer(
    warehouse: Warehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, effect: Any
) -> None:
    on_commit(monkeypatch, effect, effect)
    write(warehouse, numbered(*range(6)), tmp_path / "state", batch=2)
    assert warehouse.numbers() == list(range(6))


def test_a_commit_that_another_writer_overtakes(
    warehouse: Warehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first snapshots are refused by the catalog itself, since another one was committed meanwhile."""
    others = []

    def overtaken(commit: Commit, transaction: Transaction) -> Any:
        number = 1000 + len(others)
        others.append(number)
        monkeypatch.undo()
        warehouse.table().append(pyarrow.Table.from_pylist(numbered(number), schema=SCHEMA))
        if len(others) < 3:
            on_commit(monkeypatch, overtaken)
        with pytest.raises(CommitFailedException) as failed:
            commit(transaction)
        raise failed.value

    on_commit(monkeypatch, overtaken)
    write(warehouse, numbered(0, 1), tmp_path / "state")
    assert warehouse.numbers() == [0, 1, 1000, 1001, 1002]
    assert len(others) == 3


def test_writers_at_the_same_time(warehouse: Warehouse, tmp_path: Path) -> None:
    def work(part: int) -> None:
        rows = numbered(*range(part * 100, part * 100 + 12))
        write(warehouse, rows, tmp_path / f"state {part}", batch=3)

    threads = [threading.Thread(target=work, args=[part]) for part in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert warehouse.numbers() == [part * 100 + n for part in range(3) for n in range(12)]


def test_another_copy_of_the_state_directory(
    warehouse: Warehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It commits while this one is about to: the snapshot of this one is not committed on top."""
    write(warehouse, numbered(0), tmp_path / "state")
    shutil.copytree(tmp_path / "state", tmp_path / "copy")

    def rival(commit: Commit, transaction: Transaction) -> Any:
        monkeypatch.undo()
        write(warehouse, numbered(0, 5), tmp_path / "copy")
        return commit(transaction)

    on_commit(monkeypatch, rival)
    with pytest.raises(ms.FlowError, match=r"another (process|copy)"):
        write(warehouse, numbered(0, 1), tmp_path / "state")
    assert warehouse.numbers() == [0, 5]


def test_a_table_that_is_missing(warehouse: Warehouse, tmp_path: Path) -> None:
    flow = ms.Flow("rows")
    sink = ms.objects.iceberg("shop.others", properties=warehouse.properties)
    flow.source("in", ms.testing.items(numbered(0))).sink("out", sink)
    with pytest.raises(ms.FlowError, match="shop.others: NoSuchTableError.*create the table first"):
        ms.run(flow, state=tmp_path / "state")
    with pytest.raises(ms.FlowUsageError, match="table is a name with its namespace"):
        ms.objects.iceberg("rows")


FLOW = """
import os
import millstream as ms

end = int(os.environ["END"])
flow = ms.Flow("numbers")
source = ms.generate(lambda: range(end), rate=400 if end > 1 << 40 else None, batch_size=50)
numbers = flow.source("in", source)
options = {"retry": ms.Backoff(first=0.02, most=0.2), "batch": 500, "batch_age": 0.2}
table = ms.objects.iceberg("shop.rows", properties=eval(os.environ["PROPERTIES"]), **options)
numbers.map(lambda n: {"n": n, "name": None}).sink("table", table)
numbers.sink("expected", ms.files.write(os.environ["EXPECTED"]))
"""


def test_killed_writers(warehouse: Warehouse, tmp_path: Path) -> None:
    """Another process appends at the same time."""
    print(f"seed {SEED}")
    environment = os.environ | {"PROPERTIES": repr(warehouse.properties), "END": str(ENDLESS)}
    environment |= {"EXPECTED": str(tmp_path / "expected")}
    write = command(tmp_path, "writer", FLOW)
    stopping = threading.Event()
    others = []

    def append() -> None:
        while not stopping.wait(0.3):
            number = -1 - len(others)
            try:
                warehouse.table().append(pyarrow.Table.from_pylist(numbered(number), schema=SCHEMA))
            except CommitFailedException:
                continue
            others.append(number)

    other = threading.Thread(target=append)
    other.start()
    killed = Killed(write, environment, warehouse.snapshots, random.Random(SEED))
    try:
        killed.kill(KILLS)
    finally:
        stopping.set()
        other.join()
    finish(write, environment | {"END": "1"})
    given = sorted(map(int, (tmp_path / "expected").read_text().splitlines()))
    assert given and given == list(range(len(given)))
    assert warehouse.numbers() == sorted(others) + given
    print(killed.figures(), len(given))


def test_writers_that_are_killed_at_once_after_a_commit(warehouse: Warehouse, tmp_path: Path) -> None:
    """The snapshot is there, and the flow does not know it yet."""
    environment = os.environ | {"PROPERTIES": repr(warehouse.properties), "END": str(ENDLESS)}
    environment |= {"EXPECTED": str(tmp_path / "expected")}
    write = command(tmp_path, "writer", FLOW)
    for _ in range(max(2, KILLS // 2)):
        before = warehouse.snapshots()
        running = subprocess.Popen(write, env=environment, stderr=subprocess.PIPE, text=True)
        until = time.monotonic() + PATIENCE
        while warehouse.snapshots() <= before:
            assert running.poll() is None, running.communicate()[1]
            assert time.monotonic() < until, "no snapshot is committed"
            time.sleep(0.005)
        running.kill()
        running.communicate()
    finish(write, environment | {"END": "1"})
    given = sorted(map(int, (tmp_path / "expected").read_text().splitlines()))
    assert warehouse.numbers() == given == list(range(len(given)))
