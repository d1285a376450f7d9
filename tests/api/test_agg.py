"""Several aggregates in one step, judged by plain functions of the lists of values."""

from __future__ import annotations

import builtins
import random
from collections import defaultdict
from collections.abc import Callable
from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import millstream as ms
import pytest
from millstream import testing, windows

Item = dict[str, Any]
Values = list[Item]

SEEDS = range(3)
TOPOLOGIES = pytest.mark.parametrize(("workers", "batch"), [(1, 1), (1, 100), (2, 3), (3, 7)])
LATENESS = 30


def ranked(values: Values, q: float) -> Any:
    return sorted(value["cents"] for value in values)[int(q * (len(values) - 1))]


def largest(values: Values) -> Values:
    return sorted(values, key=lambda value: -value["cents"])


MODEL: dict[str, tuple[Any, Callable[[Values], Any]]] = {
    "n": (ms.count(), len),
    "total": (ms.sum("cents"), lambda values: sum(value["cents"] for value in values)),
    "halves": (
        ms.sum(lambda value: Decimal(value["cents"]) / 2),
        lambda values: MODEL["total"][1](values) / Decimal(2),
    ),
    "mean": (ms.mean("cents"), lambda values: MODEL["total"][1](values) / len(values)),
    "least": (ms.min("cents"), lambda values: largest(values)[-1]["cents"]),
    "most": (ms.max(by="cents"), lambda values: largest(values)[0]),
    "tag of least": (ms.min("tag", by="cents"), lambda values: largest(values)[-1]["tag"]),
    "tags": (ms.distinct("tag"), lambda values: len({value["tag"] for value in values})),
    "median": (ms.quantile(0.5, "cents", error=0), lambda values: ranked(values, 0.5)),
    "greatest": (ms.quantile(1, "cents", error=0), lambda values: ranked(values, 1)),
    "dearest": (ms.top(3, by="cents"), lambda values: largest(values)[:3]),
    "prices": (ms.top(2, "cents"), lambda values: [value["cents"] for value in largest(values)[:2]]),
}
IN_ORDER: dict[str, tuple[Any, Callable[[Values], Any]]] = {
    **MODEL,
    "first": (ms.first("number"), lambda values: values[0]["number"]),
    "last": (ms.last(), lambda values: values[-1]),
}


def aggregates(model: dict[str, tuple[Any, Any]]) -> dict[str, Any]:
    return {name: aggregate for name, (aggregate, _) in model.items()}


def expected(model: dict[str, tuple[Any, Any]], values: Values) -> dict[str, Any]:
    return {name: judge(values) for name, (_, judge) in model.items()}


def items(seed: int, number: int = 150) -> Values:
    """Items that are out of order by less than the lateness; no two have the same price."""
    chance = random.Random(seed)
    at = 0
    made = []
    prices = chance.sample(range(-300, 1000), number)
    for index, cents in enumerate(prices):
        at += chance.choice([0, 1, 2, 9, 25])
        made.append(
            {
                "key": f"k{chance.randrange(5)}",
                "at": at - chance.randrange(LATENESS),
                "cents": cents,
                "tag": chance.choice("abc"),
                "number": index,
            }
        )
    return made


def grouped(values: Values, by: Callable[[Item], Any] = lambda value: value["key"]) -> dict[Any, Values]:
    groups: dict[Any, Values] = defaultdict(list)
    for value in values:
        groups[by(value)].append(value)
    return groups


@TOPOLOGIES
@pytest.mark.parametrize("emit", ["end", "each"])
def test_results_of_keys_are_those_of_the_model(emit: Any, workers: int, batch: int) -> None:
    for seed in SEEDS:
        given = items(seed)
        flow = ms.Flow("f")
        out = testing.collect()
        keyed = flow.source("in", testing.items(given, batch)).key_by("key")
        keyed.agg(aggregates(IN_ORDER), emit=emit).sink("out", out)
        ms.run(flow, workers=workers)
        seen: dict[str, list[Any]] = defaultdict(list)
        for key, result in out:
            seen[key].append(result)
        for key, values in grouped(given).items():
            ends = range(1, len(values) + 1) if emit == "each" else [len(values)]
            assert seen.pop(key) == [expected(IN_ORDER, values[:end]) for end in ends], f"seed {seed}"
        assert not seen


def aligned(values: Values, length: int, every: int) -> dict[tuple[str, int, int], Values]:
    found: dict[tuple[str, int, int], Values] = defaultdict(list)
    for value in values:
        for start in range(value["at"] // every * every, value["at"] - length, -every):
            found[value["key"], start, start + length].append(value)
    return found


def sessions(values: Values, gap: int) -> dict[tuple[str, int, int], Values]:
    found = {}
    for key, of_key in grouped(values).items():
        session: Values = []
        for value in [*sorted(of_key, key=lambda value: value["at"]), None]:
            if session and (value is None or value["at"] > session[-1]["at"] + gap):
                found[key, session[0]["at"], session[-1]["at"] + gap] = session
                session = []
            if value is not None:
                session.append(value)
    return found


WINDOWS: dict[str, tuple[windows.Window, Callable[[Values], dict[tuple[str, int, int], Values]]]] = {
    "tumbling": (windows.tumbling(20), lambda values: aligned(values, 20, 20)),
    "sliding": (windows.sliding(30, every=10), lambda values: aligned(values, 30, 10)),
    "panes": (windows.sliding(25, every=10), lambda values: aligned(values, 25, 10)),
    "session": (windows.session(15), lambda values: sessions(values, 15)),
}


def by_time(values: Values) -> Values:
    return sorted(values, key=lambda value: value["at"])


def windowed(
    values: Any, window: Any, ordered: bool, model: dict[str, tuple[Any, Any]]
) -> tuple[ms.Flow, Any]:
    flow = ms.Flow("f")
    out = testing.collect()
    timed = flow.source("in", values).event_time("at", lateness=LATENESS).key_by("key")
    timed.window("w", window, ordered=ordered).agg(aggregates(model)).sink("out", out)
    return flow, out


@TOPOLOGIES
@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("kind", WINDOWS)
def test_results_of_windows_are_those_of_the_model(
    kind: str, ordered: bool, workers: int, batch: int
) -> None:
    window, contents = WINDOWS[kind]
    model = IN_ORDER if ordered else MODEL
    for seed in SEEDS:
        given = items(seed)
        flow, out = windowed(testing.items(given, batch), window, ordered, model)
        ms.run(flow, workers=workers)
        seen = {(key, result.start, result.end): result.value for key, result in out}
        assert len(seen) == len(out)
        assert seen == {
            place: expected(model, by_time(values)) for place, values in contents(given).items()
        }, f"seed {seed}"


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("kind", [*WINDOWS, "keys", "ttl"])
def test_a_crash_anywhere_changes_nothing(kind: str, workers: int) -> None:
    given = items(7, 20)
    if kind in WINDOWS:
        if workers == 1:
            # Between keys the results of windows that close together have no order.
            given = [{**item, "key": "all"} for item in given]
        flow, _ = windowed(testing.items([]), WINDOWS[kind][0], False, MODEL)
    else:
        flow = ms.Flow("f")
        timed = flow.source("in", testing.items([])).event_time("at", lateness=LATENESS).key_by("key")
        how: Any = {"emit": "each", "ttl": 20} if kind == "ttl" else {}
        timed.agg(aggregates(IN_ORDER), **how).sink("out", testing.collect())
    script = testing.items(given, batch_size=4)
    assert testing.crash_everywhere(flow, {"in": script}, workers=workers) > 3


def test_early_results_do_not_change_later() -> None:
    flow = ms.Flow("f")
    out = testing.collect()
    values = [{"at": at, "cents": at} for at in (1, 2, 3)]
    timed = flow.source("in", testing.items(values)).event_time("at").key_by(lambda value: "all")
    tens = timed.window("w", windows.tumbling(10), early=1)
    tens.agg(n=ms.count(), top=ms.top(2, "cents"), seen=ms.distinct("cents")).values().sink("out", out)
    ms.run(flow)
    assert [(window.early, window.value) for window in out] == [
        (True, {"n": 1, "top": [1], "seen": 1}),
        (True, {"n": 2, "top": [2, 1], "seen": 2}),
        (True, {"n": 3, "top": [3, 2], "seen": 3}),
        (False, {"n": 3, "top": [3, 2], "seen": 3}),
    ]


def test_a_result_that_is_changed_changes_no_state() -> None:
    def spoil(result: dict[str, Any]) -> dict[str, Any]:
        seen = {
            name: dict(value) if isinstance(value, dict) else list(value) for name, value in result.items()
        }
        for value in result.values():
            value.clear()
        return seen

    flow = ms.Flow("f")
    out = testing.collect()
    keyed = flow.source("in", testing.items([{"n": 2}, {"n": 1}], 1)).key_by(lambda value: "all")
    made = keyed.agg(
        a=ms.first(), b=ms.last(), c=ms.max(by="n"), d=ms.min(by="n"), e=ms.top(2, by="n"), emit="each"
    )
    made.values().map(spoil).sink("out", out)
    ms.run(flow)
    one = {"n": 1}
    two = {"n": 2}
    assert out[0] == {"a": two, "b": two, "c": two, "d": two, "e": [{}]} or out[0]["e"] == [two]
    assert {name: out[1][name] for name in "acd"} == {"a": two, "c": two, "d": one}


@pytest.mark.parametrize("in_windows", [False, True])
def test_a_value_that_fails_in_one_aggregate_counts_in_none(in_windows: bool) -> None:
    flow = ms.Flow("f")
    out = testing.collect()
    dead = testing.collect()
    values = [{"a": 1, "b": 2}, {"a": 5, "b": "x"}, {"a": 7}, {"a": 9, "b": 3, "c": []}]
    keyed = flow.source("in", testing.items(values)).key_by(lambda value: "all")
    results: dict[str, Any] = {
        "n": ms.count(),
        "a": ms.sum("a"),
        "seen": ms.distinct("a"),
        "top": ms.top(3, "a"),
        "median": ms.quantile(0.5, "a", error=0),
        "b": ms.sum("b"),
        "c": ms.distinct(lambda value: value.get("c")),
    }
    policy = ms.dead_letter(dead)
    if in_windows:
        made: Any = keyed.window("w", windows.count(4), on_error=policy).agg(results)
        made = made.map(lambda window: window.value)
    else:
        made = keyed.agg(results, on_error=policy)
    made.values().sink("out", out)
    ms.run(flow)
    assert [letter.item for letter in dead] == values[1:]
    assert out == [{"n": 1, "a": 1, "seen": 1, "top": [1], "median": 1, "b": 2, "c": 1}]
    assert "distinct counts values that can be hashed, and [] cannot" in str(dead[-1].error)


def test_quantiles_are_as_near_as_promised() -> None:
    chance = random.Random(1)
    values = [chance.choice([-1, 1]) * 10 ** chance.uniform(-9, 9) for _ in range(2000)] + [0, 0.0, 1e308, -5]
    for error in (0.01, 0.1, 0.001):
        qs = [0, 0.1, 0.25, 0.5, 0.9, 0.99, 1]
        flow = ms.Flow("f")
        out = testing.collect()
        keyed = flow.source("in", testing.items(values, 100)).key_by(lambda value: "all")
        keyed.agg({str(q): ms.quantile(q, error=error) for q in qs}).values().sink("out", out)
        ms.run(flow)
        ordered = sorted(values)
        for q in qs:
            exact = ordered[int(q * (len(values) - 1) + 1e-9)]
            assert abs(out[0][str(q)] - exact) <= abs(exact) * error * (1 + 1e-9), (q, error)


def test_quantiles_are_between_the_values() -> None:
    flow = ms.Flow("f")
    out = testing.collect()
    keyed = flow.source("in", testing.items([1.5, 1.5, 7])).key_by(lambda value: "all")
    keyed.agg(a=ms.quantile(0), b=ms.quantile(1), c=ms.quantile(0.5), emit="each").values().sink("out", out)
    ms.run(flow)
    assert out[:2] == [{"a": 1.5, "b": 1.5, "c": 1.5}] * 2 and (out[2]["a"], out[2]["b"]) == (1.5, 7.0)


@pytest.mark.parametrize("wrong", ["3", float("nan"), float("inf"), None, 3j, [3]])
@pytest.mark.parametrize("error", [0, 0.01])
def test_what_has_no_rank_is_refused(wrong: Any, error: float) -> None:
    flow = ms.Flow("f")
    out = testing.collect()
    keyed = flow.source("in", testing.items([1, wrong, 2])).key_by(lambda value: "all")
    if wrong == float("inf") and not error:
        return  # it has a place in the order
    made = keyed.agg(q=ms.quantile(1, error=error), most=ms.max(), on_error="skip")
    made.values().sink("out", out)
    ms.run(flow)
    assert builtins.abs(out[0]["q"] - 2) <= 0.02


def test_exact_quantiles_of_whatever_has_an_order() -> None:
    flow = ms.Flow("f")
    out = testing.collect()
    days = [datetime(2026, 1, day, tzinfo=timezone.utc) for day in (3, 1, 2)]
    keyed = flow.source("in", testing.items(days)).key_by(lambda day: "all")
    keyed.agg(middle=ms.quantile(0.5, error=0)).values().sink("out", out)
    ms.run(flow)
    assert out == [{"middle": days[2]}]


def run_version(
    state: Path, out: list[Any], values: list[int], *, fail: bool = False, **results: Any
) -> list[Any]:
    flow = ms.Flow("f")
    script = [*values, testing.ABORT] if fail else values
    keyed = flow.source("in", testing.items(script, 1)).key_by(lambda value: "all")
    keyed.agg(results, emit="each").values().sink("out", out)
    if fail:
        with pytest.raises(ms.FlowError):
            ms.run(flow, state=state, epoch=0.0)
    else:
        ms.run(flow, state=state, epoch=0.0)
    return out


def test_results_are_found_by_their_names_in_the_next_version(tmp_path: Path) -> None:
    values = [1, 2, 4, 8]
    out = testing.collect()
    run_version(tmp_path, out, values[:2], fail=True, n=ms.count(), total=ms.sum(), gone=ms.last())
    run_version(tmp_path, out, values, most=ms.max(), total=ms.sum(), n=ms.count())
    assert out[-1] == {"most": 8, "total": 15, "n": 4}


def test_another_kind_under_a_name_is_an_error_at_the_start(tmp_path: Path) -> None:
    out = testing.collect()
    run_version(tmp_path, out, [1, 2], fail=True, n=ms.count(), total=ms.sum())
    with pytest.raises(ms.FlowError, match="'total' was saved as that of sum, and is one of mean now"):
        run_version(tmp_path, out, [1, 2, 3], n=ms.count(), total=ms.mean())


def keyed_stream() -> Any:
    return ms.Flow("f").source("in", testing.items([1])).event_time(float).key_by(str)


WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "nothing": (lambda: keyed_stream().agg(), "agg takes the aggregates of its result by their names"),
    "no aggregate": (
        lambda: keyed_stream().agg(n=len),
        "agg takes names and aggregates .* not 'n' and <built-in",
    ),
    "a list": (lambda: keyed_stream().agg([ms.count()]), "agg takes aggregates by their names, or a dict"),
    "an option": (
        lambda: keyed_stream().agg(name=ms.last("name")),
        r"name is an option of agg: give a result of this name in a dict, agg\(\{'name': ms.last\('name'\)",
    ),
    "first without order": (
        lambda: keyed_stream().window("w", windows.tumbling(3)).agg(a=ms.first("x")),
        r"a=ms.first\('x'\): in a window the first value is that by time, .*ordered=True",
    ),
    "last without order": (
        lambda: keyed_stream().window("w", windows.session(3)).agg(a=ms.last()),
        r"or max\(by=...\) of a field",
    ),
    "quantile": (lambda: ms.quantile(50), "quantile takes a number from 0 to 1, not 50"),
    "error": (lambda: ms.quantile(0.5, error=1), "error is a number from 0 to below 1, not 1"),
    "top": (lambda: ms.top(0), "top takes a number of values, 1 or more, not 0"),
    "field": (lambda: ms.sum(3), "sum takes a function or the name of a field, not 3"),  # type: ignore[call-overload]
    "ttl at the end": (
        lambda: keyed_stream().agg(n=ms.count(), ttl=3),
        "agg: ttl forgets a key with its result",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_mistakes_are_found_when_the_flow_is_described(case: str) -> None:
    make, says = WRONG[case]
    with pytest.raises(ms.FlowUsageError, match=says):
        make()


def test_first_and_last_of_windows_that_count() -> None:
    flow = ms.Flow("f")
    out = testing.collect()
    keyed = flow.source("in", testing.items([3, 1, 2, 5])).key_by(lambda value: "all")
    keyed.window("w", windows.count(2)).agg(a=ms.first(), b=ms.last()).values().sink("out", out)
    ms.run(flow)
    assert [window.value for window in out] == [{"a": 3, "b": 1}, {"a": 2, "b": 5}]


def test_a_star_import_leaves_the_builtins_as_they_are() -> None:
    names: dict[str, Any] = {}
    exec("from millstream import *", names)
    assert not {name for name in names if hasattr(builtins, name) and name != "__builtins__"}
    assert names["count"] is ms.count and ms.sum is not builtins.sum
