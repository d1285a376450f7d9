"""Sinks that write rows of a table: their options, and the outbox around their destination.

A destination has the verbs ``connect``, ``write``, ``position`` and ``close`` of :func:`millstream.sink`; the
module of its client is imported when a flow connects.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from .._errors.flow import FlowUsageError
from .._values.rows import Rows
from .outbox import OutboxIdentity

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


Item: TypeAlias = "Mapping[str, Any] | tuple[Any, ...] | list[Any]"


@dataclass(frozen=True)
class TableOptions:
    """The options of a sink that writes rows of a table.

    Args:
        address: where the database is.
        table: the name of the table.
        columns: the columns that are written. None: all that the database does not compute.
        key: the columns that identify a row; empty: rows are added.
        delete: whether an item deletes the row of its key.
        truncate: whether an item empties the table.
        timeout: in seconds.

    Raises:
        FlowUsageError: an option has a wrong value.
    """

    address: str
    table: str
    columns: tuple[str, ...] | None
    key: tuple[str, ...]
    delete: Callable[[Any], object] | None
    truncate: Callable[[Any], object] | None
    timeout: float

    def __post_init__(self) -> None:
        if not self.table:
            raise FlowUsageError(f'table is a name such as "orders", not {self.table!r}')
        if self.delete is not None and not self.key:
            raise FlowUsageError("delete needs key: it deletes the row of a key")

    def rows(self, names: Sequence[str]) -> Rows:
        """What makes rows of these columns."""
        return Rows(names, self.columns is None, self.key, self.delete, self.truncate)


def rival(outbox: OutboxIdentity, found: str) -> str:
    """The text of the error that another process delivers an outbox: ``found`` is what its progress says."""
    return (
        f'another process delivers the same outbox. {found} for flow "{outbox.flow}", sink "{outbox.sink}", '
        f"outbox {outbox.id}. Is a copy of the state directory in use? End one of the two flows; this one "
        "has not written the rows"
    )


def column_names(option: str, names: str | Sequence[str] | None) -> tuple[str, ...] | None:
    """The names of columns that an option has.

    >>> column_names("key", "id"), column_names("columns", ["a", "b"])
    (('id',), ('a', 'b'))
    """
    if names is None:
        return None
    if isinstance(names, str):
        names = [names]
    found = tuple(names)
    if not found or len(set(found)) < len(found) or not all(found):
        raise FlowUsageError(f"{option} names different columns, at least one, not {names!r}")
    return found
