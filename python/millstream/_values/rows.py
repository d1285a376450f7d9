"""Items as rows of a table: values in the order of the columns, and what they do to the table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from .._errors.flow import show

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


EMPTY = None
"""The place of an item that empties the table."""
Row: TypeAlias = "list[Any] | None"


class Unchanged:
    """The type of ``UNCHANGED``."""

    _only: Unchanged | None = None

    def __new__(cls) -> Unchanged:
        if cls._only is None:
            cls._only = super().__new__(cls)
        return cls._only

    def __repr__(self) -> str:
        return "UNCHANGED"

    def __reduce__(self) -> tuple[type[Unchanged], tuple[()]]:
        return Unchanged, ()


UNCHANGED = Unchanged()
"""A value that stays as it is: a large one that an update has not changed, which the log does not have."""


class BadRow(Exception):
    """An item that is no row of the table; the text says why, and not which item."""


class Rows:
    """Makes rows of items.

    Args:
        names: the names of the columns of a row, in order.
        strict: whether a mapping with other keys than these columns is refused.
        key: the names of the key columns, which may not be None.
        delete: whether an item deletes the row of its key. A mapping needs the key columns only, then.
        truncate: whether an item empties the table.
    """

    def __init__(
        self,
        names: Sequence[str],
        strict: bool,
        key: Sequence[str],
        delete: Callable[[Any], object] | None,
        truncate: Callable[[Any], object] | None,
    ) -> None:
        self.names = list(names)
        self.known = frozenset(self.names)
        self.strict = strict
        self.key = [self.names.index(name) for name in key]
        self.delete = delete
        self.truncate = truncate

    def row(self, item: Any) -> Row:
        """Returns the values of an item. With a key, two more come after them: the numbers of the columns
        that stay as they are, from 1, or None; and, with ``delete``, whether the item deletes.

        Raises:
            BadRow: the item does not have these columns.
        """
        if self.truncate is not None and self.truncate(item):
            return EMPTY
        deletes = self.delete is not None and bool(self.delete(item))
        values = self.values(item, deletes)
        for place in self.key:
            if values[place] is None:
                raise BadRow(f'column "{self.names[place]}" of the key is None')
        unchanged = [place for place, value in enumerate(values) if value is UNCHANGED]
        for place in unchanged:
            self.check_unchanged(place)
            values[place] = None
        if self.key:
            values.append([place + 1 for place in unchanged] or None)
        if self.delete is not None:
            values.append(deletes)
        return values

    def check_unchanged(self, place: int) -> None:
        """Only a column of a row that has a key can stay as it is."""
        name = self.names[place]
        if not self.key:
            raise BadRow(f'column "{name}" is UNCHANGED, and rows are added: key= names their key')
        if place in self.key:
            raise BadRow(f'column "{name}" of the key is UNCHANGED')

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
