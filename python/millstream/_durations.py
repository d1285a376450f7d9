"""Durations: seconds or timedeltas, read as nanoseconds."""

from __future__ import annotations

from ._errors import FlowUsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from datetime import timedelta
    from typing import TypeAlias

    Seconds: TypeAlias = "float | timedelta"

LONGEST = 200 * 365 * 86_400
"""In seconds: the engine can count it in nanoseconds, and it is longer than any wait."""


def nanos(what: str, duration: Seconds, least: int = 1) -> int:
    """Nanoseconds of a number of seconds or a timedelta, to the microsecond.

    >>> from datetime import timedelta
    >>> nanos("gap", 1.5), nanos("gap", timedelta(minutes=1))
    (1500000000, 60000000000)
    """
    from datetime import timedelta

    seconds = duration.total_seconds() if isinstance(duration, timedelta) else duration
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        raise FlowUsageError(f"{what} is a number of seconds or a timedelta, not {duration!r}")
    if not 0 <= seconds <= LONGEST or (whole := round(seconds * 1_000_000) * 1000) < least:
        above = "above 0" if least else "from 0"
        raise FlowUsageError(f"{what} is a number of seconds {above} to 200 years, not {duration!r}")
    return whole
