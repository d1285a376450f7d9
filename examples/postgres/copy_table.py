"""A table that follows another one, also in another database: the rows, then each change, once.

Run, with the tables of schema.sql:
DSN="host=127.0.0.1 dbname=shop" millstream run copy_table.py --state state
"""

import os
from typing import Any

import millstream as ms

DSN = os.environ.get("DSN", "host=127.0.0.1 dbname=shop")
SLOT = os.environ.get("SLOT", "copy_of_orders")


def rows(change: ms.postgres.Change) -> list[dict[str, Any]]:
    """The rows of the copy that a change writes or, with ``gone``, deletes."""
    if change.kind == "truncate":
        # It also comes before a snapshot that begins again after a crash, whose rows replace those here
        # by key. A row that was deleted in between stays in the copy: empty the copy yourself then.
        return []
    found: list[dict[str, Any]] = []
    if change.old is not None and (change.new is None or change.old["id"] != change.new["id"]):
        found.append({"id": change.old["id"], "gone": True})
    if change.new is not None:
        found.append(change.new | {"gone": False})
    return found


flow = ms.Flow("copy-of-orders")
changes = flow.source("orders", ms.postgres.changes(DSN, SLOT, tables="orders"))
copy = ms.postgres.write(
    os.environ.get("TO", DSN),
    "orders_copy",
    columns=["id", "customer", "cents"],
    key="id",
    delete=lambda row: row["gone"],
)
changes.flat_map(rows).sink("copy", copy)
