"""Tests of flows.

Sources that follow a script, with pauses, ends and aborts; sinks that are lists; a clock that is moved by
hand; trials of a flow, once (``run_all``) or with a crash at every point (``crash_everywhere``), or with
copies of all items (``copy_everywhere``);
replays of recorded input (``replay``, ``diff``).
"""

from __future__ import annotations

from ._connectors.io import Sink
from ._run.replay import Difference, SinkDifference, diff, replay
from ._run.scripts import ABORT, END, advance, clock, items, partitions, pause
from ._run.trial import copy_everywhere, crash_everywhere, run_all
from ._values.types import T

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


__all__ = [
    "ABORT",
    "END",
    "Collected",
    "Difference",
    "SinkDifference",
    "advance",
    "clock",
    "collect",
    "copy_everywhere",
    "crash_everywhere",
    "diff",
    "discard",
    "items",
    "partitions",
    "pause",
    "replay",
    "run_all",
]


class Collected(list[T], Sink[T]):
    """A list that is a sink: each run appends the items that it wrote.

    Example:
        >>> import millstream as ms
        >>> flow, out = ms.Flow("example"), ms.testing.collect()
        >>> flow.source("in", ms.testing.items([1, 2])).sink("out", out)
        >>> _ = ms.run(flow)
        >>> out
        [1, 2]
    """

    __slots__ = ()


def collect() -> Collected[Any]:
    """Makes an empty list to end a stream in.

    Returns:
        The list.

    Example:
        >>> import millstream as ms
        >>> flow, out = ms.Flow("example"), ms.testing.collect()
        >>> flow.source("in", ms.testing.items("ab")).sink("out", out)
        >>> _ = ms.run(flow)
        >>> out
        ['a', 'b']
    """
    return Collected()


class _Nothing:
    def write_batch(self, items: list[Any]) -> None:
        pass

    def flush(self) -> None:
        pass

    close = flush


class _Discard(Sink[object]):
    def open(self, worker: int) -> _Nothing:
        return _Nothing()


def discard() -> Sink[object]:
    """Makes a sink that drops its items.

    Returns:
        The sink.

    Example:
        >>> import millstream as ms
        >>> flow = ms.Flow("nothing")
        >>> flow.source("in", ms.testing.items([1, 2])).sink("out", ms.testing.discard())
        >>> ms.run(flow).step("out")["items_in"]
        2
    """
    return _Discard()
