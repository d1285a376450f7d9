"""``ms.sqlite.write``: a table as the destination of a stream."""

from __future__ import annotations

import os

from .._connectors.outbox import destination, with_outbox
from .._connectors.table_sink import TableOptions, column_names
from .._values.durations import seconds

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from os import PathLike
    from typing import Any

    from typing_extensions import Unpack

    from .._connectors.outbox import OutboxOptions, OutboxSink
    from .._connectors.table_sink import Item
    from .._values.durations import Seconds


@with_outbox(batch=5000)
def write(
    path: str | PathLike[str],
    table: str,
    *,
    columns: Sequence[str] | None = None,
    key: str | Sequence[str] | None = None,
    delete: Callable[[Any], object] | None = None,
    truncate: Callable[[Any], object] | None = None,
    timeout: Seconds = 10.0,
    **outbox: Unpack[OutboxOptions],
) -> OutboxSink[Item]:
    """Writes items as rows of a table of SQLite, each once in a run with a state directory.

    Items are those of :func:`millstream.postgres.write`. The position of the outbox is stored in the table
    ``millstream_progress`` of the same file, which is created if it is missing. Dates and times are written
    as ISO 8601, lists and mappings as JSON, decimals and UUIDs as text.

    Args:
        path: the database, a file that exists.
        table: the name of the table, which exists.
        columns: the columns that are written. None: all columns that SQLite does not compute.
        key: the column or columns of a primary key or unique constraint. A row whose key exists replaces it.
            None: rows are added.
        delete: a function that returns whether an item deletes the row of its key; needs ``key``.
        truncate: a function that returns whether an item empties the table.
        timeout: how long a lock of another connection is waited for before the attempt is repeated, in
            seconds.

    Returns:
        The sink.

    Raises:
        FlowUsageError: an option has a wrong value.

    Example:
        >>> import sqlite3
        >>> import millstream as ms
        >>> from tempfile import TemporaryDirectory
        >>> flow = ms.Flow("orders")
        >>> orders = flow.source("in", ms.testing.items([{"id": 1, "item": "tea"}, {"id": 1, "item": "ink"}]))
        >>> with TemporaryDirectory() as folder:
        ...     db = sqlite3.connect(f"{folder}/shop.db")
        ...     _ = db.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT)")
        ...     orders.sink("table", ms.sqlite.write(f"{folder}/shop.db", "orders", key="id"))
        ...     _ = ms.run(flow, state=f"{folder}/state")
        ...     db.execute("SELECT * FROM orders").fetchall()
        ...     db.close()
        [(1, 'ink')]
    """
    from .table import SqliteTable

    options = TableOptions(
        os.path.abspath(path),
        table,
        column_names("columns", columns),
        column_names("key", key) or (),
        delete,
        truncate,
        seconds("timeout", timeout),
    )

    return destination(f"sqlite table {table}", SqliteTable, **outbox)(options)
