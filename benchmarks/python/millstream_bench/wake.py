"""The latency from an item's arrival to the call of ``next_batch`` of a source written in Python.

Two ways: a thread appends an item and calls ``io.wake()``; a thread writes a byte into a socket that the
source has registered. Latency runs from the moment before the append or the write to the step after the
source, so that it includes the wake-up of the worker, the call of ``next_batch`` and the step. The threads
wait a millisecond between two items, so that the worker sleeps each time.
"""

from __future__ import annotations

import socket
import threading
from collections import deque
from contextlib import suppress
from statistics import quantiles
from time import perf_counter_ns, sleep

from millstream import Flow, Source, run
from millstream.testing import discard

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

__all__ = ["wake_latencies"]

PAUSE_SECONDS = 0.001


class _Fed(Source[int]):
    """Emits the stamps that a thread appends, until a None."""

    def __init__(self, feed: Callable[[_Fed], None]) -> None:
        self.stamps: deque[int | None] = deque()
        self.feed = feed
        self.register: socket.socket | None = None

    def open(self, partition: str, position: Any, io: Any) -> _Fed:
        self.io = io
        if self.register is not None:
            io.register(self.register)
        threading.Thread(target=self.feed, args=(self,), daemon=True).start()
        return self

    def next_batch(self) -> list[int] | None:
        if self.register is not None:
            with suppress(BlockingIOError):
                self.register.recv(4096)
        batch: list[int] = []
        while self.stamps:
            stamp = self.stamps[0]
            if stamp is None:
                return batch or None
            batch.append(stamp)
            self.stamps.popleft()
        return batch

    def next_awake(self) -> None:
        return None

    def position(self) -> int:
        return 0


def latencies_us(source: _Fed) -> list[float]:
    """The latencies of a run that this source feeds, in microseconds."""
    found: list[float] = []
    flow = Flow("wake")
    arrived = flow.source("in", source).inspect(
        lambda stamp: found.append((perf_counter_ns() - stamp) / 1000)
    )
    arrived.sink("out", discard())
    run(flow)
    return found


def woken(count: int) -> list[float]:
    """Latencies of so many items whose source is woken by ``io.wake()``, in microseconds."""

    def feed(source: _Fed) -> None:
        for _ in range(count):
            sleep(PAUSE_SECONDS)
            source.stamps.append(perf_counter_ns())
            source.io.wake()
        source.stamps.append(None)
        source.io.wake()

    return latencies_us(_Fed(feed))


def registered(count: int) -> list[float]:
    """Latencies of so many items whose source is woken by a socket, in microseconds."""
    theirs, ours = socket.socketpair()
    ours.setblocking(False)

    def feed(source: _Fed) -> None:
        for _ in range(count):
            sleep(PAUSE_SECONDS)
            source.stamps.append(perf_counter_ns())
            theirs.send(b"x")
        source.stamps.append(None)
        theirs.send(b"x")

    source = _Fed(feed)
    source.register = ours
    with theirs, ours:
        return latencies_us(source)


def wake_latencies(count: int) -> list[dict[str, Any]]:
    """``what``, ``p50_us`` and ``p99_us`` of so many wake-ups, for each of the two ways."""
    rows = []
    for what, measure in (("io.wake()", woken), ("io.register(socket)", registered)):
        parts = quantiles(measure(count), n=100)
        rows.append({"what": what, "p50_us": parts[49], "p99_us": parts[98]})
    return rows
