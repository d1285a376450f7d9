"""``millstream-bench flow --python``: single steps of Python flows, beside the plain loop that does the same.

Each figure is the median of several runs, in items a second; flow and plain loop take turns, so that slow
phases of the machine meet both.
"""

from __future__ import annotations

import random
import sys
from datetime import datetime, timedelta, timezone
from functools import partial
from statistics import median
from time import perf_counter, process_time

from millstream import Flow, run
from millstream.testing import collect, discard, items, pause
from millstream.windows import tumbling

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from millstream._streams.streams import KeyedStream, Windows
    from millstream._values.types import AnySource

__all__ = ["main"]

REPEATS = 5
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
IDLE_SECONDS = 3.0
WAKES = 3000
"""How often a source is woken in a run."""
ADAPTER_ITEMS = 1_000_000
RUN_SECONDS = 3.5
"""The length of a run with recovery: several epochs."""


def plus_one(number: int) -> int:
    return number + 1


def identity(number: int) -> int:
    return number


class Sum:
    """The state of one key."""

    __slots__ = ("total",)

    def __init__(self) -> None:
        self.total = 0


def add(state: Sum, number: int) -> int:
    state.total += number
    return state.total


def map_flow(numbers: list[int], batch_size: int) -> Flow:
    flow = Flow("map")
    flow.source("numbers", items(numbers, batch_size)).map(plus_one).sink("out", discard())
    return flow


def map_plain(numbers: list[int]) -> None:
    for number in numbers:
        plus_one(number)


def stateful_flow(numbers: list[int]) -> Flow:
    return stateful_of(items(numbers, 1000))


def stateful_of(source: AnySource[int]) -> Flow:
    flow = Flow("stateful")
    keyed = flow.source("numbers", source).key_by(identity)
    keyed.stateful("sum", add, state=Sum).values().sink("out", discard())
    return flow


def stateful_plain(numbers: list[int]) -> None:
    states: dict[int, Sum] = {}
    for number in numbers:
        key = identity(number)
        state = states.get(key)
        if state is None:
            state = states[key] = Sum()
        add(state, number)


def count_flow(numbers: list[int]) -> Flow:
    flow = Flow("count")
    flow.source("numbers", items(numbers, 1000)).key_by(identity).count().sink("out", discard())
    return flow


def count_plain(numbers: list[int]) -> None:
    counts: dict[int, int] = {}
    for number in numbers:
        key = identity(number)
        counts[key] = counts.get(key, 0) + 1


# A reading is (time, key); a second has a thousand of them.
Reading = tuple[int, int]


def time_of(reading: Reading) -> float:
    return reading[0] / 1000


def key_of(reading: Reading) -> int:
    return reading[1]


def plus(total: int, reading: Reading) -> int:
    return total + 1


def windows_of(
    source: AnySource[Reading], time: Callable[[Reading], float]
) -> tuple[Flow, Windows[int, Reading]]:
    """Tumbling windows of ten seconds, in each of which a key of a thousand has ten readings."""
    flow = Flow("windows")
    timed = flow.source("readings", source).event_time(time)
    return flow, timed.key_by(key_of).window("tens", tumbling(10))


def window_count_flow(readings: list[Reading]) -> Flow:
    return window_count_of(items(readings, 1000), time_of)


def window_count_of(source: AnySource[Reading], time: Callable[[Reading], float]) -> Flow:
    flow, windows = windows_of(source, time)
    windows.count().values().sink("out", discard())
    return flow


def window_fold_flow(readings: list[Reading]) -> Flow:
    return window_fold_of(items(readings, 1000), time_of)


def window_fold_of(source: AnySource[Reading], time: Callable[[Reading], float]) -> Flow:
    flow, windows = windows_of(source, time)
    windows.fold(int, plus).values().sink("out", discard())
    return flow


# A reading as before, with the moment itself.
Dated = tuple[datetime, int]


def moment_of(dated: Dated) -> datetime:
    return dated[0]


def key_of_dated(dated: Dated) -> int:
    return dated[1]


def dated_flow(dated: list[Dated]) -> Flow:
    """As `window_count_flow`, of datetimes instead of numbers."""
    flow = Flow("windows")
    timed = flow.source("readings", items(dated, 1000)).event_time(moment_of)
    timed.key_by(key_of_dated).window("tens", tumbling(10)).count().values().sink("out", discard())
    return flow


def dated_plain(dated: list[Dated]) -> None:
    counts: dict[int, int] = {}
    end = EPOCH
    for item in dated:
        time = moment_of(item)
        key = key_of_dated(item)
        if time >= end:
            counts = {}
            end = time + timedelta(seconds=10) - (time - EPOCH) % timedelta(seconds=10)
        counts[key] = counts.get(key, 0) + 1


def dated_of(keys: int) -> list[Dated]:
    return [(EPOCH + timedelta(milliseconds=time), key) for time, key in readings_of(keys)]


def window_plain(readings: list[Reading]) -> None:
    """The least that the job takes: each window begins with an empty table, nothing is ever late."""
    counts: dict[int, int] = {}
    end = 0.0
    for reading in readings:
        time = time_of(reading)
        key = key_of(reading)
        if time >= end:
            counts = {}
            end = time // 10 * 10 + 10
        counts[key] = plus(counts.get(key, 0), reading)


def join_flow(readings: list[Reading]) -> Flow:
    """Every other reading is of the other stream; each meets the latest one of its key there."""
    left = items(readings[::2], 1000)
    right = items(readings[1::2], 1000)
    return join_of((left, time_of), (right, time_of))


def join_of(*sides: tuple[AnySource[Reading], Callable[[Reading], float]]) -> Flow:
    flow = Flow("join")

    def timed(
        name: str, source: AnySource[Reading], time: Callable[[Reading], float]
    ) -> KeyedStream[int, Reading]:
        return flow.source(name, source).event_time(time).key_by(key_of)

    left = timed("left", *sides[0])
    right = timed("right", *sides[1])
    left.join("joined", right).values().sink("out", discard())
    return flow


def join_plain(readings: list[Reading]) -> None:
    latest: tuple[dict[int, Reading], dict[int, Reading]] = {}, {}
    pairs = []
    for number, reading in enumerate(readings):
        time_of(reading)
        key = key_of(reading)
        side = number % 2
        latest[side][key] = reading
        if key in latest[1 - side]:
            pairs.append((latest[0][key], latest[1][key]))


def seconds(work: Callable[[], object]) -> float:
    start = perf_counter()
    work()
    return perf_counter() - start


def compare(
    flow: Callable[[list[Any]], Flow], plain: Callable[[list[Any]], None], numbers: list[Any]
) -> tuple[float, float]:
    """Items a second, of the flow and of the plain loop."""
    flows = []
    plains = []
    for _ in range(REPEATS):
        described = flow(numbers)
        flows.append(seconds(partial(run, described)))
        plains.append(seconds(partial(plain, numbers)))
    return len(numbers) / median(flows), len(numbers) / median(plains)


def two_workers_ratio(numbers: list[int]) -> float:
    """The rate of two workers over that of one; the median of the ratios of pairs of runs."""
    described = count_flow(numbers)
    ratios = []
    for _ in range(REPEATS):
        one, two = (seconds(partial(run, described, workers=workers)) for workers in (1, 2))
        ratios.append(one / two)
    return median(ratios)


def idle_percent(seconds: float) -> float:
    """Percent of a core that a flow takes between two items with a long pause between them."""
    flow = Flow("idle")
    stamps = collect()
    source = items([None, pause(seconds), None], 1)
    flow.source("in", source).map(lambda _: process_time()).sink("out", stamps)
    run(flow)
    first, last = stamps
    return float(100 * (last - first) / seconds)


def chosen(keys: int) -> list[int]:
    """A million keys out of so many, each once if there are as many."""
    chance = random.Random(1)
    if keys == 1_000_000:
        return chance.sample(range(keys), keys)
    return [chance.randrange(keys) for _ in range(1_000_000)]


def readings_of(keys: int) -> list[Reading]:
    return list(enumerate(chosen(keys)))


def measure_steps() -> list[dict[str, Any]]:
    """Single steps beside plain loops; the numbers and keys are seeded."""
    cases: list[tuple[str, Callable[[list[Any]], Flow], Callable[[list[Any]], None], list[Any]]] = [
        ("map, batches of 1,000", lambda n: map_flow(n, 1000), map_plain, list(range(5_000_000))),
        ("map, batches of 1", lambda n: map_flow(n, 1), map_plain, list(range(1_000_000))),
    ]
    for keys in (1_000, 100_000, 1_000_000):
        cases.append((f"stateful function, {keys:,} keys", stateful_flow, stateful_plain, chosen(keys)))
    cases.append(("key_by and count, 1,000 keys", count_flow, count_plain, chosen(1_000)))
    for keys in (1_000, 10_000):
        readings = readings_of(keys)
        cases.append((f"tumbling window, count, {keys:,} keys", window_count_flow, window_plain, readings))
        cases.append((f"tumbling window, fold, {keys:,} keys", window_fold_flow, window_plain, readings))
    dated = dated_of(1_000)
    cases.append(("tumbling window, count, datetimes, 1,000 keys", dated_flow, dated_plain, dated))
    cases.append(("join with the latest, 1,000 keys", join_flow, join_plain, readings_of(1_000)))
    results = []
    for what, flow, plain, numbers in cases:
        reached, beside = compare(flow, plain, numbers)
        results.append({"what": what, "items_per_second": reached, "plain_loop_per_second": beside})
    return results


PARTS: dict[str, Callable[[], dict[str, Any]]] = {
    "steps": lambda: {"results": measure_steps()},
    "workers": lambda: {"two_workers_ratio": two_workers_ratio(chosen(1_000))},
    "recovery": lambda: {"recovery": measure_recovery()},
    "resume": lambda: {"resume_seconds": resume_seconds()},
    "idle": lambda: {"idle_percent": idle_percent(IDLE_SECONDS)},
    "wake": lambda: {"wake": measure_wake()},
    "adapter": lambda: {"adapter": measure_adapter()},
}
"""What can be measured by itself, with ``--only``."""


def measure_recovery(seconds: float = RUN_SECONDS) -> list[dict[str, Any]]:
    """What recovery costs, case by case."""
    from .recovery import costs

    return costs(seconds, REPEATS)


def measure_wake() -> list[dict[str, Any]]:
    """How soon a source written in Python is asked once it is woken."""
    from .wake import wake_latencies

    return wake_latencies(WAKES)


def measure_adapter() -> dict[str, Any]:
    """How fast items come from generators that are sources, and how soon."""
    from .adapter import measure

    return measure(ADAPTER_ITEMS, REPEATS, WAKES)


def resume_seconds() -> float:
    from .recovery import resume

    return resume(1_000_000, REPEATS)


def main(arguments: list[str]) -> int:
    """The benchmark; with ``--json``, as JSON; with ``--only PART``, that part."""
    parts = []
    as_json = False
    rest = iter(arguments)
    for argument in rest:
        if argument == "--json":
            as_json = True
        elif argument == "--only":
            part = next(rest, "")
            if part not in PARTS:
                print(
                    f"millstream-bench flow: --only takes {', '.join(PARTS)}, not {part!r}", file=sys.stderr
                )
                return 2
            parts.append(part)
        else:
            print(f"millstream-bench flow: unknown argument {argument}", file=sys.stderr)
            return 2
    measured: dict[str, Any] = {}
    for part in parts or PARTS:
        measured |= PARTS[part]()
    if as_json:
        import json

        print(json.dumps({"python": sys.version.split()[0], **measured}))
    else:
        show(measured)
    return 0


def show(measured: dict[str, Any]) -> None:
    """Prints what was measured as a table."""
    if "results" in measured:
        print(f"{'step':<36} {'M items/s':>10} {'plain loop':>11}")
    for result in measured.get("results", ()):
        reached = result["items_per_second"] / 1e6
        beside = result["plain_loop_per_second"] / 1e6
        print(f"{result['what']:<36} {reached:>10.2f} {beside:>11.2f}")
    if "two_workers_ratio" in measured:
        print(f"two workers against one, key_by and count: {measured['two_workers_ratio']:.2f} times")
    for cost in measured.get("recovery", ()):
        off = cost["off"] / 1e6
        on = cost["on"] / 1e6
        slower = cost["slower_percent"]
        print(f"recovery: {cost['what']:<36} {off:>7.2f} M items/s off, {on:>7.2f} on: {slower:.1f} % slower")
    if "resume_seconds" in measured:
        print(f"resume, 1,000,000 keys of 100 bytes: {measured['resume_seconds']:.2f} s to the first output")
    for row in measured.get("wake", ()):
        print(f"a source woken by {row['what']}: p50 {row['p50_us']:.0f} us, p99 {row['p99_us']:.0f} us")
    adapter = measured.get("adapter", {"rates": ()})
    for row in adapter["rates"]:
        print(f"source from {row['what']:<36} {row['items_per_second'] / 1e6:>7.2f} M items/s")
    if "wake" in adapter:
        wake = adapter["wake"]
        print(f"source from an async generator: p50 {wake['p50_us']:.0f} us, p99 {wake['p99_us']:.0f} us")
    if "idle_percent" in measured:
        print(f"an idle flow takes {measured['idle_percent']:.2f} % of a core")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
