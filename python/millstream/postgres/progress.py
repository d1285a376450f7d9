"""The table of progress: the number of the last record of each outbox that the database has.

Invariant: a transaction that writes records advances the row of its outbox from the position that this
connection knows, so that of two forwarders of one outbox one finds another position, and fails. When the
answer to a commit is lost, the server is asked for the outcome of that transaction: the position alone does
not tell whose rows are there.
"""

from __future__ import annotations

from dataclasses import dataclass

from .._connectors.table_sink import rival
from .errors import PostgresError, report

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    import psycopg

    from .._connectors.outbox import OutboxIdentity
    from .table import Table


NAME = "millstream_progress"
CREATE = """
CREATE TABLE {} (
    outbox text PRIMARY KEY,
    flow text NOT NULL,
    sink text NOT NULL,
    position bigint NOT NULL,
    changed timestamptz NOT NULL DEFAULT now()
)"""


@dataclass(frozen=True)
class Unanswered:
    """A transaction that has advanced the position, and whose commit has no answer yet.

    Args:
        transaction: its number on the server.
        first: the number of its first record.
    """

    transaction: int
    first: int


class Progress:
    """The progress of one outbox, in the schema of the destination's ``table``.

    Args:
        connection: the connection.
        table: the table of the destination.
        outbox: the outbox.
        unanswered: by the id of an outbox, the transaction whose commit has no answer yet. It outlives the
            connection.
    """

    def __init__(
        self,
        connection: psycopg.Connection[Any],
        table: Table,
        outbox: OutboxIdentity,
        unanswered: dict[str, Unanswered],
    ) -> None:
        from psycopg import sql

        self.connection = connection
        self.server = table.server
        self.outbox = outbox
        self.name = f"{table.schema}.{NAME}"
        name = sql.Identifier(table.schema, NAME)
        self.create_table(table.schema, sql.SQL(CREATE).format(name))
        self.select = sql.SQL("SELECT position FROM {} WHERE outbox = %s").format(name)
        self.insert = sql.SQL(
            "INSERT INTO {} (outbox, flow, sink, position) VALUES (%s, %s, %s, %s) "
            "ON CONFLICT DO NOTHING RETURNING txid_current()"
        ).format(name)
        self.update = sql.SQL(
            "UPDATE {} SET position = %s, changed = now() WHERE outbox = %s AND position = %s "
            "RETURNING txid_current()"
        ).format(name)
        self.known: int | None = None
        self.unanswered = unanswered

    def create_table(self, schema: str, create: Any) -> None:
        """Creates the table if it is missing. Its existence is checked first, since that needs no rights."""
        import psycopg

        found = "SELECT 1 FROM pg_tables WHERE schemaname = %s AND tablename = %s"
        if self.connection.execute(found, (schema, NAME)).fetchone():
            return
        try:
            self.connection.execute(create)
        except (psycopg.errors.DuplicateTable, psycopg.errors.UniqueViolation):
            pass  # Another sink has created it at the same time.
        except psycopg.errors.InsufficientPrivilege as error:
            from psycopg import sql

            grant = sql.SQL("GRANT SELECT, INSERT, UPDATE ON {} TO {}").format(
                sql.Identifier(schema, NAME), sql.Identifier(self.connection.info.user)
            )
            statements = (" ".join(one.as_string(self.connection).split()) for one in (create, grant))
            raise PostgresError(
                f"{self.server}: the table {self.name} cannot be created: {report(error)}. "
                f"Create it with a user that has the right: {'; '.join(statements)}"
            ) from None

    def read(self) -> int | None:
        """Reads the position; None if there is none.

        Raises:
            PostgresError: another process has advanced it since this one has lost the answer to a commit.
        """
        found = self.connection.execute(self.select, (self.outbox.id,)).fetchone()
        self.known = None if found is None else int(found[0])
        unanswered = self.unanswered.get(self.outbox.id)
        if unanswered is not None:
            self.check_outcome(unanswered)
            del self.unanswered[self.outbox.id]
        return self.known

    def check_outcome(self, unanswered: Unanswered) -> None:
        """Checks that the position, if it has advanced, was advanced by that transaction."""
        from psycopg import errors

        if self.known is None or self.known < unanswered.first:
            return
        try:
            found = self.connection.execute("SELECT txid_status(%s)", (unanswered.transaction,)).fetchone()
        except errors.InvalidParameterValue:
            return  # Another server has taken over, which has other numbers.
        # None: the server does not remember a transaction that is so old.
        if found is not None and found[0] in ("aborted", "in progress"):
            raise self.rival(f"has position {self.known}")

    def rival(self, found: str) -> PostgresError:
        """The error that another process delivers, since the table of progress is as ``found`` says."""
        return PostgresError(f"{self.server}: {rival(self.outbox, f'{self.name} {found}')}")

    def advance(self, first: int, last: int) -> None:
        """Advances the position in the transaction that writes the records ``first`` to ``last``.

        Raises:
            PostgresError: the position is another one than this connection knows.
        """
        if self.known is None:
            outbox = self.outbox
            found = self.connection.execute(
                self.insert, (outbox.id, outbox.flow, outbox.sink, last)
            ).fetchone()
        else:
            found = self.connection.execute(self.update, (last, self.outbox.id, first - 1)).fetchone()
        if found is None:
            expected = "no position" if self.known is None else f"position {first - 1}"
            raise self.rival(f"does not have {expected}")
        self.unanswered[self.outbox.id] = Unanswered(int(found[0]), first)

    def committed(self, last: int) -> None:
        """The transaction is committed."""
        self.known = last
        del self.unanswered[self.outbox.id]
