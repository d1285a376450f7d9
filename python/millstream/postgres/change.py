"""``Change``: what happened to a row, as items of ``ms.postgres.changes``."""

from __future__ import annotations

from dataclasses import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    import datetime
    from typing import Any, Literal


@dataclass(slots=True)
class Change:
    """A change of a row.

    Args:
        kind: ``"snapshot"`` for a row that was there at the beginning, ``"insert"``, ``"update"``,
            ``"delete"``, or ``"truncate"``: the table was emptied, or a snapshot of it begins.
        table: schema and table, such as ``"public.orders"``.
        key: the columns of the replica identity, which is the primary key by default, with their values; of a
            deleted row those that it had. None: the table has no replica identity, or the kind is truncate.
        old: what is known of the row before an update or delete: all columns with ``REPLICA IDENTITY FULL``;
            otherwise the key, if it has changed or the row is deleted. None: nothing.
        new: the columns of the row after the change with their values. A large value that an update has not
            changed is ``ms.postgres.UNCHANGED``. None: there is no row any more.
        lsn: the position of the commit in the server's log, or that of the snapshot.
        time: when the transaction was committed, in UTC. None in a snapshot.
        transaction: the number of the transaction. None in a snapshot, also in the truncation before it.

    Example:
        >>> import millstream as ms
        >>> change = ms.postgres.Change("delete", "public.orders", {"id": 7}, {"id": 7}, None, 42, None, None)
        >>> change.kind, change.key
        ('delete', {'id': 7})
    """

    kind: Literal["snapshot", "insert", "update", "delete", "truncate"]
    table: str
    key: dict[str, Any] | None
    old: dict[str, Any] | None
    new: dict[str, Any] | None
    lsn: int
    time: datetime.datetime | None
    transaction: int | None
