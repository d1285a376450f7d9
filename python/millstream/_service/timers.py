"""Timers of components: methods that are called at times, and one-off timers that a component starts itself.

>>> from typing import Protocol
>>> from millstream.service import Timers, Trial, one_off
>>> class Orders(Protocol):
...     def place(self, id: str) -> None: ...
...     def pay(self, id: str) -> None: ...
>>> class Replies(Protocol):
...     def expired(self, id: str) -> None: ...
>>> class Desk(Orders):
...     def __init__(self, replies: Replies, timers: Timers) -> None:
...         self.replies, self.timers = replies, timers
...     def place(self, id: str) -> None:
...         self.timers.start(self.expire, id, "30m")
...     def pay(self, id: str) -> None:
...         self.timers.cancel(self.expire, id)
...     @one_off()
...     def expire(self, id: str, now_ns: int) -> None:
...         self.replies.expired(id)
>>> trial = Trial(Desk, at=0)
>>> trial.component.place("A-1")
>>> trial.component.place("A-2")
>>> trial.component.pay("A-1")
>>> trial.advance(3600)
>>> trial.take()
['expired: A-2\\n']
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from .. import _millstream
from .._errors.flow import ServiceError
from .._values.checked import checked_as
from .._values.durations import nanos
from .checks import check_callback

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .._values.durations import Seconds

Method = TypeVar("Method", bound=Callable[[Any, int], None])
NamedMethod = TypeVar("NamedMethod", bound=Callable[[Any, str, int], None])
#: A timer for the native half: its name, when it is called (None: one-off), the method, earlier names.
RecordedTimer = tuple[str, _millstream.When | None, Callable[..., object], Sequence[str]]

MARK = "__millstream_timer__"


@checked_as(ServiceError)
def every(
    seconds: Seconds | None = None,
    *,
    at: str | None = None,
    zone: str = "UTC",
    missed: str = "once",
    renamed_from: str | Sequence[str] = (),
) -> Callable[[Method], Method]:
    """Decorates a method that is called periodically, with the recorded time in ns since 1970.

    Its calls are recorded under its name, so that timers can be added and removed. Recorded calls of a
    removed timer are not repeated.

    Args:
        seconds: the period, above 0: the method is called at its multiples since 1970. When the clock of the
            machine is set, the period goes on undisturbed.
        at: instead of a period, a time of the day, such as ``"18:00"`` or ``"18:00:30"``.
        zone: the time zone of ``at``, such as ``"Europe/Berlin"``.
        missed: what happens to times that pass while the service is down, or so busy that a later one comes.
            ``"once"``: the method is called once for all of them, with the first. ``"skip"``: it is not
            called. ``"all"``: it is called for each.
        renamed_from: earlier names of the method; calls recorded under them are repeated by it.

    Returns:
        The decorator.

    Raises:
        ServiceError: the period is not above 0, ``at`` is no time, the machine does not know the zone, or
            both or neither of ``seconds`` and ``at`` are given.

    Example:
        >>> class Beat:
        ...     @every(0.5, renamed_from="tick")
        ...     def beat(self, now_ns: int) -> None: ...
        ...     @every(at="18:00", zone="UTC", missed="skip")
        ...     def close(self, now_ns: int) -> None: ...
    """
    if missed not in ("once", "skip", "all"):
        raise ServiceError(f"missed={missed!r}: it is one of once, skip, all")
    if (seconds is None) == (at is None):
        raise ServiceError(
            'every: it is either a period, as in every(60.0), or a time, as in every(at="18:00")'
        )
    if at is None and zone != "UTC":
        raise ServiceError(f"zone={zone!r}: a zone is for a time of the day, at=")
    period_ns = None if seconds is None else nanos("every: seconds", seconds, error=ServiceError)
    return marked(_millstream.When(period_ns, at, zone, missed), renamed_from)


@checked_as(ServiceError)
def one_off(*, renamed_from: str | Sequence[str] = ()) -> Callable[[NamedMethod], NamedMethod]:
    """Decorates a method that is called when a one-off timer is due, with its name and the recorded time.

    The component starts such a timer with its :class:`Timers`. The calls are recorded under the name of
    the method.

    Args:
        renamed_from: earlier names of the method; calls recorded under them are repeated by it.

    Returns:
        The decorator.

    Example:
        >>> class Desk:
        ...     @one_off()
        ...     def expire(self, id: str, now_ns: int) -> None: ...
    """
    return marked(None, renamed_from)


def marked(when: _millstream.When | None, renamed_from: str | Sequence[str]) -> Callable[[Any], Any]:
    names = (renamed_from,) if isinstance(renamed_from, str) else tuple(renamed_from)

    def mark(method: Any) -> Any:
        setattr(method, MARK, (when, names))
        return method

    return mark


class Timers:
    """The one-off timers of a component, which receives them as an argument of its ``__init__``.

    A timer has a method, which :func:`one_off` decorates, and a name. It is a part of the state of the
    component: a start after a crash knows it again, from the inputs or from a snapshot. One that comes due
    while the service is down is called at the start.

    Args:
        clock: the clock of the component.

    Example:
        >>> from millstream.service import Timers, Trial, one_off
        >>> from typing import Protocol
        >>> class Orders(Protocol):
        ...     def place(self, id: str) -> None: ...
        >>> class Desk(Orders):
        ...     def __init__(self, timers: Timers) -> None:
        ...         self.timers = timers
        ...     def place(self, id: str) -> None:
        ...         self.timers.start(self.expire, id, 1800)
        ...     @one_off()
        ...     def expire(self, id: str, now_ns: int) -> None:
        ...         print(id, "has expired")
        >>> trial = Trial(Desk, at=0)
        >>> trial.component.place("A-1")
        >>> trial.advance(1800)
        A-1 has expired
    """

    __slots__ = ("_native",)

    def __init__(self, clock: _millstream.Clock) -> None:
        self._native = _millstream.OneOffs(clock)

    def start(self, timer: Callable[..., object] | str, name: str, length: Seconds) -> None:
        """Starts a timer. One of the same method and name that has not come due is replaced.

        Args:
            timer: the method to call, or its name.
            name: the name of the timer.
            length: how long after the current call.

        Raises:
            ServiceError: the component has no such method with :func:`one_off`, it is not complete yet, or
                the length is not above 0.

        Example:
            >>> class Desk:
            ...     def __init__(self, timers: Timers) -> None:
            ...         self.timers = timers
            ...     def place(self, id: str) -> None:
            ...         self.timers.start(self.expire, id, "30m")
            ...     @one_off()
            ...     def expire(self, id: str, now_ns: int) -> None: ...
        """
        self._native.start(name_of(timer), name, nanos("length", length, error=ServiceError))

    def cancel(self, timer: Callable[..., object] | str, name: str) -> bool:
        """Cancels a timer.

        Args:
            timer: the method that it would call, or its name.
            name: the name of the timer.

        Returns:
            Whether there was such a timer that had not come due.

        Raises:
            ServiceError: the component has no such method with :func:`one_off`, or is not complete yet.

        Example:
            >>> class Desk:
            ...     def __init__(self, timers: Timers) -> None:
            ...         self.timers = timers
            ...     def pay(self, id: str) -> None:
            ...         self.timers.cancel(self.expire, id)
            ...     @one_off()
            ...     def expire(self, id: str, now_ns: int) -> None: ...
        """
        return self._native.cancel(name_of(timer), name)


def name_of(timer: Callable[..., object] | str) -> str:
    return timer if isinstance(timer, str) else getattr(timer, "__name__", repr(timer))


def is_timed(component: type) -> bool:
    """Whether a component has timers."""
    return bool(inspect.getmembers(component, lambda member: hasattr(member, MARK)))


def timers(component: Any) -> list[RecordedTimer]:
    """The methods of a component that are called at times."""
    found = inspect.getmembers(component, lambda member: hasattr(member, MARK))
    made: list[RecordedTimer] = []
    for name, method in found:
        when, earlier = getattr(method, MARK)
        made.append((name, when, method, earlier))
    return made


def check_timers(name: str, instance: object) -> None:
    """Raises for a method that cannot be called as its timer does."""
    for _, when, method, _ in timers(instance):
        what = "is called every so often" if when else "is called by one-off timers"
        shown = getattr(method, "__name__", "timer")
        check_callback(f"{name}, {shown}, which {what}", method, 1 if when else 2)
