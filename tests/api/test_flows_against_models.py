"""Random flows and inputs against plain models.

Windows, joins, timers, lives and branches, with partitions of different speeds, sizes of batches, workers,
and crashes at random commits. ``make soak`` goes on for ``MILLSTREAM_SECONDS``. A failure names its seed.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import millstream as ms
import pytest
from millstream._errors.flow import SimulatedCrash
from millstream._run.trial import run_crashing

SEEDS = range(int(os.environ.get("MILLSTREAM_SEED", "1")), int(os.environ.get("MILLSTREAM_SEED", "1")) + 24)
SECONDS = float(os.environ.get("MILLSTREAM_SECONDS", "2"))
LATENESS = 5

Item = dict[str, Any]
#: The outputs of each key: in order, or sorted where a model gives no order.
Seen = dict[Any, list[Any]]

#: What is used as a key, by number.
KEYS: list[Callable[[int], Any]] = [
    lambda n: f"k{n}",
    lambda n: n * (2**61 - 1),
    lambda n: ("user", n, b"\xff"),
    lambda n: b"k%d" % n,
    lambda n: n - 2**127,
    lambda n: bool(n % 2),
]


class Alarm:
    """Counts its values; a timer emits the count."""

    def __init__(self) -> None:
        self.seen = 0

    def on_item(self, key: Any, item: Item, ctx: ms.KeyContext) -> list[Any]:
        self.seen += 1
        ctx.set_timer(item["time"] + 7)
        return [("item", item["n"], self.seen)]

    def on_timer(self, key: Any, at: float, ctx: ms.KeyContext) -> list[Any]:
        return [("timer", int(at), self.seen)]


def by_key(items: list[Item]) -> dict[Any, list[Item]]:
    found: dict[Any, list[Item]] = {}
    for item in sorted(items, key=lambda item: item["time"]):
        found.setdefault(item["key"], []).append(item)
    return found


def each(items: list[Item], make: Callable[[list[Item]], list[Any]]) -> Seen:
    return {key: made for key, own in by_key(items).items() if (made := make(own))}


def alarms(items: list[Item]) -> Seen:
    """Values in the order of their times, and before each the timers up to its time. Later timers fire if
    event time gets there, which is the latest of all."""
    end = max(item["time"] for item in items)

    def make(own: list[Item]) -> list[Any]:
        made: list[Any] = []
        timers = sorted({item["time"] + 7 for item in own})
        for count, item in enumerate(own):
            while timers and timers[0] <= item["time"] and timers[0] - 7 < item["time"]:
                made.append(("timer", timers.pop(0), count))
            made.append(("item", item["n"], count + 1))
        return made + [("timer", at, len(own)) for at in timers if at <= end - LATENESS]

    return each(items, make)


def windowed(items: list[Item], length: int, every: int) -> Seen:
    def make(own: list[Item]) -> list[Any]:
        first = own[0]["time"] // every * every - length
        last = own[-1]["time"]
        made = []
        for start in range(first, last + 1, every):
            inside = [item for item in own if start <= item["time"] < start + length]
            if inside:
                made.append((start, len(inside), sum(item["n"] for item in inside), [i["n"] for i in inside]))
        return made

    return each(items, make)


def sessions(items: list[Item], gap: int) -> Seen:
    def make(own: list[Item]) -> list[Any]:
        made: list[list[Item]] = [[own[0]]]
        for item in own[1:]:
            if item["time"] <= made[-1][-1]["time"] + gap:
                made[-1].append(item)
            else:
                made.append([item])
        return [
            (one[0]["time"], len(one), sum(item["n"] for item in one), [item["n"] for item in one])
            for one in made
        ]

    return each(items, make)


def lives(items: list[Item], ttl: int) -> Seen:
    def make(own: list[Item]) -> list[Any]:
        made = []
        count = 0
        last = own[0]["time"]
        for item in own:
            count = 1 if item["time"] >= last + ttl else count + 1
            last = item["time"]
            made.append((item["n"], count))
        return made

    return each(items, make)


def paired(items: list[Item], how: str) -> Seen:
    """Each value of one half with the latest of the other; or those of the left with the latest right one."""

    def make(own: list[Item]) -> list[Any]:
        made: list[Any] = []
        latest: dict[bool, Item] = {}
        for item in own:
            latest[item["left"]] = item
            if len(latest) == 2 and (how == "latest" or item["left"]):
                made.append((latest[True]["n"], latest[False]["n"]))
        return made

    return each(items, make)


def near(items: list[Item], within: int) -> Seen:
    def make(own: list[Item]) -> list[Any]:
        return sorted(
            (one["n"], other["n"])
            for one in own
            for other in own
            if one["left"] and not other["left"] and abs(one["time"] - other["time"]) <= within
        )

    return each(items, make)


def running(items: list[Item]) -> Seen:
    return each(items, lambda own: [*range(1, len(own) + 1)])


Built = tuple[ms.KeyedStream[Any, Any], Seen, bool]


def window_of(chance: random.Random) -> tuple[ms.windows.Window, Callable[[list[Item]], Seen]]:
    length = chance.choice([10, 30])
    every = chance.choice([length, length // 2, 2, 1])
    if chance.random() < 0.3:
        return ms.windows.session(length), lambda items: sessions(items, length)
    if every == length:
        return ms.windows.tumbling(length), lambda items: windowed(items, length, length)
    return ms.windows.sliding(length, every), lambda items: windowed(items, length, every)


def add_window(chance: random.Random, keyed: Any, items: list[Item]) -> Built:
    window, model = window_of(chance)
    verb = chance.choice(["count", "sum", "collect", "fold"])
    windows = keyed.map(lambda item: item["n"]).window("w", window, ordered=verb == "collect")
    place = {"count": 1, "sum": 2, "collect": 3, "fold": 2}[verb]
    if verb == "fold":
        made = windows.fold(int, lambda total, n: total + n, merge=lambda a, b: a + b)
    else:
        made = getattr(windows, verb)()
    expected = {key: [(one[0], one[place]) for one in own] for key, own in model(items).items()}
    return made.map(lambda one: (int(one.start), one.value)), expected, True


def add_timers(chance: random.Random, keyed: Any, items: list[Item]) -> Built:
    return keyed.stateful("alarm", Alarm, ordered=True), alarms(items), True


def add_life(chance: random.Random, keyed: Any, items: list[Item]) -> Built:
    ttl = chance.choice([3, 10, 40])

    def count(seen: int | None, item: Item) -> tuple[int, tuple[int, int]]:
        seen = (seen or 0) + 1
        return seen, (item["n"], seen)

    return keyed.stateful_map("count", count, ttl=ttl, ordered=True), lives(items, ttl), True


def add_join(chance: random.Random, keyed: Any, items: list[Item]) -> Built:
    left, right = keyed.branch(lambda item: item["left"])
    left = left.map(lambda item: item["n"])
    right = right.map(lambda item: item["n"])
    how = chance.choice(["latest", "lookup", "within"])
    if how == "within":
        return left.join("j", right, within=4), near(items, 4), False
    if how == "lookup":
        # Rows of the table that come later than the value do not count.
        return left.lookup("j", right, "inner"), paired(items, how), True
    return left.join("j", right), paired(items, how), True


def add_running(chance: random.Random, keyed: Any, items: list[Item]) -> Built:
    return keyed.count("each", name="c"), running(items), True


ADD = [add_window, add_window, add_timers, add_life, add_join, add_running]


def input_of(chance: random.Random) -> list[list[Item]]:
    """Partitions of items whose times are unique, mostly in order, and never late."""
    key = chance.choice(KEYS)
    count = chance.randrange(1, 5)
    size = chance.randrange(1, 60)
    times = sorted(chance.sample(range(size * chance.choice([1, 3, 20])), size))
    parts: list[list[Item]] = [[] for _ in range(chance.randrange(1, 4))]
    for n, at in enumerate(times):
        item = {"key": key(chance.randrange(count)), "time": at, "n": n, "left": chance.random() < 0.5}
        chance.choice(parts).append(item)
    for part in parts:
        part.sort(key=lambda item: item["time"] + chance.choice([0, 0, 0, LATENESS]))
    return parts


def script_of(chance: random.Random, parts: list[list[Item]]) -> Any:
    def paused(part: list[Item]) -> list[Any]:
        return [
            x for item in part for x in ([item, ms.testing.pause(0.002)] if chance.random() < 0.1 else [item])
        ]

    return ms.testing.partitions(*map(paused, parts), batch_size=chance.choice([1, 2, 7, 100]))


def run(chance: random.Random, flow: ms.Flow, state: Path) -> None:
    """Runs the flow; half of the runs crash at random commits and are started again."""
    workers = chance.randrange(1, 4)
    if chance.random() < 0.5:
        ms.run(flow, workers=workers)
        return
    while True:
        crash = (chance.choice(["before", "within", "after"]), chance.randrange(1, 8))
        try:
            run_crashing(flow, workers, state, crash)
            return
        except SimulatedCrash:
            workers = chance.randrange(1, 4)


def against_model(seed: int, state: Path) -> None:
    chance = random.Random(seed)
    parts = input_of(chance)
    items = [item for part in parts for item in part]
    add = chance.choice(ADD)
    flow = ms.Flow("model")
    out = ms.testing.collect()
    source = flow.source("in", script_of(chance, parts))
    keyed: Any = source.event_time(lambda item: item["time"], lateness=LATENESS).key_by("key")
    if chance.random() < 0.3:
        one, other = keyed.branch(lambda item: item["n"] % 3 == 0)
        keyed = one.merge(other)
    made, expected, in_order = add(chance, keyed, items)
    made.sink("out", out)
    run(chance, flow, state)
    found: Seen = {}
    for key, value in out:
        found.setdefault(key, []).append(value)
    if not in_order:
        found = {key: sorted(values) for key, values in found.items()}
    assert found == expected, f"seed {seed}, {add.__name__}, {len(parts)} partitions"


@pytest.mark.parametrize("seed", SEEDS)
def test_a_random_flow_gives_what_its_model_gives(seed: int, tmp_path: Path) -> None:
    for more in range(12):
        against_model(seed * 1000 + more, tmp_path / f"state{more}")


def test_random_flows_for_a_time(tmp_path: Path) -> None:
    end = time.monotonic() + SECONDS
    seed = SEEDS[0] * 1_000_000
    while time.monotonic() < end:
        against_model(seed, tmp_path / f"state{seed}")
        seed += 1
    print(f"{seed - SEEDS[0] * 1_000_000} random flows from seed {SEEDS[0]}")
