"""Every connector meets one list of hostile values: the flow goes on, and the dead letter is the input.

The judge of a source is the list itself: what the decoder takes is an item, in order, and all else is a dead
letter, byte for byte, with its position. The judge of a sink is what its destination has.
"""

from __future__ import annotations

import csv
import json
import socket
import struct
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import millstream as ms
import pytest
from clients import Judge, put
from millstream._values.json import dump, load

PATIENCE = 60.0
VALUES = [
    b"1",
    b"",
    b"\xff\xfe",
    b"\0",
    b'{"n": ' + b"9" * 5000 + b"}",
    b'"\\ud800"',
    b"NaN",
    b"-1e999",
    b"[" * 100_000 + b"]" * 100_000,
    b'{"a": 1',
    "\u00e9\U0001f600".encode(),
    '"\u00e9\U0001f600"'.encode(),
    b"x" * 100_000,
    b"9" * 400,
    b"null",
]


def decoded() -> tuple[list[Any], list[bytes]]:
    """The items, and the values that are none."""
    items = []
    bad = []
    for value in VALUES:
        try:
            items.append(load(value))
        except ValueError:
            bad.append(value)
    return items, bad


def framed() -> bytes:
    return b"".join(struct.pack(">I", len(value)) + value for value in VALUES)


def of_file(folder: Path, _: Any) -> Any:
    (folder / "in").write_bytes(framed())
    return ms.files.frames(folder / "in", decode=load)


def of_tcp(_: Path, __: Any) -> Any:
    def send(host: str, port: int) -> None:
        def work() -> None:
            with socket.create_connection((host, port), PATIENCE) as connection:
                connection.sendall(framed())

        threading.Thread(target=work, daemon=True).start()

    return ms.tcp.listen("127.0.0.1:0", connections=1, decode=load, on_bound=send)


def of_journal(folder: Path, _: Any) -> Any:
    with ms.Journal(folder / "journal") as journal:
        for value in VALUES:
            journal.append(value)
    return ms.journals.read(folder / "journal", decode=load)


def of_queue(folder: Path, _: Any) -> Any:
    flow = ms.Flow("fill")
    flow.source("in", ms.testing.items(VALUES)).sink("out", ms.queues.write(folder / "queues", "in"))
    ms.run(flow)
    return ms.queues.read(folder / "queues", "in", decode=load, until_empty=True)


def of_kafka(_: Path, server: Callable[[str], Any]) -> Any:
    broker = server("broker")
    topic = broker.create(
        f"hostile-values-{threading.get_ident()}-{len(broker.admin().list_topics().topics)}"
    )
    put(broker, topic, VALUES, key=b"\xff")
    return ms.kafka.read(broker.servers, topic, end="latest", decode=load)


def of_objects(folder: Path, _: Any) -> Any:
    (folder / "objects").mkdir()
    for number, value in enumerate(VALUES):
        (folder / "objects" / f"{number:02}.jsonl").write_bytes(value + b"\n")
    return ms.objects.read(folder / "objects", "json_lines")


SOURCES = [of_file, of_tcp, of_journal, of_queue, of_kafka, of_objects]


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("make", SOURCES)
def test_what_cannot_be_decoded_is_a_dead_letter_byte_for_byte(
    tmp_path: Path, request: pytest.FixtureRequest, make: Any, durable: bool
) -> None:
    items, bad = decoded()
    flow = ms.Flow("hostile")
    out = ms.testing.collect()
    letters = ms.testing.collect()
    source = make(tmp_path, request.getfixturevalue)
    flow.source("in", source, on_error=ms.dead_letter(letters)).sink("out", out)
    ms.run(flow, state=tmp_path / "state" if durable else None)
    assert out == items
    found = [letter.item.value if make is of_kafka else letter.item for letter in letters]
    assert found == bad
    assert all(letter.position for letter in letters)
    assert len({letter.position for letter in letters}) == len(bad) or make is of_queue


@pytest.mark.parametrize("item", ["body", "request"])
def test_what_cannot_be_decoded_is_not_accepted_by_http(tmp_path: Path, item: Any) -> None:
    import urllib.error
    import urllib.request

    items, _ = decoded()
    answers: list[int] = []

    def post(address: str) -> None:
        def work() -> None:
            for value in VALUES:
                try:
                    request = urllib.request.Request(f"http://{address}/", value)
                    answers.append(urllib.request.urlopen(request, timeout=PATIENCE).status)
                except urllib.error.HTTPError as error:
                    answers.append(error.code)

        threading.Thread(target=work, daemon=True).start()

    flow = ms.Flow("hostile")
    out = ms.testing.collect()
    decode = load if item == "body" else lambda request: load(request.body)
    options: dict[str, Any] = {"item": item, "body": "bytes", "requests": len(items), "on_bound": post}
    source = ms.http.listen("127.0.0.1:0", decode=decode, **options)
    flow.source("in", source).sink("out", out)
    ms.run(flow, state=tmp_path)
    assert out == items
    assert set(answers) == {200, 400}


def deep() -> list[Any]:
    made: list[Any] = []
    for _ in range(sys.getrecursionlimit() * 100):
        made = [made]
    return made


GOOD = [1, "\u00e9\U0001f600", None, {"a": [1.5]}, "x" * 100_000]
BAD = ["\ud800", {"\udfff": 1}, float("nan"), [float("-inf")], 10**5000, {1}, object(), b"\xff", deep()]


class Posted(ThreadingHTTPServer):
    def __init__(self) -> None:
        self.items: list[Any] = []
        super().__init__(("127.0.0.1", 0), Receiver)


class Receiver(BaseHTTPRequestHandler):
    server: Posted

    def do_POST(self) -> None:
        self.server.items += json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


Made = tuple[Any, Callable[[], list[Any]]]


def to_file(folder: Path, _: Any) -> Made:
    path = folder / "out"
    return ms.files.write(path, encode=dump), lambda: [json.loads(line) for line in path.open("rb")]


def to_journal(folder: Path, _: Any) -> Made:
    def written() -> list[Any]:
        with ms.Journal(folder / "journal") as journal:
            return [json.loads(bytes(record.body)) for record in journal.read()]

    return ms.journals.append(folder / "journal", encode=dump), written


def to_queue(folder: Path, _: Any) -> Made:
    def taken() -> list[Any]:
        flow = ms.Flow("take")
        out = ms.testing.collect()
        flow.source("in", ms.queues.read(folder / "queues", "out", until_empty=True)).sink("out", out)
        ms.run(flow)
        return [json.loads(item) for item in out]

    return ms.queues.write(folder / "queues", "out", encode=dump), taken


def to_objects(folder: Path, _: Any) -> Made:
    def written() -> list[Any]:
        paths = sorted((folder / "objects").glob("*/*.jsonl"))
        return [json.loads(line) for path in paths for line in path.open("rb")]

    return ms.objects.write(str(folder / "objects"), "json_lines"), written


def to_kafka(_: Path, server: Callable[[str], Any], exactly_once: bool = True) -> Made:
    broker = server("broker")
    topic = broker.create(f"hostile-items-{uuid.uuid4()}")
    sink = ms.kafka.write(broker.servers, topic, encode=dump, exactly_once=exactly_once)
    return sink, lambda: [json.loads(value) for value in Judge(broker, topic).values()]


def to_kafka_at_least_once(folder: Path, server: Callable[[str], Any]) -> Made:
    return to_kafka(folder, server, exactly_once=False)


def to_server(_: Path, server: Callable[[str], Any]) -> Made:
    posted = server("posted")
    return ms.http.post(f"http://127.0.0.1:{posted.server_port}/"), lambda: posted.items


def to_server_in_parallel(_: Path, server: Callable[[str], Any]) -> Made:
    posted = server("posted")
    url = f"http://127.0.0.1:{posted.server_port}/"
    # One key: their order is that of the items.
    sink = ms.http.post(url, body="each", parallel=8, key=lambda _: "", encode=lambda item: f"[{dump(item)}]")
    return sink, lambda: posted.items


def to_function(_: Path, __: Any) -> Made:
    taken: list[Any] = []

    @ms.sink(encode=dump, decode=json.loads)
    def append(batch: list[Any], first: int, last: int) -> None:
        taken.extend(batch)

    return append, lambda: taken


@pytest.fixture
def posted() -> Iterator[Posted]:
    with Posted() as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server
        server.shutdown()


SINKS = [
    to_file,
    to_journal,
    to_queue,
    to_objects,
    to_kafka,
    to_kafka_at_least_once,
    to_server,
    to_server_in_parallel,
    to_function,
]


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("make", SINKS)
def test_an_item_that_cannot_be_encoded_is_a_dead_letter_and_holds_up_no_other(
    tmp_path: Path, request: pytest.FixtureRequest, make: Any, durable: bool
) -> None:
    sink, written = make(tmp_path, request.getfixturevalue)
    items = [item for pair in zip(BAD, [*GOOD, *range(10, 20)], strict=False) for item in pair]
    flow = ms.Flow("hostile")
    letters = ms.testing.collect()
    flow.source("in", ms.testing.items(items)).sink("out", sink, on_error=ms.dead_letter(letters))
    ms.run(flow, state=tmp_path / "state" if durable else None)
    assert written() == items[1::2]
    # A copy would not be equal.
    assert [letter.item is bad for letter, bad in zip(letters, BAD, strict=True)] == [True] * len(BAD)
    assert {letter.step for letter in letters} == {"out"}


def test_a_key_that_names_no_file_is_a_dead_letter(tmp_path: Path) -> None:
    letters = ms.testing.collect()
    flow = ms.Flow("keyed")
    pairs = [("a", "1"), ("\ud800", "2"), "3", ("b", "\ud800"), ("b", "4")]
    sink = ms.files.write_by_key(tmp_path / "out", suffix=".txt")
    flow.source("in", ms.testing.items(pairs)).sink("out", sink, on_error=ms.dead_letter(letters))
    ms.run(flow, state=tmp_path / "state")
    assert [letter.item for letter in letters] == [("\ud800", "2"), "3", ("b", "\ud800")]
    assert sorted(path.read_text() for path in (tmp_path / "out").glob("*.txt")) == ["1\n", "4\n"]


def test_a_sink_that_encodes_nothing_has_no_policy() -> None:
    flow = ms.Flow("python")
    with pytest.raises(ms.FlowUsageError, match="on_error is for sinks that encode"):
        flow.source("in", ms.testing.items([1])).sink("out", ms.stdout(), on_error="skip")


RECORDS: list[tuple[bytes, dict[str, Any] | None]] = [
    (b"1,a", {"n": 1, "v": "a"}),
    (b"2,\xff\xfe", None),
    (b"3,\0", {"n": 3, "v": "\0"}),
    (b"4", None),
    (b"5,a,b", None),
    (b'6,"a\r\nb,\n"', {"n": 6, "v": "a\r\nb,\n"}),
    (b'7,"a""b"', {"n": 7, "v": 'a"b'}),
    (b'8,a"b', {"n": 8, "v": 'a"b'}),
    (b"9,\xed\xa0\x80", None),
    (b"10," + b"x" * 100_000, {"n": 10, "v": "x" * 100_000}),
    (b'11,"\xff, ""b"""', None),
    ("12,\u00e9\U0001f600".encode(), {"n": 12, "v": "\u00e9\U0001f600"}),
    (b"9" * 5000 + b",a", None),
    (b"-1e999,a", None),
    (b",", None),
    (b"13,NaN", {"n": 13, "v": "NaN"}),
    (b'"14",""', {"n": 14, "v": ""}),
]


def csv_file(folder: Path) -> Any:
    return ms.files.csv(folder / "in.csv", types={"n": int})


def csv_directory(folder: Path) -> Any:
    return ms.files.csv_directory(folder, types={"n": int})


def read_records(folder: Path, source: Any, on_error: Any, durable: bool) -> tuple[list[Any], ms.Report]:
    lines = [b"n,v", *(record for record, _ in RECORDS)]
    (folder / "in.csv").write_bytes(b"".join(line + b"\n" for line in lines))
    flow = ms.Flow("hostile")
    out = ms.testing.collect()
    flow.source("in", source(folder), on_error=on_error).sink("out", out)
    return out, ms.run(flow, state=folder / "state" if durable else None)


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("source", [csv_file, csv_directory])
def test_a_record_of_csv_that_is_no_row_holds_up_no_other(tmp_path: Path, source: Any, durable: bool) -> None:
    out, report = read_records(tmp_path, source, "skip", durable)
    rows = [row for _, row in RECORDS if row is not None]
    assert out == rows
    assert report.step("in.decode")["skipped"] == len(RECORDS) - len(rows)


@pytest.mark.parametrize("source", [csv_file, csv_directory])
def test_a_record_of_csv_that_is_no_row_is_a_dead_letter_byte_for_byte(tmp_path: Path, source: Any) -> None:
    letters = ms.testing.collect()
    read_records(tmp_path, source, ms.dead_letter(letters), False)
    assert len(letters) == sum(row is None for _, row in RECORDS)
    assert [letter.item for letter in letters] == [record for record, row in RECORDS if row is None]
    assert all(letter.position for letter in letters)


def test_a_dead_letter_of_csv_is_of_the_file_that_was_read(tmp_path: Path) -> None:
    """Another file takes its path, as when files are rotated, before the row turns out to be none."""
    path = tmp_path / "in.csv"
    other = tmp_path / "other.csv"
    path.write_text("n,v\n1,a\n2,b,c\n3,d\n")
    other.write_text("n,v\n7,x\n8,y,z\n9,w\n")

    def rotate(text: str) -> int:
        if other.exists():
            other.replace(path)
        return int(text)

    letters = ms.testing.collect()
    out = ms.testing.collect()
    flow = ms.Flow("rotated")
    rows = flow.source("in", ms.files.csv(path, types={"n": rotate}), on_error=ms.dead_letter(letters))
    rows.sink("out", out)
    ms.run(flow)
    assert out == [{"n": 1, "v": "a"}, {"n": 3, "v": "d"}]
    assert [letter.item for letter in letters] == [b"2,b,c"]


TEXTS = [
    "",
    'a,b"c',
    "\r",
    "\n\n",
    " a ",
    "\ufeff",
    "\ufeff,\ufeff",
    "\0",
    "\t'\\#=",
    "\x85\u2028\x1a",
    "\u00e9\U0001f600",
    '""',
    "x" * 100_000,
]
NO_ROWS = [
    "\ud800",
    b"a",
    None,
    5,
    object(),
    {"a": 1},
    {1},
    [],
    ["\udfff", "a"],
    [10**5000, "a"],
    [deep(), "a"],
]


@pytest.mark.parametrize("first", ["a", "\ufeffa"])
@pytest.mark.parametrize("columns", [1, 2])
@pytest.mark.parametrize("has_header", [False, True])
@pytest.mark.parametrize("durable", [False, True])
def test_rows_of_csv_are_read_back_equal(
    tmp_path: Path, first: str, columns: int, has_header: bool, durable: bool
) -> None:
    path = tmp_path / "out.csv"
    names = [f"{first}{column}" for column in range(columns)]
    rows = [list(pair[:columns]) for pair in zip([first, *TEXTS], [*TEXTS, first], strict=True)]
    flow = ms.Flow("hostile")
    letters = ms.testing.collect()
    items = [rows[0], *(item for pair in zip(NO_ROWS, rows[1:], strict=False) for item in pair), *rows[12:]]
    source = flow.source("in", ms.testing.items(items))
    sink = ms.files.write_csv(path, names) if has_header else ms.files.write_csv(path)
    source.sink("out", sink, on_error=ms.dead_letter(letters))
    ms.run(flow, state=tmp_path / "state" if durable else None)
    assert [letter.item is item for letter, item in zip(letters, NO_ROWS, strict=True)] == [True] * len(
        NO_ROWS
    )
    flow = ms.Flow("back")
    out = ms.testing.collect()
    flow.source("in", ms.files.csv(path, header=has_header)).sink("out", out)
    ms.run(flow)
    assert out == [dict(zip(names, row, strict=True)) if has_header else row for row in rows]
    # The judge is Python's reader of what the sink has written.
    with path.open(encoding="utf-8", newline="") as file:
        found = list(csv.reader(file))
    assert found == [*([names] if has_header else []), *rows]
