"""Messages of pgoutput and rows of a snapshot as changes: names and types of columns are applied here."""

from __future__ import annotations

import datetime

from .change import Change
from .pgoutput import UNCHANGED, Begin, Commit, Damaged, Delete, Insert, Relation, Truncate, Unchanged, Update

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from .pgoutput import Field, Message

__all__ = ["Decoder", "RowDecoder", "Types"]

FIRST_OWN_TYPE = 16384
"""Types with this number or a greater one are of users."""


class Types:
    """Makes Python values of the text of types, as psycopg does.

    Args:
        base_of: returns the number of the type under a domain, or the number itself.
    """

    def __init__(self, base_of: Callable[[int], int]) -> None:
        self.base_of = base_of
        self.loads: dict[int, Callable[[bytes], Any]] = {}

    def load(self, type_: int) -> Callable[[bytes], Any]:
        """Returns the function for a type. Types that psycopg does not know are text."""
        found = self.loads.get(type_)
        if found is None:
            found = self.loads[type_] = self.make(type_)
        return found

    def make(self, type_: int) -> Callable[[bytes], Any]:
        import psycopg
        from psycopg.pq import Format

        base = self.base_of(type_) if type_ >= FIRST_OWN_TYPE else type_
        loader = psycopg.adapters.get_loader(base, Format.TEXT)
        if loader is None:
            return bytes.decode
        load = loader(base, None).load

        def load_or_text(value: bytes) -> Any:
            try:
                return load(value)
            except psycopg.DataError:
                # Python has no such value: 'infinity' as a date, or a year before 1.
                return value.decode()

        return load_or_text


class RowDecoder:
    """Makes dictionaries of the values of a table's rows."""

    def __init__(self, relation: Relation, types: Types) -> None:
        self.table = f"{relation.schema}.{relation.name}"
        self.names = [column.name for column in relation.columns]
        self.loads = [types.load(column.type) for column in relation.columns]
        self.is_full = relation.identity == "f"
        self.keys = [place for place, column in enumerate(relation.columns) if column.is_key or self.is_full]

    def row(self, fields: Sequence[Field]) -> dict[str, Any]:
        if len(fields) != len(self.names):
            raise Damaged(f"a row of {self.table} has {len(fields)} values for {len(self.names)} columns")
        return {
            name: load(field) if type(field) is bytes else field
            for name, load, field in zip(self.names, self.loads, fields, strict=True)
        }

    def old(self, fields: Sequence[Field]) -> dict[str, Any]:
        """What is known of the row before: the server sends nulls for columns that are not in the key."""
        row = self.row(fields)
        return row if self.is_full else {self.names[place]: row[self.names[place]] for place in self.keys}

    def key(self, row: dict[str, Any]) -> dict[str, Any] | None:
        return {self.names[place]: row[self.names[place]] for place in self.keys} if self.keys else None


class Decoder:
    """Makes changes of the messages of a stream.

    Invariant: ``transaction`` is set between the beginning and the end of a transaction.
    """

    def __init__(self, types: Types) -> None:
        self.types = types
        self.relations: dict[int, RowDecoder] = {}
        self.transaction: Begin | None = None
        self.time: datetime.datetime | None = None

    def changes(self, message: Message) -> list[Change]:
        """The changes in a message: one, for a truncation of several tables more, for others none.

        Raises:
            Damaged: the message does not fit those before it.
        """
        if isinstance(message, Insert):
            rows = self.rows(message.relation)
            new = rows.row(message.new)
            return [self.change("insert", rows.table, rows.key(new), None, new)]
        if isinstance(message, Update):
            return [self.update(message)]
        if isinstance(message, Delete):
            rows = self.rows(message.relation)
            old = rows.old(message.old)
            return [self.change("delete", rows.table, rows.key(old), old, None)]
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

    def update(self, message: Update) -> Change:
        rows = self.rows(message.relation)
        new = rows.row(message.new)
        old = None if message.old is None else rows.old(message.old)
        for name, value in new.items():
            if value is UNCHANGED and old is not None and not isinstance(old.get(name, UNCHANGED), Unchanged):
                new[name] = old[name]
        return self.change("update", rows.table, rows.key(new), old, new)

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
