"""``ms.objects.write``: what objects contain, when they end, and what is refused."""

from __future__ import annotations

import datetime
import decimal
import shutil
import sys
from pathlib import Path
from typing import Any

import millstream as ms
import pyarrow
import pytest
from object_places import Directory, InBucket, Place, items_of
from s3_server import Bucket

ITEMS: dict[str, list[Any]] = {
    "parquet": [{"number": n, "text": None if n % 3 else f"ü{n}"} for n in range(1000)],
    "json_lines": [{"number": n, "list": [n, None, "ü\n"]} for n in range(1000)],
    "lines": [f"line {n} ü" for n in range(1000)],
}


@ms.source(resume=True)
def numbered(items: list[Any], resume: int | None = None) -> Any:
    for number in range(resume or 0, len(items)):
        yield ms.At(number + 1, items[number])


def write(
    place: Place, format: Any, items: list[Any], state: Path | None = None, **options: Any
) -> ms.Report:
    flow = ms.Flow("numbers")
    sink = ms.objects.write(place.url, format, config=place.config, **options)
    flow.source("in", numbered(items)).sink("out", sink)
    return ms.run(flow, state=state)


@pytest.mark.parametrize("format", ITEMS)
def test_each_item_is_in_an_object_once(place: Place, tmp_path: Path, format: str) -> None:
    items = ITEMS[format]
    report = write(place, format, items, tmp_path / "state", batch=300)
    contents = place.contents()
    assert items_of(contents) == items
    assert report.outboxes[0]["deliveries"] == len(contents) == 4
    ending = {"parquet": "parquet", "json_lines": "jsonl", "lines": "txt"}[format]
    identity = next(iter(contents)).partition("/")[0]
    assert len(identity) == 32
    assert list(contents) == [f"{identity}/{n:020}.{ending}" for n in (0, 300, 600, 900)]
    # Nothing is new at the next start.
    write(place, format, items, tmp_path / "state", batch=300)
    assert place.contents() == contents
    write(place, format, items + items[:50], tmp_path / "state", batch=300)
    assert items_of(place.contents()) == items + items[:50]
    assert place.contents().items() >= contents.items()


@pytest.mark.parametrize(("compression", "ending"), [("gzip", ".gz"), ("zstd", ".zst"), (None, "")])
@pytest.mark.parametrize("format", ["json_lines", "lines"])
def test_compressed_objects(
    place: Place, tmp_path: Path, format: str, compression: str | None, ending: str
) -> None:
    options: dict[str, Any] = {"batch": 300, "compression": compression}
    items = ITEMS[format]
    for count in (500, 1000):
        write(place, format, items[:count], tmp_path / "state", **options)
    contents = place.contents()
    assert items_of(contents) == items
    firsts = (0, 300, 500, 800)
    kind = {"json_lines": "jsonl", "lines": "txt"}[format]
    assert [name.partition("/")[2] for name in contents] == [f"{n:020}.{kind}{ending}" for n in firsts]
    out = ms.testing.collect()
    flow = ms.Flow("copy")
    flow.source("in", ms.objects.read(place.url, format, config=place.config)).sink("out", out)
    ms.run(flow)
    assert out == items


def test_a_run_may_write_another_format(place: Place, tmp_path: Path) -> None:
    """The position is in the last object, which has the format of the run before."""
    runs: list[tuple[Any, str | None]] = [("parquet", "zstd"), ("lines", "gzip"), ("json_lines", None)]
    written: list[str] = []
    for number, (format, compression) in enumerate([*runs, *runs], 1):
        items = ITEMS[format][: number * 10]
        written += map(str, items[-10:])
        write(place, format, items, tmp_path / "state", compression=compression)
    contents = place.contents()
    assert [int(name.partition("/")[2][:20]) for name in contents] == [0, 10, 20, 30, 40, 50]
    assert list(map(str, items_of(contents))) == written


def test_an_object_ends_at_its_bytes(place: Place, tmp_path: Path) -> None:
    write(place, "lines", ["x" * 100] * 50, tmp_path / "state", batch_bytes=1000)
    contents = place.contents()
    assert [len(content) for content in contents.values()] == [1010] * 5


def slow(count: int) -> Any:
    @ms.source(resume=True)
    async def numbers(resume: int | None = None) -> Any:
        import asyncio

        for number in range(resume or 0, count):
            yield ms.At(number + 1, str(number))
            await asyncio.sleep(0.005)

    return numbers


def test_an_object_ends_at_its_age_and_not_with_each_epoch(tmp_path: Path) -> None:
    written = {}
    for age in (None, 3600.0):
        place = Directory(tmp_path / f"objects-{age}")
        flow = ms.Flow("numbers")
        flow.source("in", slow(40)).sink("out", ms.objects.write(place.url, "lines", batch_age=age))
        ms.run(flow, state=tmp_path / f"state-{age}", epoch=0.002)
        assert items_of(place.contents()) == list(map(str, range(40)))
        written[age] = len(place.contents())
    assert written[3600.0] == 1 < (written[None] or 0)


def test_without_a_state_directory_each_run_has_objects_of_its_own(place: Place) -> None:
    for _ in range(2):
        write(place, "lines", ["a", "b"])
    contents = place.contents()
    assert items_of(contents) == ["a", "b"] * 2
    assert len({name.partition("/")[0] for name in contents}) == 2


@pytest.mark.parametrize("prefix", ["a b/%41 é&+=?", "~tilde/'quotes'", "x" * 200, ""])
def test_odd_prefixes(bucket: Bucket, tmp_path: Path, prefix: str) -> None:
    store = f"s3://{bucket.name}/{prefix}" if "?" not in prefix else s3_store(bucket)
    flow = ms.Flow("numbers")
    options: dict[str, Any] = {"prefix": prefix} if "?" in prefix else {"config": bucket.server.config()}
    flow.source("in", ms.testing.items(["a"])).sink("out", ms.objects.write(store, "lines", **options))
    ms.run(flow, state=tmp_path / "state")
    ms.run(flow, state=tmp_path / "state")
    (name,) = bucket.names()
    assert name.startswith(prefix and f"{prefix}/") and bucket.get(name) == b"a\n"
    out = ms.testing.collect()
    flow = ms.Flow("copy")
    flow.source("in", ms.objects.read(store, "lines", **options)).sink("out", out)
    ms.run(flow)
    assert out == ["a"]


def s3_store(bucket: Bucket) -> Any:
    from obstore.store import S3Store

    options: Any = {"client_options": {"allow_http": True}, **bucket.server.config()}
    return S3Store(bucket.name, **options)


def test_paths_of_another_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(Directory(Path("relative/ü %20")), "lines", ["a"], tmp_path / "state")
    assert items_of(Directory(tmp_path / "relative" / "ü %20").contents()) == ["a"]
    url = Directory(tmp_path)
    url.url = (tmp_path / "of a url").as_uri()
    write(url, "lines", ["b"], tmp_path / "other")
    assert items_of(Directory(tmp_path / "of a url").contents()) == ["b"]


# Parquet.


def test_types_of_parquet(tmp_path: Path) -> None:
    place = Directory(tmp_path / "objects")
    row = {
        "time": datetime.datetime(2026, 11, 24, tzinfo=datetime.timezone.utc),
        "cents": decimal.Decimal("1.25"),
        "bytes": b"\0\xff",
        "list": [1, 2],
        "nested": {"a": 1.5},
    }
    write(place, "parquet", [row, {"cents": None, "more": True}], tmp_path / "state")
    first, second = items_of(place.contents())
    assert first == {**row, "more": None}
    assert second == {**dict.fromkeys(row), "more": True}


def test_a_schema_is_that_of_each_object(tmp_path: Path) -> None:
    place = Directory(tmp_path / "objects")
    schema = pyarrow.schema([("number", pyarrow.float64()), ("text", pyarrow.string())])
    write(place, "parquet", [{"number": 1}, {"text": "x"}], tmp_path / "state", schema=schema, batch=1)
    for content in place.contents().values():
        assert pyarrow.parquet.read_schema(pyarrow.BufferReader(content)).equals(schema)
    assert items_of(place.contents()) == [{"number": 1.0, "text": None}, {"number": None, "text": "x"}]


@pytest.mark.parametrize(
    ("row", "schema", "parts"),
    [
        ({"n": "x"}, None, ["'x'"]),
        ({"n": "x"}, [("n", pyarrow.int64())], ["record 7", "'x'"]),
        ({"m": 1}, [("n", pyarrow.int64())], ["record 7", "no column 'm'"]),
        ([1], None, ["record 7", "a mapping", "list"]),
        ({}, [], ["no columns"]),
    ],
)
def test_rows_that_are_none(tmp_path: Path, row: Any, schema: Any, parts: list[str]) -> None:
    place = Directory(tmp_path / "objects")
    rows = [row] if row == {} else [{"n": n} for n in range(7)] + [row, {"n": 8}]
    options = {} if schema is None else {"schema": pyarrow.schema(schema)}
    with pytest.raises(ms.FlowError) as error:
        write(place, "parquet", rows, tmp_path / "state", **options)
    for part in parts:
        assert part in str(error.value)
    assert "\n" not in str(error.value)
    # The rows before a row that is none alone are written.
    is_alone = "record 7" in parts
    assert items_of(place.contents()) == (rows[:7] if is_alone else [])


def test_a_row_that_is_none_can_be_skipped(tmp_path: Path) -> None:
    place = Directory(tmp_path / "objects")
    rows: list[Any] = [{"n": n} for n in range(20)]
    rows[13] = {"m": 1}
    flow = ms.Flow("rows")
    sink = ms.objects.write(place.url, "parquet", schema=pyarrow.schema([("n", pyarrow.int64())]))
    flow.source("in", ms.testing.items(rows)).sink("out", sink, on_error="skip")
    for _ in range(2):
        ms.run(flow, state=tmp_path / "state")
    assert items_of(place.contents()) == [row for row in rows if row != {"m": 1}]


@pytest.mark.parametrize(
    ("format", "item", "part"),
    [("json_lines", {1, 2}, "set"), ("json_lines", float("nan"), "nan"), ("lines", "a\nb", "line ends")],
)
def test_items_that_are_no_lines_fail_at_the_step(tmp_path: Path, format: str, item: Any, part: str) -> None:
    place = Directory(tmp_path / "objects")
    with pytest.raises(ms.StepError, match=part):
        write(place, format, ["a", item], tmp_path / "state")


# Options.


@pytest.mark.parametrize(
    ("arguments", "options", "part"),
    [
        (("ftp://x/y", "lines"), {}, "ftp://x/y"),
        (("s3://bucket", "csv"), {}, "csv"),
        (("", "lines"), {}, "a URL, a path"),
        ((7, "lines"), {}, "7"),
        (("s3://bucket", "lines"), {"prefix": "p"}, "prefix is for"),
        (("folder", "lines"), {"config": {}}, "config is for"),
        (("s3://bucket", "lines"), {"config": {"nonsense": "1"}}, "nonsense"),
        (("s3://bucket", "lines"), {"schema": 1}, "schema is for"),
        (("s3://bucket", "parquet"), {"schema": 1}, "pyarrow.Schema"),
        (("s3://bucket", "lines"), {"compression": "snappy"}, "compression"),
        (("s3://bucket", "parquet"), {"compression": "bz2"}, "compression"),
        (("s3://bucket", "lines"), {"batch": 0}, "batch"),
        (("s3://bucket", "lines"), {"batch_bytes": 0}, "batch_bytes"),
        (("s3://bucket", "lines"), {"batch_bytes": "2GiB"}, "batch_bytes"),
        (("s3://bucket", "lines"), {"batch_age": -1}, "batch_age"),
        (("s3://bucket", "lines"), {"timeout": 0}, "timeout"),
    ],
)
def test_wrong_options(arguments: Any, options: Any, part: str) -> None:
    with pytest.raises(ms.FlowUsageError) as error:
        ms.objects.write(*arguments, **options)
    assert part in str(error.value) and "\n" not in str(error.value)


# Copies of a state directory.


def test_a_copy_of_a_state_directory_is_stopped(place: Place, tmp_path: Path) -> None:
    write(place, "lines", ["a", "b"], tmp_path / "state")
    shutil.copytree(tmp_path / "state", tmp_path / "copy")
    write(place, "lines", ["a", "b", "c", "d"], tmp_path / "state")
    with pytest.raises(ms.FlowError, match="another copy of the state directory"):
        write(place, "lines", ["a", "b", "x"], tmp_path / "copy")
    assert items_of(place.contents()) == ["a", "b", "c", "d"]


def test_of_two_forwarders_at_once_one_is_stopped(place: Place) -> None:
    from millstream.objects.destination import Destination, WriteOptions
    from millstream.objects.formats import Lines

    options = WriteOptions(place.url, Lines(), "", place.config, 10.0)
    one = Destination(options)
    other = Destination(options)
    for each in (one, other):
        each.connect(ms.OutboxIdentity("numbers", "out", "5eed"))
        assert each.position() is None
    one.write([b"0", b"1", b"2"], 0, 2)
    # Another division of the same records would be there twice.
    with pytest.raises(ms.objects.ObjectError, match="another process delivers the same outbox"):
        other.write([b"0", b"1"], 0, 1)
    # The same attempt again, whose answer was lost.
    one.write([b"0", b"1", b"2"], 0, 2)
    assert one.position() == other.position() == 2
    assert items_of(place.contents()) == ["0", "1", "2"]


# The position.


@pytest.mark.parametrize("seed", range(6))
def test_the_position_of_many_objects(seed: int) -> None:
    """Found with few requests, however the numbers are spread."""
    import random

    from millstream.objects.destination import Destination, WriteOptions
    from millstream.objects.formats import Lines
    from obstore.store import MemoryStore

    chance = random.Random(seed)
    store = MemoryStore()
    first = 0
    largest = chance.choice([1, 10, 10**6, 10**12])
    for _ in range(chance.choice([1, 2, 999, 1000, 1001, 7000])):
        last = first
        store.put(f"5eed/{first:020}.txt", b"a\nb\n")
        first += chance.randint(2, largest + 1)
    for name in ("5eed/notes", "5eed/00000000000000000001/x", "5eee/00000000000000000001.txt", "5eed.txt"):
        store.put(name, b"x\n")
    destination = Destination(WriteOptions(store, Lines(), "", None, 10.0))
    destination.connect(ms.OutboxIdentity("numbers", "out", "5eed"))
    requests = []
    real = destination.prefix.some
    destination.prefix.some = lambda *of: requests.append(of) or real(*of)  # type: ignore[method-assign, func-returns-value]
    assert destination.position() == last + 1
    assert len(requests) < 200


@pytest.mark.parametrize("format", ["parquet", "lines"])
def test_an_object_that_was_replaced_is_an_error(place: Place, tmp_path: Path, format: str) -> None:
    write(place, format, ITEMS[format], tmp_path / "state")
    (name,) = place.contents()
    place.put(name, b"rubbish" if format == "parquet" else b"")
    # A run without new items may end before it connects.
    with pytest.raises(ms.FlowError) as error:
        write(place, format, ITEMS[format] * 2, tmp_path / "state")
    assert name in str(error.value) and "\n" not in str(error.value)


def test_objects_before_the_last_may_be_removed(tmp_path: Path) -> None:
    place = Directory(tmp_path / "objects")
    write(place, "lines", ["a", "b", "c"], tmp_path / "state", batch=1)
    for path in sorted(place.path.glob("*/*"))[:2]:
        path.unlink()
    write(place, "lines", ["a", "b", "c", "d"], tmp_path / "state", batch=1)
    assert items_of(place.contents()) == ["c", "d"]


def test_the_last_object_is_written_again_if_it_was_removed(tmp_path: Path) -> None:
    place = Directory(tmp_path / "objects")
    write(place, "lines", ["a", "b", "c"], tmp_path / "state", batch=1)
    sorted(place.path.glob("*/*"))[-1].unlink()
    write(place, "lines", ["a", "b", "c", "d"], tmp_path / "state", batch=1)
    assert items_of(place.contents()) == ["a", "b", "c", "d"]


def test_delivery_continues_if_all_objects_were_removed(tmp_path: Path) -> None:
    place = Directory(tmp_path / "objects")
    write(place, "lines", ["a", "b"], tmp_path / "state", batch=1)
    shutil.rmtree(place.path)
    write(place, "lines", ["a", "b", "c"], tmp_path / "state", batch=1)
    assert items_of(place.contents()) == ["c"]


def test_a_store_without_conditions_is_warned_of(
    bucket: Bucket, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place = InBucket(bucket, "fix")
    place.config = {**place.config, "conditional_put": "disabled"}
    for count in (2, 3):
        write(place, "lines", ["a", "b", "c"][:count], tmp_path / "state", batch=1)
        assert items_of(place.contents()) == ["a", "b", "c"][:count]
    assert "cannot create objects on the condition" in caplog.text


# The extras.


@pytest.mark.parametrize(
    ("module", "format", "extra"),
    [("obstore", "lines", "millstream[s3]"), ("pyarrow", "parquet", "millstream[s3,parquet]")],
)
def test_a_library_that_is_missing(
    monkeypatch: pytest.MonkeyPatch, module: str, format: Any, extra: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    for use in (ms.objects.write, ms.objects.read):
        with pytest.raises(ms.objects.ObjectError) as error:
            use("s3://bucket", format)
        assert module in str(error.value) and extra in str(error.value)
