"""Durations: seconds, timedeltas or text like ``"1h"``, read as nanoseconds."""

from __future__ import annotations

from .._errors.flow import FlowUsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from datetime import timedelta
    from typing import Any, TypeAlias

    Seconds: TypeAlias = "float | timedelta | str"

SECONDS = {"us": 1e-6, "ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
"""The units of text."""
LONGEST = 200 * 365 * 86_400
"""In seconds: the engine can count it in nanoseconds, and it is longer than any wait."""


def nanos(what: str, duration: Seconds, least: int = 1) -> int:
    """Nanoseconds of a number of seconds, a timedelta or text with a unit, to the microsecond.

    >>> from datetime import timedelta
    >>> nanos("gap", 1.5), nanos("gap", timedelta(minutes=1)), nanos("gap", "1m")
    (1500000000, 60000000000, 60000000000)
    """
    from datetime import timedelta

    if isinstance(duration, str):
        seconds: Any = of_text(duration)
    else:
        seconds = duration.total_seconds() if isinstance(duration, timedelta) else duration
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        raise FlowUsageError(
            f'{what} is a number of seconds, a timedelta or text like "1h", not {duration!r}'
        )
    if not 0 <= seconds <= LONGEST or (whole := round(seconds * 1_000_000) * 1000) < least:
        above = "above 0" if least else "from 0"
        raise FlowUsageError(f"{what} is a number of seconds {above} to 200 years, not {duration!r}")
    return whole


def of_text(text: str) -> float | None:
    """Seconds of a number with a unit.

    >>> of_text("100ms"), of_text("1.5 h"), of_text("5")
    (0.1, 5400.0, None)
    """
    import re

    found = re.fullmatch(r"(\d{1,12}(?:\.\d{1,9})?) ?([a-z]+)", text)
    if found is None or found[2] not in SECONDS:
        return None
    return float(found[1]) * SECONDS[found[2]]
