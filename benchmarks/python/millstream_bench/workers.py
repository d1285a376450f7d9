"""``python -m millstream_bench.workers``: a keyed flow in pure Python with one worker and with two.

Each of two partitions yields numbers; a function of some microseconds changes the state of their keys. Half
of the items move to the other worker. Runs with one worker and with two take turns. The sums of each run are
compared with those of a plain loop.
"""

from __future__ import annotations

import sys
from statistics import median
from time import perf_counter

import millstream as ms

__all__ = ["measure"]

ITEMS = 200_000
"""Of each of two partitions."""
REPEATS = 7
KEYS = 250
BATCH = 1000
ROUNDS = 120
"""Of the loop of the function; about 4 us for an item."""


class Numbers(ms.Source[int]):
    """The numbers below an end, downwards; the even and the odd ones are a partition each."""

    def __init__(self, end: int, odd: int = 0) -> None:
        self.end = end
        self.odd = odd

    def partitions(self) -> list[str]:
        return ["0", "1"]

    def open(self, partition: str, position: object) -> Numbers:
        return Numbers(self.end, int(partition))

    def next_batch(self) -> list[int] | None:
        end = self.end
        self.end = max(0, end - 2 * BATCH)
        return list(range(self.end + self.odd, end, 2))[::-1] or None

    def next_awake(self) -> float | None:
        return None


def key_of(number: int) -> int:
    return number // 2 % KEYS


def nothing() -> list[int]:
    """The state of a key before its first item: how many partitions have ended for it, and a sum."""
    return [0, 0]


def work(state: list[int], number: int) -> int | None:
    """Adds to the sum, and returns it after the last number of the key in both partitions."""
    mixed = number
    for _ in range(ROUNDS):
        mixed = (mixed * 31 + 7) & 0xFF
    state[1] += mixed
    if number >= 2 * KEYS:
        return None
    state[0] += 1
    return state[1] if state[0] == 2 else None


def sums(end: int) -> list[int]:
    """What a plain loop makes of the numbers, in sorted order."""
    states: dict[int, list[int]] = {}
    for number in range(end):
        work(states.setdefault(key_of(number), nothing()), number)
    return sorted(total for _, total in states.values())


def seconds(end: int, workers: int, wanted: list[int]) -> float:
    """The time of a run, whose sums are checked."""
    found: list[int] = ms.testing.collect()
    flow = ms.Flow("workers")
    keyed = flow.source("numbers", Numbers(end)).key_by(key_of)
    keyed.stateful("work", work, state=nothing).values().sink("out", found)
    began = perf_counter()
    ms.run(flow, workers=workers)
    took = perf_counter() - began
    if sorted(found) != wanted:
        raise RuntimeError(f"the sums of {workers} workers are not those of a plain loop")
    return took


def measure(items: int, repeats: int) -> tuple[float, float]:
    """Items a second with one worker and with two, as medians; each partition has so many items, which is a
    multiple of the number of keys."""
    wanted = sums(2 * items)
    times: dict[int, list[float]] = {1: [], 2: []}
    for _ in range(repeats):
        for workers, taken in times.items():
            taken.append(seconds(2 * items, workers, wanted))
    one, two = (2 * items / median(taken) for taken in times.values())
    return one, two


def main() -> None:
    one, two = measure(ITEMS, REPEATS)
    is_free = not getattr(sys, "_is_gil_enabled", lambda: True)()
    print(f"Python {sys.version.split()[0]}, {'free-threaded' if is_free else 'with the interpreter lock'}")
    print(f"one worker {one:,.0f} items/s, two {two:,.0f} items/s: {two / one:.2f}")


if __name__ == "__main__":
    main()
