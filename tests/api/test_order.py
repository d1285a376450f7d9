"""What the order of items depends on: partitions that are faster than others, branches that meet again, the
size of batches, the number of workers, a crash. A plain model says what each key sees."""

from __future__ import annotations

import heapq
import logging
import random
from typing import Any

import millstream as ms
import pytest

P = ms.testing.pause
Item = tuple[str, float, int]


class Counting:
    """Counts its items; a timer emits the count."""

    def __init__(self) -> None:
        self.seen = 0

    def on_item(self, key: str, item: Item, ctx: ms.KeyContext) -> list[Any]:
        self.seen += 1
        ctx.set_timer(item[1] + 7)
        return [("item", item[2], self.seen)]

    def on_timer(self, key: str, at: float, ctx: ms.KeyContext) -> list[Any]:
        return [("timer", at, self.seen)]


def partitions(chance: random.Random, count: int) -> list[list[Item]]:
    """Items whose key has the number of their partition, with times that mostly increase."""
    made = []
    number = 0
    for partition in range(count):
        time = 0.0
        items = []
        for _ in range(chance.randrange(5, 25)):
            time += chance.choice([0, 1, 2, 5, 20])
            items.append((f"{chance.choice('ab')}{partition}", time - chance.choice([0, 0, 1, 2]), number))
            number += 1
        made.append(items)
    return made


def paused(chance: random.Random, items: list[Item]) -> list[Any]:
    return [x for item in items for x in ((item, P(0.001)) if chance.random() < 0.1 else (item,))]


def of_key(out: list[tuple[str, Any]]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for key, value in out:
        found.setdefault(key, []).append(value)
    return found


@pytest.mark.parametrize("seed", range(12))
def test_what_a_key_sees_does_not_depend_on_other_partitions(seed: int) -> None:
    chance = random.Random(seed)
    lateness = chance.choice([0, 2, 4])
    parts = partitions(chance, 3)
    streams = of_key([(item[0], item) for part in parts for item in part])
    expected: dict[str, list[Any]] = {}
    for part in parts:
        # The watermark is that of the partition, which items of its other keys advance too.
        expected |= seen_by_partition(part, lateness)
    assert streams.keys() == expected.keys()
    for workers in (1, 3):
        flow = ms.Flow("timers")
        out = list[Any]()
        script = [paused(chance, part) for part in parts]
        source = flow.source("in", ms.testing.partitions(*script, batch_size=chance.choice([1, 3, 100])))
        times = source.event_time(lambda item: item[1], lateness=lateness)
        sink = ms.testing.collect()
        times.key_by(lambda item: item[0]).stateful("count", Counting).sink("out", sink)
        ms.run(flow, workers=workers)
        out = list(sink)
        found = of_key(out)
        for key, saw in expected.items():
            # Which timers are due at the end depends on the latest time of all partitions.
            assert found[key][: len(saw)] == saw, (key, workers)
            assert all(what == "timer" for what, *_ in found[key][len(saw) :])


def seen_by_partition(items: list[Item], lateness: float) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    seen: dict[str, int] = {}
    timers: dict[str, set[float]] = {}
    watermark = float("-inf")
    for key, time, number in items:
        # The own time of an item counts for it, but does not make it late.
        due = max(watermark, min(time - lateness, time))
        watermark = max(watermark, time - lateness)
        own = timers.setdefault(key, set())
        for at in sorted(at for at in own if at <= due):
            own.discard(at)
            found[key].append(("timer", at, seen[key]))
        seen[key] = seen.get(key, 0) + 1
        own.add(time + 7)
        found.setdefault(key, []).append(("item", number, seen[key]))
    return found


def test_a_key_of_two_partitions_waits_for_both() -> None:
    """Its timers must not fire before items of the slower partition have arrived."""
    fast = [("k", float(t), t) for t in range(0, 100, 10)]
    slow: list[Any] = [P(0.05), *[("k", t + 1.0, t) for t in range(0, 100, 10)]]
    for workers in (1, 2):
        flow = ms.Flow("both")
        out = ms.testing.collect()
        source = flow.source("in", ms.testing.partitions(fast, slow, batch_size=1))
        times = source.event_time(lambda item: item[1]).key_by(lambda item: item[0])
        times.stateful("count", Counting).values().sink("out", out)
        ms.run(flow, workers=workers)
        timers = [(at, seen) for what, at, seen in out if what == "timer"]
        # Before a timer, all items of both partitions up to its time.
        for at, seen in timers:
            earlier = sum(item[1] <= at for item in [*fast, *(i for i in slow if isinstance(i, tuple))])
            assert seen >= earlier, (at, seen, earlier)


class Gaps:
    """Emits each item with the number of items before it, and rings."""

    def __init__(self) -> None:
        self.numbers: list[int] = []

    def on_item(self, key: str, item: Item, ctx: ms.KeyContext) -> list[Any]:
        if item[2] % 11 == 10:
            raise ValueError("a bad item")
        self.numbers.append(item[2])
        ctx.set_timer(item[1] + 4)
        return [("item", item[2], len(self.numbers))]

    def on_timer(self, key: str, at: float, ctx: ms.KeyContext) -> list[Any]:
        return [("timer", at, len(self.numbers))]


def in_turn(parts: list[list[Item]]) -> dict[str, list[Any]]:
    """The items of a key in the order of their times, with timers before the items of their moment."""
    found: dict[str, list[Any]] = {}
    for key, items in of_key([(item[0], item) for part in parts for item in part]).items():
        queue: list[tuple[float, int, int]] = [(item[1], 1, item[2]) for item in items]
        heapq.heapify(queue)
        last = max(item[1] for item in items)
        count = 0
        rung = set[float]()
        saw = found.setdefault(key, [])
        while queue:
            at, what, number = heapq.heappop(queue)
            if what == 0:
                if at not in rung and at <= last:
                    rung.add(at)
                    saw.append(("timer", at, count))
            elif number % 11 != 10:
                count += 1
                saw.append(("item", number, count))
                heapq.heappush(queue, (at + 4, 0, 0))
    return found


@pytest.mark.parametrize("seed", range(12))
def test_items_in_turn_do_not_depend_on_arrival(seed: int) -> None:
    """Every key comes from every partition, and partitions have different speeds."""
    chance = random.Random(seed)
    # No two items of one time: their order is that of arrival.
    times = iter(chance.sample(range(0, 400), 90))
    parts = [sorted((chance.choice("abc"), float(next(times)), 0) for _ in range(30)) for _ in range(3)]
    parts = [[(key, time, int(time)) for key, time, _ in part] for part in parts]
    for part in parts:
        chance.shuffle(part)
        part.sort(key=lambda item: item[1] + chance.choice([0, 0, 3]))
    expected = in_turn(parts)
    for workers in (1, 2, 3):
        flow = ms.Flow("turns")
        out = ms.testing.collect()
        dead = ms.testing.collect()
        script = [paused(chance, part) for part in parts]
        source = flow.source("in", ms.testing.partitions(*script, batch_size=chance.choice([1, 2, 50])))
        keyed = source.event_time(lambda item: item[1], lateness=3).key_by(lambda item: item[0])
        bad = ms.dead_letter(dead)
        turns = keyed.stateful("turns", Gaps, on_error=bad, ordered=True)
        turns.sink("out", out)
        late = ms.testing.collect()
        turns.late.sink("late", late)
        ms.run(flow, workers=workers)
        assert late == []
        assert sorted(letter.item[2] for letter in dead) == sorted(
            item[2] for part in parts for item in part if item[2] % 11 == 10
        )
        found = of_key(out)
        for key, saw in expected.items():
            assert found[key][: len(saw)] == saw, (key, workers)
            assert all(what == "timer" for what, *_ in found[key][len(saw) :])


def turning(flow: ms.Flow) -> None:
    keyed = flow.source("in", ms.testing.items([])).event_time(lambda item: item[1], lateness=2)
    turns = keyed.key_by(lambda item: item[0]).stateful("turns", Gaps, on_error="skip", ordered=True, ttl=30)
    turns.sink("out", ms.testing.collect())


def test_what_waits_survives_a_crash_at_each_commit() -> None:
    for seed in range(4):
        items = partitions(random.Random(seed), 1)[0]
        flow = ms.Flow("waiting")
        turning(flow)
        script = ms.testing.items(items, batch_size=2)
        assert ms.testing.crash_everywhere(flow, {"in": script}) > 10


def test_late_items_of_turns_are_apart() -> None:
    flow = ms.Flow("late")
    out = ms.testing.collect()
    late = ms.testing.collect()
    items = [("k", 5.0, 5), ("k", 9.0, 9), ("k", 3.0, 3), ("k", 8.0, 8), ("k", 20.0, 20)]
    source = flow.source("in", ms.testing.items(items, batch_size=1))
    keyed = source.event_time(lambda item: item[1], lateness=1).key_by(lambda item: item[0])
    turns = keyed.stateful("turns", Gaps, ordered=True)
    turns.values().filter(lambda made: made[0] == "item").map(lambda made: made[1]).sink("out", out)
    turns.late.values().sink("late", late)
    ms.run(flow)
    assert (out, late) == ([5, 8, 9, 20], [("k", 3.0, 3)])


def test_ordered_needs_times() -> None:
    keyed = ms.Flow("f").source("in", ms.testing.items([1])).key_by(str)
    for add in (
        lambda: keyed.stateful("s", lambda state, value: None, state=dict, ordered=True),
        lambda: keyed.stateful_map("s", lambda state, value: (1, value), ordered=True),
    ):
        with pytest.raises(
            ms.FlowUsageError, match='step "s": ordered=True needs times: put event_time before'
        ):
            add()


@pytest.mark.parametrize("batch_size", [1, 3, 100])
@pytest.mark.parametrize("workers", [1, 2])
def test_branches_with_times_meet_in_their_order(batch_size: int, workers: int) -> None:
    """An order is followed by its payment, each pair for all."""
    flow = ms.Flow("orders")
    pairs = ms.testing.collect()
    last = ms.testing.collect()
    items = [("k", ("order", "pay")[n % 2], n // 2, n) for n in range(40)]
    source = flow.source("in", ms.testing.items(items, batch_size=batch_size))
    keyed = source.event_time(lambda item: item[3]).key_by(lambda item: item[0])
    orders, paid = keyed.branch(lambda item: item[1] == "order")
    joined = orders.map(lambda item: item[2]).join_all("pairs", paid.map(lambda item: item[2]))
    joined.values().sink("pairs out", pairs)
    turns = orders.merge(paid).stateful("last", lambda state, item: item[3], state=list, ordered=True)
    turns.values().sink("last out", last)
    ms.run(flow, workers=workers)
    assert pairs == [(n, n) for n in range(20)]
    assert last == list(range(40))


def test_late_values_of_a_join_of_many_are_apart() -> None:
    flow = ms.Flow("late")
    out = ms.testing.collect()
    late = ms.testing.collect()

    def timed(name: str, times: list[int]) -> ms.KeyedStream[str, int]:
        source = flow.source(name, ms.testing.items(times, batch_size=1))
        return source.event_time(float).key_by(lambda time: "k")

    joined = timed("a", [1, 9, 2, 12]).join_all("j", timed("b", [5, 10]), emit="running", ttl=5)
    joined.values().sink("out", out)
    joined.late.values().sink("late", late)
    ms.run(flow)
    assert out == [(1, None), (1, 5), (9, 5), (9, 10), (12, 10)]
    assert late == [2]


@pytest.mark.parametrize("batch_size", [1, 2, 100])
def test_the_life_of_a_join_of_many_ends_at_times(batch_size: int) -> None:
    flow = ms.Flow("lives")
    out = ms.testing.collect()
    items = [0, 1, 100, 101, 300, 301]
    source = flow.source("in", ms.testing.items(items, batch_size=batch_size))
    even, odd = source.event_time(float).key_by(lambda n: "k").branch(lambda n: n % 2 == 0)
    even.join_all("j", odd, emit="running", ttl=10).values().sink("out", out)
    ms.run(flow)
    assert out == [(0, None), (0, 1), (100, None), (100, 101), (300, None), (300, 301)]


def warned(caplog: pytest.LogCaptureFixture, build: Any) -> list[str]:
    flow = ms.Flow("meeting")
    build(flow.source("in", ms.testing.items([("a", 1), ("a", 2)])))
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        ms.run(flow)
    return [record.getMessage() for record in caplog.records if "order is lost" in record.getMessage()]


def test_a_warning_names_branches_whose_order_is_lost(caplog: pytest.LogCaptureFixture) -> None:
    def keyed(source: Any) -> Any:
        return source.key_by(lambda item: item[0])

    def halves(source: Any, more: str = "") -> tuple[Any, Any]:
        one, other = keyed(source).branch(lambda item: item[1] == 1)
        return one.map(lambda item: item, name="one" + more), other.map(
            lambda item: item, name="other" + more
        )

    def stateful(source: Any) -> None:
        one, other = halves(source)
        one.merge(other).stateful("s", list.append, state=list).sink("out", ms.testing.discard())

    said = warned(caplog, stateful)
    assert len(said) == 1
    assert 'step "s" receives items of source "in" on two ways, by "one" and by "other"' in said[0]
    assert "event_time" in said[0] and "ordered=True" in said[0]

    def folded(source: Any) -> None:
        one, other = keyed(source).branch(lambda item: item[1] == 1)
        one.merge(other).fold("f", list, lambda seen, item: [*seen, item]).sink("out", ms.testing.discard())

    # `fold` has no order of its own: the advice is a step that has.
    said = warned(caplog, folded)
    assert (
        'step "f"' in said[0]
        and 'both by "branch-' in said[0]
        and "use stateful with ordered=True" in said[0]
    )

    def joined(source: Any) -> None:
        one, other = halves(source)
        one.join_all("j", other).sink("out", ms.testing.discard())
        one.join("k", other).sink("out 2", ms.testing.discard())

    said = warned(caplog, joined)
    assert ['step "j"' in said[0], 'step "k"' in said[1]] == [True, True]

    def harmless(source: Any) -> None:
        # The order is not lost, does not matter, or is that of times.
        one, other = halves(source)
        one.stateful("s", list.append, state=list).sink("out", ms.testing.discard())
        one.merge(other).count("each", name="c").sink("out 2", ms.testing.discard())
        one, other = halves(source.event_time(lambda item: item[1]), " timed")
        one.merge(other).stateful("t", list.append, state=list, ordered=True).sink(
            "out 3", ms.testing.discard()
        )
        one.join("j", other).sink("out 4", ms.testing.discard())
        one.join_all("k", other).sink("out 5", ms.testing.discard())

    assert warned(caplog, harmless) == []


def test_the_cure_of_the_warning_keeps_the_order(caplog: pytest.LogCaptureFixture) -> None:
    """`test_branches_with_times_meet_in_their_order` shows what it gives; here it is warned of no more."""

    def cured(source: Any) -> None:
        keyed = source.event_time(lambda item: item[1]).key_by(lambda item: item[0])
        one, other = keyed.branch(lambda item: item[1] == 1)
        one.merge(other).stateful("s", list.append, state=list, ordered=True).sink(
            "out", ms.testing.discard()
        )

    assert warned(caplog, cured) == []
