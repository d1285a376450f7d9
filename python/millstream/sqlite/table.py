"""The destination of ``ms.sqlite.write``: rows and the position of the outbox in one transaction."""

from __future__ import annotations

import datetime
import decimal
import json
import os
import sqlite3
import uuid
from collections.abc import Mapping

from .._connectors.table_sink import rival
from .._errors.delivery import Refusals
from .._values.rows import EMPTY, BadRow, Row
from .errors import SqliteError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .._connectors.outbox import OutboxIdentity
    from .._connectors.table_sink import TableOptions


PROGRESS = """
CREATE TABLE IF NOT EXISTS millstream_progress (
    outbox TEXT PRIMARY KEY, flow TEXT NOT NULL, sink TEXT NOT NULL, position INTEGER NOT NULL,
    changed TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP)
"""
ADVANCE = """
INSERT INTO millstream_progress (outbox, flow, sink, position) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (outbox) DO UPDATE SET position = ?4, changed = CURRENT_TIMESTAMP WHERE position = ?5
"""
PASSING = ("locked", "busy", "full", "disk i/o error")
"""Parts of the messages of errors after which another attempt may succeed."""
REFUSALS = (sqlite3.IntegrityError, sqlite3.DataError, sqlite3.InterfaceError, sqlite3.ProgrammingError)


class SqliteTable:
    """A connection that writes items into a table."""

    def __init__(self, options: TableOptions) -> None:
        self.options = options
        self.name, self.table = f'{options.address}, table "{options.table}"', quoted(options.table)
        self.db: sqlite3.Connection | None = None

    def connect(self, outbox: OutboxIdentity) -> None:
        options = self.options
        if not os.path.exists(options.address):
            raise SqliteError(f"{options.address} does not exist: create the database and the table first")
        self.outbox = outbox
        self.refusals = Refusals(outbox, self.name, SqliteError)
        self.db = sqlite3.connect(options.address, timeout=options.timeout, isolation_level=None)
        try:
            self.prepare(self.db)
        except sqlite3.Error as error:
            raise self.failure(error) from None

    def prepare(self, db: sqlite3.Connection) -> None:
        options = self.options
        there = {row[1]: row[6] for row in db.execute(f"PRAGMA table_xinfo({self.table})")}
        if not there:
            raise SqliteError(f'{options.address}: there is no table "{options.table}"')
        names = list(options.columns or [name for name, hidden in there.items() if not hidden])
        wrong = [name for name in names if there.get(name, 1)] + [
            name for name in options.key if name not in names
        ]
        if wrong:
            raise SqliteError(
                f'{self.name}: column "{wrong[0]}" cannot be written; it has {", ".join(there)}'
            )
        self.names = names
        self.rows = options.rows(names)
        self.statement = self.insert()
        self.same = " AND ".join(f"{quoted(name)} = ?" for name in options.key)
        db.execute(f"EXPLAIN {self.statement}", [None] * len(names))
        db.execute(PROGRESS)

    def insert(self) -> str:
        """The statement that writes a row."""
        key = self.options.key
        marks = ", ".join("?" * len(self.names))
        names = ", ".join(map(quoted, self.names))
        insert = f"INSERT INTO {self.table} ({names}) VALUES ({marks})"
        update = ", ".join(
            f"{quoted(name)} = excluded.{quoted(name)}" for name in self.names if name not in key
        )
        conflict = f" ON CONFLICT ({', '.join(map(quoted, key))}) DO " + (
            f"UPDATE SET {update}" if update else "NOTHING"
        )
        return insert + conflict if key else insert

    def position(self) -> int | None:
        assert self.db is not None
        query = "SELECT position FROM millstream_progress WHERE outbox = ?"
        try:
            found = self.db.execute(query, (self.outbox.id,)).fetchone()
        except sqlite3.Error as error:
            raise self.failure(error) from None
        return None if found is None else int(found[0])

    def write(self, batch: list[Any], first: int, last: int) -> None:
        assert self.db is not None
        outbox = self.outbox
        try:
            self.db.execute("BEGIN IMMEDIATE")
            advanced = self.db.execute(ADVANCE, (outbox.id, outbox.flow, outbox.sink, last, first - 1))
            if advanced.rowcount != 1:
                found = f"millstream_progress does not have position {first - 1}"
                raise SqliteError(f"{self.options.address}: {rival(outbox, found)}")
            for number, item in enumerate(batch, first):
                refusal = self.refusal(self.db, item)
                if refusal is None:
                    continue
                self.refusals.refuse(number, item, refusal)
                if not self.db.in_transaction:
                    raise SqliteError(f"{self.name}: record {number} has ended the transaction: {refusal}")
            self.db.execute("COMMIT")
        except sqlite3.Error as error:
            raise self.failure(error) from None
        finally:
            if self.db.in_transaction:
                self.db.execute("ROLLBACK")

    def refusal(self, db: sqlite3.Connection, item: Any) -> str | None:
        """Writes an item; returns why it is refused, if it is. A statement that fails has no effect."""
        try:
            self.write_row(db, self.rows.row(item))
        except BadRow as error:
            return str(error)
        except (*REFUSALS, TypeError, ValueError, OverflowError, RecursionError) as error:
            return f"{type(error).__name__}: {error}"
        return None

    def write_row(self, db: sqlite3.Connection, row: Row) -> None:
        if row is EMPTY:
            db.execute(f"DELETE FROM {self.table}")
            return
        width = len(self.names)
        keys = self.options.key
        values = dict(zip(self.names, map(adapted, row), strict=False))
        key = [values[name] for name in keys]
        if self.options.delete is not None and row[-1]:
            db.execute(f"DELETE FROM {self.table} WHERE {self.same}", key)
        elif keys and row[width]:
            unchanged = [self.names[place - 1] for place in row[width]]
            given = [name for name in self.names if name not in unchanged]
            update = ", ".join(f"{quoted(name)} = ?" for name in given)
            found = [*(values[name] for name in given), *key]
            if not db.execute(f"UPDATE {self.table} SET {update} WHERE {self.same}", found).rowcount:
                raise BadRow(f'column "{unchanged[0]}" is UNCHANGED, and the table has no row with this key')
        else:
            db.execute(self.statement, list(values.values()))

    def failure(self, error: sqlite3.Error) -> Exception:
        """The exception for an error: OSError if another attempt may succeed."""
        may_pass = any(part in str(error).lower() for part in PASSING)
        return (OSError if may_pass else SqliteError)(f"{self.name}: {error}")

    def close(self) -> None:
        if self.db is not None:
            self.db.close()


def quoted(name: str) -> str:
    """A name as SQL."""
    return '"' + name.replace('"', '""') + '"'


def adapted(value: Any) -> Any:
    """A value as one that SQLite has."""
    if isinstance(value, (datetime.datetime, datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, (decimal.Decimal, uuid.UUID)):
        return str(value)
    if isinstance(value, (list, tuple, Mapping)):
        return json.dumps(value, allow_nan=False, ensure_ascii=False)
    return value
