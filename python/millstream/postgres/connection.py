"""Connections to PostgreSQL: parameters, a description for messages, and a limit for calls that hang."""

from __future__ import annotations

import os
import socket
import threading
import time
from contextlib import contextmanager, nullcontext

from .errors import PostgresError, unreachable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    import psycopg


CLIENT_DEFAULTS = {
    "client_encoding": "UTF8",
    "connect_timeout": "10",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
}
"""Text is text in a database of any encoding; a link that is cut without a word is noticed within 30 s."""

SERVER_DEFAULTS = (
    "SET tcp_keepalives_idle = 10; SET tcp_keepalives_interval = 5; SET tcp_keepalives_count = 3; "
    "SET tcp_user_timeout = 30000"
)
"""The same for the server: a transaction of a client that is gone holds its locks until then."""


def import_psycopg() -> Any:
    """Imports the client library; an error that names the remedy where it is missing."""
    try:
        import psycopg
    except ImportError as error:
        raise PostgresError(
            f"ms.postgres needs psycopg 3 ({error}): pip install 'millstream[postgres]'"
        ) from None
    return psycopg


def connection_parameters(dsn: str, **more: str) -> str:
    """Returns a connection string with defaults for what it leaves open.

    >>> sorted(connection_parameters("host=db connect_timeout=3").split())[1]
    'connect_timeout=3'
    """
    import_psycopg()
    from psycopg.conninfo import conninfo_to_dict, make_conninfo

    given = conninfo_to_dict(dsn)
    return make_conninfo("", **(CLIENT_DEFAULTS | given | more))


def describe_server(dsn: str) -> str:
    """The server and database of a connection string, without its secrets.

    >>> describe_server("postgresql://me:secret@db:5433/shop")
    'PostgreSQL at db:5433, database "shop"'
    """
    import_psycopg()
    from psycopg.conninfo import conninfo_to_dict

    given = conninfo_to_dict(dsn)
    host = given.get("host") or given.get("hostaddr") or os.environ.get("PGHOST") or "the local socket"
    port = given.get("port") or os.environ.get("PGPORT") or "5432"
    user = given.get("user") or os.environ.get("PGUSER")
    database = given.get("dbname") or os.environ.get("PGDATABASE") or user or "of the user"
    return f'PostgreSQL at {host}:{port}, database "{database}"'


def connect(dsn: str, name: str, seconds: float, *, is_timed: bool = True) -> psycopg.Connection[Any]:
    """Connects, with ``name`` as the name of the application and a time limit.

    Args:
        dsn: the connection string.
        name: the name of the application.
        seconds: the limit.
        is_timed: whether it holds for each statement. Otherwise it holds for the set-up of the connection,
            and the caller limits what it executes.

    Raises:
        ConnectionError: the server is unreachable.
        PostgresError: it refuses the connection.
    """
    parameters = connection_parameters(dsn, application_name=name[:63])
    import psycopg

    try:
        kind: type[psycopg.Connection[Any]] = timed_connection(seconds) if is_timed else psycopg.Connection
        connection = kind.connect(parameters, autocommit=True)
    except psycopg.Error as error:
        raise unreachable(describe_server(dsn), error) from None
    try:
        with nullcontext() if is_timed else answered(connection, seconds):
            connection.execute(SERVER_DEFAULTS)
    except psycopg.Error as error:
        if connection.closed:
            raise unreachable(describe_server(dsn), error) from None
        # A pooler may refuse these settings.
    return connection


def timed_connection(seconds: float) -> type[psycopg.Connection[Any]]:
    """The class of connections whose statements have a time limit."""
    from typing import Any

    import psycopg

    class Timed(psycopg.Connection[Any]):
        def execute(self, *args: Any, **kwargs: Any) -> psycopg.Cursor[Any]:
            with answered(self, seconds):
                return super().execute(*args, **kwargs)

    return Timed


@contextmanager
def answered(connection: psycopg.Connection[Any], seconds: float) -> Iterator[None]:
    """Limits the block as :func:`limited` does, with an error that says so."""
    import psycopg

    started = time.monotonic()
    try:
        with limited(connection, seconds):
            yield
    except psycopg.OperationalError:
        # The library reports that the server has closed a connection which the limit has shut down.
        if connection.closed and time.monotonic() - started >= seconds:
            raise psycopg.OperationalError(f"no answer for {seconds:g} s") from None
        raise


@contextmanager
def limited(connection: psycopg.Connection[Any] | psycopg.pq.abc.PGconn, seconds: float) -> Iterator[None]:
    """Shuts the connection down if the block takes longer: a call that waits for the server fails then."""
    timer = threading.Timer(seconds, shut_down, (connection,))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def shut_down(connection: psycopg.Connection[Any] | psycopg.pq.abc.PGconn) -> None:
    """Ends the connection under a call on another thread."""
    try:
        number = connection.socket if hasattr(connection, "socket") else connection.fileno()
        end = socket.socket(fileno=os.dup(number))
    except Exception:
        return
    try:
        end.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
    finally:
        end.close()
