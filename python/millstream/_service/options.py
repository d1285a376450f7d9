"""The options of a service for its journals: when records are durable, and how many followers have them.

>>> checked_sync("10ms"), checked_sync("always"), checked_sync("never")
(0.01, 0.0, None)
>>> checked_sync("sometimes")
Traceback (most recent call last):
millstream.ServiceError: sync is "never", "always" or a number of seconds, ...
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .. import _millstream
from .._errors.flow import ServiceError
from .._values.durations import seconds, sync_seconds

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .._values.durations import Seconds, Sync


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


def checked_sync(sync: Sync) -> float | None:
    """As the native half takes it: None for never, 0 for always, or seconds."""
    return sync_seconds(sync, ServiceError)


def checked_followers(count: int) -> int:
    """A number of followers."""
    if not 0 <= count <= 64:
        raise ServiceError(f"wait_follower is a number of followers, from 0 to 64, not {count!r}")
    return count


def checked_timeout(timeout: Seconds) -> float:
    """A length of time in seconds."""
    return seconds("timeout", timeout, 0, ServiceError)
