"""Watermarks of keys, windows and clocks of one's own, joins within windows, and reports of late
items.
"""

import random
from collections import defaultdict
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any

import millstream as ms
import pytest
from millstream import testing, windows

LATENESS = 10
Item = tuple[str, int, int]
Bounds = list[tuple[int, int]]


def items(seed: int, number: int = 600) -> list[Item]:
    """Keys with delays of their own: the items of some are always late."""
    chance = random.Random(seed)
    now = 0
    made = []
    for n in range(number):
        now += chance.randrange(5)
        key = chance.randrange(6)
        made.append((f"k{key}", now - key * 15 - chance.randrange(30), n))
    return made


def timed(flow: ms.Flow, items: list[Item], name: str = "in", batch: int = 10) -> ms.KeyedStream:
    stream = flow.source(name, testing.items(items, batch)).event_time(lambda i: i[1], lateness=LATENESS)
    return stream.key_by(lambda i: i[0])


def thirties(time: float) -> Bounds:
    last = int(time // 10 * 10)
    return [(start, start + 30) for start in (last - 20, last - 10, last)]


def days(time: float) -> Bounds:
    """Of uneven lengths, that overlap by two; some moments are in none."""
    week = int(time // 50 * 50)
    return [(week + a, week + b) for a, b in ((0, 12), (10, 30), (28, 45)) if week + a <= time < week + b]


class Days:
    def windows(self, time: float) -> Bounds:
        return days(time)


Held = dict[tuple[str, int, int], list[int]]


def limits(items: list[Item], lateness: int | None = None, patience: int | None = None) -> list[float]:
    """The watermark just before each item, of the partition or, with a lateness, of its key."""
    shared = float("-inf")
    own = defaultdict(lambda: float("-inf"))
    out = []
    for key, time, _ in items:
        before = shared
        shared = max(shared, time - LATENESS)
        if lateness is None:
            out.append(before)
            continue
        if patience is not None:
            own[key] = max(own[key], before - patience)
        out.append(own[key])
        own[key] = max(own[key], time - lateness)
    return out


def model(
    items: list[Item], limits: list[float], choose: Callable[[float], Bounds]
) -> tuple[Held, list[int]]:
    held: Held = defaultdict(list)
    late = []
    for (key, time, number), limit in zip(items, limits, strict=True):
        for start, end in choose(time):
            if end <= limit:
                late.append(number)
            else:
                held[key, start, end].append(number)
    return dict(held), late


CASES: dict[str, tuple[Any, Callable[[float], Bounds], dict[str, Any]]] = {
    "key": (windows.sliding(30, 10), thirties, {"lateness": 4}),
    "patience": (windows.sliding(30, 10), thirties, {"lateness": 4, "patience": 60}),
    "own": (Days(), days, {}),
    "own by key": (Days(), days, {"lateness": 4, "patience": 0}),
}


def grouped(keyed: ms.KeyedStream, case: str, **options: Any) -> ms.Windows:
    window, _, key = CASES[case]
    watermark: Any = "key" if key else "partition"
    return keyed.window("windows", window, watermark=watermark, **key, **options)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("ordered", [False, True])
def test_windows_hold_what_the_model_says(case: str, ordered: bool) -> None:
    _, choose, key = CASES[case]
    for seed in range(4):
        given = items(seed)
        expected = model(given, limits(given, **key), choose)
        flow = ms.Flow("choices")
        out = testing.collect()
        late = testing.collect()
        result = grouped(timed(flow, given, batch=1 + seed * 7), case, ordered=ordered).collect()
        result.sink("out", out)
        result.late.values().sink("late", late)
        ms.run(flow, workers=1 + seed % 3)
        seen = {(key, r.start, r.end): sorted(i[2] for i in r.value) for key, r in out}
        assert (seen, sorted(i[2] for i in late)) == expected, f"seed {seed}"


@pytest.mark.parametrize("case", CASES)
def test_windows_survive_a_crash_at_every_commit(case: str) -> None:
    flow = ms.Flow("choices")
    result = grouped(timed(flow, items(1, 60), batch=4), case).collect()
    result.items().map(repr).merge(result.late.items().map(repr)).sink("out", testing.collect())
    assert testing.crash_everywhere(flow) > 30


def joined(held: tuple[Held, Held], how: str) -> list[Any]:
    out = []
    for window in held[0].keys() | held[1].keys():
        left = held[0].get(window, [])
        right = held[1].get(window, [])
        out += [(*window, a, b) for a in left for b in right]
        out += [(*window, a, None) for a in left if not right and how != "inner"]
        out += [(*window, None, b) for b in right if not left and how == "full"]
    return sorted(out, key=repr)


@pytest.mark.parametrize("how", ["inner", "left", "full"])
def test_a_join_within_windows_pairs_what_is_in_one_window(how: Any) -> None:
    for seed in range(3):
        sides = items(seed, 150), items(seed + 50, 150)
        left, right = (model(side, limits(side), thirties) for side in sides)
        flow = ms.Flow("join")
        out = testing.collect()
        late = testing.collect()
        streams = timed(flow, sides[0], "left"), timed(flow, sides[1], "right")
        result = streams[0].join("pairs", streams[1], how, window=windows.sliding(30, 10))
        result.sink("out", out)
        result.late.values().sink("late", late)
        ms.run(flow, workers=1 + seed)
        numbers = [
            (key, r.start, r.end, *(None if side is None else side[2] for side in r.value)) for key, r in out
        ]
        assert sorted(numbers, key=repr) == joined((left[0], right[0]), how), f"seed {seed}"
        assert len(late) == len(left[1]) + len(right[1]) > 0, f"seed {seed}"
        assert all(isinstance(item[2], int) for item in late)


def test_a_join_within_windows_survives_a_crash_at_every_commit() -> None:
    flow = ms.Flow("join")
    left = timed(flow, items(1, 40), "left", 4)
    right = timed(flow, items(2, 40), "right", 4)
    pairs = left.join("pairs", right, "full", window=windows.tumbling(20)).items().map(repr)
    pairs.sink("out", testing.collect())
    assert testing.crash_everywhere(flow) > 20


class Halved:
    """Time that advances by half a step."""

    def __init__(self, partition: str) -> None:
        assert partition
        self.reached: float | None = None

    def on_item(self, item: Item, now: float) -> tuple[float, float | None]:
        self.reached = max(self.reached or -1e9, item[1] / 2)
        return item[1], self.reached

    def resume(self, watermark: float) -> None:
        self.reached = watermark


def by_clock(flow: ms.Flow, given: list[Any], clock: Callable[[str], Any], **options: Any) -> ms.LateStream:
    stream = flow.source("in", testing.items(given, 1)).event_clock(clock, **options)
    return stream.key_by(lambda i: i[0]).window("tens", windows.tumbling(10)).collect()


def test_a_clock_of_ones_own_says_what_is_late() -> None:
    flow = ms.Flow("clock")
    out = testing.collect()
    late = testing.collect()
    result = by_clock(flow, [("k", 10, 0), ("k", 4, 1), ("k", 30, 2), ("k", 9, 3), ("k", 14, 4)], Halved)
    result.values().map(lambda r: (r.start, [i[2] for i in r.value])).sink("out", out)
    result.late.values().sink("late", late)
    ms.run(flow)
    assert (out, late) == ([(0, [1]), (10, [0, 4]), (30, [2])], [("k", 9, 3)])


def test_a_clock_of_ones_own_survives_a_crash_at_every_commit() -> None:
    flow = ms.Flow("clock")
    result = by_clock(flow, items(3, 40), Halved)
    result.items().map(repr).merge(result.late.items().map(repr)).sink("out", testing.collect())
    assert testing.crash_everywhere(flow) > 30


def test_a_clock_advances_without_items_and_returns_datetimes() -> None:
    class Now:
        def on_item(self, item: Item, now: float) -> tuple[datetime, None]:
            return datetime.fromtimestamp(item[1], timezone.utc), None

        def on_pause(self, now: float) -> float | None:
            return now if now > 100 else None

    flow = ms.Flow("clock")
    out = testing.collect()
    clock = testing.clock(100)
    script = [("k", 5, 0), testing.advance(clock, 50), testing.pause(0.05), ("k", 7, 1)]
    result = by_clock(flow, script, lambda partition: Now())
    result.values().map(lambda r: len(r.value)).sink("out", out)
    result.late.values().sink("late", out)
    ms.run(flow, clock=clock)
    assert out == [1, ("k", 7, 1)]


def test_a_clock_that_fails_names_step_and_item_or_skips_it() -> None:
    class Bad:
        def on_item(self, item: Item, now: float) -> tuple[float, float]:
            return item[1], 1 / item[1]

    flow = ms.Flow("bad")
    out = testing.collect()
    result = by_clock(flow, [("k", 1, 0), ("k", 0, 1)], lambda partition: Bad(), on_error="skip")
    result.values().map(lambda r: len(r.value)).sink("out", out)
    ms.run(flow)
    assert out == [1]
    flow = ms.Flow("bad")
    by_clock(flow, [("k", 0, 1)], lambda partition: Bad(), name="clock").sink("out", testing.collect())
    with pytest.raises(ms.StepError, match="ZeroDivisionError") as failed:
        ms.run(flow)
    assert (failed.value.step, failed.value.item) == ("clock", "('k', 0, 1)")


@pytest.mark.parametrize("read", [False, True])
@pytest.mark.parametrize("workers", [1, 3])
def test_late_items_without_a_reader_are_reported_once(read: bool, workers: int, caplog: Any) -> None:
    flow = ms.Flow("late")
    result = timed(flow, items(2)).window("tens", windows.tumbling(10)).count()
    result.sink("out", testing.collect())
    if read:
        result.late.sink("late", testing.collect())
    report = ms.run(flow, workers=workers)
    assert report.step("tens")["late"] > 10
    lines = [line for line in caplog.text.splitlines() if "too late" in line]
    assert len(lines) == (0 if read else 1)
    assert read or ('step "tens"' in lines[0] and "`late`" in lines[0])


def test_a_branch_without_a_reader_is_silent(caplog: Any) -> None:
    flow = ms.Flow("branch")
    yes, _ = flow.source("in", testing.items(range(10))).branch(lambda n: n % 2 == 0)
    yes.sink("out", testing.collect())
    ms.run(flow)
    assert not caplog.records


class NoWindows:
    pass


class Wrong:
    def windows(self, time: float) -> Any:
        return [(time + 1, time + 2)]


MISTAKES: list[tuple[Any, dict[str, Any], str]] = [
    (NoWindows(), {}, r"an object with a method windows\(time\)"),
    (Days, {}, r"an object with a method windows\(time\)"),
    (windows.tumbling(5), {"watermark": "item"}, "watermark is"),
    (windows.tumbling(5), {"lateness": 5}, 'need watermark="key"'),
    (windows.tumbling(5), {"patience": 5}, 'need watermark="key"'),
    (windows.count(5), {"watermark": "key"}, "have no watermark"),
    (windows.tumbling(5), {"watermark": "key", "lateness": -1}, "lateness is a number of seconds"),
]


@pytest.mark.parametrize(("window", "options", "words"), MISTAKES)
def test_mistakes_are_errors_with_a_remedy(window: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ms.FlowUsageError, match=words):
        timed(ms.Flow("wrong"), []).window("w", window, **options)


def test_windows_of_ones_own_and_joins_are_checked() -> None:
    flow = ms.Flow("wrong")
    left = timed(flow, [("k", 1, 0)])
    with pytest.raises(ms.FlowUsageError, match="within and ttl have no meaning"):
        left.join("j", left, within=3, window=windows.tumbling(3))
    with pytest.raises(ms.FlowUsageError, match="needs times"):
        ms.Flow("plain").source("in", testing.items([1])).key_by(str).window("w", Days())
    left.window("mine", Wrong()).count().sink("out", testing.collect())
    with pytest.raises(ms.StepError, match="does not contain its item, at 1") as failed:
        ms.run(flow)
    assert failed.value.step == "mine"
