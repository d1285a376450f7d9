"""``ms.postgres.changes``: the changes of tables as a source."""

from __future__ import annotations

import re
from functools import partial

from .._connectors.adapter import At, SourceFunction, source as generator_source
from .._connectors.outbox import _size
from .._errors.flow import FlowUsageError
from .._values.backoff import Backoff
from .._values.checked import checked
from .._values.durations import seconds
from .change import Change
from .changes_options import ChangesOptions
from .position import START

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    from .._connectors.adapter.undecoded import Undecoded
    from .._values.durations import Seconds


@checked
def changes(
    dsn: str,
    slot: str,
    *,
    tables: str | Sequence[str] | None = None,
    publication: str | None = None,
    snapshot: bool = True,
    retry: Backoff | None = None,
    heartbeat: Seconds = 10.0,
    warn_bytes: int | str = "1GiB",
    timeout: Seconds = 60.0,
) -> SourceFunction[..., Change]:
    """Reads the rows of tables, and then each change of them, by logical replication (change data capture).

    Items are :class:`Change` objects: first the rows that the tables have (kind ``"snapshot"``), then their
    changes in the order of the commits. In a run with a state directory each change is processed once, and
    the replication slot is confirmed when the epoch of the changes is committed. The server keeps its log
    until then: it needs ``wal_level = logical``, and a slot that is not needed any more must be dropped.

    A snapshot begins with a change ``"truncate"`` of each table, before its rows: what came from a snapshot
    that a crash has ended, or before the state was dropped, does not count any more. A table that is added to
    the publication later has a snapshot of its own. A row with a value that cannot be decoded is handled by
    ``on_error`` of :meth:`millstream.Flow.source`: a dead letter is a :class:`Change` with the values as
    bytes, as the server has sent them.

    Args:
        dsn: the connection string of a user that has REPLICATION and may read the tables.
        slot: the name of the replication slot, which is created. Each flow has its own.
        tables: the tables, such as ``"orders"`` (in the schema ``public``) or ``"shop.orders"``. A
            publication of them is created if there is none of that name.
        publication: the name of the publication; that of the slot by default. It must exist if ``tables``
            is None.
        snapshot: whether the rows that the tables have come first. False: a slot that exists is continued
            where it is confirmed.
        retry: the delays after which a lost connection is made again. None: ``Backoff()``, without end.
        heartbeat: how often the slot advances while no published table changes, in seconds.
        warn_bytes: a warning is logged while the server keeps more log for the slot than this.
        timeout: how long the server may be silent before the connection is made again, in seconds.

    Returns:
        The source. It has one partition.

    Raises:
        FlowUsageError: an option has a wrong value.
        PostgresError: psycopg is missing.

    Example:
        >>> import millstream as ms
        >>> ms.postgres.changes("host=localhost dbname=shop", "orders_slot", tables="orders")
        <source changes>
    """
    from .connection import connection_parameters, import_psycopg

    psycopg = import_psycopg()
    try:
        connection_parameters(dsn)
    except psycopg.Error as error:
        raise FlowUsageError(f"dsn is a connection string of PostgreSQL: {error}".strip()) from None
    if not isinstance(slot, str) or not re.fullmatch(r"[a-z0-9_]{1,63}", slot):
        raise FlowUsageError(f"slot is a name of 1 to 63 letters a-z, digits and underscores, not {slot!r}")
    names = (tables,) if isinstance(tables, str) else None if tables is None else tuple(tables)
    if names is not None and (not names or not all(isinstance(name, str) and name for name in names)):
        raise FlowUsageError(f"tables names tables, at least one, not {tables!r}")
    if names is None and publication is None:
        raise FlowUsageError("changes needs tables=[...] or publication=")
    options = ChangesOptions(
        dsn,
        slot,
        names,
        publication or slot,
        snapshot,
        Backoff() if retry is None else retry,
        seconds("heartbeat", heartbeat),
        _size(warn_bytes),
        seconds("timeout", timeout),
    )
    source: Any = _reading(options)
    made: SourceFunction[..., Change] = source
    return made


def _read(options: ChangesOptions, resume: Any = None) -> Iterator[At[list[Change | Undecoded]]]:
    from .receiver import Receiver

    receiver = Receiver(options, resume)
    saved = START if resume is None else resume
    try:
        while True:
            taken = receiver.take(0.25)
            if taken is None:
                # A generator on a thread ends at a yield.
                yield At(saved, [])
                continue
            position, items = taken
            saved = position.saved()
            yield At(saved, items, partial(receiver.confirm, position))
    finally:
        receiver.close()


_read.__name__ = "changes"
_reading = generator_source(batches=True, resume=True, ack=True)(_read)._with(undecoded=True)
