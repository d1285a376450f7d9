"""Joins in Python, judged by a plain model that takes the values in the order of their times."""

import random
from collections import defaultdict
from functools import partial
from typing import Any

import millstream as ms
import pytest
from millstream import testing

LATENESS = 10
WITHIN = 6
Item = tuple[str, int, int]
TOPOLOGIES = pytest.mark.parametrize(
    ("workers", "batch"), [(workers, batch) for workers in (1, 2, 3) for batch in (1, 13, 10_000)]
)


def items(seed: int, step: int) -> list[Item]:
    chance = random.Random(seed)
    now = 0
    made = {}
    for number in range(500):
        now += chance.randrange(step)
        key = f"k{chance.randrange(8)}"
        time = now - chance.randrange(16)
        made.setdefault((key, time), (key, time, number))
    return list(made.values())


def in_time(items: list[Item]) -> list[Item]:
    """What is not late, in the order of time."""
    watermark = float("-inf")
    kept = []
    for item in items:
        if item[1] >= watermark:
            kept.append(item)
        watermark = max(watermark, item[1] - LATENESS)
    return sorted(kept, key=lambda item: item[1])


def latest(left: list[Item], right: list[Item], how: str) -> list[Any]:
    turns = sorted([(i[1], True, i[2]) for i in left] + [(i[1], False, i[2]) for i in right])
    now: dict[bool, int | None] = {True: None, False: None}
    out = []
    for _, is_left, number in turns:
        now[is_left] = number
        both = None not in now.values()
        if both or how == "full" or (how == "left" and is_left):
            out.append((now[True], now[False]))
    return out


def lookup(left: list[Item], right: list[Item], how: str) -> list[Any]:
    out = []
    for _, time, number in left:
        rows = [row for _, at, row in right if at <= time]
        if rows or how == "left":
            out.append((number, rows[-1] if rows else None))
    return out


def within(
    left: list[Item], right: list[Item], how: str, before: int = WITHIN, after: int = WITHIN
) -> list[Any]:
    near = [(a, b) for a in left for b in right if a[1] - before <= b[1] <= a[1] + after]
    out: list[Any] = [(a[2], b[2]) for a, b in near]
    paired_left = {pair[0] for pair in out}
    paired_right = {pair[1] for pair in out}
    if how in ("left", "full"):
        out += [(a[2], None) for a in left if a[2] not in paired_left]
    if how == "full":
        out += [(None, b[2]) for b in right if b[2] not in paired_right]
    return out


ASYMMETRIC = {"just after": (0, 9), "just before": (7, 0), "mostly after": (2, 11), "at once": (0, 0)}


def rank(pair: tuple[int | None, int | None]) -> tuple[int, int]:
    return (-1 if pair[0] is None else pair[0], -1 if pair[1] is None else pair[1])


CASES = [("latest", how) for how in ("inner", "left", "full")]
CASES += [("lookup", how) for how in ("inner", "left")]
CASES += [(kind, how) for kind in ("within", *ASYMMETRIC) for how in ("inner", "left", "full")]


@TOPOLOGIES
@pytest.mark.parametrize(("kind", "how"), CASES)
def test_joins_pair_what_the_model_pairs(kind: str, how: Any, workers: int, batch: int) -> None:
    left = items(1, 3)
    right = items(2, 5)
    flow = ms.Flow("join")
    out = testing.collect()
    late = testing.collect()

    def stream(name: str, given: list[Item]) -> ms.KeyedStream:
        timed = flow.source(name, testing.items(given, batch)).event_time(lambda i: i[1], lateness=LATENESS)
        return timed.key_by(lambda i: i[0]).map(lambda i: i[2])

    own = stream("left", left)
    other = stream("right", right)
    if kind == "lookup":
        joined = own.lookup("joined", other, how)
    else:
        distance: Any = ASYMMETRIC.get(kind, WITHIN if kind == "within" else None)
        joined = own.join("joined", other, how, within=distance)
    joined.sink("out", out)
    joined.late.values().sink("late", late)
    ms.run(flow, workers=workers)
    seen: dict[str, list[Any]] = defaultdict(list)
    for key, pair in out:
        seen[key].append(pair)
    models: dict[str, Any] = {"latest": latest, "lookup": lookup, "within": within}
    for case, sides in ASYMMETRIC.items():
        models[case] = partial(within, before=sides[0], after=sides[1])
    model = models[kind]
    kept = in_time(left)
    table = in_time(right)
    for key in {item[0] for item in left + right}:
        of_key = [i for i in kept if i[0] == key], [i for i in table if i[0] == key]
        expected = model(*of_key, how)
        if kind == "within" or kind in ASYMMETRIC:
            assert sorted(seen[key], key=rank) == sorted(expected, key=rank)
        else:
            assert seen[key] == expected
    assert len(late) == len(left) + len(right) - len(kept) - len(table) > 0


def test_without_times_values_take_their_turn_as_they_come() -> None:
    script: list[Any] = [
        ("row", "a", 1),
        ("item", "a", "x"),
        ("item", "b", "y"),
        ("row", "a", 2),
        ("item", "a", "z"),
    ]
    script = [mark for item in script for mark in (item, testing.pause(0.03))]
    flow = ms.Flow("untimed")
    looked_up = testing.collect()
    joined = testing.collect()
    rows, given = flow.source("in", testing.items(script, 1)).branch(lambda i: i[0] == "row")
    table, keyed = (s.key_by(lambda i: i[1]).map(lambda i: i[2]) for s in (rows, given))
    keyed.lookup("looked up", table).sink("looked up out", looked_up)
    keyed.join("joined", table).sink("joined out", joined)
    ms.run(flow)
    assert looked_up == [("a", ("x", 1)), ("b", ("y", None)), ("a", ("z", 2))]
    assert joined == [("a", ("x", 1)), ("a", ("x", 2)), ("a", ("z", 2))]


def test_a_key_is_forgotten_after_its_time_to_live() -> None:
    flow = ms.Flow("ttl")
    out = testing.collect()

    def stream(name: str, times: list[int]) -> ms.KeyedStream:
        return flow.source(name, testing.items(times)).event_time(lambda t: t).key_by(lambda t: "k")

    stream("left", [5, 15, 26, 30]).lookup("joined", stream("right", [0, 27]), ttl=10).values().sink(
        "out", out
    )
    ms.run(flow, workers=2)
    assert out == [(5, 0), (15, 0), (26, None), (30, 27)]


def test_mistakes_are_errors_with_a_remedy() -> None:
    flow = ms.Flow("mistakes")
    numbers = flow.source("in", testing.items([1]))
    untimed = numbers.key_by(str)
    timed = numbers.event_time(lambda n: n).key_by(str)
    cases: list[Any] = [
        (lambda: untimed.join("j", timed), "a stream with times merges only with streams with times"),
        (lambda: untimed.join("j", untimed, within=3), "within needs times"),
        (
            lambda: timed.join("j", timed, within=(1, 2, 3)),
            r"within is a duration, or \(before, after\), not",
        ),
        (lambda: timed.join("j", timed, within=[1]), r"within is a duration, or \(before, after\), not"),
        (lambda: timed.join("j", timed, within=(-1, 2)), "within: before is a number of seconds from 0"),
        (lambda: untimed.join("j", untimed, ttl=3), "ttl of a join needs times"),
        (lambda: timed.join("j", timed, within=3, ttl=3), "ttl has no meaning"),
        (lambda: timed.join("j", timed, "outer"), 'how is "inner", "left" or "full", not \'outer\''),
        (lambda: timed.lookup("j", timed, "full"), 'how is "inner" or "left", not \'full\''),
        (lambda: timed.join("", timed), "a join step keeps state and needs a name"),
        (lambda: timed.join("j", numbers), "a keyed stream is joined with a keyed stream"),
    ]
    for make, says in cases:
        with pytest.raises(ms.FlowUsageError, match=says):
            make()


def slow_device(**options: Any) -> tuple[list[Any], list[Any]]:
    """Pairs and late values where the items of the key ``b`` are far behind those of ``a``."""
    flow = ms.Flow("slow device")
    out = ms.testing.collect()
    late = ms.testing.collect()

    def timed(name: str, items: list[tuple[str, int]]) -> ms.KeyedStream[str, int]:
        times = flow.source(name, ms.testing.items(items)).event_time(lambda item: item[1])
        return times.key_by(lambda item: item[0]).map(lambda item: item[1])

    left = timed("left", [("a", 500), ("b", 3), ("b", 9)])
    right = timed("right", [("a", 501), ("b", 4), ("b", 20)])
    pairs = left.join("near", right, **options)
    pairs.sink("out", out)
    pairs.late.sink("late", late)
    ms.run(flow)
    return sorted(out, key=str), sorted(late)


@pytest.mark.parametrize("how", [{"within": 2}, {}, {"ttl": 50}])
def test_a_join_uses_the_watermark_of_the_key(how: dict[str, Any]) -> None:
    by_partition, late = slow_device(**how)
    assert late == [("b", 3), ("b", 4), ("b", 9), ("b", 20)]
    assert by_partition == [("a", (500, 501))]
    by_key, late = slow_device(**how, watermark="key", lateness=30)
    assert late == []
    assert by_key == slow_device_alone(**how)


def slow_device_alone(**how: Any) -> list[Any]:
    """The same with each key in a flow of its own, where nothing is late."""
    pairs = []
    for key, lefts, rights in [("a", [500], [501]), ("b", [3, 9], [4, 20])]:
        flow = ms.Flow("alone")
        out = ms.testing.collect()

        def timed(name: str, items: list[int]) -> ms.KeyedStream[str, int]:
            source = flow.source(name, ms.testing.items(items))  # noqa: B023
            return source.event_time(float).key_by(lambda item: key)  # noqa: B023

        timed("left", lefts).join("near", timed("right", rights), **how).sink("out", out)
        ms.run(flow)
        pairs += out
    return sorted(pairs, key=str)


def test_a_late_value_is_one_before_the_watermark_of_its_key() -> None:
    flow = ms.Flow("late")
    out = ms.testing.collect()
    late = ms.testing.collect()

    def timed(name: str, items: list[int]) -> ms.KeyedStream[str, int]:
        times = flow.source(name, ms.testing.items(items, 1)).event_time(float, lateness=100)
        return times.key_by(lambda item: "k")

    # Whichever stream is read faster: 12 comes after 40, and 10 and 30 are not that late.
    left = timed("left", [10, 40, 12])
    right = timed("right", [30])
    pairs = left.join("near", right, within=10, watermark="key", lateness=25, patience=1000)
    pairs.values().sink("out", out)
    pairs.late.values().sink("late", late)
    ms.run(flow)
    assert (out, late) == ([(40, 30)], [12])


def test_joins_within_windows_and_lookups_go_by_the_watermark_of_the_key_too() -> None:
    pairs, late = slow_device(window=ms.windows.tumbling(10), watermark="key", lateness=30)
    assert late == []
    assert [(key, pair.start, pair.value) for key, pair in pairs] == [
        ("a", 500, (500, 501)),
        ("b", 0, (3, 4)),
        ("b", 0, (9, 4)),
    ]


def test_a_watermark_that_a_join_cannot_have_is_refused_by_its_name() -> None:
    flow = ms.Flow("no times")
    one = flow.source("one", ms.testing.items([1])).key_by(lambda item: item)
    two = flow.source("two", ms.testing.items([1])).key_by(lambda item: item)
    with pytest.raises(ms.FlowUsageError, match='join "pairs" needs times: put event_time'):
        one.join("pairs", two, watermark="key")
    with pytest.raises(ms.FlowUsageError, match='join "rows" needs times'):
        one.lookup("rows", two, watermark="key")
    with pytest.raises(ms.FlowUsageError, match='the join "pairs": watermark is "partition" or "key"'):
        one.join("pairs", two, watermark="item")  # type: ignore[call-overload]
    with pytest.raises(ms.FlowUsageError, match='patience of the join "pairs" need watermark="key"'):
        one.join("pairs", two, lateness=5)


@pytest.mark.parametrize(
    "how", [{"within": 2}, {"within": (1, 12)}, {"ttl": 500}, {"window": ms.windows.tumbling(10)}]
)
def test_a_crash_changes_nothing_of_a_join_by_the_watermark_of_the_key(how: dict[str, Any]) -> None:
    flow = ms.Flow("crashes")

    def timed(name: str, step: int) -> ms.KeyedStream[int, int]:
        times = flow.source(name, ms.testing.items(range(0, 60, step), 4)).event_time(float)
        return times.key_by(lambda time: time % 2)

    pairs = timed("left", 3).join("pairs", timed("right", 5), "left", watermark="key", lateness=60, **how)
    pairs.sink("out", ms.testing.collect())
    assert ms.testing.crash_everywhere(flow) > 6


@pytest.mark.parametrize(
    "how", [{"window": ms.windows.tumbling(10)}, {"within": 2}, {}, {"window": ms.windows.session(5)}]
)
@pytest.mark.parametrize("workers", [1, 2])
def test_late_values_without_a_reader_are_reported_once(
    how: dict[str, Any], workers: int, caplog: pytest.LogCaptureFixture
) -> None:
    flow = ms.Flow("late")

    def timed(name: str) -> ms.KeyedStream[int, int]:
        times = flow.source(name, ms.testing.items([50, 3, 4, 60, 5], 1)).event_time(float)
        return times.key_by(lambda time: time % 2)

    timed("left").join("pairs", timed("right"), **how).sink("out", ms.testing.collect())
    with caplog.at_level("WARNING"):
        report = ms.run(flow, workers=workers)
    told = [record.getMessage() for record in caplog.records if "too late" in record.getMessage()]
    assert report.step("pairs")["late"] == 6
    assert len(told) == 1 and 'step "pairs"' in told[0] and "`late`" in told[0]
