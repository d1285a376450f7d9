"""A new version of a program refuses a state that has another meaning; after any other change it goes on."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import millstream as ms
import pytest
from millstream import testing
from millstream._run.trial import run_crashing

Add = Callable[[ms.Flow], Any]

NAME = "step"
ITEMS = [{"user": "k", "shop": "k", "at": at, "made": at, "n": at + 1, "m": 10 * at} for at in range(6)]


def stream(flow: ms.Flow, name: str = "in") -> Any:
    return flow.source(name, testing.items(ITEMS, 1))


def keyed(flow: ms.Flow, name: str = "in") -> Any:
    return stream(flow, name).key_by("user")


def timed(flow: ms.Flow, name: str = "in") -> Any:
    return stream(flow, name).event_time("at").key_by("user")


def clocked(flow: ms.Flow, name: str = "in") -> Any:
    return stream(flow, name).processing_time().key_by("user")


def days(flow: ms.Flow, **options: Any) -> Any:
    return timed(flow).window(NAME, ms.windows.tumbling(1000), **options)


class Weeks:
    def windows(self, time: float) -> list[tuple[float, float]]:
        return [(time - time % 1000, time - time % 1000 + 1000)]


class Months(Weeks):
    pass


class Renamed:
    """Keeps the sum of the field n."""

    def __init__(self) -> None:
        self.total = 0

    def on_item(self, key: str, item: Any) -> list[int]:
        self.total += item["n"]
        return [self.total]


class Timed(Renamed):
    def on_item(self, key: str, item: Any, ctx: Any = None) -> list[int]:
        return super().on_item(key, item)


class Nowhere(ms.Sink):
    def open(self, worker: int) -> Any:
        return self

    def write_batch(self, items: list[Any]) -> None: ...

    def flush(self) -> None: ...

    close = flush


def sides(flow: ms.Flow, *names: str, times: bool = False) -> list[Any]:
    """Streams of the sources a, b and c, in the order of these names; the flow has all of them."""
    of = timed if times else keyed
    streams = {name: of(flow, name) for name in ("a", "b", "c")}
    one, *others = (stream.values() for stream in streams.values())
    one.merge(*others).sink("all", Nowhere())
    return [streams[name].map(lambda item, name=name: (name, item["n"])) for name in names]


def joined(*names: str, times: bool = False) -> Add:
    def add(flow: ms.Flow) -> Any:
        one, other = sides(flow, *names, times=times)
        return one.join(NAME, other)

    return add


def of_branches(left: str, right: str) -> Add:
    """A join of two branches of one source, which differ by their names."""

    def add(flow: ms.Flow) -> Any:
        both = timed(flow)
        branches = {
            field: both.map(lambda item, field=field: item[field], name=field) for field in ("n", "m")
        }
        return branches[left].join(NAME, branches[right])

    return add


def windows_joined(*names: str) -> Add:
    def add(flow: ms.Flow) -> Any:
        one, other = sides(flow, *names, times=True)
        return one.join(NAME, other, window=ms.windows.tumbling(1000))

    return add


def all_joined(*names: str, **options: Any) -> Add:
    def add(flow: ms.Flow) -> Any:
        first, *others = sides(flow, *names, times=True)
        return first.join_all(NAME, *others, emit="running", **options)

    return add


REFUSED: dict[str, tuple[Add, Add, str, str]] = {
    "sides of a join": (
        joined("a", "b", times=True),
        joined("b", "a", times=True),
        'join (latest, event time) of "b" with "a"',
        '"a" with "b"',
    ),
    "another side": (
        joined("a", "b", times=True),
        joined("a", "c", times=True),
        'join (latest, event time) of "a" with "c"',
        '"a" with "b"',
    ),
    "branches": (
        of_branches("n", "m"),
        of_branches("m", "n"),
        'join (latest, event time) of "m" with "n"',
        'join (latest, event time) of "n" with "m"',
    ),
    "sides of a join of windows": (
        windows_joined("a", "b"),
        windows_joined("b", "a"),
        'window (tumbling 1000s, join, event time) of "b" with "a"',
        '"a" with "b"',
    ),
    "sides of join_all": (
        all_joined("a", "b", "c"),
        all_joined("a", "c", "b"),
        'join_all (3 streams, event time) of "a" with "c" with "b"',
        '"a" with "b" with "c"',
    ),
    "values that count in join_all": (
        all_joined("a", "b"),
        all_joined("a", "b", insert="product"),
        "join_all (2 streams, product, event time)",
        "join_all (2 streams, event time)",
    ),
    "clock of windows": (
        lambda flow: days(flow).count(),
        lambda flow: clocked(flow).window(NAME, ms.windows.tumbling(1000)).count(),
        "window (tumbling 1000s, count, processing time)",
        "window (tumbling 1000s, count, event time)",
    ),
    "clock of windows without values": (
        lambda flow: clocked(flow).filter(lambda _: False).window(NAME, ms.windows.tumbling(1000)).count(),
        lambda flow: timed(flow).filter(lambda _: False).window(NAME, ms.windows.tumbling(1000)).count(),
        "window (tumbling 1000s, count, event time)",
        "window (tumbling 1000s, count, processing time)",
    ),
    "clock of a ttl": (
        lambda flow: clocked(flow).count("each", NAME, ttl=100),
        lambda flow: timed(flow).count("each", NAME, ttl=100),
        "count (event time)",
        "count (processing time)",
    ),
    "clock of timers": (
        lambda flow: timed(flow).stateful(NAME, Timed),
        lambda flow: clocked(flow).stateful(NAME, Timed),
        "stateful (processing time)",
        "stateful (event time)",
    ),
    "clock of a limit": (
        lambda flow: clocked(flow).throttle(2, 100, NAME),
        lambda flow: timed(flow).throttle(2, 100, NAME),
        "throttle (event time)",
        "throttle (processing time)",
    ),
    "times of a limit": (
        lambda flow: keyed(flow).dedupe(100, NAME),
        lambda flow: timed(flow).dedupe(100, NAME),
        "dedupe (event time)",
        "dedupe (ttl)",
    ),
    "ttl of a limit": (
        lambda flow: keyed(flow).dedupe(None, NAME),
        lambda flow: keyed(flow).dedupe(100, NAME),
        "dedupe (ttl)",
        "dedupe",
    ),
    "times of a join": (
        joined("a", "b"),
        joined("a", "b", times=True),
        "join (latest, event time)",
        "join (latest)",
    ),
    "times of a state": (
        lambda flow: keyed(flow).stateful(NAME, Renamed),
        lambda flow: timed(flow).stateful(NAME, Renamed),
        "stateful (event time)",
        "stateful",
    ),
    "field of event time": (
        lambda flow: days(flow).count(),
        lambda flow: (
            stream(flow).event_time("made").key_by("user").window(NAME, ms.windows.tumbling(1000)).count()
        ),
        'window (tumbling 1000s, count, event time) with times of "made"',
        'with times of "at"',
    ),
    "field of the key": (
        lambda flow: keyed(flow).count("each", NAME),
        lambda flow: stream(flow).key_by("shop").count("each", NAME),
        'count with keys of "shop"',
        'count with keys of "user"',
    ),
    "field of changes": (
        lambda flow: keyed(flow).changes("n", name=NAME),
        lambda flow: keyed(flow).changes("m", name=NAME),
        'changes of "m"',
        'changes of "n"',
    ),
    "windower": (
        lambda flow: timed(flow).window(NAME, Weeks()).count(),
        lambda flow: timed(flow).window(NAME, Months()).count(),
        "window (by Months, count, event time)",
        "window (by Weeks, count, event time)",
    ),
    "agg": (
        lambda flow: keyed(flow).sum("n", "each", NAME),
        lambda flow: keyed(flow).agg(sum=ms.sum("n"), emit="each", name=NAME),
        "an agg",
        "a sum",
    ),
}
for verb in ("sum", "min", "max", "mean"):
    REFUSED[f"field of {verb}"] = (
        lambda flow, verb=verb: getattr(keyed(flow), verb)("n", "each", NAME),
        lambda flow, verb=verb: getattr(keyed(flow), verb)("m", "each", NAME),
        f'{verb} of "m"',
        f'{verb} of "n"',
    )
    REFUSED[f"field of {verb} with ttl"] = (
        lambda flow, verb=verb: getattr(keyed(flow), verb)("n", "each", NAME, ttl=100),
        lambda flow, verb=verb: getattr(keyed(flow), verb)("m", "each", NAME, ttl=100),
        f'{verb} (ttl) of "m"',
        f'{verb} (ttl) of "n"',
    )
    REFUSED[f"field of {verb} in windows"] = (
        lambda flow, verb=verb: getattr(days(flow), verb)("n"),
        lambda flow, verb=verb: getattr(days(flow), verb)("m"),
        f'window (tumbling 1000s, {verb}, event time) of "m"',
        f'window (tumbling 1000s, {verb}, event time) of "n"',
    )


def flow_of(add: Add, out: list[Any]) -> ms.Flow:
    flow = ms.Flow("changed")
    add(flow).sink("out", out)
    return flow


def run(add: Add, state: Path, out: list[Any], dropped: list[str] | None = None) -> list[Any]:
    """Runs the program to its end; returns what it emits."""
    before = len(out)
    run_crashing(flow_of(add, out), 1, state, None, dropped or [])
    return out[before:]


def begun(add: Add, state: Path) -> list[Any]:
    """Runs the first half of the program; returns its output."""
    out: list[Any] = testing.collect()
    with pytest.raises(ms.SimulatedCrash):
        run_crashing(flow_of(add, out), 1, state, ("after", 3))
    return out


@pytest.mark.parametrize("case", REFUSED)
def test_a_state_of_another_meaning_is_refused(case: str, tmp_path: Path) -> None:
    old, new, now, was = REFUSED[case]
    out = begun(old, tmp_path / "state")
    with pytest.raises(ms.FlowError) as refused:
        run(new, tmp_path / "state", out)
    said = re.search(r"is (an? .*) now, and its state is that of (an? .*); remove", str(refused.value))
    assert said, refused.value
    assert said[1].endswith(now)
    assert said[2].endswith(was)
    assert f'drop_state=["{NAME}"]' in str(refused.value)
    # The advice, with the whole input again: the results are those of a run from scratch.
    lines = flow_of(new, testing.collect()).describe().splitlines()
    ends = [line.split()[1] for line in lines if line.split()[0] in ("source", "sink")]
    dropped = run(new, tmp_path / "state", out, [NAME, *ends])
    assert dropped == run(new, tmp_path / "other", testing.collect())


def deduplicated(one: Any, other: Any) -> Any:
    return one.changes(name="new").map(list, name="named").map(tuple).join(NAME, other)


# Programs that have the same results from an empty state.
SAME: dict[str, tuple[Add, Add]] = {
    "another function": (
        lambda flow: keyed(flow).sum(lambda item: item["n"], "each", NAME),
        lambda flow: keyed(flow).sum(lambda item: 1 * item["n"], "each", NAME),
    ),
    "a function for a field": (
        lambda flow: keyed(flow).sum("n", "each", NAME),
        lambda flow: keyed(flow).sum(lambda item: item["n"], "each", NAME),
    ),
    "a field for a function, of the key": (
        lambda flow: stream(flow).key_by(lambda item: item["user"]).count("each", NAME),
        lambda flow: keyed(flow).count("each", NAME),
    ),
    "the value for a field": (
        lambda flow: keyed(flow).max("n", "each", NAME),
        lambda flow: keyed(flow).map(lambda item: item["n"]).max(None, "each", NAME),
    ),
    "ordered windows keep values": (
        lambda flow: days(flow, ordered=True).sum("n"),
        lambda flow: days(flow, ordered=True).sum("n"),
    ),
    "a longer ttl": (
        lambda flow: keyed(flow).count("each", NAME, ttl=100),
        lambda flow: keyed(flow).count("each", NAME, ttl=1000),
    ),
    "a ttl in event time": (
        lambda flow: timed(flow).changes(name=NAME),
        lambda flow: timed(flow).changes(ttl=1000, name=NAME),
    ),
    "times before a plain count": (
        lambda flow: keyed(flow).count("each", NAME),
        lambda flow: clocked(flow).count("each", NAME),
    ),
    "a step before a side": (
        joined("a", "b", times=True),
        lambda flow: deduplicated(*sides(flow, "a", "b", times=True)),
    ),
    "a key that an unkeyed step does not have": (
        lambda flow: keyed(flow).values().collect(2, name=NAME),
        lambda flow: stream(flow).key_by("shop").values().collect(2, name=NAME),
    ),
    "a branch that is no longer named": (
        lambda flow: keyed(flow).map(dict, name="one").join(NAME, keyed(flow, "b").map(dict)),
        lambda flow: keyed(flow).map(dict).join(NAME, keyed(flow, "b").map(dict, name="other")),
    ),
    "ordered states": (
        lambda flow: timed(flow).stateful(NAME, Renamed),
        lambda flow: timed(flow).stateful(NAME, Renamed, ordered=True),
    ),
}


@pytest.mark.parametrize("case", SAME)
def test_another_change_goes_on(case: str, tmp_path: Path) -> None:
    old, new = SAME[case]
    goes_on(new, tmp_path, begun(old, tmp_path / "state"))


def goes_on(new: Add, path: Path, out: list[Any]) -> None:
    later = run(new, path / "state", out)
    assert later
    assert later == run(new, path / "other", testing.collect())[-len(later) :]


AGGREGATES: dict[str, tuple[Any, Any, str | None]] = {
    "sum": (
        ms.sum("n"),
        ms.sum("m"),
        "was saved as that of sum of 'n', and is one of sum of 'm' now",
    ),
    "mean": (ms.mean("n"), ms.mean("m"), "mean of 'm'"),
    "first": (ms.first("n"), ms.first("m"), "first of 'm'"),
    "last": (ms.last("n"), ms.last("m"), "last of 'm'"),
    "distinct": (ms.distinct("n"), ms.distinct("m"), "distinct of 'm'"),
    "quantile": (ms.quantile(0.5, "n"), ms.quantile(0.5, "m"), "quantile 0.01 of 'm'"),
    "min": (ms.min("n", by="m"), ms.min("n", by="at"), "min by of 'n' by 'at'"),
    "max": (ms.max(by="m"), ms.max(by="at"), "max by of 'at'"),
    "top": (ms.top(2, "n", by="m"), ms.top(2, "n", by="at"), "top 2 of 'n' by 'at'"),
    "longer top": (
        ms.top(2, "n"),
        ms.top(3, "n"),
        "that of top 2 of 'n', and is one of top 3 of 'n' now",
    ),
    "shorter top": (ms.top(3, "n"), ms.top(2, "n"), None),
    "another quantile": (ms.quantile(0.5, "n"), ms.quantile(0.9, "n"), None),
    "function": (ms.sum("n"), ms.sum(lambda item: item["n"]), None),
}


@pytest.mark.parametrize("windows", [False, True])
@pytest.mark.parametrize("case", AGGREGATES)
def test_a_result_of_agg_of_another_meaning_is_refused(case: str, windows: bool, tmp_path: Path) -> None:
    first, second, refused = AGGREGATES[case]
    if windows and case in ("first", "last"):
        pytest.skip("they need the values of a window in order")

    def add(aggregate: Any) -> Add:
        if windows:
            return lambda flow: days(flow).agg(r=aggregate)
        return lambda flow: keyed(flow).agg(r=aggregate, emit="each", name=NAME)

    out = begun(add(first), tmp_path / "state")
    if refused is None:
        goes_on(add(second), tmp_path, out)
    else:
        with pytest.raises(ms.FlowError, match=re.escape(refused)):
            run(add(second), tmp_path / "state", out)
