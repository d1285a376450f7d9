"""``ms.postgres.write``: a table as the destination of a stream."""

from __future__ import annotations

from .._connectors.outbox import destination, with_outbox
from .._connectors.table_sink import TableOptions, column_names
from .._errors.flow import FlowUsageError
from .._values.durations import seconds

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from typing_extensions import Unpack

    from .._connectors.outbox import OutboxOptions, OutboxSink
    from .._connectors.table_sink import Item
    from .._values.durations import Seconds
    from .progress import Unanswered


@with_outbox(batch=5000)
def write(
    dsn: str,
    table: str,
    *,
    columns: Sequence[str] | None = None,
    key: str | Sequence[str] | None = None,
    delete: Callable[[Any], object] | None = None,
    truncate: Callable[[Any], object] | None = None,
    timeout: Seconds = 60.0,
    **outbox: Unpack[OutboxOptions],
) -> OutboxSink[Item]:
    """Writes items as rows of a table of PostgreSQL, each once in a run with a state directory.

    An item is a mapping from columns to values, or a tuple or list of values in the order of the columns. A
    value ``UNCHANGED`` leaves the column as it is; ``key`` names the key of its row, which must exist. The
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
        truncate: a function that returns whether an item empties the table, as a change ``"truncate"`` of
            :func:`changes` says: the rows before it are removed, those after it are not. It needs the right
            TRUNCATE.
        timeout: how long a transaction may take before it is given up and repeated, in seconds.

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

    psycopg = import_psycopg()
    from .destination import Destination

    try:
        connection_parameters(dsn)
    except psycopg.Error as error:
        raise FlowUsageError(f"dsn is a connection string of PostgreSQL: {error}".strip()) from None
    options = TableOptions(
        dsn,
        table,
        column_names("columns", columns),
        column_names("key", key) or (),
        delete,
        truncate,
        seconds("timeout", timeout),
    )
    # What an earlier connection of the sink has left unanswered.
    unanswered: dict[str, Unanswered] = {}
    return destination(f"postgres table {table}", Destination, **outbox)(options, unanswered)
