"""A replication connection: commands, and the stream of changes of a slot.

Of psycopg it uses the module ``pq``, the functions of libpq: the rest of the library has no replication.
"""

from __future__ import annotations

import select
import time

from .connection import connection_parameters, describe_server, limited
from .errors import REFUSALS, PostgresError, code_may_pass, one_line
from .pgoutput import Keepalive, Wal, format_lsn, parse_frame, status_update

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from psycopg.pq.abc import PGconn, PGresult


SESSION = (
    "-c datestyle=ISO -c timezone=UTC -c intervalstyle=postgres -c extra_float_digits=3 "
    "-c bytea_output=hex -c row_security=off -c statement_timeout=0 -c idle_in_transaction_session_timeout=0"
)
"""Settings on which the text of values depends, the same for snapshots and streams; no limits of time; and an
error where policies would hide rows of a snapshot, since a stream has all rows."""


def with_settings(dsn: str, encoding: str = "UTF8", **more: str) -> str:
    """The parameters of a connection that reads values as text, in an encoding."""
    from psycopg.conninfo import conninfo_to_dict

    given = conninfo_to_dict(dsn).get("options")
    options = f"{given} {SESSION}" if given else SESSION
    return connection_parameters(dsn, options=options, client_encoding=encoding, **more)


class Replication:
    """A connection on which the server executes replication commands.

    Args:
        dsn: the connection string.
        name: the name of the application.
        timeout: after how long without an answer the connection has failed, in seconds.
        encoding: the encoding of the text that the server sends.

    Raises:
        ConnectionError: the server is unreachable.
        PostgresError: it refuses the connection.
    """

    def __init__(self, dsn: str, name: str, timeout: float, encoding: str) -> None:
        from psycopg import pq

        self.server = describe_server(dsn)
        self.timeout = timeout
        self.heard = time.monotonic()
        parameters = with_settings(dsn, encoding, replication="database", application_name=name[:63])
        self.libpq: PGconn = pq.PGconn.connect(parameters.encode())
        if self.libpq.status != pq.ConnStatus.OK:
            text = self.message()
            self.libpq.finish()
            raise self.failure(text)

    def message(self) -> str:
        """The last message of the library on one line."""
        return one_line(self.libpq.get_error_message()) or "the connection is lost"

    def failure(self, text: str) -> Exception:
        """The exception for an error of the connection itself."""
        final = any(refusal in text for refusal in REFUSALS)
        final = final or ("does not exist" in text and ('database "' in text or 'role "' in text))
        return (PostgresError if final else ConnectionError)(f"{self.server}: {text}")

    def error(self, result: PGresult) -> Exception:
        """The exception for a result that is an error."""
        from psycopg.pq import DiagnosticField

        code = (result.error_field(DiagnosticField.SQLSTATE) or b"").decode()
        parts = [
            (result.error_field(field) or b"").decode(errors="replace")
            for field in (
                DiagnosticField.MESSAGE_PRIMARY,
                DiagnosticField.MESSAGE_DETAIL,
                DiagnosticField.MESSAGE_HINT,
            )
        ]
        if not code:
            return self.failure(self.message())
        text = "; ".join(part for part in parts if part)
        # A slot that is in use: the server has not noticed yet that an earlier connection is gone.
        passes = code_may_pass(code) or code == "55006"
        return (ConnectionError if passes else PostgresError)(f"{self.server}: {text}")

    def execute(
        self, command: str, waiting: Callable[[float], None] | None = None
    ) -> list[dict[str, str | None]]:
        """Executes a command; returns the rows of its result.

        Args:
            command: the command.
            waiting: is called while there is no answer, with the seconds so far; there is no limit then.

        Raises:
            ConnectionError: the connection is lost.
            PostgresError: the server refuses it.
        """
        from psycopg.pq import ExecStatus

        result = self.result(command, waiting)
        if result.status not in (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK):
            raise self.error(result)
        names = [(result.fname(column) or b"").decode() for column in range(result.nfields)]
        rows = []
        for row in range(result.ntuples):
            values = (result.get_value(row, column) for column in range(result.nfields))
            texts = [None if value is None else bytes(value).decode(errors="replace") for value in values]
            rows.append(dict(zip(names, texts, strict=True)))
        return rows

    def result(self, command: str, waiting: Callable[[float], None] | None) -> PGresult:
        """Executes a command; returns its result, which may be an error."""
        if waiting is None:
            return self.answer(command)
        started = time.monotonic()
        self.libpq.send_query(command.encode())
        while self.libpq.is_busy():
            readable, _, _ = select.select([self.libpq.socket], [], [], 0.25)
            if readable:
                self.libpq.consume_input()
            waiting(time.monotonic() - started)
        result = self.libpq.get_result()
        if result is None:
            raise self.failure(self.message())
        while self.libpq.get_result() is not None:
            pass
        return result

    def answer(self, command: str) -> PGresult:
        """The result of a command that the server answers at once, which may be an error.

        Raises:
            ConnectionError: there is no answer within the time limit.
        """
        from psycopg.pq import ConnStatus

        started = time.monotonic()
        with limited(self.libpq, self.timeout):
            result = self.libpq.exec_(command.encode())
        # The library reports that the server has closed a connection which the time limit has shut down.
        if time.monotonic() - started >= self.timeout and self.libpq.status != ConnStatus.OK:
            raise self.silence()
        return result

    def silence(self) -> ConnectionError:
        return ConnectionError(f"{self.server}: no answer for {self.timeout:g} s")

    def start(self, slot: str, publication: str, lsn: int) -> None:
        """Begins the stream of a slot with the first transaction that is committed at or after ``lsn``.

        Raises:
            ConnectionError: the connection is lost, or the slot is in use.
            PostgresError: the server refuses it.
        """
        from psycopg.pq import ExecStatus

        quoted = '"' + publication.replace('"', '""') + '"'
        literal = "'" + quoted.replace("'", "''") + "'"
        command = f'START_REPLICATION SLOT "{slot}" LOGICAL {format_lsn(lsn)} '
        command += f"(proto_version '1', publication_names {literal})"
        result = self.answer(command)
        if result.status != ExecStatus.COPY_BOTH:
            raise self.error(result)
        self.heard = time.monotonic()

    def receive(self, seconds: float) -> Wal | Keepalive | None:
        """Returns the next message; None if there is none within ``seconds``.

        Raises:
            ConnectionError: the connection is lost, or the server was silent for too long.
            PostgresError: the server has ended the stream for good.
        """
        frame = self.buffered()
        if frame is not None or not seconds:
            return frame
        readable, _, _ = select.select([self.libpq.socket], [], [], seconds)
        if readable:
            return self.buffered()
        if time.monotonic() - self.heard > self.timeout:
            raise self.silence()
        return None

    def buffered(self) -> Wal | Keepalive | None:
        from psycopg import OperationalError

        try:
            length, data = self.libpq.get_copy_data(1)
            if not length:
                self.libpq.consume_input()
                length, data = self.libpq.get_copy_data(1)
        except OperationalError as error:
            raise self.failure(one_line(str(error))) from None
        if length > 0:
            self.heard = time.monotonic()
            return parse_frame(bytes(data))
        if length == 0:
            return None
        raise self.ended()

    def ended(self) -> Exception:
        """The exception for a stream that the server has ended."""
        from psycopg.pq import ExecStatus

        while (result := self.libpq.get_result()) is not None:
            if result.status == ExecStatus.FATAL_ERROR:
                return self.error(result)
            if result.status == ExecStatus.COPY_IN:
                break
        return ConnectionError(f"{self.server}: the server has ended the stream")

    def confirm(self, lsn: int, reply: bool) -> None:
        """Tells the server that everything before ``lsn`` is processed.

        Raises:
            ConnectionError: the connection is lost.
        """
        from psycopg import OperationalError

        try:
            with limited(self.libpq, self.timeout):
                self.libpq.put_copy_data(status_update(lsn, time.time_ns() // 1000, reply))
                self.libpq.flush()
        except OperationalError as error:
            raise self.failure(one_line(str(error))) from None

    def close(self) -> None:
        self.libpq.finish()
