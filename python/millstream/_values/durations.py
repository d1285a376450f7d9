"""Durations: seconds, timedeltas or text like ``"1h"``, read as nanoseconds or as seconds.

This is the only place where a duration is read that a program gives.
"""

from __future__ import annotations

from .._errors.flow import FlowUsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta
    from typing import Any, Literal, TypeAlias

    Seconds: TypeAlias = "float | timedelta | str"

Sync: TypeAlias = 'Literal["never", "always"] | Seconds'
SECONDS = {"us": 1e-6, "ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
"""The units of text."""
LONGEST = 200 * 365 * 86_400
"""In seconds: the engine can count it in nanoseconds, and it is longer than any wait."""
WANTED = 'a number of seconds, a timedelta or text like "1h"'


def nanos(
    what: str, duration: Seconds, least: int = 1, error: Callable[[str], Exception] = FlowUsageError
) -> int:
    """Nanoseconds of a number of seconds, a timedelta or text with a unit, to the microsecond.

    >>> from datetime import timedelta
    >>> nanos("gap", 1.5), nanos("gap", timedelta(minutes=1)), nanos("gap", "1m")
    (1500000000, 60000000000, 60000000000)
    """
    found = _number(duration)
    if found is None:
        raise error(f"{what} is {WANTED}, not {duration!r}")
    if not 0 <= found <= LONGEST or (whole := round(found * 1_000_000) * 1000) < least:
        above = "above 0" if 0 < least <= 1000 else f"from {least / 1e9:g}"
        raise error(f"{what} is a number of seconds {above} to 200 years, not {duration!r}")
    return whole


def seconds(
    what: str, duration: Seconds, least: int = 1, error: Callable[[str], Exception] = FlowUsageError
) -> float:
    """The same as seconds.

    >>> seconds("gap", "1500ms"), seconds("gap", 0, 0)
    (1.5, 0.0)
    """
    return nanos(what, duration, least, error) / 1e9


def seconds_or_none(
    what: str, duration: Seconds | None, least: int = 1, error: Callable[[str], Exception] = FlowUsageError
) -> float | None:
    """The same of a duration that may be None."""
    return None if duration is None else seconds(what, duration, least, error)


def sync_seconds(sync: Sync, error: Callable[[str], Exception] = FlowUsageError) -> float | None:
    """Seconds between two syncs: None for never, 0 for always.

    >>> sync_seconds("10ms"), sync_seconds("always"), sync_seconds("never")
    (0.01, 0.0, None)
    """
    if sync == "never":
        return None
    if sync == "always":
        return 0.0
    if not is_duration(sync):
        raise error(f'sync is "never", "always" or {WANTED}, not {sync!r}')
    return seconds("sync", sync, error=error)


def is_duration(value: object) -> bool:
    """Whether a value is of a type of durations, and a text is one.

    >>> is_duration("1h"), is_duration(-1), is_duration("soon"), is_duration(True)
    (True, True, False, False)
    """
    return _number(value) is not None


def _number(duration: Any) -> float | None:
    if isinstance(duration, str):
        return of_text(duration)
    if isinstance(duration, (int, float)) and not isinstance(duration, bool):
        return duration
    from datetime import timedelta

    return duration.total_seconds() if isinstance(duration, timedelta) else None


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
