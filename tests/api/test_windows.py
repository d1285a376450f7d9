"""Windows in Python, judged by a plain model that goes through the items one by one."""

import random
from collections import defaultdict
from collections.abc import Callable
from datetime import timedelta
from fractions import Fraction
from typing import Any

import millstream as ms
import pytest
from millstream import testing, windows

LATENESS = 15
Item = tuple[str, int, int]
Result = tuple[float, float, list[int]]
TOPOLOGIES = pytest.mark.parametrize(
    ("workers", "batch"), [(workers, batch) for workers in (1, 2, 3) for batch in (1, 10, 10_000)]
)


def items(seed: int) -> list[Item]:
    """Mostly in order, some too late, now and then a leap."""
    chance = random.Random(seed)
    now = -1_000_000
    made = []
    for number in range(1200):
        now += chance.randrange(5)
        if chance.randrange(300) == 0:
            now += chance.choice([400, 10_000_000])
        made.append((f"k{chance.randrange(12)}", now - chance.randrange(40), number))
    return made


def watermarks(items: list[Item]) -> list[float]:
    """The watermark before each item."""
    watermark = float("-inf")
    before = []
    for _, time, _ in items:
        before.append(watermark)
        watermark = max(watermark, time - LATENESS)
    return before


def aligned(items: list[Item], length: int, every: int) -> tuple[dict[str, list[Result]], list[Item]]:
    open_windows: dict[tuple[str, int], list[int]] = defaultdict(list)
    late = []
    for item, watermark in zip(items, watermarks(items), strict=True):
        key, time, number = item
        starts = range(time // every * every, time - length, -every)
        for start in starts:
            if start + length <= watermark:
                late.append(item)
            else:
                open_windows[key, start].append(number)
    out: dict[str, list[Result]] = defaultdict(list)
    for (key, start), numbers in sorted(open_windows.items()):
        out[key].append((start, start + length, sorted(numbers)))
    return dict(out), late


def sessions(items: list[Item], gap: int) -> tuple[dict[str, list[Result]], list[Item]]:
    late = [item for item, watermark in zip(items, watermarks(items), strict=True) if item[1] < watermark]
    out: dict[str, list[Result]] = defaultdict(list)
    for key, time, number in sorted(set(items) - set(late)):
        last = out[key][-1] if out[key] else None
        if last and time <= last[1]:
            last[2].append(number)
            out[key][-1] = (last[0], time + gap, sorted(last[2]))
        else:
            out[key].append((time, time + gap, [number]))
    return dict(out), late


CASES: dict[str, tuple[windows.Window, Callable[[list[Item]], Any]]] = {
    "tumbling": (windows.tumbling(10), lambda items: aligned(items, 10, 10)),
    "sliding": (windows.sliding(timedelta(seconds=30), every=10), lambda items: aligned(items, 30, 10)),
    "panes": (windows.sliding(25, 10), lambda items: aligned(items, 25, 10)),
    "session": (windows.session(gap=20), lambda items: sessions(items, 20)),
}


def numbered(items: list[Item], window: windows.Window, batch: int) -> tuple[ms.Flow, ms.Windows]:
    flow = ms.Flow("windows")
    timed = flow.source("in", testing.items(items, batch)).event_time(lambda i: i[1], lateness=LATENESS)
    return flow, timed.key_by(lambda i: i[0]).window("windows", window)


@TOPOLOGIES
@pytest.mark.parametrize("case", CASES)
def test_windows_in_order_hold_them_by_time_and_arrival(case: str, workers: int, batch: int) -> None:
    window, model = CASES[case]
    for seed in range(2):
        given = items(seed)
        expected, _ = model(given)
        flow = ms.Flow("ordered")
        timed = flow.source("in", testing.items(given, batch)).event_time(lambda i: i[1], lateness=LATENESS)
        out = testing.collect()
        grouped = timed.key_by(lambda i: i[0]).window("windows", window, ordered=True)
        # No merge=: it is one fold over the whole window.
        grouped.fold(list, lambda acc, item: [*acc, item]).sink("out", out)
        ms.run(flow, workers=workers)
        seen: dict[str, list[Result]] = defaultdict(list)
        for key, result in out:
            assert result.value == sorted(result.value, key=lambda item: (item[1], item[2])), f"seed {seed}"
            seen[key].append((result.start, result.end, sorted(item[2] for item in result.value)))
        assert dict(seen) == expected, f"seed {seed}"


def test_first_last_and_early_results_in_order() -> None:
    flow = ms.Flow("ordered")
    out = testing.collect()
    timed = flow.source("in", testing.items([5, 2, 9, 1, 14])).event_time(float, lateness=20)
    tens = timed.key_by(lambda value: "k").window("tens", windows.tumbling(10), early=2, ordered=True)
    tens.collect().values().map(lambda r: (r.early, r.value)).sink("out", out)
    ms.run(flow)
    assert out == [(True, [2, 5]), (True, [1, 2, 5, 9]), (False, [1, 2, 5, 9]), (False, [14])]


def test_order_needs_times() -> None:
    _ = ms.Flow("wrong")
    keyed = ms.Flow("wrong").source("in", testing.items([1])).key_by(str)
    with pytest.raises(ms.FlowUsageError, match="ordered=True needs times"):
        keyed.window("w", windows.count(3), ordered=True)


@TOPOLOGIES
@pytest.mark.parametrize("case", CASES)
def test_windows_hold_what_the_model_says(case: str, workers: int, batch: int) -> None:
    window, model = CASES[case]
    for seed in range(2):
        given = items(seed)
        expected, expected_late = model(given)
        flow, grouped = numbered(given, window, batch)
        out = testing.collect()
        late = testing.collect()
        collected = grouped.collect()
        collected.sink("out", out)
        collected.late.values().sink("late", late)
        report = ms.run(flow, workers=workers)
        seen: dict[str, list[Result]] = defaultdict(list)
        for key, result in out:
            assert not result.early
            seen[key].append((result.start, result.end, sorted(item[2] for item in result.value)))
        assert dict(seen) == expected, f"seed {seed}"
        assert sorted(late, key=lambda item: item[2]) == expected_late, f"seed {seed}"
        assert report.step("windows")["late"] == len(expected_late) > 0


VALUES = [4, 1, 9, 2.5, 2.5, 10**30, True, -7, Fraction(1, 3), 0.1, 0.2, 0.3, -(2**63), 2**63 - 1, 2**62]


def folded(name: str, grouped: ms.Windows) -> ms.LateStream:
    verbs: dict[str, Callable[[], ms.LateStream]] = {
        "count": grouped.count,
        "sum": grouped.sum,
        "min": grouped.min,
        "max": grouped.max,
        "mean": grouped.mean,
        "collect": grouped.collect,
        "reduce": lambda: grouped.reduce(lambda a, b: a * b),
        "fold": lambda: grouped.fold(list, lambda acc, v: [*acc, v], merge=lambda a, b: a + b),
        "aggregate": lambda: grouped.aggregate(
            lambda: (0, 0),
            lambda acc, v: (acc[0] + v, acc[1] + 1),
            lambda a, b: (a[0] + b[0], a[1] + b[1]),
            lambda acc, bounds: (acc[1], bounds.start, bounds.end, bounds.early),
        ),
    }
    return verbs[name]()


def product(values: list[Any]) -> Any:
    made = values[0]
    for value in values[1:]:
        made = made * value
    return made


PLAIN: dict[str, Callable[[list[Any], float, float], Any]] = {
    "count": lambda values, start, end: len(values),
    "sum": lambda values, start, end: sum(values[1:], start=values[0]),
    "min": lambda values, start, end: min(values),
    "max": lambda values, start, end: max(values),
    "mean": lambda values, start, end: sum(values[1:], start=values[0]) / len(values),
    "collect": lambda values, start, end: values,
    "reduce": lambda values, start, end: product(values),
    "fold": lambda values, start, end: values,
    "aggregate": lambda values, start, end: (len(values), start, end, False),
}


@pytest.mark.parametrize("verb", PLAIN)
@pytest.mark.parametrize("length", [1, 4, 100])
def test_aggregates_give_what_plain_python_gives(verb: str, length: int) -> None:
    """Also where plain numbers become large ones, fractions or a mixture of types."""
    chance = random.Random(length)
    values = [chance.choice(VALUES) for _ in range(100)]
    flow = ms.Flow("verbs")
    out = testing.collect()
    timed = flow.source("in", testing.items(list(enumerate(values)), 7)).event_time(lambda v: v[0])
    keyed = timed.key_by(lambda v: "k").map(lambda v: v[1])
    folded(verb, keyed.window("w", windows.tumbling(length))).values().sink("out", out)
    ms.run(flow)
    assert len(out) == 100 // length
    for result in out:
        start = int(result.start)
        end = int(result.end)
        plain = PLAIN[verb](values[start:end], start, end)
        assert result.value == plain and type(result.value) is type(plain)


@pytest.mark.parametrize("verb", PLAIN)
def test_panes_equal_complete_windows(verb: str) -> None:
    values = [random.Random(1).randrange(1, 50) for _ in range(60)]
    flow = ms.Flow("panes")
    out = testing.collect()
    timed = flow.source("in", testing.items(list(enumerate(values)), 7)).event_time(lambda v: v[0])
    keyed = timed.key_by(lambda v: "k").map(lambda v: v[1])
    folded(verb, keyed.window("w", windows.sliding(20, every=5))).values().sink("out", out)
    ms.run(flow)
    assert [result.start for result in out] == list(range(-15, 60, 5))
    for result in out:
        inside = values[max(0, int(result.start)) : int(result.end)]
        assert result.value == PLAIN[verb](inside, result.start, result.end)


def test_count_windows_need_no_times() -> None:
    flow = ms.Flow("count")
    out = testing.collect()
    keyed = flow.source("in", testing.items(range(11))).key_by(lambda n: n % 2)
    keyed.window("fours", windows.count(4), early=3).collect().sink("out", out)
    ms.run(flow)
    assert sorted(out) == sorted(
        [
            (0, (None, None, [0, 2, 4], True)),
            (0, (None, None, [0, 2, 4, 6], False)),
            (0, (None, None, [8, 10], False)),
            (1, (None, None, [1, 3, 5], True)),
            (1, (None, None, [1, 3, 5, 7], False)),
            (1, (None, None, [9], False)),
        ]
    )


def test_early_results_are_marked_and_stay_as_they_were() -> None:
    flow = ms.Flow("early")
    out = testing.collect()
    timed = flow.source("in", testing.items(range(5))).event_time(lambda n: n)
    timed.key_by(lambda n: "k").window("w", windows.session(10), early=2).collect().values().sink("out", out)
    ms.run(flow)
    assert out == [(0, 11, [0, 1], True), (0, 13, [0, 1, 2, 3], True), (0, 14, [0, 1, 2, 3, 4], False)]


def test_a_window_that_closed_never_comes_again() -> None:
    """Items for a closed window come after the key was forgotten: late, and nothing is emitted twice."""
    script = [("a", 5), ("b", 100), ("a", 6), ("a", 7), ("b", 200), ("a", 8), ("a", 205)]
    flow = ms.Flow("twice")
    out = testing.collect()
    late = testing.collect()
    timed = flow.source("in", testing.items(script, 1)).event_time(lambda i: i[1])
    counts = timed.key_by(lambda i: i[0]).window("tens", windows.tumbling(10)).count()
    counts.map(lambda count: (count.start, count.value)).sink("out", out)
    counts.late.values().sink("late", late)
    ms.run(flow)
    assert out == [("a", (0, 1)), ("b", (100, 1)), ("b", (200, 1)), ("a", (200, 1))]
    assert late == [("a", 6), ("a", 7), ("a", 8)]


def test_windows_in_processing_time() -> None:
    clock = testing.clock(1_000_000)
    minute = testing.advance(clock, 60)
    script = ["a", "b", minute, "a", minute, minute, "c", minute]
    flow = ms.Flow("processing")
    out = testing.collect()
    timed = flow.source("in", testing.items(script)).processing_time()
    counts = timed.key_by(str).window("minutes", windows.tumbling(60, offset=40)).count()
    counts.map(lambda count: (count.start, count.value)).sink("out", out)
    ms.run(flow, clock=clock)
    expected = [("a", 1_000_000), ("b", 1_000_000), ("a", 1_000_060), ("c", 1_000_180)]
    assert out == [(key, (start, 1)) for key, start in expected]


def test_a_failing_function_names_the_key_and_loses_nothing_else() -> None:
    script = [(0, 1), (1, 0), (2, 1), (10, 0), (11, 1), (20, 5)]

    def make(on_error: Any) -> tuple[ms.Flow, Any]:
        flow = ms.Flow("fails")
        out = testing.collect()
        timed = flow.source("in", testing.items(script)).event_time(lambda i: i[0])
        grouped = timed.key_by(lambda i: "k").window("tens", windows.tumbling(10), on_error=on_error)
        grouped.fold(int, lambda acc, i: acc + 1 // i[1]).sink("out", out)
        return flow, out

    with pytest.raises(ms.StepError) as raised:
        ms.run(make("fail")[0])
    assert (raised.value.step, raised.value.key, raised.value.item) == ("tens", "'k'", "(1, 0)")
    flow, out = make("skip")
    report = ms.run(flow)
    assert [result.value for _, result in out] == [2, 1, 0]
    assert report.step("tens")["skipped"] == 2


def test_a_failing_result_is_reported_at_the_end_too() -> None:
    def result(acc: int, bounds: windows.Bounds) -> int:
        if bounds.start == 10:
            raise ValueError("ten")
        return acc

    flow = ms.Flow("result")
    out = testing.collect()
    bad = testing.collect()
    timed = flow.source("in", testing.items(range(30), 100)).event_time(lambda n: n, lateness=100)
    grouped = timed.key_by(lambda n: "k").window("w", windows.tumbling(10), on_error=ms.dead_letter(bad))
    grouped.aggregate(int, lambda acc, n: acc + 1, result=result).sink("out", out)
    ms.run(flow)
    assert [r.start for _, r in out] == [0, 20]
    assert [(letter.key, letter.item, str(letter.error)) for letter in bad] == [("k", None, "ten")]


def test_mistakes_are_errors_with_a_remedy() -> None:
    flow = ms.Flow("mistakes")
    numbers = flow.source("in", testing.items([1]))
    untimed = numbers.key_by(str)
    timed = numbers.event_time(lambda n: n).key_by(str)
    cases: list[tuple[Callable[[], object], str]] = [
        (lambda: untimed.window("w", windows.tumbling(1)), "needs times: put event_time or processing_time"),
        (lambda: timed.window("", windows.tumbling(1)), "a window step keeps state and needs a name"),
        (lambda: timed.window("w", 60), "window takes a window made by ms.windows, or an object"),  # type: ignore
        (lambda: timed.window("w", windows.tumbling(1), early=0), "early is a number of values"),
        (lambda: windows.tumbling(0), "length is a number of seconds above 0 to 200 years, not 0"),
        (lambda: windows.sliding(5, every=6), "start at least once in each length, not every 6"),
        (lambda: windows.sliding(3600, every=1e-6), "each value would be in 3,600,000,000 sliding windows"),
        (
            lambda: windows.session("x"),
            "gap is a number of seconds, a timedelta or text like \"1h\", not 'x'",
        ),  # type: ignore
        (lambda: windows.count(0), "must have 1 item or more, not 0"),
        (lambda: timed.window("w", windows.session(1)).fold(int, max), "needs merge="),
        (lambda: timed.window("w", windows.sliding(2, 1)).aggregate(int, max), "needs merge="),
        (lambda: timed.window("w", windows.tumbling(1)).reduce(3), "reduce takes a function"),  # type: ignore
    ]
    for make, says in cases:
        with pytest.raises(ms.FlowUsageError, match=says):
            make()
