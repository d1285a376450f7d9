"""Durable sources: for how long recorded input is kept."""

from __future__ import annotations

from .. import _millstream
from .._errors.flow import FlowUsageError
from .._values.durations import of_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from datetime import timedelta
    from typing import TypeAlias

    from .._values.types import AnySource, U

Keep: TypeAlias = "int | str | timedelta | None"


BYTES = {"kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
BYTES |= {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


def durable(source: AnySource[U], keep: Keep = None) -> _millstream.DurableSource[U]:
    """Any source, its input recorded in the state directory before it is processed.

    Recorded input is removed when no epoch needs it; ``keep`` says for how long it is retained then: a
    timedelta or text like ``"7d"``, a number of bytes or text like ``"10GiB"``, or ``"all"``.
    """
    return _millstream.DurableSource(source, *retention_of(keep))


def retention_of(keep: Keep) -> tuple[bool, int | None, float | None]:
    """All, bytes or seconds.

    >>> retention_of("7d"), retention_of("1.5GiB"), retention_of("all")
    ((False, None, 604800.0), (False, 1610612736, None), (True, None, None))
    """
    import re
    from datetime import timedelta

    if keep is None or keep == "all":
        return keep == "all", None, None
    if isinstance(keep, timedelta):
        if keep.total_seconds() >= 0:
            return False, None, keep.total_seconds()
    elif isinstance(keep, int) and not isinstance(keep, bool):
        if 0 <= keep < 1 << 64:
            return False, keep, None
    elif isinstance(keep, str):
        if (seconds := of_text(keep)) is not None:
            return False, None, seconds
        found = re.fullmatch(r"(\d{1,12}(?:\.\d{1,9})?) ?([a-zA-Z]+)", keep)
        if found is not None and found[2] in BYTES:
            return False, int(float(found[1]) * BYTES[found[2]]), None
    raise FlowUsageError(f'keep is a time like "7d", a size like "10GiB" or "all", not {keep!r}')
