"""Scripts: sources of tests, with pauses, ends and aborts; and a clock that tests set."""

from __future__ import annotations

from .. import _millstream
from .._values.checked import checked, positive
from .._values.durations import nanos, seconds as as_seconds

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from .._values.durations import Seconds
    from .._values.types import U


class _Mark:
    """An element of a script that is no item."""

    __slots__ = ("name", "piece")

    def __init__(self, name: str, piece: Any) -> None:
        self.name = name
        self.piece = piece

    def __repr__(self) -> str:
        return self.name


END: Any = _Mark("END", False)
"""The end of the input; what follows is never read."""
ABORT: Any = _Mark("ABORT", None)
"""The flow fails here, as if the input had broken off."""


def pause(seconds: Seconds) -> Any:
    """Makes a mark in a script: no input for a while.

    Args:
        seconds: how long.

    Returns:
        The mark.

    Raises:
        FlowUsageError: it is no duration.

    Example:
        >>> import millstream as ms
        >>> ms.testing.pause(0.5)
        pause(0.5)
    """
    return _Mark(f"pause({seconds})", as_seconds("seconds", seconds, 0))


def clock(start: Any = 0) -> _millstream.VirtualClock:
    """Makes a clock for ``ms.run(flow, clock=...)`` that does not advance until a test sets it.

    ``clock.advance(by)`` and ``clock.set(to)`` set it; see also :func:`advance`.

    Args:
        start: its time: seconds since 1970, or a datetime with a time zone.

    Returns:
        The clock.

    Example:
        >>> import millstream as ms
        >>> clock = ms.testing.clock(1000)
        >>> clock.time()
        1000.0
    """
    return _millstream.VirtualClock(start)


def advance(clock: _millstream.VirtualClock, by: Seconds) -> Any:
    """Makes a mark in a script: advances a clock when the items before the mark have been processed.

    Args:
        clock: a clock of :func:`clock`.
        by: the duration.

    Returns:
        The mark.

    Raises:
        FlowUsageError: ``by`` is not above 0.

    Example:
        >>> import millstream as ms
        >>> clock = ms.testing.clock(0)
        >>> flow, out = ms.Flow("moved"), ms.testing.collect()
        >>> script = ["a", ms.testing.advance(clock, 60), "b"]
        >>> flow.source("in", ms.testing.items(script)).map(lambda _: clock.time()).sink("out", out)
        >>> _ = ms.run(flow, clock=clock)
        >>> out
        [0.0, 60.0]
    """
    from datetime import timedelta

    step = timedelta(microseconds=nanos("by", by) // 1000)
    return _Mark(f"advance({step})", (clock, step))


def _pieces(script: Iterable[Any]) -> list[Any]:
    pieces: list[Any] = [[]]
    for item in script:
        if type(item) is _Mark:
            pieces += [item.piece, []]
        else:
            pieces[-1].append(item)
    return [piece for piece in pieces if piece != []]


@checked
def items(items: Iterable[U], batch_size: int = 10) -> _millstream.Script[U]:
    """Makes a source of the given items.

    Batches are smaller at the beginning and where steps are slow.

    Args:
        items: the items, among which END, ABORT, ``pause(...)`` and ``advance(...)`` are marks.
        batch_size: how many items a batch has at most.

    Returns:
        The source.

    Example:
        >>> import millstream as ms
        >>> flow, out = ms.Flow("f"), ms.testing.collect()
        >>> script = [1, 2, ms.testing.pause(0.01), 3, ms.testing.END, 4]
        >>> flow.source("in", ms.testing.items(script)).sink("out", out)
        >>> _ = ms.run(flow)
        >>> out
        [1, 2, 3]
    """
    return _millstream.Script([_pieces(items)], positive("batch_size", batch_size))


@checked
def partitions(*scripts: Iterable[U], batch_size: int = 10) -> _millstream.Script[U]:
    """Makes a source of several partitions, which are distributed over the workers.

    Args:
        scripts: the items of each partition, with marks as for :func:`items`.
        batch_size: how many items a batch has at most.

    Returns:
        The source.

    Example:
        >>> import millstream as ms
        >>> flow, out = ms.Flow("two"), ms.testing.collect()
        >>> flow.source("in", ms.testing.partitions("ab", "cd")).sink("out", out)
        >>> _ = ms.run(flow, workers=2)
        >>> sorted(out)
        ['a', 'b', 'c', 'd']
    """
    return _millstream.Script([_pieces(script) for script in scripts], positive("batch_size", batch_size))
