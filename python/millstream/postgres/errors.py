"""Errors of PostgreSQL: those after which another attempt may succeed, and the others."""

from __future__ import annotations

from .._errors.flow import FlowError

TYPE_CHECKING = False
if TYPE_CHECKING:
    import psycopg


RETRIED_CLASSES = (
    "08",  # connection exceptions
    "40",  # transactions rolled back: serialization, deadlock
    "53",  # insufficient resources: disk full, out of memory, too many connections
    "57",  # operator intervention: shutdown, crash, statement timeout
    "58",  # system errors
)
RETRIED = (
    "55P03",  # a lock is not available
    "25006",  # the server is read-only, as during a failover
    "25P03",  # the server has closed an idle transaction
)
ROW_CLASSES = (
    "21",  # cardinality violations
    "22",  # data exceptions: a value does not have the type of its column
    "23",  # integrity constraint violations
    "44",  # WITH CHECK OPTION violations
    "P0",  # exceptions of triggers
)
REFUSALS = (
    "authentication failed",
    "no password supplied",
    "no pg_hba.conf entry",
    "is not permitted to log in",
    "permission denied for database",
    "must be superuser or replication role",
    "permission denied to start WAL sender",
    # Of the library, about the server's certificate.
    "certificate verify failed",
    "does not match host name",
    "root certificate file",
    "server does not support SSL, but SSL was required",
)
"""Parts of messages with which a connection is refused. The library reports no code for them."""


class PostgresError(FlowError):
    """PostgreSQL refuses what a sink or source asks for, and another attempt would fail in the same way.

    The text names the server, the table and, where there is one, the row and the column.
    """


FINAL = (
    "53400",  # a configured limit, such as that of replication slots, is reached
    "58P01",  # a file is missing: the log that a slot needs was removed
)


def code_may_pass(code: str) -> bool:
    """Returns the same for the code of an error (SQLSTATE)."""
    return code not in FINAL and (code[:2] in RETRIED_CLASSES or code in RETRIED)


def may_pass(error: psycopg.Error) -> bool:
    """Returns whether another attempt may succeed without a change by a person."""
    code = error.sqlstate
    if code is not None:
        return code_may_pass(code)
    import psycopg

    text = str(error)
    if any(refusal in text for refusal in REFUSALS):
        return False
    missing = 'FATAL:  database "' in text or 'FATAL:  role "' in text
    if missing and "does not exist" in text:
        return False
    return isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError))


def is_of_row(error: psycopg.Error) -> bool:
    """Returns whether a row is the cause: its values, and not the connection or the statement."""
    import psycopg

    if error.sqlstate is not None:
        return error.sqlstate[:2] in ROW_CLASSES
    # A value that the library cannot convert.
    return isinstance(error, (psycopg.DataError, psycopg.ProgrammingError, psycopg.NotSupportedError))


def report(error: psycopg.Error) -> str:
    """The message of an error on one line, with the detail, without the statement.

    >>> import psycopg
    >>> report(psycopg.OperationalError("connection failed\\nIs the server running?"))
    'connection failed; Is the server running?'
    """
    diag = error.diag
    text = diag.message_primary or str(error)
    if diag.message_detail and diag.message_primary:
        text += f"\n{diag.message_detail}"
    if diag.message_hint and diag.message_primary:
        text += f"\n{diag.message_hint}"
    return one_line(text)


def one_line(text: str) -> str:
    """A message of the library on one line.

    >>> one_line("server closed the connection\\n\\tbefore the request.\\n")
    'server closed the connection; before the request.'
    """
    return "; ".join(line.strip() for line in text.splitlines() if line.strip())


def unreachable(server: str, error: psycopg.Error) -> Exception:
    """The exception for an error of a connection: ConnectionError if another attempt may succeed."""
    text = f"{server}: {report(error)}"
    return ConnectionError(text) if may_pass(error) else PostgresError(text)


PostgresError.__module__ = "millstream.postgres"
