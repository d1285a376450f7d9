"""State that ends: ``ttl`` of running aggregates, ``dedupe`` and ``throttle``, judged by plain models."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import millstream as ms
import pytest
from millstream import testing

Item = tuple[str, int, int]
LIFE = 20
TOPOLOGIES = pytest.mark.parametrize(("workers", "batch"), [(1, 1), (1, 100), (2, 3), (3, 7)])


def items(seed: int, number: int = 200) -> list[Item]:
    """Items of a few keys in the order of time, with gaps."""
    chance = random.Random(seed)
    at = 0
    made = []
    for index in range(number):
        at += chance.choice([0, 1, 3, 8])
        made.append((f"k{chance.randrange(6)}", at, index + 1))
    return made


def lives(given: list[Item]) -> list[tuple[Item, list[int]]]:
    """Each item with all values of its key since the key was last forgotten, its own included."""
    found: dict[str, tuple[int, list[int]]] = {}
    made = []
    for key, at, value in given:
        last, values = found.get(key, (at, []))
        # It is forgotten when time has reached the end of its life.
        values = [*values, value] if at < last + LIFE else [value]
        found[key] = at, values
        made.append(((key, at, value), values))
    return made


def product(values: list[int]) -> int:
    made = 1
    for value in values:
        made *= value
    return made


VERBS: dict[str, tuple[Callable[[ms.KeyedStream[str, int]], Any], Callable[[list[int]], Any]]] = {
    "count": (lambda keyed: keyed.count("each", ttl=LIFE), len),
    "sum": (lambda keyed: keyed.sum(emit="each", ttl=LIFE), sum),
    "sum of a part": (lambda keyed: keyed.sum(lambda n: n * 2, emit="each", ttl=LIFE), lambda v: 2 * sum(v)),
    "mean": (lambda keyed: keyed.mean(emit="each", ttl=LIFE), lambda v: sum(v) / len(v)),
    "min": (lambda keyed: keyed.min(emit="each", ttl=LIFE), min),
    "max": (lambda keyed: keyed.max(emit="each", ttl=LIFE), max),
    "reduce": (lambda keyed: keyed.reduce("p", lambda a, b: a * b, emit="each", ttl=LIFE), product),
    "fold": (
        lambda keyed: keyed.fold("l", list, lambda acc, n: [*acc, n], emit="each", ttl=LIFE),
        lambda values: values,
    ),
    "fold in place": (
        lambda keyed: keyed.fold("l", list, lambda acc, n: acc.append(n) or acc, emit="each", ttl=LIFE),
        lambda values: values,
    ),
    "agg": (
        lambda keyed: keyed.agg(n=ms.count(), last=ms.last(), emit="each", ttl=LIFE),
        lambda values: {"n": len(values), "last": values[-1]},
    ),
    "dedupe": (lambda keyed: keyed.dedupe(ttl=LIFE), lambda values: values[0] if len(values) == 1 else None),
}


def timed(given: Any) -> tuple[ms.Flow, ms.KeyedStream[str, int]]:
    flow = ms.Flow("f")
    source = flow.source("in", given).event_time(lambda item: item[1]).key_by(lambda item: item[0])
    return flow, source.map(lambda item: item[2])


@TOPOLOGIES
@pytest.mark.parametrize("verb", VERBS)
def test_a_key_without_values_begins_anew(verb: str, workers: int, batch: int) -> None:
    use, model = VERBS[verb]
    for seed in range(3):
        given = items(seed)
        out = testing.collect()
        flow, keyed = timed(testing.items(given, batch))
        use(keyed).sink("out", out)
        ms.run(flow, workers=workers)
        results = [(item[0], model(values)) for item, values in lives(given)]
        wanted = [(key, value) for key, value in results if value is not None]
        assert sorted(out, key=lambda pair: pair[0]) == sorted(wanted, key=lambda pair: pair[0]), (
            f"seed {seed}"
        )
        assert len(wanted) > 50


@pytest.mark.parametrize("verb", VERBS)
def test_a_key_without_values_begins_anew_by_the_clock(verb: str) -> None:
    use, model = VERBS[verb]
    clock = testing.clock(0)
    out = testing.collect()
    script = [5, testing.advance(clock, LIFE - 1), 6, testing.advance(clock, LIFE), 7]
    flow = ms.Flow("f")
    use(flow.source("in", testing.items(script)).key_by(lambda n: "k")).values().sink("out", out)
    ms.run(flow, clock=clock)
    assert out == [made for values in ([5], [5, 6], [7]) if (made := model(values)) is not None]


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("verb", [*VERBS, "throttle"])
def test_a_crash_anywhere_changes_nothing(verb: str, workers: int) -> None:
    flow, keyed = timed(testing.items([]))
    use = VERBS[verb][0] if verb in VERBS else lambda keyed: keyed.throttle(2, every=10)
    use(keyed).sink("out", testing.collect())
    script = testing.items(items(5, 24), batch_size=4)
    assert testing.crash_everywhere(flow, {"in": script}, workers=workers) > 3


def throttled(given: list[Item], n: int, every: int) -> list[tuple[str, int]]:
    begun: dict[str, tuple[int, int]] = {}
    out = []
    for key, at, value in given:
        start, passed = begun.get(key, (at, 0))
        if at >= start + every:
            start = at
            passed = 0
        if passed < n:
            out.append((key, value))
            passed += 1
        begun[key] = start, passed
    return out


@TOPOLOGIES
@pytest.mark.parametrize("n", [1, 3])
def test_at_most_so_many_values_of_a_key_pass_in_a_period(n: int, workers: int, batch: int) -> None:
    for seed in range(3):
        given = items(seed)
        out = testing.collect()
        flow, keyed = timed(testing.items(given, batch))
        keyed.throttle(n, every=10).sink("out", out)
        report = ms.run(flow, workers=workers)
        wanted = throttled(given, n, 10)
        assert sorted(out) == sorted(wanted) and len(wanted) < len(given), f"seed {seed}"
        assert report.step("throttle")["items_in"] - report.step("throttle")["items_out"] == len(given) - len(
            wanted
        )


def test_periods_of_the_clock() -> None:
    clock = testing.clock(0)
    out = testing.collect()
    script = [
        1,
        2,
        testing.advance(clock, 9),
        3,
        testing.advance(clock, 1),
        4,
        5,
        testing.advance(clock, 60),
        None,
    ]
    flow = ms.Flow("f")
    flow.source("in", testing.items(script)).key_by(lambda n: "k").throttle(1, every=10).values().sink(
        "out", out
    )
    ms.run(flow, clock=clock)
    assert out == [1, 4, None]


def test_keys_are_remembered_over_runs(tmp_path: Path) -> None:
    out = testing.collect()

    def run(values: list[Any]) -> list[Any]:
        flow = ms.Flow("f")
        script = [*values, testing.ABORT]
        flow.source("in", testing.items(script, 1)).key_by(str).dedupe().values().sink("out", out)
        with pytest.raises(ms.FlowError):
            ms.run(flow, state=tmp_path, epoch=0.0)
        return list(out)

    assert run(["a", "b", "a"]) == ["a", "b"]
    assert run(["a", "b", "a", "b", "c"])[-1:] == ["c"]


WRONG: dict[str, tuple[Callable[[Any], Any], str]] = {
    "at the end": (
        lambda keyed: keyed.count(ttl=3),
        'count: ttl forgets a key .* use emit="each", or a window',
    ),
    "no time": (lambda keyed: keyed.sum(emit="each", ttl=0), "ttl is a number of seconds above 0"),
    "no number": (lambda keyed: keyed.throttle(0, 3), "throttle takes a number of values, 1 or more, not 0"),
    "no period": (lambda keyed: keyed.throttle(1, 0), "every is a number of seconds above 0"),
    "no name": (lambda keyed: keyed.dedupe(name=""), "a dedupe step keeps state and needs a name"),
}


@pytest.mark.parametrize("case", WRONG)
def test_mistakes_are_found_when_the_flow_is_described(case: str) -> None:
    make, says = WRONG[case]
    with pytest.raises(ms.FlowUsageError, match=says):
        make(ms.Flow("f").source("in", testing.items([1])).key_by(str))


def test_a_function_of_fold_that_returns_nothing_is_an_error() -> None:
    flow, keyed = timed(testing.items(items(1, 3)))
    keyed.fold("l", list, lambda acc, n: acc.append(n), emit="each", ttl=LIFE).sink("out", testing.collect())  # type: ignore[func-returns-value]
    with pytest.raises(ms.StepError, match="with ttl a result of fold is not None"):
        ms.run(flow)
