"""Positions of a source of changes, as they are saved with each epoch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from .._errors.flow import show
from .errors import PostgresError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .publication import Published


START = ("start",)
"""The position before anything is known."""


@dataclass(frozen=True)
class Snapshot:
    """The slot may exist, and belongs to this source. Rows of the snapshot may have been passed on."""

    def saved(self) -> tuple[Any, ...]:
        return ("snapshot",)


class Known(NamedTuple):
    """A table whose rows were passed on as they were at ``since``: its changes count from there.

    ``number`` and ``entry`` are those of :class:`Published`: a table that has others is another one.
    """

    name: str
    number: int
    entry: int
    since: int

    @staticmethod
    def of(table: Published, since: int) -> Known:
        return Known(table.name, table.relation.number, table.entry, since)


@dataclass(frozen=True)
class Streaming:
    """Everything before ``lsn`` was passed on in the log of ``system``, and ``count`` changes of the
    transaction whose commit is at ``next``. ``tables`` are those that are known."""

    system: str
    lsn: int
    tables: tuple[Known, ...] = ()
    next: int = 0
    count: int = 0

    def saved(self) -> tuple[Any, ...]:
        tables = tuple(map(tuple, self.tables))
        return ("stream", self.system, self.lsn, tables, self.next, self.count)

    def unknown(self, published: list[Published]) -> list[Published]:
        """The published tables that are not known."""
        known = {(table.number, table.entry) for table in self.tables}
        return [table for table in published if (table.relation.number, table.entry) not in known]

    def with_tables(self, added: list[Published], since: int) -> tuple[Known, ...]:
        """The known tables after some were added, which replace those of their names."""
        names = {table.name for table in added}
        kept = tuple(table for table in self.tables if table.name not in names)
        return kept + tuple(Known.of(table, since) for table in added)


Position: TypeAlias = "Snapshot | Streaming"


class TablesAdded(Exception):
    """There are published tables whose rows are not known: the next attempt reads them."""


def read_position(saved: Any) -> Position | None:
    """The position that was saved; None if there is none.

    Raises:
        PostgresError: it is that of another kind of source.

    >>> read_position(Streaming("7", 5, (Known("public.a", 1, 2, 3),)).saved()).tables
    (Known(name='public.a', number=1, entry=2, since=3),)
    """
    if saved is None or saved == START:
        return None
    if saved == Snapshot().saved():
        return Snapshot()
    if isinstance(saved, tuple) and saved[:1] == ("stream",) and len(saved) == 6:
        _, system, lsn, tables, next_, count = saved
        return Streaming(system, lsn, tuple(Known(*table) for table in tables), next_, count)
    raise PostgresError(f"the saved position {show(saved)} is that of another kind of source")
