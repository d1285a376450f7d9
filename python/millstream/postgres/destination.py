"""The destination of ``ms.postgres.write``: rows and position in one transaction."""

from __future__ import annotations

import logging
import os
import re
from dataclasses import dataclass
from time import monotonic

from .._errors import show
from .connection import answered, connect, describe_server, limited
from .errors import PostgresError, is_of_row, may_pass, report, unreachable
from .progress import Progress, Unanswered
from .rows import BadRow, Rows
from .statements import Statements
from .table import find_table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    import psycopg

    from .._outbox import OutboxIdentity

__all__ = ["Destination", "TableOptions"]

log = logging.getLogger("millstream.flow.sink")
RUN = os.urandom(4).hex()
"""Tells connections of this process from those of others. A forked process connects anew."""


@dataclass(frozen=True)
class TableOptions:
    """What ``ms.postgres.write`` was called with."""

    dsn: str
    table: str
    columns: tuple[str, ...] | None
    key: tuple[str, ...]
    delete: Callable[[Any], object] | None
    on_error: str
    timeout: float


class Destination:
    """A connection that writes items into a table.

    Args:
        options: those of the sink.
        unanswered: what the connections of the sink share, see :class:`Progress`.
    """

    def __init__(self, options: TableOptions, unanswered: dict[str, Unanswered]) -> None:
        self.options = options
        self.unanswered = unanswered
        self.server = describe_server(options.dsn)
        self.connection: psycopg.Connection[Any] | None = None

    def connect(self, outbox: OutboxIdentity) -> None:
        import psycopg

        name = f"millstream {RUN} {os.getpid()} {outbox.id[:8]} {outbox.sink}"[:63]
        connection = connect(self.options.dsn, name, self.options.timeout, is_timed=False)
        self.connection = connection
        self.sink = outbox.sink
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
        self.rows = Rows(columns, options.columns is None, options.key, options.delete)
        self.statements = Statements(table, names, options.key, options.delete is not None)
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
                self.write_parts(connection, batch, first)
        self.progress.committed(last)

    def write_parts(self, connection: psycopg.Connection[Any], batch: list[Any], first: int) -> None:
        """Writes the rows; of those that are refused, each is reported or skipped."""
        import psycopg

        try:
            rows = [self.rows.row(item) for item in batch]
            with connection.transaction():
                self.statements.write(connection, rows, again=True)
        except (BadRow, psycopg.Error) as error:
            if connection.closed or not (isinstance(error, BadRow) or is_of_row(error)):
                raise
            if len(batch) == 1:
                self.refuse(batch[0], first, error)
                return
            middle = len(batch) // 2
            self.write_parts(connection, batch[:middle], first)
            self.write_parts(connection, batch[middle:], first + middle)

    def refuse(self, item: Any, number: int, error: BadRow | psycopg.Error) -> None:
        where = f"{self.table}: record {number}{column_of(error)} is refused"
        why = str(error) if isinstance(error, BadRow) else report(error)
        if self.options.on_error == "fail":
            raise PostgresError(f"{where}: {why}. The row is {show(item)}")
        log.warning(
            'sink "%s": %s and skipped: %s. The row is %s', self.sink, where, why, show(item),
            extra={"sink": self.sink},
        )  # fmt: skip

    def close(self) -> None:
        if self.connection is not None:
            self.connection.close()


def psycopg_error(name: str) -> type[psycopg.Error]:
    """A class of ``psycopg.errors``, which is imported when a sink connects."""
    from psycopg import errors

    found: type[psycopg.Error] = getattr(errors, name)
    return found


def column_of(error: BadRow | psycopg.Error) -> str:
    """The column that an error of the server names."""
    if isinstance(error, BadRow):
        return ""
    name = error.diag.column_name
    if name is None:
        found = re.match(r"COPY \S+, line \d+, column ([^:]+)(?:: |$)", error.diag.context or "")
        name = None if found is None else found[1]
    return "" if name is None else f', column "{name}",'


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
