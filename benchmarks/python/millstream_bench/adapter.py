"""How fast items come from generators that are sources, and how soon.

Throughput: an asynchronous generator and a plain one, which yield single items or lists of 1,000, into a step
that counts the items. The count is checked. Latency: an asynchronous generator sleeps a millisecond, reads
the clock and yields it; the step after the source reads the clock again.
"""

from __future__ import annotations

import asyncio
from statistics import median, quantiles
from time import perf_counter, perf_counter_ns

from millstream import Flow, run, source
from millstream.testing import discard

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from typing import Any

__all__ = ["measure"]

LIST_ITEMS = 1000
PAUSE_SECONDS = 0.001


@source
async def awaiting(count: int) -> AsyncIterator[int]:
    for number in range(count):
        yield number


@source
def plain(count: int) -> Iterator[int]:
    yield from range(count)


@source(batches=True)
async def awaiting_lists(count: int) -> AsyncIterator[list[int]]:
    for first in range(0, count, LIST_ITEMS):
        yield list(range(first, min(first + LIST_ITEMS, count)))


@source(batches=True)
def plain_lists(count: int) -> Iterator[list[int]]:
    for first in range(0, count, LIST_ITEMS):
        yield list(range(first, min(first + LIST_ITEMS, count)))


@source
async def stamps(count: int) -> AsyncIterator[int]:
    for _ in range(count):
        await asyncio.sleep(PAUSE_SECONDS)
        yield perf_counter_ns()


CASES: dict[str, tuple[Any, int]] = {
    "async generator, single items": (awaiting, 1),
    "async generator, lists of 1,000": (awaiting_lists, 10),
    "generator, single items": (plain, 1),
    "generator, lists of 1,000": (plain_lists, 10),
}
"""Each with how many times as many items it yields."""


def items_per_second(generator: Any, count: int) -> float:
    """The rate of a run of so many items, all of which reach the step after the source."""
    flow = Flow("adapter")
    found = [0]

    def count_batch(items: list[int]) -> list[int]:
        found[0] += len(items)
        return items

    flow.source("in", generator(count)).map_batch(count_batch).sink("out", discard())
    began = perf_counter()
    run(flow)
    seconds = perf_counter() - began
    if found[0] != count:
        raise RuntimeError(f"{found[0]} of {count} items have arrived")
    return count / seconds


def latencies_us(count: int) -> list[float]:
    """The time from a generator's clock to the step after the source, for so many items, in microseconds."""
    found: list[float] = []
    flow = Flow("adapter")
    arrived = flow.source("in", stamps(count)).inspect(
        lambda stamp: found.append((perf_counter_ns() - stamp) / 1000)
    )
    arrived.sink("out", discard())
    run(flow)
    if len(found) != count:
        raise RuntimeError(f"{len(found)} of {count} items have arrived")
    return found


def measure(count: int, repeats: int, wakes: int) -> dict[str, Any]:
    """The median rate of each case in runs of ``count`` items or more, and the latency of ``wakes`` items."""
    rates = [
        {
            "what": what,
            "items_per_second": median(items_per_second(source, times * count) for _ in range(repeats)),
        }
        for what, (source, times) in CASES.items()
    ]
    parts = quantiles(latencies_us(wakes), n=100)
    return {"rates": rates, "wake": {"p50_us": parts[49], "p99_us": parts[98]}}
