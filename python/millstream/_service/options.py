"""The options of a service for its journals: when records are durable, and how many followers have them.

>>> sync_seconds("10ms"), sync_seconds("always"), sync_seconds("never")
(0.01, 0.0, None)
>>> sync_seconds("sometimes")
Traceback (most recent call last):
millstream.ServiceError: sync='sometimes': it is never, always, or a time above 0 like 10ms
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from .. import _millstream
from .._errors.flow import ServiceError
from .._values.durations import of_text

#: ``"never"``, ``"always"``, a time like ``"10ms"``, a number of seconds or a timedelta.
Sync = str | float | timedelta


@dataclass(frozen=True)
class Retention:
    """How old records of an output journal are removed when records are appended."""

    bytes: int | None = None
    age_s: float | None = None
    for_cursors: bool = False


@dataclass(frozen=True)
class Hooks:
    """How a system controls and observes a service that runs in one of its threads."""

    stopper: _millstream.Stopper
    meter: _millstream.Meter
    retention: Retention
    #: The cores to which its thread is pinned while it calls the component; empty for none.
    cores: Sequence[int]
    #: Called with the inputs that the service waits for, each time that they change; with none after a wait.
    note_missing: Callable[[Sequence[str]], None]


def arguments(function: Callable[..., Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Those of these values that are arguments of a function by their names, all but its first one.

    >>> arguments(lambda component, out, wait: None, {"component": "desk:Desk", "wait": "spin", "verb": 1})
    {'wait': 'spin'}
    """
    _, *names = inspect.signature(function).parameters
    return {name: given[name] for name in names if name in given}


def seconds(text: str) -> float:
    """
    >>> seconds("1.5s"), seconds("2m")
    (1.5, 120.0)
    """
    found = of_text(text)
    if found is None:
        raise ValueError(f"{text!r} is no length of time like 10ms, 5s, 2m, 1h or 7d")
    return found


def sync_seconds(sync: Sync) -> float | None:
    """As the native half takes it: None for never, 0 for always, or seconds."""
    if sync == "never":
        return None
    if sync == "always":
        return 0.0
    length = length_of(sync)
    if not 0 < length < 1e9:
        raise ServiceError(f"sync={sync!r}: it is never, always, or a time above 0 like 10ms")
    return length


def length_of(value: float | str | timedelta) -> float:
    """A length of time in seconds, of a number, a text like ``10ms`` or a timedelta; 0 for anything else."""
    try:
        if isinstance(value, str):
            return seconds(value)
        return value.total_seconds() if isinstance(value, timedelta) else float(value)
    except (TypeError, ValueError):
        return 0.0


def checked_followers(count: int) -> int:
    """A number of followers."""
    if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= 64:
        raise ServiceError(f"wait_follower={count!r}: it is a number of followers, from 0 to 64")
    return count


def checked_timeout(timeout: float) -> float:
    """A length of time in seconds."""
    if not isinstance(timeout, (int, float)) or not 0 <= timeout < 1e9:
        raise ServiceError(f"timeout={timeout!r}: it is a number of seconds from 0 on")
    return float(timeout)
