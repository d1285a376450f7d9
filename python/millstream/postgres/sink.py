"""``ms.postgres.write``: a table as the destination of a stream."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from .._durations import nanos
from .._errors import FlowUsageError
from .._outbox import OutboxSink, sink

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, Literal

    from .._backoff import Backoff
    from .._durations import Seconds
    from .._outbox import OutboxIdentity
    from .destination import Destination
    from .progress import Unanswered

__all__ = ["write"]

Row: TypeAlias = "Mapping[str, Any] | tuple[Any, ...] | list[Any]"


def write(
    dsn: str,
    table: str,
    *,
    columns: Sequence[str] | None = None,
    key: str | Sequence[str] | None = None,
    delete: Callable[[Any], object] | None = None,
    on_error: Literal["fail", "skip"] = "fail",
    timeout: Seconds = 60.0,
    retry: Backoff | None = None,
    max_bytes: int | str = "1GiB",
    max_age: Seconds | str | None = None,
    batch: int = 5000,
    wait_at_end: Seconds = 60.0,
) -> OutboxSink[Row]:
    """Writes items as rows of a table of PostgreSQL, each once in a run with a state directory.

    An item is a mapping from columns to values, or a tuple or list of values in the order of the columns. The
    position of the outbox is stored in the table ``millstream_progress``, in the schema of the table and in
    the same transaction as the rows. It is created if it is missing.

    Args:
        dsn: the connection string, for example ``"host=db dbname=shop user=me"`` or a URL. A password may
            also come from ``PGPASSWORD`` or ``~/.pgpass``.
        table: the name of the table, such as ``"orders"`` or ``"shop.orders"``, as it is stored, without
            quotes.
        columns: the columns that are written. None: all columns that the server does not compute. Columns
            that are not written have their defaults; other keys of mappings are ignored.
        key: the column or columns that identify a row, which need a primary key or unique constraint. A row
            whose key exists replaces it. None: rows are added.
        delete: a function that returns whether an item deletes the row of its key; needs ``key``.
        on_error: what a row that the server refuses does: ``"fail"`` fails the flow, and ``"skip"`` writes a
            warning with the row to the log.
        timeout: how long a transaction may take before it is given up and repeated, in seconds.
        retry: as in :func:`millstream.sink`.
        max_bytes: as in :func:`millstream.sink`.
        max_age: as in :func:`millstream.sink`.
        batch: the largest number of rows in a transaction.
        wait_at_end: as in :func:`millstream.sink`.

    Returns:
        The sink.

    Raises:
        FlowUsageError: an option has a wrong value.
        PostgresError: psycopg is missing.

    Example:
        >>> import millstream as ms
        >>> ms.postgres.write("host=localhost dbname=shop", "orders", key="id", delete=lambda row: row["out"])
        <sink postgres table orders>
    """
    from .connection import connection_parameters, import_psycopg
    from .destination import TableOptions

    psycopg = import_psycopg()
    try:
        connection_parameters(dsn)
    except psycopg.Error as error:
        raise FlowUsageError(f"dsn is a connection string of PostgreSQL: {error}".strip()) from None
    if not isinstance(table, str) or not table:
        raise FlowUsageError(f'table is a name such as "orders" or "shop.orders", not {table!r}')
    if on_error not in ("fail", "skip"):
        raise FlowUsageError(f'on_error is "fail" or "skip", not {on_error!r}')
    keys = _names("key", key) or ()
    if delete is not None and not keys:
        raise FlowUsageError("delete needs key: it deletes the row of a key")
    if delete is not None and not callable(delete):
        raise FlowUsageError(f"delete is a function that takes an item, not {delete!r}")
    seconds = nanos("timeout", timeout, 1) / 1e9
    options = TableOptions(dsn, table, _names("columns", columns), keys, delete, on_error, seconds)
    # A sink is described in messages by the name of its class.
    make = sink(
        type(f"postgres table {table}", (_Rows,), {}),
        retry=retry,
        max_bytes=max_bytes,
        max_age=max_age,
        batch=batch,
        wait_at_end=wait_at_end,
    )
    made: OutboxSink[Row] = make(options, {})
    return made


class _Rows:
    """The destination, which is imported with psycopg when a flow connects."""

    def __init__(self, options: Any, unanswered: dict[str, Unanswered]) -> None:
        from .destination import Destination

        self.destination: Destination = Destination(options, unanswered)

    def connect(self, outbox: OutboxIdentity) -> None:
        self.destination.connect(outbox)

    def write(self, batch: list[Row], first: int, last: int) -> None:
        self.destination.write(batch, first, last)

    def position(self) -> int | None:
        return self.destination.position()

    def close(self) -> None:
        self.destination.close()


def _names(option: str, names: str | Sequence[str] | None) -> tuple[str, ...] | None:
    """The names of columns.

    >>> _names("key", "id"), _names("columns", ["a", "b"])
    (('id',), ('a', 'b'))
    """
    if names is None:
        return None
    if isinstance(names, str):
        names = [names]
    found = tuple(names)
    if not found or len(set(found)) < len(found) or not all(isinstance(name, str) and name for name in found):
        raise FlowUsageError(f"{option} names different columns, at least one, not {names!r}")
    return found
