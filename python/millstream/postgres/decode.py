"""Messages of pgoutput and rows of a snapshot as changes: names and types of columns are applied here.

Invariant: no row of a table ends the stream. A row with a value that cannot be decoded is an ``Undecoded``,
which has all that the server has sent.
"""

from __future__ import annotations

import datetime

from .._connectors.adapter.undecoded import Undecoded
from .._values.rows import UNCHANGED
from .change import Change
from .errors import PostgresError
from .pgoutput import Begin, Commit, Damaged, Delete, Insert, Relation, Truncate, Update, format_lsn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, Literal

    from .pgoutput import Field, Message
    from .types import Types


class WrongValue(Exception):
    """A value that cannot be decoded, in the column ``column``."""

    def __init__(self, column: str, error: Exception) -> None:
        super().__init__(column, error)
        self.column = column
        self.error = error


class RowDecoder:
    """Makes dictionaries of the values of a table's rows."""

    def __init__(self, relation: Relation, types: Types) -> None:
        self.server = types.server
        self.table = f"{relation.schema}.{relation.name}"
        self.names = [column.name for column in relation.columns]
        self.loads = [types.load(column.type) for column in relation.columns]
        self.is_full = relation.identity == "f"
        self.keys = [place for place, column in enumerate(relation.columns) if column.is_key or self.is_full]

    def row(self, fields: Sequence[Field]) -> dict[str, Any]:
        """The values of a row.

        Raises:
            WrongValue: one cannot be decoded.
        """
        self.check_width(fields)
        try:
            return {
                name: load(field) if type(field) is bytes else field
                for name, load, field in zip(self.names, self.loads, fields, strict=True)
            }
        except Exception as error:
            raise self.wrong_value(fields, error) from None

    def wrong_value(self, fields: Sequence[Field], first: Exception) -> WrongValue:
        """The value of a row that could not be decoded."""
        for name, load, field in zip(self.names, self.loads, fields, strict=True):
            try:
                if type(field) is bytes:
                    load(field)
            except Exception as error:
                return WrongValue(name, error)
        return WrongValue("(any)", first)

    def raw(self, fields: Sequence[Field]) -> dict[str, Any]:
        """The values as the server has sent them: bytes, None or UNCHANGED."""
        self.check_width(fields)
        return dict(zip(self.names, fields, strict=True))

    def check_width(self, fields: Sequence[Field]) -> None:
        if len(fields) != len(self.names):
            raise Damaged(f"a row of {self.table} has {len(fields)} values for {len(self.names)} columns")

    def of_identity(self, row: dict[str, Any]) -> dict[str, Any]:
        """What is known of the row before: the server sends nulls for columns that are not in the key."""
        return row if self.is_full else {self.names[place]: row[self.names[place]] for place in self.keys}

    def old(self, fields: Sequence[Field]) -> dict[str, Any]:
        return self.of_identity(self.row(fields))

    def key(self, row: dict[str, Any]) -> dict[str, Any] | None:
        return {self.names[place]: row[self.names[place]] for place in self.keys} if self.keys else None

    def snapshot(self, fields: Sequence[Field], lsn: int) -> Change | Undecoded:
        """A row of a snapshot."""
        try:
            new = self.row(fields)
        except WrongValue as wrong:
            raw = Change("snapshot", self.table, None, None, self.raw(fields), lsn, None, None)
            return self.undecoded(raw, wrong)
        return Change("snapshot", self.table, self.key(new), None, new, lsn, None, None)

    def undecoded(self, raw: Change, wrong: WrongValue) -> Undecoded:
        """The place of a change that has a wrong value; ``raw`` has the values as they were sent."""
        sent = raw.old if raw.new is None else raw.new
        assert sent is not None
        raw.key = self.key({name: self.decoded_or_sent(name, value) for name, value in sent.items()})
        position = f"{self.table} at {format_lsn(raw.lsn)}"
        error = PostgresError(
            f'{self.server}: column "{wrong.column}" of a row of {position} '
            f"cannot be decoded: {type(wrong.error).__name__}: {wrong.error}. on_error= of the source can "
            "skip such rows or keep them as dead letters"
        )
        return Undecoded(raw, error, raw.key, position)

    def decoded_or_sent(self, name: str, value: Field) -> Any:
        if type(value) is not bytes:
            return value
        try:
            return self.loads[self.names.index(name)](value)
        except Exception:
            return value


class Decoder:
    """Makes changes of the messages of a stream.

    Invariant: ``transaction`` is set between the beginning and the end of a transaction.
    """

    def __init__(self, types: Types) -> None:
        self.types = types
        self.relations: dict[int, RowDecoder] = {}
        self.transaction: Begin | None = None
        self.time: datetime.datetime | None = None

    def changes(self, message: Message) -> list[Change | Undecoded]:
        """The changes in a message: one, for a truncation of several tables more, for others none.

        Raises:
            Damaged: the message does not fit those before it.
        """
        if isinstance(message, Insert):
            return [self.row_change("insert", message.relation, None, message.new)]
        if isinstance(message, Update):
            return [self.row_change("update", message.relation, message.old, message.new)]
        if isinstance(message, Delete):
            return [self.row_change("delete", message.relation, message.old, None)]
        if isinstance(message, Truncate):
            tables = [self.rows(relation).table for relation in message.relations]
            return [self.change("truncate", table, None, None, None) for table in tables]
        if isinstance(message, Relation):
            self.relations[message.number] = RowDecoder(message, self.types)
        elif isinstance(message, Begin):
            self.transaction = message
            self.time = datetime.datetime.fromtimestamp(0, datetime.timezone.utc) + datetime.timedelta(
                microseconds=message.time_us
            )
        elif isinstance(message, Commit):
            self.transaction = None
        return []

    def row_change(
        self,
        kind: Literal["insert", "update", "delete"],
        relation: int,
        old: Sequence[Field] | None,
        new: Sequence[Field] | None,
    ) -> Change | Undecoded:
        rows = self.rows(relation)
        try:
            known = None if old is None else rows.old(old)
            row = None if new is None else rows.row(new)
        except WrongValue as wrong:
            sent = None if old is None else rows.of_identity(rows.raw(old))
            raw = self.change(kind, rows.table, None, sent, None if new is None else rows.raw(new))
            return rows.undecoded(raw, wrong)
        if row is not None and known is not None:
            for name, value in row.items():
                if value is UNCHANGED and known.get(name, UNCHANGED) is not UNCHANGED:
                    row[name] = known[name]
        of_key = known if row is None else row
        assert of_key is not None
        return self.change(kind, rows.table, rows.key(of_key), known, row)

    def rows(self, relation: int) -> RowDecoder:
        found = self.relations.get(relation)
        if found is None:
            raise Damaged(f"the relation {relation} was not described")
        return found

    def change(self, kind: Any, table: str, key: Any, old: Any, new: Any) -> Change:
        if self.transaction is None:
            raise Damaged(f"a change of {table} is in no transaction")
        return Change(
            kind, table, key, old, new, self.transaction.lsn, self.time, self.transaction.transaction
        )
