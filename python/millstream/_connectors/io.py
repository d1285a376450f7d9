"""Base classes for your own sources and sinks, the generator and standard output."""

from __future__ import annotations

import sys
from itertools import islice
from time import monotonic
from typing import Generic

from .._errors.command import BY_SIGPIPE, discard_output
from .._errors.flow import FlowUsageError
from .._values.checked import checked, positive
from .._values.types import T_co, T_contra

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any

    from .._millstream import DurableSource
    from .._values.types import U
    from .durable import Keep


class Source(Generic[T_co]):
    """The base class of your own sources: a description, of which each worker opens its share of the
    partitions.

    ``open(partition, position, io)`` returns an object with three methods:

    - ``next_batch()`` returns a list, which may be filled again afterwards: ``[]`` when there is no input
      now, None at the end. It never waits.
    - ``next_awake()`` returns, after an empty list, in how many seconds to ask again; None: when ``io``
      wakes it.
    - ``position()`` returns any value that can be pickled. A partition that is opened at that position
      resumes after it.

    A method ``close()`` of this object, which is optional, is called once when the partition has ended, or
    the run has, also after a failure.

    ``io`` is a :class:`SourceIo`. A source whose ``open`` takes no third argument is asked again within
    about a millisecond when ``next_awake`` returns None.

    A method ``commit(positions)``, which is optional, is called after each commit of a run with a state
    directory, with the positions of the partitions by name. It is not called on a source that is durable.

    The attribute ``batch_size`` is read when the source is added to a flow: steps see at most so many items
    at once. A longer list is divided, and no epoch ends within it.

    Example:
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

    #: How many items of this source steps see at once at most, from 1; None for as many as it returns.
    batch_size: int | None = None

    def partitions(self, *args: Any, **kwargs: Any) -> list[str]:
        """Returns the names of the partitions; they are dealt to the workers in turn.

        A method ``partitions(self, workers)`` receives the number of workers.

        Args:
            args: the number of workers, if the method takes an argument.
            kwargs: unused.

        Returns:
            The names.

        Example:
            >>> import millstream as ms
            >>> ms.Source().partitions()
            ['0']
        """
        return ["0"]

    def open(self, partition: str, position: Any, *args: Any, **kwargs: Any) -> Any:
        """Opens a partition.

        Args:
            partition: the name of the partition.
            position: the position after which the partition resumes; None at the first start.
            args: a :class:`SourceIo`, if the method takes a third argument.
            kwargs: unused.

        Returns:
            The object that reads the partition; see :class:`Source`.

        Raises:
            NotImplementedError: the subclass has no method ``open``.

        Example:
            >>> import millstream as ms
            >>> ms.Source().open("0", None)
            Traceback (most recent call last):
            NotImplementedError: Source has no method open
        """
        raise NotImplementedError(f"{type(self).__name__} has no method open")

    def durable(self, keep: Keep = None) -> DurableSource[T_co]:
        """Returns this source with its input recorded in the state directory before it is processed.

        A run that resumes after a crash takes the input that it had not committed from the record. Items
        are pickled. Recorded input is removed when no epoch needs it.

        Args:
            keep: for how long recorded input is retained after that: a timedelta or text such as ``"7d"``,
                a number of bytes or text such as ``"10GiB"``, or ``"all"``. None: not at all.

        Returns:
            The durable source.

        Raises:
            FlowUsageError: ``keep`` is neither a time nor a size.

        Example:
            >>> import millstream as ms
            >>> from tempfile import TemporaryDirectory
            >>> flow, out = ms.Flow("durable"), ms.testing.collect()
            >>> flow.source("in", ms.generate(lambda: range(3)).durable(keep="7d")).sink("out", out)
            >>> with TemporaryDirectory() as folder:
            ...     _ = ms.run(flow, state=folder)
            >>> out
            [0, 1, 2]
        """
        from .durable import durable

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
    """The base class of your own sinks inside the process, such as a terminal.

    It is a description, which each worker opens. It takes no part in commits: a sink to an external system is
    made with :func:`sink`.

    ``open(worker)`` returns an object with three methods: ``write_batch(list)``, which may wait (that is
    the back-pressure), ``flush()``, called when the input pauses, and ``close()``, called at the end.

    Example:
        >>> import millstream as ms
        >>> class Totals(ms.Sink[int]):
        ...     total = 0
        ...     def open(self, worker):
        ...         return self
        ...     def write_batch(self, items):
        ...         self.total += sum(items)
        ...     def flush(self):
        ...         pass
        ...     def close(self):
        ...         print("total", self.total)
        >>> flow = ms.Flow("totals")
        >>> flow.source("in", ms.testing.items([1, 2])).sink("out", Totals())
        >>> _ = ms.run(flow)
        total 3
    """

    def open(self, worker: int) -> Any:
        """Opens the sink for one worker.

        Args:
            worker: the number of the worker, from 0.

        Returns:
            The object that writes; see :class:`Sink`.

        Raises:
            NotImplementedError: the subclass has no method ``open``.

        Example:
            >>> import millstream as ms
            >>> ms.Sink().open(0)
            Traceback (most recent call last):
            NotImplementedError: Sink has no method open
        """
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


@checked
def generate(make: Callable[[], Iterable[U]], rate: float | None = None, batch_size: int = 1024) -> Source[U]:
    """Makes a source of the items of an iterable.

    Args:
        make: returns the iterable; it is called in each run.
        rate: how many items a second at most. None: no limit.
        batch_size: how many items a batch has at most.

    Returns:
        A source.

    Raises:
        FlowUsageError: ``make`` is no function, ``rate`` is not a finite number above 0, or ``batch_size``
            is below 1.

    Example:
        >>> import millstream as ms
        >>> flow, out = ms.Flow("evens"), ms.testing.collect()
        >>> flow.source("numbers", ms.generate(lambda: range(0, 10, 2))).sink("out", out)
        >>> _ = ms.run(flow)
        >>> out
        [0, 2, 4, 6, 8]
    """
    if rate is not None and not 0 < rate < float("inf"):
        raise FlowUsageError(f"rate is a number of items a second above 0, not {rate!r}")
    return _Generator(make, rate, positive("batch_size", batch_size))


class ReaderEnded(SystemExit):
    """The reader of standard output has ended, as ``head`` does: the program ends without a message, too."""

    def __init__(self) -> None:
        super().__init__(BY_SIGPIPE)
        discard_output()


class StandardOutput:
    """Standard output, whose reader may end at any moment."""

    def write(self, text: str) -> None:
        """Writes a text. Python has no standard output where it was closed before the start."""
        try:
            if sys.stdout is not None:
                sys.stdout.write(text)
        except BrokenPipeError:
            raise ReaderEnded from None

    def flush(self) -> None:
        """Writes what is buffered."""
        try:
            if sys.stdout is not None:
                sys.stdout.flush()
        except BrokenPipeError:
            raise ReaderEnded from None

    close = flush


class _Lines(StandardOutput):
    def write_batch(self, items: list[Any]) -> None:
        self.write("".join([f"{item}\n" for item in items]))


class _Stdout(Sink[object]):
    def open(self, worker: int) -> _Lines:
        return _Lines()


def stdout() -> Sink[object]:
    """Writes ``str`` of each item to ``sys.stdout``, one line an item.

    When its reader has ended, as in ``millstream run FILE.py | head``, the run ends without a message,
    with the exit code 141 that shells give to SIGPIPE.

    Returns:
        A sink.

    Example:
        >>> import millstream as ms
        >>> flow = ms.Flow("numbers")
        >>> flow.source("in", ms.testing.items([1, 2])).sink("out", ms.stdout())
        >>> _ = ms.run(flow)
        1
        2
    """
    return _Stdout()
