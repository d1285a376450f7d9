"""The directories of a partitioned dataset, as Hive names them: ``dt=2026-11-28/country=DE``."""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping

from .._errors.flow import FlowUsageError, show
from .errors import RowError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, TypeAlias


PartitionBy: TypeAlias = "str | Sequence[str] | Mapping[str, str | Callable[[Any], Any]]"
DEFAULT = "__HIVE_DEFAULT_PARTITION__"
"""The directory of rows without a value."""
ESCAPED = re.compile(r"""[\x00-\x1f\x7f"#%'*/:=?\\{[\]^]""")
"""What Hive escapes in names and values."""
LONGEST = 255
"""The longest name of a directory, in bytes."""


def segment(name: str, value: object) -> str:
    """The directory of a value.

    >>> segment("dt", datetime.date(2026, 11, 28)), segment("a", "x/y=50%"), segment("n", None)
    ('dt=2026-11-28', 'a=x%2Fy%3D50%25', 'n=__HIVE_DEFAULT_PARTITION__')
    """
    if value is None or value == "":
        text = DEFAULT
    elif isinstance(value, bool):
        text = "true" if value else "false"
    elif isinstance(value, (str, int)):
        text = str(value)
        if text == DEFAULT:
            raise ValueError(f"the text {DEFAULT} is the directory of rows without a value")
    elif isinstance(value, datetime.datetime):
        text = value.isoformat(" ")
    elif isinstance(value, datetime.date):
        text = value.isoformat()
    else:
        kind = type(value).__name__
        raise TypeError(f"a partition is of text, whole numbers, bool, dates and times, not of {kind}")
    made = f"{escaped(name)}={escaped(text)}"
    if len(made.encode()) > LONGEST:
        raise ValueError(f"the directory has more than {LONGEST} bytes: {show(made)}")
    return made


def escaped(text: str) -> str:
    return ESCAPED.sub(lambda found: f"%{ord(found[0]):02X}", text)


class Partitions:
    """What divides rows into directories.

    Args:
        by: the name of a column, several, or the names of partitions with the column or the function of each.
        most: the largest number of directories of one delivery.

    Raises:
        FlowUsageError: an argument has a wrong value.
    """

    def __init__(self, by: Any, most: int) -> None:
        names = by if isinstance(by, Mapping) else [by] if isinstance(by, str) else list(by or ())
        parts = names.items() if isinstance(names, Mapping) else [(name, name) for name in names]
        self.parts: list[tuple[str, str | Callable[[Any], Any]]] = list(parts)
        for name, value in self.parts:
            if not isinstance(name, str) or not name or not (callable(value) or isinstance(value, str)):
                raise FlowUsageError(
                    "partition_by is the name of a column, several, or a dict of names with a column or a "
                    f"function of the row, not {by!r}"
                )
        if not self.parts or len({name for name, _ in self.parts}) < len(self.parts):
            raise FlowUsageError(f"partition_by names different partitions, at least one, not {by!r}")
        if isinstance(most, bool) or not isinstance(most, int) or most < 1:
            raise FlowUsageError(f"max_partitions is a number of directories, from 1, not {most!r}")
        self.most = most
        self.columns = {value for _, value in self.parts if isinstance(value, str)}
        self.names = {name for name, _ in self.parts}

    def directory(self, row: Any) -> str:
        """The directory of a row."""
        if not hasattr(row, "keys"):
            raise TypeError(f"a row is a mapping from columns to values, not {type(row).__name__}")
        for column in self.columns:
            if column not in row.keys():
                raise ValueError(f'the row has no column "{column}", by which it is partitioned')
        for name in self.names - self.columns:
            if name in row.keys():
                raise ValueError(f'the row has a column "{name}", which is the name of a partition')
        values = ((name, row[get] if isinstance(get, str) else get(row)) for name, get in self.parts)
        return "/".join(segment(name, value) for name, value in values)

    def divide(self, batch: list[Any], first: int) -> dict[str, list[tuple[int, Any]]]:
        """The rows of each directory with their numbers, without the columns that its name has.

        Raises:
            RowError: a row has no directory.
            FlowUsageError: there are too many directories.
        """
        found: dict[str, list[tuple[int, Any]]] = {}
        for number, row in enumerate(batch, first):
            try:
                directory = self.directory(row)
            except Exception as error:
                # A function of the user's raises what it likes.
                why = f"{type(error).__name__}: {error}"
                raise RowError(f"record {number}, {show(row)}: no row of a partition: {why}") from error
            rest = {name: row[name] for name in row.keys() if name not in self.columns}
            found.setdefault(directory, []).append((number, rest))
        if len(found) > self.most:
            raise FlowUsageError(
                f"a delivery has rows of {len(found)} partitions, each of which would be an object: "
                f"partition by fewer values, or set max_partitions, which is {self.most}"
            )
        return found
