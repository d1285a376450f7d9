"""Checks of the options of windows."""

from __future__ import annotations

from .._errors.flow import FlowUsageError
from .._values.durations import nanos

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .._values.durations import Seconds


def checked_or_raise(
    window: object, early: object, watermark: object, lateness: object, patience: object
) -> bool:
    """Whether the windows need times; raises for an object that is no window, or an invalid option."""
    from ..windows import Window

    known = isinstance(window, Window)
    if not known and (isinstance(window, type) or not callable(getattr(window, "windows", None))):
        raise FlowUsageError(
            "window takes a window made by ms.windows, or an object with a method windows(time), "
            f"not {window!r}"
        )
    if early is not None and (not isinstance(early, int) or early < 1):
        raise FlowUsageError(f"early is a number of values, 1 or more, not {early!r}")
    watermark_or_raise("a window", watermark, lateness, patience)
    if isinstance(window, Window) and window._kind == "count":
        if watermark == "key":
            raise FlowUsageError("windows that count have no watermark")
        return False
    return True


def watermark_or_raise(what: str, watermark: object, lateness: object, patience: object) -> None:
    """Raises for an unknown watermark, and for options that only a watermark for each key has."""
    if watermark not in ("partition", "key"):
        raise FlowUsageError(f'{what}: watermark is "partition" or "key", not {watermark!r}')
    if watermark == "partition" and (lateness != 0 or patience is not None):
        raise FlowUsageError(f'lateness and patience of {what} need watermark="key"; event_time has its own')


def per_key(watermark: str, lateness: Seconds, patience: Seconds | None) -> tuple[int, int | None] | None:
    """Lateness and patience of a watermark for each key, in nanoseconds."""
    if watermark != "key":
        return None
    return nanos("lateness", lateness, 0), None if patience is None else nanos("patience", patience, 0)
