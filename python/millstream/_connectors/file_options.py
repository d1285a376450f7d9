"""Options that sources and sinks of files share, as the engine takes them."""

from __future__ import annotations

import os

from .._errors.flow import FlowUsageError
from .._values.durations import seconds_or_none
from .._values.row_class import row_class

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, Literal, TypeAlias

    from .._values.durations import Seconds

Path: TypeAlias = "str | os.PathLike[str]"
Compression: TypeAlias = 'Literal["auto", "gzip", "zstd"] | None'

MAX_FRAME = 1 << 20
"""The default for the longest line, message or record, in bytes."""


def paths_of(path: Path | Sequence[Path]) -> list[Path]:
    found = [path] if isinstance(path, (str, os.PathLike)) else list(path)
    if not found:
        raise FlowUsageError("path is a file, or several, not []")
    return found


def poll(follow: Seconds | None) -> float | None:
    return seconds_or_none("follow", follow)


def types_of(
    types: Mapping[str, Callable[[str], object]] | type[Any] | None, header: bool | list[str]
) -> tuple[list[tuple[str, Callable[[str], object]]], Callable[..., Any] | None]:
    """The functions of fields of CSV by the names of the fields, and what makes rows, if it is not a dict."""
    if types is None:
        return [], None
    functions, row = row_class(types) if isinstance(types, type) else (types, None)
    typed = list(functions.items())
    for name, _ in typed:
        if header is False:
            raise FlowUsageError("types needs the names of the fields: header is True or the names")
        if header is not True and name not in header:
            raise FlowUsageError(f"types has {name!r}, which is no field: the fields are {header!r}")
    return typed, row
