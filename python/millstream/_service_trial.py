"""Unit tests of components: a component with its publishers, its clock and its timers, without any journal.

>>> from typing import Protocol
>>> from millstream.service import Clock, Trial, every
>>> class Orders(Protocol):
...     def place(self, symbol: str) -> None: ...
>>> class Rates(Protocol):
...     def rate(self, orders: int, at: int) -> None: ...
>>> class Meter(Orders):
...     def __init__(self, rates: Rates) -> None:
...         self.rates, self.orders = rates, 0
...     def place(self, symbol: str) -> None:
...         self.orders += 1
...     @every(1.0)
...     def tell(self, now_ns: int) -> None:
...         self.rates.rate(self.orders, now_ns)
>>> trial = Trial(Meter, at=0)
>>> trial.component.place("VOD.L")
>>> trial.advance(1.5)
>>> trial.take()
['rate:\\n  orders: 1\\n  at: 1000000000\\n']
"""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Generic, TypeVar

from . import _millstream
from ._errors import ServiceError
from ._service_components import made, timers

__all__ = ["Trial"]

C = TypeVar("C")


class Trial(Generic[C]):
    """A component under test. Time goes on as the test says, and timers that come due are called in between.

    Timers fire as in a service that runs: at the multiples of their periods since 1970.

    :param component: a class that derives from interfaces; publishers and a clock are given to it.
    :param at: when the service starts: a datetime with a time zone, or ns since 1970. Without, it starts at
        the first time that the trial gets.
    :raises ServiceError: the class is no component.
    """

    #: The component itself; call its methods.
    component: C

    def __init__(self, component: type[C], at: datetime | int | None = None) -> None:
        self._recorder = _millstream.Recorder()
        self._native = _millstream.Trial()
        self.component = made(component, self._recorder.outlet, self._native.clock)
        for _, period_ns, method, _ in timers(self.component):
            self._native.every(period_ns, method)
        if at is not None:
            self.advance_to(at)

    def now_ns(self) -> int:
        """The time that the component sees, in ns since 1970."""
        return self._native.clock().now_ns()

    def advance(self, seconds: float) -> None:
        """Lets time go on, and calls each timer as often as it comes due in between.

        :raises ServiceError: timers would be called more than 100,000 times. What a timer raises is raised.
        """
        self._native.advance_to(self.now_ns() + nanoseconds(seconds))

    def advance_to(self, at: datetime | int) -> None:
        """Lets time go on to a moment, as :meth:`advance`; an earlier moment changes nothing.

        :param at: a datetime with a time zone, or ns since 1970.
        """
        self._native.advance_to(at if isinstance(at, int) else moment(at))

    def pause(self, seconds: float) -> None:
        """Lets time go on while the service does not run: each timer that came due is called once."""
        self._native.pause(nanoseconds(seconds))

    def take(self) -> list[str]:
        """What the component called since the last look, each call as YAML."""
        return self._recorder.take()


def nanoseconds(seconds: float) -> int:
    if not 0 <= seconds < 9e9:
        raise ServiceError(f"{seconds} seconds: time goes on by 0 seconds or more, and by 285 years at most")
    return round(seconds * 1_000_000_000)


def moment(at: datetime) -> int:
    if at.tzinfo is None:
        raise ServiceError(f"{at}: a time needs a time zone, such as timezone.utc")
    since = at - datetime(1970, 1, 1, tzinfo=timezone.utc)
    return (since.days * 86_400 + since.seconds) * 1_000_000_000 + since.microseconds * 1_000
