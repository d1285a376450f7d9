"""The replication protocol of PostgreSQL and its plugin ``pgoutput``, version 1: bytes to messages. No I/O.

The formats are those of the chapters "Streaming Replication Protocol" and "Logical Replication Message
Formats" of its documentation.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from struct import Struct, error as StructError
from typing import TypeAlias

from .._values.rows import UNCHANGED, Unchanged

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


EPOCH_US = 946_684_800_000_000
"""Microseconds from 1970 to 2000, with which PostgreSQL begins to count."""

WAL = Struct(">QQq")
KEEPALIVE = Struct(">Qq?")
STATUS = Struct(">cQQQq?")
BEGIN = Struct(">QqI")
COMMIT = Struct(">BQQq")
BYTE = Struct(">B")
SHORT = Struct(">H")
LONG = Struct(">I")


class Damaged(ValueError):
    """Bytes that are no message of the protocol."""


Field: TypeAlias = "bytes | None | Unchanged"


@dataclass(frozen=True)
class Wal:
    """A message of the plugin, with the position in the log."""

    lsn: int
    body: bytes


@dataclass(frozen=True)
class Keepalive:
    """The server has sent everything up to ``end``; it asks for a status update if ``reply``."""

    end: int
    reply: bool


@dataclass(frozen=True)
class Begin:
    """A transaction begins. ``lsn`` is that of its commit; ``time_us`` is in microseconds since 1970."""

    lsn: int
    time_us: int
    transaction: int


@dataclass(frozen=True)
class Commit:
    """A transaction ends. The log continues at ``end``."""

    lsn: int
    end: int


@dataclass(frozen=True)
class RelationColumn:
    """A column: whether it belongs to the replica identity, its name, the number of its type."""

    is_key: bool
    name: str
    type: int


@dataclass(frozen=True)
class Relation:
    """A table as it is from here on. ``identity`` is d (default), n (nothing), f (full) or i (an index)."""

    number: int
    schema: str
    name: str
    identity: str
    columns: tuple[RelationColumn, ...]


@dataclass(frozen=True)
class Insert:
    """A new row."""

    relation: int
    new: list[Field]


@dataclass(frozen=True)
class Update:
    """A changed row. ``old`` has the replica identity if that has changed, or the whole row if that is it."""

    relation: int
    old: list[Field] | None
    new: list[Field]


@dataclass(frozen=True)
class Delete:
    """A deleted row. ``old`` has the replica identity, or the whole row if that is it."""

    relation: int
    old: list[Field]


@dataclass(frozen=True)
class Truncate:
    """Tables that were emptied."""

    relations: tuple[int, ...]


Message: TypeAlias = "Begin | Commit | Relation | Insert | Update | Delete | Truncate"


def parse_lsn(text: str) -> int:
    """The number of a position in the log.

    >>> parse_lsn("1/0000000A")
    4294967306
    """
    high, _, low = text.partition("/")
    return int(high, 16) << 32 | int(low, 16)


def format_lsn(lsn: int) -> str:
    """The text of a position in the log.

    >>> format_lsn(4294967306)
    '1/A'
    """
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def status_update(flushed: int, now_us: int, reply: bool) -> bytes:
    """The message that tells the server what is processed: it may remove the log before ``flushed``.

    Args:
        flushed: the position.
        now_us: the time, in microseconds since 1970.
        reply: whether the server shall answer with a keepalive.

    Returns:
        The message.

    >>> len(status_update(7, 0, False))
    34
    """
    return STATUS.pack(b"r", flushed, flushed, flushed, now_us - EPOCH_US, reply)


def parse_frame(data: bytes) -> Wal | Keepalive:
    """Reads what the server sends in a stream.

    Raises:
        Damaged: it is neither a message of the plugin nor a keepalive.
    """
    try:
        if data[:1] == b"w":
            start, _, _ = WAL.unpack_from(data, 1)
            return Wal(start, data[1 + WAL.size :])
        if data[:1] == b"k":
            end, _, reply = KEEPALIVE.unpack_from(data, 1)
            return Keepalive(end, reply)
    except StructError:
        pass
    raise Damaged(f"no frame of a replication stream: {data[:40]!r}")


class Reader:
    """Reads the parts of a message one after the other."""

    def __init__(self, data: bytes, codec: str) -> None:
        self.data = data
        self.codec = codec
        self.at = 1

    def take(self, form: Struct) -> int:
        (value,) = form.unpack_from(self.data, self.at)
        self.at += form.size
        return int(value)

    def text(self) -> str:
        end = self.data.index(b"\0", self.at)
        found = self.data[self.at : end].decode(self.codec)
        self.at = end + 1
        return found

    def letter(self) -> bytes:
        self.at += 1
        return self.data[self.at - 1 : self.at]

    def row(self) -> list[Field]:
        """The values of a row."""
        data = self.data
        at = self.at
        (count,) = SHORT.unpack_from(data, at)
        at += 2
        row: list[Field] = []
        for _ in range(count):
            kind = data[at]
            at += 1
            if kind == 0x74:  # t: text
                (length,) = LONG.unpack_from(data, at)
                at += 4
                value = data[at : at + length]
                if len(value) < length:
                    raise Damaged("a value ends too early")
                row.append(value)
                at += length
            elif kind == 0x6E:  # n: null
                row.append(None)
            elif kind == 0x75:  # u: an unchanged value that is stored apart (TOAST)
                row.append(UNCHANGED)
            else:
                raise Damaged(f"a value of the unknown kind {chr(kind)!r}")
        self.at = at
        return row


def parse_message(data: bytes, codec: str = "utf-8") -> Message | None:
    """Reads a message of the plugin; None for kinds that change no row: origins, types, user messages.

    Args:
        data: the message.
        codec: the encoding of the names in it.

    Raises:
        Damaged: it is no message.
    """
    try:
        message, end = _parse(data, codec)
    except (StructError, IndexError, ValueError) as error:
        raise Damaged(f"no message of pgoutput ({error}): {data[:40]!r}") from None
    if end != len(data):
        raise Damaged(f"a message of pgoutput has {len(data) - end} bytes too many: {data[:40]!r}")
    return message


def _parse(data: bytes, codec: str) -> tuple[Message | None, int]:
    kind = data[:1]
    reader = Reader(data, codec)
    if kind == b"I":
        relation = reader.take(LONG)
        _expect(reader.letter(), b"N")
        return Insert(relation, reader.row()), reader.at
    if kind == b"U":
        return _parse_update(reader), reader.at
    if kind == b"D":
        relation = reader.take(LONG)
        _expect(reader.letter(), b"KO")
        return Delete(relation, reader.row()), reader.at
    if kind == b"B":
        lsn, time, transaction = BEGIN.unpack_from(data, 1)
        return Begin(lsn, time + EPOCH_US, transaction), 1 + BEGIN.size
    if kind == b"C":
        _, lsn, end, _ = COMMIT.unpack_from(data, 1)
        return Commit(lsn, end), 1 + COMMIT.size
    if kind == b"R":
        return _parse_relation(reader), reader.at
    if kind == b"T":
        count = reader.take(LONG)
        _ = reader.take(BYTE)
        return Truncate(tuple(reader.take(LONG) for _ in range(count))), reader.at
    if kind in (b"O", b"Y", b"M"):
        return None, len(data)
    raise Damaged(f"the kind {kind!r} is unknown")


def _parse_update(reader: Reader) -> Update:
    relation = reader.take(LONG)
    old: list[Field] | None = None
    letter = reader.letter()
    _expect(letter, b"KON")
    if letter != b"N":
        old = reader.row()
        _expect(reader.letter(), b"N")
    return Update(relation, old, reader.row())


def _parse_relation(reader: Reader) -> Relation:
    number = reader.take(LONG)
    schema = reader.text()
    name = reader.text()
    identity = reader.letter().decode()
    columns = []
    for _ in range(reader.take(SHORT)):
        is_key = reader.take(BYTE)
        column = reader.text()
        type_ = reader.take(LONG)
        reader.take(LONG)
        columns.append(RelationColumn(bool(is_key & 1), column, type_))
    # Tables of the catalog have an empty name of a schema.
    return Relation(number, schema or "pg_catalog", name, identity, tuple(columns))


def _expect(letter: bytes, allowed: bytes) -> None:
    if not letter or letter not in allowed:
        raise Damaged(f"{letter!r} is where one of {allowed!r} belongs")


ESCAPE = re.compile(rb"\\(.)", re.DOTALL)
ESCAPED = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}


def parse_row(line: bytes) -> list[Field]:
    r"""Reads a line of ``COPY ... TO STDOUT`` in the text format.

    >>> parse_row(b"1\t\\N\ta\\tb\n")
    [b'1', None, b'a\tb']
    """
    fields: Sequence[bytes] = line.removesuffix(b"\n").split(b"\t")
    if b"\\" not in line:
        return list(fields)
    return [None if field == rb"\N" else ESCAPE.sub(_unescaped, field) for field in fields]


def _unescaped(found: re.Match[bytes]) -> bytes:
    return ESCAPED.get(found[1], found[1])
