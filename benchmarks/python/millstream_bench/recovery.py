"""The cost of recovery: the same flow with epochs of a second and without, in turns; and the time until a
flow that resumes with many keys emits its first output.
"""

from __future__ import annotations

from functools import partial
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter

from millstream import Flow, Source, _millstream, run
from millstream._run.options import RunOptions
from millstream.testing import discard

from .flow import (
    chosen as chosen_keys,
    join_of,
    readings_of,
    seconds,
    stateful_of,
    window_count_of,
    window_fold_of,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from millstream._values.types import AnySource

    from .flow import Reading

__all__ = ["costs", "resume"]

ROUND_SECONDS = 1_000
"""The distance in event time from one round of a million readings to the next."""


class Again(Source):
    """A list of items again and again, so many times; the times of readings increase."""

    def __init__(self, items: list[Any], rounds: float, batch_size: int = 1000) -> None:
        self.batches = [items[at : at + batch_size] for at in range(0, len(items), batch_size)]
        self.rounds = rounds
        self.begun = 0

    def open(self, partition: str, position: int | None) -> Again:
        self.next = position or 0
        return self

    def next_batch(self) -> list[Any] | None:
        self.begun, batch = divmod(self.next, len(self.batches))
        if self.next >= self.rounds * len(self.batches):
            return None
        self.next += 1
        return list(self.batches[batch])

    def next_awake(self) -> None:
        return None

    def position(self) -> int:
        return self.next

    def time_of(self, reading: Reading) -> float:
        return reading[0] / 1000 + self.begun * ROUND_SECONDS


def stateful(keys: int, rounds: float) -> Flow:
    return stateful_of(Again(chosen_keys(keys), rounds))


def windows(make: Callable[[AnySource[Reading], Callable[[Reading], float]], Flow], rounds: float) -> Flow:
    source = Again(readings_of(1_000), rounds)
    return make(source, source.time_of)


def join(rounds: float) -> Flow:
    readings = readings_of(1_000)
    left = Again(readings[::2], rounds)
    right = Again(readings[1::2], rounds)
    return join_of((left, left.time_of), (right, right.time_of))


CASES: dict[str, Callable[[float], Flow]] = {
    "stateful function, 1,000 keys": partial(stateful, 1_000),
    "stateful function, 1,000,000 keys": partial(stateful, 1_000_000),
    "tumbling window, count, 1,000 keys": partial(windows, window_count_of),
    "tumbling window, fold, 1,000 keys": partial(windows, window_fold_of),
    "join with the latest, 1,000 keys": join,
}


def costs(length: float, repeats: int) -> list[dict[str, Any]]:
    """Each case without and with recovery, in items a second; a run takes ``length`` seconds."""
    found = []
    for what, make in CASES.items():
        trial = seconds(partial(run, make(1)))
        rounds = length / trial
        flow = make(rounds)
        off = []
        on = []
        for _ in range(repeats):
            off.append(seconds(partial(run, flow)))
            with TemporaryDirectory(prefix="millstream-bench-") as state:
                on.append(seconds(partial(run, flow, state=state)))
        without = rounds * 1e6 / median(off)
        with_it = rounds * 1e6 / median(on)
        slower = 100 * (1 - with_it / without)
        found.append({"what": what, "off": without, "on": with_it, "slower_percent": slower})
    return found


def touch(state: list[str], key: int) -> int:
    state[0] = "y" + state[0][1:]
    return key


def resume(keys: int, repeats: int) -> float:
    """Seconds from the start of a flow that has so many keys of 100 bytes to its first output."""
    stopper = _millstream.Stopper()
    seen = 0
    first = 0.0
    until = keys

    def look(_: int) -> None:
        nonlocal seen, first
        seen += 1
        if seen == 1:
            first = perf_counter()
        if seen >= until:
            stopper.stop()

    flow = Flow("resume")
    keyed = flow.source("keys", Again(list(range(keys)), 1e9)).key_by(lambda key: key)
    states = keyed.stateful("text", touch, state=lambda: ["x" * 100])
    states.values().inspect(look).sink("out", discard())
    times = []
    with TemporaryDirectory(prefix="millstream-bench-") as state:
        options = RunOptions(state=state, epoch=0.2)
        for _ in range(repeats + 1):
            stopper = _millstream.Stopper()
            seen = 0
            start = perf_counter()
            _millstream.run(flow._flow, options, stopper)
            times.append(first - start)
            until = 1
    # The first run has made the state.
    return median(times[1:])
