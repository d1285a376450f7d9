"""The destination of ``ms.postgres.write``: rows and position in one transaction."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from time import monotonic

from .._errors.delivery import Refusals
from .._values.rows import BadRow
from .connection import answered, connect, describe_server, limited
from .errors import PostgresError, is_of_row, may_pass, report, unreachable
from .progress import Progress, Unanswered
from .statements import Statements
from .table import find_table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    import psycopg

    from .._connectors.outbox import OutboxIdentity
    from .._connectors.table_sink import TableOptions


RUN = os.urandom(4).hex()
"""Tells connections of this process from those of others. A forked process connects anew."""


@dataclass(frozen=True)
class Refusal:
    """Why a row is refused, and whether that is a deferred constraint, which later rows may satisfy."""

    error: BadRow | psycopg.Error
    is_deferred: bool


class Destination:
    """A connection that writes items into a table.

    Args:
        options: those of the sink.
        unanswered: what the connections of the sink share, see :class:`Progress`.
    """

    def __init__(self, options: TableOptions, unanswered: dict[str, Unanswered]) -> None:
        self.options = options
        self.unanswered = unanswered
        self.server = describe_server(options.address)
        self.connection: psycopg.Connection[Any] | None = None

    def connect(self, outbox: OutboxIdentity) -> None:
        import psycopg

        name = f"millstream {RUN} {os.getpid()} {outbox.id[:8]} {outbox.sink}"[:63]
        connection = connect(self.options.address, name, self.options.timeout, is_timed=False)
        self.connection = connection
        try:
            with answered(connection, self.options.timeout):
                end_earlier(connection, name)
                self.prepare(connection, outbox)
        except psycopg.Error as error:
            raise unreachable(self.server, error) from None

    def prepare(self, connection: psycopg.Connection[Any], outbox: OutboxIdentity) -> None:
        options = self.options
        table = find_table(connection, options.table, self.server)
        columns = table.chosen(options.columns)
        names = [column.name for column in columns]
        table.chosen(options.key)
        missing = [name for name in options.key if name not in names]
        if missing:
            raise PostgresError(f'{self.server}: "{missing[0]}" is a key column, and not among the columns')
        self.table = f'{self.server}, table "{table}"'
        self.refusals = Refusals(outbox, self.table, PostgresError)
        self.rows = options.rows(names)
        self.statements = Statements(table, columns, options.key, options.delete is not None)
        try:
            self.statements.prepare(connection)
        except psycopg_error("InvalidColumnReference"):
            key = ", ".join(options.key)
            raise PostgresError(
                f"{self.table}: the key ({key}) needs a primary key or a unique constraint on exactly these "
                "columns"
            ) from None
        self.progress = Progress(connection, table, outbox, self.unanswered)

    def position(self) -> int | None:
        import psycopg

        assert self.connection is not None
        try:
            with answered(self.connection, self.options.timeout):
                return self.progress.read()
        except psycopg.Error as error:
            raise unreachable(self.server, error) from None

    def write(self, batch: list[Any], first: int, last: int) -> None:
        import psycopg

        assert self.connection is not None
        started = monotonic()
        try:
            with limited(self.connection, self.options.timeout):
                self.deliver(self.connection, batch, first, last)
        except psycopg.Error as error:
            if monotonic() - started >= self.options.timeout:
                raise TimeoutError(
                    f"{self.table}: a transaction has not ended within {self.options.timeout:g} s"
                ) from None
            # A connection that was ended under a statement has errors of several kinds.
            if self.connection.closed or may_pass(error):
                raise ConnectionError(f"{self.table}: {report(error)}") from None
            raise PostgresError(f"{self.table}: {report(error)}") from None

    def deliver(self, connection: psycopg.Connection[Any], batch: list[Any], first: int, last: int) -> None:
        import psycopg

        try:
            rows = [self.rows.row(item) for item in batch]
            with connection.transaction():
                self.progress.advance(first, last)
                self.statements.write(connection, rows)
        except (BadRow, psycopg.Error) as error:
            if connection.closed or not (isinstance(error, BadRow) or is_of_row(error)):
                raise
            # Some row is refused: find it.
            with connection.transaction():
                self.progress.advance(first, last)
                self.write_others(connection, batch, first)
        self.progress.committed(last)

    def write_others(self, connection: psycopg.Connection[Any], batch: list[Any], first: int) -> None:
        """Writes the rows that the server takes; of the others, each is reported or skipped."""
        refused: dict[int, Refusal] = {}
        self.write_parts(connection, batch, 0, refused)
        self.write_late(connection, batch, refused)
        for place, refusal in sorted(refused.items()):
            self.refusals.refuse(first + place, batch[place], reason(refusal.error))

    def write_parts(
        self, connection: psycopg.Connection[Any], items: list[Any], first: int, refused: dict[int, Refusal]
    ) -> None:
        """Writes the items, which begin at place ``first`` of their batch; notes which are refused."""
        refusal = self.try_part(connection, items)
        if refusal is None:
            return
        if len(items) == 1:
            refused[first] = refusal
            return
        middle = len(items) // 2
        self.write_parts(connection, items[:middle], first, refused)
        self.write_parts(connection, items[middle:], first + middle, refused)

    def write_late(
        self, connection: psycopg.Connection[Any], batch: list[Any], refused: dict[int, Refusal]
    ) -> None:
        """Writes rows that satisfy a deferred constraint with the rows that came after them."""
        left = -1
        while left != len(refused):
            left = len(refused)
            for place in [place for place in sorted(refused) if refused[place].is_deferred]:
                # A later row of the same key replaces it again.
                later = range(place + 1, len(batch)) if self.options.key else ()
                items = [batch[place], *(batch[other] for other in later if other not in refused)]
                if self.try_part(connection, items) is None:
                    del refused[place]

    def try_part(self, connection: psycopg.Connection[Any], items: list[Any]) -> Refusal | None:
        """Writes items and checks all constraints; writes nothing if the server refuses some item."""
        import psycopg

        is_deferred = False
        try:
            rows = [self.rows.row(item) for item in items]
            with connection.transaction():
                self.statements.write(connection, rows, again=True)
                is_deferred = True
                self.statements.check(connection)
        except (BadRow, psycopg.Error) as error:
            if connection.closed or not (isinstance(error, BadRow) or is_of_row(error)):
                raise
            return Refusal(error, is_deferred)
        return None

    def close(self) -> None:
        if self.connection is not None:
            self.connection.close()


def psycopg_error(name: str) -> type[psycopg.Error]:
    """A class of ``psycopg.errors``, which is imported when a sink connects."""
    from psycopg import errors

    found: type[psycopg.Error] = getattr(errors, name)
    return found


def reason(error: BadRow | psycopg.Error) -> str:
    """Why a row is refused, with the column that the server names."""
    if isinstance(error, BadRow):
        return str(error)
    name = error.diag.column_name
    if name is None:
        found = re.match(r"COPY \S+, line \d+, column ([^:]+)(?:: |$)", error.diag.context or "")
        name = None if found is None else found[1]
    return report(error) if name is None else f'column "{name}": {report(error)}'


def end_earlier(connection: psycopg.Connection[Any], name: str) -> None:
    """Ends what earlier connections of this sink in this process have left open on the server.

    The server may not have noticed that a link is cut. Its transaction holds the row of progress then, and
    the new connection would wait for it.
    """
    connection.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = %s "
        "AND usename = current_user AND datname = current_database() AND pid <> pg_backend_pid()",
        (name,),
    )
