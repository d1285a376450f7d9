"""Checks of arguments that several verbs take."""

from __future__ import annotations

from .._errors.flow import FlowUsageError
from .._values.durations import nanos, seconds, seconds_or_none
from .._values.fields import field
from .logic import is_async

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .._values.durations import Seconds


def callable_or_raise(verb: str, f: object) -> None:
    """Raises when ``f``, given to ``verb``, is no function, or an asyncio function."""
    if not callable(f):
        raise FlowUsageError(f"{verb} takes a function, not {f!r}")
    if is_async(f):
        raise FlowUsageError(
            f"{verb} uses the result of a call and does not wait for it, and {f!r} is async: "
            "map_async calls such a function and emits its results"
        )


def reading(verb: str, f: object) -> Callable[[Any], Any]:
    """The function of an item that ``verb`` was given, or that reads the field whose name it was given."""
    if isinstance(f, str):
        return field(f)
    if not callable(f):
        raise FlowUsageError(f"{verb} takes a function or the name of a field, not {f!r}")
    callable_or_raise(verb, f)
    return f


def same_times(one: bool, other: bool) -> None:
    """Raises when only one of two streams has times."""
    if one != other:
        raise FlowUsageError(
            "a stream with times merges only with streams with times: call event_time on all or on none"
        )


def collecting(most: int, wait: Seconds | None) -> tuple[int, int | None]:
    """The arguments of ``collect``: how many values, and how many nanoseconds."""
    if not isinstance(most, int) or most < 1:
        raise FlowUsageError(f"max is a number of values, 1 or more, not {most!r}")
    return most, None if wait is None else nanos("wait", wait)


def calling(
    f: Any, concurrency: int, ordered: bool, timeout: Seconds | None, retries: int, pause: Seconds
) -> Callable[[], Any]:
    """The function that makes the step ``map_async`` on a worker."""
    from .async_calls import MapAsync

    if not callable(f):
        raise FlowUsageError(f"map_async takes an asyncio function, not {f!r}")
    if not isinstance(concurrency, int) or concurrency < 1:
        raise FlowUsageError(f"concurrency is a number of calls, 1 or more, not {concurrency!r}")
    if not isinstance(retries, int) or retries < 0:
        raise FlowUsageError(f"retries is a number of calls, 0 or more, not {retries!r}")
    limit = seconds_or_none("timeout", timeout)
    first = seconds("retry_pause", pause, 0)
    return lambda: MapAsync(f, concurrency, ordered, limit, retries, first)


def at_each(emit: str) -> bool:
    """True for ``"each"``, false for ``"end"``; raises for other values."""
    if emit not in ("end", "each"):
        raise FlowUsageError(f'emit is "end" or "each", not {emit!r}')
    return emit == "each"


def named_or_raise(kind: str, name: object) -> None:
    """Raises for a step that keeps state and has no name."""
    if not isinstance(name, str) or not name:
        raise FlowUsageError(f"a {kind} step keeps state and needs a name")
