"""Partitioned datasets of Parquet: directories as Hive names them, read by other readers."""

from __future__ import annotations

import datetime
import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import millstream as ms
import pyarrow.dataset
import pyarrow.parquet
import pytest
from millstream.objects.partitioned import PartitionedDestination
from millstream.objects.store import Prefix
from object_places import Directory, Place

DAY = datetime.date(2026, 11, 28)
DEFAULT = "__HIVE_DEFAULT_PARTITION__"


def write(place: Place, rows: list[Any], state: Path, on_error: Any = "fail", **options: Any) -> None:
    flow = ms.Flow("rows")
    options = {"batch_age": None, "config": place.config, "partition_by": "country"} | options
    sink = ms.objects.write(place.url, "parquet", **options)
    flow.source("in", ms.testing.items(rows)).sink("out", sink, on_error=on_error)
    ms.run(flow, state=state)


def dataset(contents: dict[str, bytes]) -> dict[str, list[dict[str, Any]]]:
    """The rows of each directory, without the markers."""
    found: dict[str, list[dict[str, Any]]] = {}
    for name, content in contents.items():
        if not name.startswith("_millstream/"):
            table = pyarrow.parquet.read_table(io.BytesIO(content), partitioning=None)
            found.setdefault(name.rpartition("/")[0], []).extend(table.to_pylist())
    return found


VALUES = [
    ("plain", "plain"),
    ("a/b=c%d", "a%2Fb%3Dc%25d"),
    ("\"#':*?\\{[]^", "%22%23%27%3A%2A%3F%5C%7B%5B%5D%5E"),
    ("tab\tline\n\x7f\x01", "tab%09line%0A%7F%01"),
    ("Zürich 東京 }+&~", "Zürich 東京 }+&~"),
    (".", "."),
    ("..", ".."),
    (" ", " "),
    (None, DEFAULT),
    ("", DEFAULT),
    (7, "7"),
    (-1, "-1"),
    (True, "true"),
    (DAY, "2026-11-28"),
    (datetime.datetime(2026, 11, 28, 7, 5), "2026-11-28 07%3A05%3A00"),
]


def test_values_are_escaped_as_hive_does(tmp_path: Path, place: Place) -> None:
    rows = [{"country": value, "n": n} for n, (value, _) in enumerate(VALUES)]
    write(place, rows, tmp_path / "state")
    expected: dict[str, list[dict[str, Any]]] = {}
    for n, (_, text) in enumerate(VALUES):
        expected.setdefault(f"country={text}", []).append({"n": n})
    assert dataset(place.contents()) == expected


def test_other_readers_find_the_partitions(tmp_path: Path) -> None:
    """pyarrow.dataset, DuckDB and Polars read the directory, with the columns of the names."""
    import duckdb
    import polars

    place = Directory(tmp_path / "dataset")
    days = [DAY, DAY + datetime.timedelta(days=1)]
    names = ["DE", "a/b=50%", None]
    rows = [{"time": days[n % 2], "country": names[n % 3], "n": n} for n in range(60)]
    by = {"dt": lambda row: row["time"], "country": "country"}
    write(place, rows, tmp_path / "state", partition_by=by, batch=7)
    expected = sorted((str(row["time"]), str(row["country"]), row["n"]) for row in rows)

    def found(table: Any) -> list[tuple[str, str, int]]:
        found = [{key: row[key] for key in ("dt", "country", "n")} for row in table]
        return sorted((str(row["dt"]), str(row["country"]), row["n"]) for row in found)

    arrow = pyarrow.dataset.dataset(place.url, format="parquet", partitioning="hive")
    assert found(arrow.to_table().to_pylist()) == expected
    one = arrow.to_table(filter=pyarrow.dataset.field("country") == "a/b=50%")
    assert len(one) == 20
    query = f"SELECT * FROM read_parquet('{place.url}/**/*.parquet', hive_partitioning = true)"
    relation = duckdb.sql(query)
    columns = relation.columns
    assert found([dict(zip(columns, row, strict=True)) for row in relation.fetchall()]) == expected
    frame = polars.scan_parquet(f"{place.url}/**/*.parquet", hive_partitioning=True).collect()
    assert found(frame.to_dicts()) == expected


def test_objects_of_a_partition(tmp_path: Path, place: Place) -> None:
    """One object for each delivery and partition, named by its first row; one marker is left."""
    rows = [{"country": "ab"[n % 2], "n": n} for n in range(10)]
    write(place, rows, tmp_path / "state", batch=4)
    names = list(place.contents())
    outbox = names[-1].rpartition("/")[2].partition("-")[0]
    data = [name for name in names if not name.startswith("_")]
    assert data == [
        f"country={value}/{outbox}-{first:020}.parquet" for value in "ab" for first in first_of(value)
    ]
    marker = f"_millstream/{outbox}/{8:020}.json"
    assert [name for name in names if name.startswith("_")] == [marker]
    assert json.loads(place.contents()[marker])["last"] == 9
    back = ms.Flow("back")
    out = ms.testing.collect()
    back.source("in", ms.objects.read(place.url, "parquet", config=place.config)).sink("out", out)
    ms.run(back)
    assert sorted(row["n"] for row in out) == list(range(10))


def first_of(value: str) -> list[int]:
    return [0, 4, 8] if value == "a" else [1, 5, 9]


def test_schema_and_columns(tmp_path: Path) -> None:
    """The schema may have the columns by which rows are partitioned; objects do not."""
    place = Directory(tmp_path / "dataset")
    schema = pyarrow.schema([("country", "string"), ("n", "int32"), ("note", "string")])
    write(place, [{"country": "DE", "n": 1}], tmp_path / "state", schema=schema)
    (content,) = (content for name, content in place.contents().items() if name.endswith(".parquet"))
    found = pyarrow.parquet.read_table(io.BytesIO(content)).schema.remove_metadata()
    assert found == pyarrow.schema([("n", "int32"), ("note", "string")])


REFUSED: list[tuple[Any, str]] = [
    ({"n": 1}, 'has no column "country"'),
    ({"country": 1.5, "n": 1}, "not of float"),
    ({"country": b"DE", "n": 1}, "not of bytes"),
    ({"country": DEFAULT, "n": 1}, "rows without a value"),
    ({"country": "x" * 300, "n": 1}, "more than 255 bytes"),
    ({"country": "XX"}, "a row has no columns"),
    ({"country": "DE", "n": {1: 2}}, "no row of Parquet"),
    (["DE"], "a row is a mapping"),
]


@pytest.mark.parametrize(("row", "says"), REFUSED)
def test_rows_that_are_refused(tmp_path: Path, row: Any, says: str) -> None:
    """The row alone is skipped."""
    place = Directory(tmp_path / "dataset")
    rows = [{"country": "DE", "n": 0}, row, {"country": "FR", "n": 2}]
    with pytest.raises(ms.FlowError, match=says):
        write(place, rows, tmp_path / "fails")
    assert dataset(place.contents()) == {"country=DE": [{"n": 0}]}
    shutil.rmtree(place.url)
    write(place, rows, tmp_path / "state", on_error="skip")
    assert dataset(place.contents()) == {"country=DE": [{"n": 0}], "country=FR": [{"n": 2}]}


def test_a_function_of_the_row(tmp_path: Path) -> None:
    place = Directory(tmp_path / "dataset")
    by: dict[str, Callable[[Any], Any]] = {"half": lambda row: row["n"] // 2}
    write(place, [{"n": 1}, {"n": "x"}, {"n": 2}], tmp_path / "state", partition_by=by, on_error="skip")
    assert dataset(place.contents()) == {"half=0": [{"n": 1}], "half=1": [{"n": 2}]}
    with pytest.raises(ms.FlowError, match='column "half", which is the name of a partition'):
        write(place, [{"n": 1, "half": 3}], tmp_path / "other", partition_by=by)


def test_too_many_partitions(tmp_path: Path) -> None:
    place = Directory(tmp_path / "dataset")
    rows = [{"country": n, "n": n} for n in range(4)]
    with pytest.raises(ms.FlowError, match="rows of 4 partitions.*max_partitions, which is 3"):
        write(place, rows, tmp_path / "state", max_partitions=3, on_error="skip")
    assert not place.contents()
    write(place, rows, tmp_path / "state", max_partitions=4)
    assert len(dataset(place.contents())) == 4


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"format": "json_lines"}, 'partition_by is for "parquet"'),
        ({"partition_by": []}, "at least one"),
        ({"partition_by": ["a", "a"]}, "different partitions"),
        ({"partition_by": {"a": 1}}, "partition_by is"),
        ({"partition_by": [1]}, "partition_by is"),
        ({"max_partitions": 0}, "max_partitions is"),
    ],
)
def test_wrong_options(tmp_path: Path, options: dict[str, Any], says: str) -> None:
    given = {"format": "parquet", "partition_by": "a"} | options
    with pytest.raises(ms.FlowUsageError, match=says):
        ms.objects.write(tmp_path, **given)


class Ended(Exception):
    """As if the process had been killed."""


@pytest.mark.parametrize("batch", [2, 5, 9])
@pytest.mark.parametrize("ends_at", range(9))
def test_a_delivery_that_ends_in_its_middle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends_at: int, batch: int
) -> None:
    """Some partitions have their object and others not, or the marker is missing; what is repeated is divided
    in another way."""
    place = Directory(tmp_path / "dataset")
    rows = [{"country": "abc"[n % 3], "n": n} for n in range(9)]
    create = Prefix.create
    attempts = iter(range(100))

    def created(self: Prefix, name: str, content: bytes) -> bool:
        if (attempt := next(attempts)) == ends_at // 2 and ends_at % 2 == 0:
            raise Ended
        made = create(self, name, content)
        if attempt == ends_at // 2:
            raise Ended
        return made

    monkeypatch.setattr(Prefix, "create", created)
    if ends_at < 8:
        with pytest.raises(ms.FlowError):
            write(place, rows, tmp_path / "state", batch=9)
    before = place.contents()
    monkeypatch.setattr(Prefix, "create", create)
    write(place, rows, tmp_path / "state", batch=batch)
    whole = {f"country={value}": [{"n": n} for n in range(at, 9, 3)] for at, value in enumerate("abc")}
    assert dataset(place.contents()) == whole
    after = place.contents()
    assert all(after[name] == content for name, content in before.items() if not name.startswith("_"))


@pytest.mark.parametrize("ends_at", range(8))
def test_an_answer_that_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: Place, ends_at: int
) -> None:
    rows = [{"country": "abc"[n % 3], "n": n} for n in range(9)]
    create = Prefix.create
    attempts = iter(range(100))

    def created(self: Prefix, name: str, content: bytes) -> bool:
        if next(attempts) == ends_at // 2:
            if ends_at % 2:
                create(self, name, content)
            raise ConnectionError("no answer")
        return create(self, name, content)

    monkeypatch.setattr(Prefix, "create", created)
    write(place, rows, tmp_path / "state", batch=9, retry=ms.Backoff(first=0.01))
    whole = {f"country={value}": [{"n": n} for n in range(at, 9, 3)] for at, value in enumerate("abc")}
    assert dataset(place.contents()) == whole
    assert len([name for name in place.contents() if name.startswith("_")]) == 1


@pytest.mark.parametrize("others", ["x", "cx", "xyz", "xyzu"])
def test_another_copy_of_the_state_directory(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, others: str
) -> None:
    """It has written between two deliveries, into the same partitions and into another one."""
    write(place, [{"country": text, "n": 0} for text in "ab"], tmp_path / "state")
    shutil.copytree(tmp_path / "state", tmp_path / "copy")
    check = PartitionedDestination.write
    effects = [lambda: copy_writes()]

    def copy_writes() -> None:
        rows = [{"country": text, "n": number} for number, text in enumerate("ab" + others)]
        # In this process the copy is not stopped by the lock of the state directory.
        write(place, rows, tmp_path / "copy")

    def late(self: Any, batch: list[Any], first: int, last: int) -> None:
        if effects:
            effects.pop()()
        check(self, batch, first, last)

    monkeypatch.setattr(PartitionedDestination, "write", late)
    with pytest.raises(ms.FlowError, match=r"another (process|copy)"):
        write(place, [{"country": text, "n": 9} for text in "abcde"], tmp_path / "state")
    found = dataset(place.contents())
    assert not [row for rows in found.values() for row in rows if row["n"] == 9]


def test_a_marker_or_object_that_was_replaced(tmp_path: Path) -> None:
    place = Directory(tmp_path / "dataset")
    write(place, [{"country": "a", "n": 0}], tmp_path / "state")
    (marker,) = (name for name in place.contents() if name.startswith("_"))
    content = place.contents()[marker]
    place.put(marker, b"{}")
    rows = [{"country": "a", "n": n} for n in range(2)]
    with pytest.raises(ms.FlowError, match="does not tell the position of the outbox"):
        write(place, rows, tmp_path / "state")
    place.put(marker, content)
    (name,) = (name for name in place.contents() if name.endswith(".parquet"))
    out = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(pyarrow.table({"n": [1]}), out)
    place.put(name, bytes(out.getvalue()))
    with pytest.raises(ms.FlowError, match="does not tell the number of its last record"):
        write(place, rows, tmp_path / "state")
    place.remove(name)
    write(place, rows, tmp_path / "state")
    assert dataset(place.contents()) == {"country=a": [{"n": 1}]}
