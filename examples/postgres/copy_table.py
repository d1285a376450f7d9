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
    """What a change does to the copy: a row, one that is ``gone`` with its key, or ``empty``."""
    if change.kind == "truncate":
        # Also before the rows of each snapshot: what the copy has from before goes.
        return [{"empty": True}]
    found: list[dict[str, Any]] = []
    if change.old is not None and (change.new is None or change.old["id"] != change.new["id"]):
        found.append({"id": change.old["id"], "gone": True})
    if change.new is not None:
        found.append(change.new)
    return found


flow = ms.Flow("copy-of-orders")
changes = flow.source("orders", ms.postgres.changes(DSN, SLOT, tables="orders"))
copy = ms.postgres.write(
    os.environ.get("TO", DSN),
    "orders_copy",
    columns=["id", "customer", "cents"],
    key="id",
    delete=lambda row: "gone" in row,
    truncate=lambda row: "empty" in row,
)
changes.flat_map(rows).sink("copy", copy)
