"""Items as rows of a table: values in the order of the columns."""

from __future__ import annotations

from collections.abc import Mapping

from .._errors import show

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from .table import Column

__all__ = ["BadRow", "Rows"]


class BadRow(Exception):
    """An item that is no row of the table; the text says why, and not which item."""


class Rows:
    """Makes rows of items.

    Args:
        columns: the columns of a row, in order.
        strict: whether a mapping with other keys than these columns is refused.
        key: the names of the key columns, which may not be None.
        delete: whether an item deletes the row of its key. A mapping needs the key columns only, then.
    """

    def __init__(
        self,
        columns: Sequence[Column],
        strict: bool,
        key: Sequence[str],
        delete: Callable[[Any], object] | None,
    ) -> None:
        self.names = [column.name for column in columns]
        self.known = frozenset(self.names)
        self.strict = strict
        self.json = [place for place, column in enumerate(columns) if column.is_json]
        self.key = [self.names.index(name) for name in key]
        self.delete = delete

    def row(self, item: Any) -> list[Any]:
        """Returns the values of an item; with ``delete``, whether it deletes comes after them.

        Raises:
            BadRow: the item does not have these columns.
        """
        deletes = self.delete is not None and bool(self.delete(item))
        values = self.values(item, deletes)
        for place in self.key:
            if values[place] is None:
                raise BadRow(f'column "{self.names[place]}" of the key is None')
        for place in self.json:
            values[place] = self.wrapped(values[place])
        if self.delete is not None:
            values.append(deletes)
        return values

    def values(self, item: Any, deletes: bool) -> list[Any]:
        if isinstance(item, Mapping):
            if deletes:
                key = {self.names[place] for place in self.key}
                missing = next((name for name in sorted(key) if name not in item), None)
                if missing is None:
                    return [item[name] if name in key else None for name in self.names]
                raise BadRow(f'it has no value for column "{missing}" of the key')
            try:
                values = [item[name] for name in self.names]
            except KeyError as error:
                raise BadRow(f'it has no value for column "{error.args[0]}"') from None
            if self.strict and len(item) > len(values):
                other = next(name for name in item if name not in self.known)
                raise BadRow(f"it has a value for {show(other)}, which is no column of the table")
            return values
        if isinstance(item, (tuple, list)):
            if len(item) != len(self.names):
                raise BadRow(f"it has {len(item)} values for {len(self.names)} columns")
            return list(item)
        raise BadRow(f"a row is a mapping, a tuple or a list, not {type(item).__name__}")

    @staticmethod
    def wrapped(value: Any) -> Any:
        """A value of a JSON column."""
        if value is None or isinstance(value, (str, bytes)):
            # Text is a JSON document already.
            return value
        from psycopg.types.json import Jsonb

        return Jsonb(value)
