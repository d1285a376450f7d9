"""Base classes for sources and sinks of one's own, the generator and standard output."""

from __future__ import annotations

import sys
from itertools import islice
from time import monotonic
from typing import Generic

from ._types import T_co, T_contra

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any

    from ._durable import Keep
    from ._millstream import DurableSource
    from ._types import U

__all__ = ["Sink", "Source", "generate", "stdout"]


class Source(Generic[T_co]):
    """A source: a description of which every worker opens its share of the partitions.

    ``open(partition, position, io)`` gives an object with three methods. ``next_batch()`` gives a list that
    is the engine's from then on, of any number of items, ``[]`` for nothing now, None for the end; it never
    waits. ``next_awake()`` says, after an empty list, in how many seconds to ask again (None: when ``io``
    wakes it). ``position()`` is any value that can be pickled; a partition that is opened at that position
    resumes after it.

    The attribute ``batch_size`` of the source, read when the source is added to a flow, is the number of
    items that steps see at once at most: a longer list is divided, and no epoch ends within it.

    ``io`` is a :class:`SourceIo`: ``io.wake()``, which any thread may call, has ``next_batch`` called soon;
    ``io.register(fd)`` has it called whenever the socket, pipe or other file descriptor has input;
    ``io.worker`` and ``io.workers`` say who reads the partition. A source whose ``open`` takes no third
    argument is asked again within about a millisecond where ``next_awake`` says None.

    >>> import millstream as ms
    >>> class Countdown(ms.Source[int]):
    ...     def open(self, partition, position):
    ...         self.left = 3
    ...         return self
    ...     def next_batch(self):
    ...         self.left -= 1
    ...         return [self.left] if self.left >= 0 else None
    ...     def next_awake(self):
    ...         return None
    ...     def position(self):
    ...         return 3 - self.left
    >>> flow, out = ms.Flow("countdown"), ms.testing.collect()
    >>> flow.source("numbers", Countdown()).sink("out", out)
    >>> _ = ms.run(flow)
    >>> out
    [2, 1, 0]
    """

    #: How many items of this source steps see at once at most, from 1; None for as many as it gives.
    batch_size: int | None = None

    def partitions(self, *args: Any, **kwargs: Any) -> list[str]:
        """The names of the partitions; they are dealt to the workers in turn.

        A method that takes an argument, ``partitions(self, workers)``, is given the number of workers.
        """
        return ["0"]

    def open(self, partition: str, position: Any, *args: Any, **kwargs: Any) -> Any:
        """Opens a partition, at its start or behind ``position``; ``open(self, partition, position, io)`` is
        given a :class:`SourceIo`, too."""
        raise NotImplementedError(f"{type(self).__name__} has no method open")

    def durable(self, keep: Keep = None) -> DurableSource[T_co]:
        """This source, its input recorded in the state directory before it is processed: a run that goes on
        after a crash takes what it has not committed from there.

        Recorded input is removed when no epoch needs it; ``keep`` says for how long it stays then: a
        timedelta or text like ``"7d"``, a number of bytes or text like ``"10GiB"``, or ``"all"``. Items are
        pickled.
        """
        from ._durable import durable

        return durable(self, keep)


def takes(function: Callable[..., Any], count: int, name: str) -> bool:
    """Whether ``function`` takes ``count`` arguments by position, the last of which is called ``name`` or has
    no default.

    >>> takes(lambda partition, position, io: None, 3, "io")
    True
    >>> takes(lambda partition, position, limit=10: None, 3, "io")
    False
    """
    import inspect

    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return False
    by_position = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if len(by_position) < count:
        return False
    last = by_position[count - 1]
    return last.name == name or last.default is last.empty


class Sink(Generic[T_contra]):
    """A sink: a description that every worker opens.

    ``open(worker)`` gives an object with ``write_batch(list)``, which may wait (that is what back-pressure
    is), ``flush()``, called when the input pauses, and ``close()``, called at the end.
    """

    def open(self, worker: int) -> Any:
        """Opens the sink for one worker."""
        raise NotImplementedError(f"{type(self).__name__} has no method open")


class _Generating:
    def __init__(self, items: Iterator[Any], rate: float | None, batch_size: int, made: int) -> None:
        self.items = items
        self.rate = rate
        self.batch_size = batch_size
        self.start = monotonic() - (made / rate if rate else 0)
        self.made = made
        self._limit = batch_size

    def next_batch(self) -> list[Any] | None:
        size = min(self.batch_size, self._limit)
        if self.rate is not None:
            size = min(size, int((monotonic() - self.start) * self.rate) + 1 - self.made)
            if size <= 0:
                return []
        batch = list(islice(self.items, size))
        self.made += len(batch)
        return batch or None

    def next_awake(self) -> float | None:
        return None if self.rate is None else self.start + self.made / self.rate - monotonic()

    def position(self) -> int:
        return self.made


class _Generator(Source[T_co]):
    batch_size: int

    def __init__(self, make: Callable[[], Iterable[T_co]], rate: float | None, batch_size: int) -> None:
        self.make = make
        self.rate = rate
        self.batch_size = batch_size

    def open(self, partition: str, position: int | None) -> _Generating:
        items = iter(self.make())
        if position:
            next(islice(items, position, position), None)
        return _Generating(items, self.rate, self.batch_size, position or 0)


def generate(make: Callable[[], Iterable[U]], rate: float | None = None, batch_size: int = 1024) -> Source[U]:
    """The items of the iterable that ``make()`` gives, made anew in each run; at most ``rate`` a second.

    >>> import millstream as ms
    >>> flow, out = ms.Flow("evens"), ms.testing.collect()
    >>> flow.source("numbers", ms.generate(lambda: range(0, 10, 2))).sink("out", out)
    >>> _ = ms.run(flow)
    >>> out
    [0, 2, 4, 6, 8]
    """
    if not callable(make):
        raise TypeError("generate takes a function that gives an iterable, so that a flow can run twice")
    if rate is not None and not rate > 0:
        raise ValueError(f"rate is a number of items a second, not {rate!r}")
    return _Generator(make, rate, max(1, batch_size))


class _Lines:
    def write_batch(self, items: list[Any]) -> None:
        sys.stdout.write("".join([f"{item}\n" for item in items]))

    def flush(self) -> None:
        sys.stdout.flush()

    close = flush


class _Stdout(Sink[object]):
    def open(self, worker: int) -> _Lines:
        return _Lines()


def stdout() -> Sink[object]:
    """Writes ``str`` of each item to ``sys.stdout``, one line an item."""
    return _Stdout()
