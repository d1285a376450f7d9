"""Tables of ClickHouse as sinks of flows, over its HTTP interface. No client library is needed."""

from __future__ import annotations

import http.client
import json
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode, urlsplit

from ._connectors.outbox import destination, with_outbox
from ._connectors.servers import TLS, Login, Server, context_of, named, parts_of
from ._errors.delivery import Refusals
from ._errors.flow import FlowUsageError
from ._values.durations import seconds

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Unpack

    from ._connectors.outbox import OutboxIdentity, OutboxOptions, OutboxSink
    from ._values.durations import Seconds

__all__ = ["write"]

OF_ROWS = {6, 26, 27, 33, 38, 41, 53, 69, 70, 72, 117, 130, 131, 349, 376, 441, 469, 675, 676}
"""Codes of errors of values: they are not of the type of their column, or a constraint is violated."""
FINAL = {16, 36, 46, 47, 48, 57, 60, 62, 81, 115, 164, 192, 193, 194, 195, 291, 497, 516}
"""Codes of errors that a person must correct: logins and rights, tables and columns that are missing."""


@with_outbox(batch=10_000, batch_bytes="16MiB")
def write(
    url: str,
    table: str,
    *,
    encode: Callable[[Any], Mapping[str, Any]] | None = None,
    id_column: str | None = None,
    timeout: Seconds = 30.0,
    login: Login | None = None,
    **outbox: Unpack[OutboxOptions],
) -> OutboxSink[Any]:
    """Inserts items as rows of a table, each at least once in a run with a state directory.

    A delivery is one ``INSERT``, and none of its rows is there if it fails. A delivery whose answer was lost
    is inserted again. With ``id_column`` a row has the same text in this column each time: a table with the
    engine ``ReplacingMergeTree`` that is ordered by it has each item once, when it is read with ``FINAL``.
    ClickHouse asks for few and large inserts.

    Args:
        url: the address of the HTTP interface, ``http://HOST:PORT`` or ``https://``; the ports are 8123 and
            8443 by default. Its query may have settings, such as ``?database=shop``.
        table: the table, such as ``"orders"`` or ``"shop.orders"``. It must exist.
        encode: makes a row of an item: a mapping from columns to values of JSON. None: items are that
            already. A column that is missing has its default.
        id_column: a column of the type ``String``. None: there is none.
        timeout: how long an answer is waited for, in seconds.
        login: user and password, certificates. None: the user ``default`` without a password.

    Returns:
        The sink.

    Raises:
        FlowUsageError: an option has a wrong value, or a certificate cannot be read.

    Example:
        >>> import millstream as ms
        >>> ms.clickhouse.write("http://localhost:8123", "shop.orders", id_column="id", batch_age=1)
        <sink clickhouse shop.orders>
    """
    named(table=table, id_column=id_column)
    server = Server.at(url, login, "http", "https")
    given = parts_of(server.login, "ms.clickhouse.write", "user", "password", *TLS)
    context = context_of(server.login)
    if context is not None and not url.startswith("https:"):
        raise FlowUsageError("ms.clickhouse.write: a login with certificates needs an address https://")
    names = {"user": "X-ClickHouse-User", "password": "X-ClickHouse-Key"}
    headers = {names[part]: value for part, value in given.items() if part in names}
    if not all(value.isascii() and value.isprintable() for value in headers.values()):
        raise FlowUsageError("ms.clickhouse.write: user and password have printable ASCII characters only")
    limit = seconds("timeout", timeout)
    make = destination(f"clickhouse {table}", _Table, **outbox)
    return make(server, headers, context, table, encode, id_column, limit)


class _Table:
    """The destination of ``write``."""

    def __init__(
        self, server: Server, headers: Any, context: Any,
        table: str, encode: Any, id_column: str | None, timeout: float,
    ) -> None:  # fmt: skip
        self.server = server
        self.headers = headers
        self.encode = encode
        self.id_column = id_column
        self.place = f'table "{table}": '
        parts = urlsplit(server.url)
        quoted = ".".join(f"`{name}`" for name in table.replace("\\", "\\\\").replace("`", "\\`").split("."))
        self.query = {"query": f"INSERT INTO {quoted} FORMAT JSONEachRow", "wait_end_of_query": "1"}
        self.path = f"{parts.path or '/'}?{parts.query}{'&' if parts.query else ''}{urlencode(self.query)}"
        secure = http.client.HTTPSConnection
        plain = http.client.HTTPConnection
        host = parts.hostname or "localhost"
        port = parts.port
        self.connection: http.client.HTTPConnection = (
            secure(host, port or 8443, timeout=timeout, context=context)
            if parts.scheme == "https"
            else plain(host, port or 8123, timeout=timeout)
        )

    def connect(self, outbox: OutboxIdentity) -> None:
        self.id = outbox.id
        self.refusals = Refusals(outbox, f"{self.server.address}, {self.place[:-2]}")

    def row(self, item: Any) -> dict[str, Any]:
        made = item if self.encode is None else self.encode(item)
        if not isinstance(made, Mapping) or not made:
            raise TypeError(f"a row is a mapping from columns to values, not {type(made).__name__}")
        # NaN is no JSON, and a text with half a surrogate pair has no bytes.
        json.dumps(made, allow_nan=False, ensure_ascii=False).encode()
        return dict(made)

    def write(self, batch: list[Any], first: int, last: int) -> None:
        made = self.refusals.made(self.row, batch, first)
        for number, _, row in made:
            if self.id_column is not None:
                row[self.id_column] = f"{self.id}-{number}"
        self.insert(made)

    def insert(self, made: list[tuple[int, Any, dict[str, Any]]]) -> None:
        """Inserts rows; of those that are refused, each is found by halves."""
        if not made:
            return
        body = "\n".join(json.dumps(row, ensure_ascii=False) for _, _, row in made).encode()
        status, text = self.post(body)
        if status == 200:
            return
        found = re.search(r"Code: (\d+)", text)
        code = int(found[1]) if found else 0
        if code not in OF_ROWS:
            is_final = code in FINAL or (not code and status in (401, 403, 404))
            raise self.server.error(self.place + (text.strip()[:1000] or f"status {status}"), is_final)
        if len(made) == 1:
            return self.refusals.refuse(*made[0][:2], text.strip()[:1000])
        middle = len(made) // 2
        self.insert(made[:middle])
        self.insert(made[middle:])

    def post(self, body: bytes) -> tuple[int, str]:
        try:
            self.connection.request("POST", self.path, body, self.headers)
            answer = self.connection.getresponse()
            return answer.status, answer.read().decode(errors="replace")
        except (OSError, http.client.HTTPException) as error:
            self.connection.close()
            raise self.server.error(f"{self.place}{str(error) or type(error).__name__}") from None

    def close(self) -> None:
        self.connection.close()
