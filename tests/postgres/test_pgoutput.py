"""Messages of the plugin pgoutput, byte by byte, without a server."""

from __future__ import annotations

import datetime
import pickle
import struct

import millstream as ms
import pytest
from millstream.postgres import pgoutput
from millstream.postgres.decode import Decoder
from millstream.postgres.types import Encoding, Types

INT = 23
TEXT = 25
TIMESTAMPTZ = 1184
JSONB = 3802
OWN = 20_000


def text(value: str) -> bytes:
    return value.encode() + b"\0"


def relation(number: int, *columns: tuple[str, int, bool], identity: bytes = b"d") -> bytes:
    body = b"R" + struct.pack(">I", number) + text("public") + text("orders") + identity
    body += struct.pack(">H", len(columns))
    for name, type_, is_key in columns:
        body += struct.pack(">B", is_key) + text(name) + struct.pack(">Ii", type_, -1)
    return body


def row(*values: str | None | pgoutput.Unchanged) -> bytes:
    body = struct.pack(">H", len(values))
    for value in values:
        if value is None:
            body += b"n"
        elif isinstance(value, pgoutput.Unchanged):
            body += b"u"
        else:
            body += b"t" + struct.pack(">I", len(value.encode())) + value.encode()
    return body


def begin(lsn: int = 100, transaction: int = 7) -> bytes:
    return b"B" + struct.pack(">QqI", lsn, 1_000_000, transaction)


def commit(lsn: int = 100, end: int = 110) -> bytes:
    return b"C" + struct.pack(">BQQq", 0, lsn, end, 1_000_000)


ORDERS = relation(1, ("id", INT, True), ("text", TEXT, False))
NUMBER = struct.pack(">I", 1)


def decoded(*messages: bytes, base: int = TEXT) -> list[ms.postgres.Change]:
    decoder = Decoder(Types("PostgreSQL", Encoding.of("UTF8"), lambda _: base))
    found = []
    for message in messages:
        parsed = pgoutput.parse_message(message)
        if parsed is not None:
            found += decoder.changes(parsed)
    return found


def test_an_insert() -> None:
    (change,) = decoded(begin(), ORDERS, b"I" + NUMBER + b"N" + row("5", "é"), commit())
    assert (change.kind, change.table, change.key) == ("insert", "public.orders", {"id": 5})
    assert (change.old, change.new) == (None, {"id": 5, "text": "é"})
    assert (change.lsn, change.transaction) == (100, 7)
    assert change.time == datetime.datetime(2000, 1, 1, 0, 0, 1, tzinfo=datetime.timezone.utc)


def test_updates_with_and_without_the_old_row() -> None:
    plain = b"U" + NUMBER + b"N" + row("5", pgoutput.UNCHANGED)
    moved = b"U" + NUMBER + b"K" + row("5", None) + b"N" + row("6", "a")
    first, second = decoded(begin(), ORDERS, plain, moved)
    assert (first.old, first.new) == (None, {"id": 5, "text": ms.postgres.UNCHANGED})
    assert (second.old, second.new, second.key) == ({"id": 5}, {"id": 6, "text": "a"}, {"id": 6})


def test_a_full_identity_has_unchanged_values() -> None:
    full = relation(1, ("id", INT, True), ("text", TEXT, True), identity=b"f")
    update = b"U" + NUMBER + b"O" + row("5", "large") + b"N" + row("6", pgoutput.UNCHANGED)
    change, deleted = decoded(begin(), full, update, b"D" + NUMBER + b"O" + row("6", "large"))
    assert (change.old, change.new) == ({"id": 5, "text": "large"}, {"id": 6, "text": "large"})
    assert deleted.key == deleted.old == {"id": 6, "text": "large"}


def test_deletes_and_truncations() -> None:
    delete = b"D" + NUMBER + b"K" + row("5", None)
    truncate = b"T" + struct.pack(">IBI", 1, 0, 1)
    first, second = decoded(begin(), ORDERS, delete, truncate)
    assert (first.kind, first.key, first.old, first.new) == ("delete", {"id": 5}, {"id": 5}, None)
    assert (second.kind, second.table, second.key) == ("truncate", "public.orders", None)


def test_a_relation_that_changes() -> None:
    wider = relation(1, ("id", INT, True), ("text", TEXT, False), ("more", JSONB, False))
    first, second = decoded(
        begin(),
        ORDERS,
        b"I" + NUMBER + b"N" + row("1", "a"),
        wider,
        b"I" + NUMBER + b"N" + row("2", None, '{"a": 1}'),
    )
    assert first.new == {"id": 1, "text": "a"}
    assert second.new == {"id": 2, "text": None, "more": {"a": 1}}


def test_types() -> None:
    odd = relation(1, ("at", TIMESTAMPTZ, True), ("domain", OWN, False))
    insert = b"I" + NUMBER + b"N" + row("2026-11-24 12:00:00+00", "7")
    never = b"I" + NUMBER + b"N" + row("infinity", "8")
    first, second = decoded(begin(), odd, insert, never, base=INT)
    when = datetime.datetime(2026, 11, 24, 12, tzinfo=datetime.timezone.utc)
    assert first.new == {"at": when, "domain": 7}
    assert second.new == {"at": "infinity", "domain": 8}


def test_frames() -> None:
    wal = b"w" + struct.pack(">QQq", 5, 6, 0) + b"body"
    assert pgoutput.parse_frame(wal) == pgoutput.Wal(5, b"body")
    assert pgoutput.parse_frame(b"k" + struct.pack(">Qq?", 9, 0, True)) == pgoutput.Keepalive(9, True)
    update = pgoutput.status_update(3, pgoutput.EPOCH_US + 4, True)
    assert update == b"r" + struct.pack(">QQQq?", 3, 3, 3, 4, True)


def test_unchanged_is_one_object() -> None:
    assert pickle.loads(pickle.dumps(ms.postgres.UNCHANGED)) is ms.postgres.UNCHANGED


MESSAGES = [
    begin(),
    commit(),
    ORDERS,
    b"I" + NUMBER + b"N" + row("5", "text"),
    b"U" + NUMBER + b"K" + row("5", None) + b"N" + row("6", pgoutput.UNCHANGED),
    b"D" + NUMBER + b"K" + row("5", None),
    b"T" + struct.pack(">IBI", 1, 0, 1),
]


@pytest.mark.parametrize("message", MESSAGES)
def test_a_message_that_is_cut_or_longer_is_an_error(message: bytes) -> None:
    assert pgoutput.parse_message(message) is not None
    for length in range(len(message)):
        with pytest.raises(pgoutput.Damaged):
            pgoutput.parse_message(message[:length])
    with pytest.raises(pgoutput.Damaged):
        pgoutput.parse_message(message + b"\0")


@pytest.mark.parametrize(
    "messages",
    [
        [begin(), b"I" + NUMBER + b"N" + row("5", "a")],
        [ORDERS, b"I" + NUMBER + b"N" + row("5", "a")],
        [begin(), ORDERS, b"I" + NUMBER + b"N" + row("5")],
        [b"X"],
        [b"I" + NUMBER + b"Q" + row("5", "a")],
        [b"I" + NUMBER + b"N" + struct.pack(">H", 1) + b"q"],
    ],
)
def test_messages_that_do_not_fit(messages: list[bytes]) -> None:
    with pytest.raises(pgoutput.Damaged):
        decoded(*messages)


@pytest.mark.parametrize("frame", [b"", b"x", b"w123", b"k" + b"\0" * 10])
def test_frames_that_are_none(frame: bytes) -> None:
    with pytest.raises(pgoutput.Damaged):
        pgoutput.parse_frame(frame)


def test_rows_of_a_copy() -> None:
    line = b"1\t\\N\t\ta\\\\N\\tb\\nc\\\\\n"
    assert pgoutput.parse_row(line) == [b"1", None, b"", b"a\\N\tb\nc\\"]
