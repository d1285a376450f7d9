"""Scripts: sources of tests, with pauses, ends and aborts; and a clock that tests move."""

from __future__ import annotations

from . import _millstream
from ._durations import nanos

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from ._durations import Seconds
    from ._types import U

__all__ = ["ABORT", "END", "advance", "clock", "items", "partitions", "pause"]


class _Mark:
    """A place in a script that is no item."""

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


def pause(seconds: float) -> Any:
    """Silence for a while."""
    return _Mark(f"pause({seconds})", float(seconds))


def clock(start: Any = 0) -> _millstream.VirtualClock:
    """A clock for ``ms.run(flow, clock=...)`` that stands still until ``advance(by)`` or ``set(to)``.

    >>> import millstream as ms
    >>> clock = ms.testing.clock(1000)
    >>> clock.time()
    1000.0
    """
    return _millstream.VirtualClock(start)


def advance(clock: _millstream.VirtualClock, by: Seconds) -> Any:
    """A mark in a script: moves a clock on by ``by``, once what stands before it has been worked on."""
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


def items(items: Iterable[U], batch_size: int = 10) -> _millstream.Script[U]:
    """A source of the given items, of which END, ABORT and pause(...) are marks. A batch has at most
    ``batch_size`` items, and fewer at the beginning and where steps are slow.

    >>> import millstream as ms
    >>> flow, out = ms.Flow("f"), ms.testing.collect()
    >>> script = [1, 2, ms.testing.pause(0.01), 3, ms.testing.END, 4]
    >>> flow.source("in", ms.testing.items(script)).sink("out", out)
    >>> _ = ms.run(flow)
    >>> out
    [1, 2, 3]
    """
    return _millstream.Script([_pieces(items)], batch_size)


def partitions(*scripts: Iterable[U], batch_size: int = 10) -> _millstream.Script[U]:
    """A source of several partitions, which are spread over the workers."""
    return _millstream.Script([_pieces(script) for script in scripts], batch_size)
