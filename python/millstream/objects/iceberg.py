"""``ms.objects.iceberg``: a table of Apache Iceberg as the destination of a stream, through pyiceberg.

Invariant: each delivery is one snapshot, whose summary has the identity of the outbox and the number of the
last record. A commit is attempted only on top of the snapshot in which the position was read: one that
another writer overtakes is made anew after the position was read again.
"""

from __future__ import annotations

from time import sleep
from typing import Any

from .._connectors.outbox import OutboxSink, destination, with_outbox
from .._errors.flow import FlowUsageError, RetryLater
from .._values.backoff import Backoff
from .errors import ObjectError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from typing_extensions import Unpack

    from .._connectors.outbox import OutboxIdentity, OutboxOptions


OUTBOX = "millstream.outbox"
LAST = "millstream.last"
"""The properties of a snapshot."""
ATTEMPTS = Backoff(first=0.05, most=2.0, tries=20)
"""The attempts at a commit that other writers overtake; after them the outbox tries again."""
OUTAGES = (
    "ServiceUnavailableError",
    "ServerError",
    "TooManyRequestsError",
    "CommitStateUnknownException",
    "AuthorizationExpiredError",
    "WaitingForLockException",
    "OperationalError",
)
"""Errors of pyiceberg and of SQLAlchemy after which another attempt may succeed, or this one has."""


@with_outbox(batch=100_000, batch_bytes="64MiB", batch_age=60.0)
def iceberg(
    table: str,
    *,
    catalog: str = "default",
    properties: Mapping[str, str] | None = None,
    **outbox: Unpack[OutboxOptions],
) -> OutboxSink[Any]:
    """Appends items to a table of Apache Iceberg, each once in a run with a state directory.

    Items are mappings from columns to values. Each delivery is a snapshot, whose summary has the position;
    with ``batch_age=None`` each commit ends one. Other writers may append to the table at the same time. It
    needs ``pip install 'millstream[iceberg]'``.

    Args:
        table: the name of the table with its namespace, ``"shop.orders"``. It must exist.
        catalog: the name of the catalog in the configuration of pyiceberg.
        properties: the configuration of the catalog, such as ``uri`` and ``warehouse``; what it leaves open
            comes from ``.pyiceberg.yaml`` and the environment.

    Returns:
        The sink.

    Raises:
        FlowUsageError: an option has a wrong value.
        ObjectError: pyiceberg or pyarrow is missing.

    Example:
        >>> import millstream as ms
        >>> ms.objects.iceberg("shop.orders", properties={"uri": "http://localhost:8181"})
        <sink iceberg shop.orders>
    """
    import_pyiceberg()
    if "." not in table.strip("."):
        raise FlowUsageError(f'table is a name with its namespace, such as "shop.orders", not {table!r}')
    return destination(f"iceberg {table}", _Table, **outbox)(table, catalog, dict(properties or {}))


def import_pyiceberg() -> Any:
    """Imports the library; an error that names the remedy where it is missing."""
    try:
        import pyarrow  # type: ignore[import-untyped]  # noqa: F401
        import pyiceberg.catalog
        import pyiceberg.table
    except ImportError as error:
        raise ObjectError(
            f"ms.objects.iceberg needs pyiceberg and pyarrow ({error}): pip install 'millstream[iceberg]'"
        ) from None
    return pyiceberg


class _Table:
    """A table to which one connection appends."""

    def __init__(self, name: str, catalog: str, properties: dict[str, str]) -> None:
        self.name = name
        self.catalog = catalog
        self.properties = properties

    def connect(self, outbox: OutboxIdentity) -> None:
        pyiceberg = import_pyiceberg()
        self.outbox = outbox
        self.known: int | None = None
        try:
            self.table = pyiceberg.catalog.load_catalog(self.catalog, **self.properties).load_table(self.name)
        except Exception as error:
            raise self.failure(error) from error

    def position(self) -> int | None:
        self.known = self.read_position()
        return self.known

    def read_position(self) -> int | None:
        """The number of the last record that the table has, in the history of its current snapshot."""
        from pyiceberg.table.snapshots import ancestors_of

        metadata = self.table.metadata
        for snapshot in ancestors_of(self.table.current_snapshot(), metadata):
            summary = snapshot.summary
            if summary is not None and summary.get(OUTBOX) == self.outbox.id:
                return int(str(summary[LAST]))
        return None

    def write(self, batch: list[Any], first: int, last: int) -> None:
        for attempt in range(1, 1000):
            try:
                self.append(batch, first, last)
            except Exception as error:
                if type(error).__name__ != "CommitFailedException":
                    raise self.failure(error) from error
                # It has had no effect: another writer was faster.
                import logging

                log = logging.getLogger("millstream.flow.sink")
                log.debug("%s: attempt %d: %s", self.name, attempt, error)
                if ATTEMPTS.gives_up(attempt):
                    raise RetryLater(
                        f"table {self.name}: {attempt} commits were overtaken: {error}"
                    ) from error
                sleep(ATTEMPTS.delay(attempt))
                continue
            self.known = last
            return

    def append(self, batch: list[Any], first: int, last: int) -> None:
        """Commits a snapshot on top of the current one.

        Raises:
            CommitFailedException: there is a newer one; nothing is committed.
        """
        from .formats import Parquet

        self.table.refresh()
        found = self.read_position()
        if found != self.known:
            raise ObjectError(
                f"table {self.name}: another process delivers the same outbox: the table has its records up "
                f"to {found}, and not {self.known}. The records {first} to {last} of flow "
                f'"{self.outbox.flow}", sink "{self.outbox.sink}" are not written. Is a copy of the state '
                "directory in use? End one of the two flows"
            )
        rows = Parquet(self.table.schema().as_arrow()).checked(batch, range(first, last + 1))
        # By itself the library makes a commit anew on top of a snapshot whose position was not read.
        once = self.table.metadata.properties | {"commit.retry.num-retries": "0"}
        self.table.metadata = self.table.metadata.model_copy(update={"properties": once})
        self.table.append(rows, snapshot_properties={OUTBOX: self.outbox.id, LAST: str(last)})

    def skip(self, number: int) -> None:
        """Leaves a gap: the next snapshot has the number of its own last item."""

    def failure(self, error: Exception) -> Exception:
        """The exception for one of the library: RetryLater if another attempt may succeed."""
        kind = type(error).__name__
        text = f"table {self.name}: {kind}: {' '.join(str(error).split())}"
        if isinstance(error, (ObjectError, RetryLater, OSError)):
            return error
        if kind in OUTAGES:
            return RetryLater(text)
        if kind in ("NoSuchTableError", "NoSuchNamespaceError", "NoSuchIdentifierError"):
            return ObjectError(f"{text}: create the table first")
        return ObjectError(text)
