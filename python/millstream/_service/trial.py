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

from .. import _millstream
from .._errors.flow import ServiceError
from .._values.durations import nanos
from .components import made
from .timers import timers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .._values.durations import Seconds

C = TypeVar("C")


class Trial(Generic[C]):
    """A component under test, without a journal. The test sets the time; timers that become due are
    called.

    Timers fire as in a running service. ``trial.component`` is the component; call its methods.

    Args:
        component: a class that derives from interfaces. It receives publishers and a clock.
        at: when the service starts: a datetime with a time zone, or ns since 1970. None: at the first time
            that the trial receives.

    Raises:
        ServiceError: the class is no component.

    Example:
        >>> from typing import Protocol
        >>> from millstream.service import Trial, every
        >>> class Beats(Protocol):
        ...     def beat(self, at: int) -> None: ...
        >>> class Ticks(Protocol):
        ...     def tick(self) -> None: ...
        >>> class Heart(Ticks):
        ...     def __init__(self, beats: Beats) -> None:
        ...         self.beats = beats
        ...     def tick(self) -> None: ...
        ...     @every(1.0)
        ...     def beat(self, now_ns: int) -> None:
        ...         self.beats.beat(now_ns)
        >>> trial = Trial(Heart, at=0)
        >>> trial.advance(1.5)
        >>> trial.take()
        ['beat: 1000000000\\n']
    """

    #: The component itself; call its methods.
    component: C

    def __init__(self, component: type[C], at: datetime | int | None = None) -> None:
        self._recorder = _millstream.Recorder.closed()
        self._native = _millstream.Trial()
        self.component = made(component, self._recorder, self._native.clock)
        for name, when, method, _ in timers(self.component):
            self._native.timer(name, when, method)
        if at is not None:
            self.advance_to(at)

    def now_ns(self) -> int:
        """Returns the time that the component sees.

        Returns:
            Nanoseconds since 1970.

        Example:
            >>> from typing import Protocol
            >>> from millstream.service import Trial, every
            >>> class Beats(Protocol):
            ...     def beat(self, at: int) -> None: ...
            >>> class Ticks(Protocol):
            ...     def tick(self) -> None: ...
            >>> class Heart(Ticks):
            ...     def __init__(self, beats: Beats) -> None:
            ...         self.beats = beats
            ...     def tick(self) -> None: ...
            ...     @every(1.0)
            ...     def beat(self, now_ns: int) -> None:
            ...         self.beats.beat(now_ns)
            >>> trial = Trial(Heart, at=0)
            >>> trial.now_ns()
            0
        """
        return self._native.clock().now_ns()

    def advance(self, seconds: Seconds) -> None:
        """Advances the time, and calls each timer as often as it becomes due.

        Args:
            seconds: by how much.

        Raises:
            ServiceError: timers would be called more than 100,000 times. An exception of a timer is raised
                as it is.

        Example:
            >>> from typing import Protocol
            >>> from millstream.service import Trial, every
            >>> class Beats(Protocol):
            ...     def beat(self, at: int) -> None: ...
            >>> class Ticks(Protocol):
            ...     def tick(self) -> None: ...
            >>> class Heart(Ticks):
            ...     def __init__(self, beats: Beats) -> None:
            ...         self.beats = beats
            ...     def tick(self) -> None: ...
            ...     @every(1.0)
            ...     def beat(self, now_ns: int) -> None:
            ...         self.beats.beat(now_ns)
            >>> trial = Trial(Heart, at=0)
            >>> trial.advance(2)
            >>> len(trial.take())
            2
        """
        self._native.advance_to(self.now_ns() + nanos("seconds", seconds, 0, ServiceError))

    def advance_to(self, at: datetime | int) -> None:
        """Advances the time to a moment, as :meth:`advance`. An earlier moment changes nothing.

        Args:
            at: a datetime with a time zone, or ns since 1970.

        Raises:
            ServiceError: ``at`` has no time zone, or timers would be called more than 100,000 times.

        Example:
            >>> from typing import Protocol
            >>> from millstream.service import Trial, every
            >>> class Beats(Protocol):
            ...     def beat(self, at: int) -> None: ...
            >>> class Ticks(Protocol):
            ...     def tick(self) -> None: ...
            >>> class Heart(Ticks):
            ...     def __init__(self, beats: Beats) -> None:
            ...         self.beats = beats
            ...     def tick(self) -> None: ...
            ...     @every(1.0)
            ...     def beat(self, now_ns: int) -> None:
            ...         self.beats.beat(now_ns)
            >>> trial = Trial(Heart, at=0)
            >>> trial.advance_to(3_000_000_000)
            >>> len(trial.take())
            3
        """
        self._native.advance_to(at if isinstance(at, int) else moment(at))

    def pause(self, seconds: Seconds) -> None:
        """Advances the time while the service does not run. A timer that became due is called as the
        ``missed`` of :func:`every` says: by default once.

        Args:
            seconds: by how much.

        Raises:
            ServiceError: ``seconds`` is negative, or timers would be called more than 100,000 times.

        Example:
            >>> from typing import Protocol
            >>> from millstream.service import Trial, every
            >>> class Beats(Protocol):
            ...     def beat(self, at: int) -> None: ...
            >>> class Ticks(Protocol):
            ...     def tick(self) -> None: ...
            >>> class Heart(Ticks):
            ...     def __init__(self, beats: Beats) -> None:
            ...         self.beats = beats
            ...     def tick(self) -> None: ...
            ...     @every(1.0)
            ...     def beat(self, now_ns: int) -> None:
            ...         self.beats.beat(now_ns)
            >>> trial = Trial(Heart, at=0)
            >>> trial.pause(10)
            >>> len(trial.take())
            1
        """
        self._native.pause(nanos("seconds", seconds, 0, ServiceError))

    def take(self) -> list[str]:
        """Returns the calls of the component since the last ``take``.

        Returns:
            The calls, each as YAML.

        Example:
            >>> from typing import Protocol
            >>> from millstream.service import Trial, every
            >>> class Beats(Protocol):
            ...     def beat(self, at: int) -> None: ...
            >>> class Ticks(Protocol):
            ...     def tick(self) -> None: ...
            >>> class Heart(Ticks):
            ...     def __init__(self, beats: Beats) -> None:
            ...         self.beats = beats
            ...     def tick(self) -> None: ...
            ...     @every(1.0)
            ...     def beat(self, now_ns: int) -> None:
            ...         self.beats.beat(now_ns)
            >>> trial = Trial(Heart, at=0)
            >>> trial.take()
            []
        """
        return self._recorder.take()


def moment(at: datetime) -> int:
    if at.tzinfo is None:
        raise ServiceError(f"{at}: a time needs a time zone, such as timezone.utc")
    since = at - datetime(1970, 1, 1, tzinfo=timezone.utc)
    return (since.days * 86_400 + since.seconds) * 1_000_000_000 + since.microseconds * 1_000
