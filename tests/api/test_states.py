"""What ``stateful`` refuses, and functions that return their next state."""

import enum
import random
from collections import namedtuple
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import millstream as ms
import msgspec
import pytest
from millstream import testing


class Colour(enum.Enum):
    RED = 1


@dataclass(frozen=True)
class Frozen:
    total: int = 0


@dataclass(frozen=True)
class Holder:
    totals: list[int] = field(default_factory=list)


class FrozenStruct(msgspec.Struct, frozen=True):
    total: int = 0


class Total(int):
    """An integer with attributes, which can be changed."""


Pair = namedtuple("Pair", ["a", "b"], defaults=(0, 0))  # noqa: PYI024
TYPES = [
    int,
    str,
    float,
    bool,
    bytes,
    tuple,
    frozenset,
    complex,
    type(None),
    Frozen,
    FrozenStruct,
    Pair,
    Colour,
]


def keyed(values: list[Any], timed: bool = False, batch: int = 3) -> tuple[ms.Flow, ms.KeyedStream]:
    flow = ms.Flow("states")
    stream = flow.source("in", testing.items(values, batch))
    if timed:
        stream = stream.event_time(lambda value: 0)
    return flow, stream.key_by(lambda value: "ab"[value % 2])


def as_in_bytewax(state: Any, value: int) -> tuple[Any, Any]:
    return (state or 0) + value, value


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("options", [{}, {"ttl": 5}, {"on_error": "skip"}])
def test_an_immutable_state_is_refused_with_the_name_of_the_right_verb(kind: type, options: Any) -> None:
    _, stream = keyed([1, 2])
    with pytest.raises(ms.FlowUsageError, match=rf'stateful "sums" .*{kind.__name__}.* stateful_map takes'):
        stream.stateful("sums", as_in_bytewax, state=kind, **options)


@pytest.mark.parametrize(
    "make", [lambda: 0, lambda: (1, "a"), lambda: None, lambda: Colour.RED, lambda: Frozen(3)]
)
@pytest.mark.parametrize("timed", [False, True])
@pytest.mark.parametrize("on_error", ["fail", "skip"])
def test_a_factory_that_makes_an_immutable_state_fails_at_the_first_value(
    make: Callable[[], Any], timed: bool, on_error: Any
) -> None:
    flow, stream = keyed([1, 2], timed)
    out = testing.collect()
    stream.stateful("sums", as_in_bytewax, state=make, on_error=on_error).sink("out", out)
    with pytest.raises(ms.StepError, match='stateful "sums" changes the state in place') as failed:
        ms.run(flow)
    assert isinstance(failed.value.__cause__, ms.FlowUsageError)
    assert out == []


@pytest.mark.parametrize("make", [list, dict, set, Holder, Total, lambda: ([], 0), lambda: Holder([1])])
def test_a_state_that_can_be_changed_is_taken(make: Callable[[], Any]) -> None:
    flow, stream = keyed([1, 2, 3])
    out = testing.collect()
    stream.stateful("kinds", lambda state, value: type(state).__name__, state=make).values().sink("out", out)
    ms.run(flow)
    assert out == [type(make()).__name__] * 3


class Account:
    def __init__(self) -> None:
        self.total = 0


def wallaroo(item: int, state: Any) -> None: ...


def annotated(n: int, account: Account) -> None: ...


def quoted(n: int, account: "Account") -> None: ...


@pytest.mark.parametrize("f", [wallaroo, annotated, quoted])
def test_arguments_in_the_order_of_wallaroo_are_an_error(f: Any) -> None:
    _, stream = keyed([1])
    first = "item, state" if f is wallaroo else "n, account"
    wanted = ", ".join(reversed(first.split(", ")))
    for verb in (stream.stateful, stream.stateful_map):
        with pytest.raises(ms.FlowUsageError, match=rf"write {f.__name__}\({wanted}\)"):
            verb("accounts", f, state=Account)


def test_other_names_of_arguments_are_nobodys_business() -> None:
    flow, stream = keyed([1, 2, 3])
    out = testing.collect()

    def by_state(counts: dict[int, int], state: int) -> int:  # a state of the country
        counts[state] = counts.get(state, 0) + 1
        return len(counts)

    stream.stateful("counts", by_state, state=dict).values().sink("out", out)
    ms.run(flow)
    assert out == [1, 1, 2]


def model(values: list[int], start: int | None) -> list[tuple[str, Any]]:
    """Sums for each key; a sum of 20 or more is forgotten."""
    sums: dict[str, int] = {}
    out = []
    for value in values:
        key = "ab"[value % 2]
        had = sums.get(key, start)
        total = (had or 0) + value
        out.append((key, (had, total)))
        sums[key] = total
        if total >= 20:
            del sums[key]
    return out


def summing(state: int | None, value: int) -> tuple[int | None, tuple[int | None, int]]:
    total = (state or 0) + value
    return (None if total >= 20 else total), (state, total)


@pytest.mark.parametrize("timed", [False, True])
@pytest.mark.parametrize("start", [None, int])
def test_stateful_map_gives_what_a_plain_loop_gives(timed: bool, start: Any) -> None:
    for seed in range(10):
        chance = random.Random(seed)
        values = [chance.randrange(12) for _ in range(200)]
        flow, stream = keyed(values, timed, batch=chance.choice([1, 7, 500]))
        out = testing.collect()
        stream.stateful_map("sums", summing, state=start).sink("out", out)
        ms.run(flow, workers=chance.choice([1, 2]))
        expected = model(values, None if start is None else start())
        for key in "ab":
            of_key = [pair for pair in expected if pair[0] == key]
            assert [pair for pair in out if pair[0] == key] == of_key, f"seed {seed}"


def test_stateful_map_survives_a_crash_at_every_commit() -> None:
    flow, stream = keyed([3, 8, 5, 12, 9, 2, 7, 20, 1, 4, 6, 11], batch=1)
    stream.stateful_map("sums", summing).sink("out", testing.collect())
    assert testing.crash_everywhere(flow) >= 3 * 12


def test_outputs_of_none_come_out_and_a_failed_value_leaves_the_state() -> None:
    flow, stream = keyed([2, 4, 0, 6])
    out = testing.collect()

    def divided(state: int, value: int) -> tuple[int, int | None]:
        assert value
        return state + value, None if value == 4 else state

    stream.stateful_map("sums", divided, state=int, on_error="skip").values().sink("out", out)
    report = ms.run(flow)
    assert out == [0, None, 6]
    assert report.step("sums")["skipped"] == 1


@pytest.mark.parametrize("made", [7, None, (1,), (1, 2, 3), [1, 2]])
def test_what_is_no_pair_names_step_and_key(made: Any) -> None:
    flow, stream = keyed([1])
    stream.stateful_map("sums", lambda state, value: made).sink("out", testing.collect())
    with pytest.raises(ms.StepError, match=r'"sums".*returns a pair \(state, output\), not') as failed:
        ms.run(flow)
    assert failed.value.key == "'b'"


def counted(stream: ms.KeyedStream) -> ms.Stream:
    return stream.stateful_map("n", lambda n, v: (n + 1, n + 1), state=int, ttl=10).values()


def test_stateful_map_forgets_a_key_without_values() -> None:
    flow = ms.Flow("ttl")
    out = testing.collect()
    clock = testing.clock(0)
    script = [1, testing.advance(clock, 4), 5, testing.advance(clock, 20), 26]
    counted(flow.source("in", testing.items(script, 1)).key_by(lambda value: "k")).sink("out", out)
    ms.run(flow, clock=clock)
    assert out == [1, 2, 1]


def test_stateful_map_forgets_a_key_in_event_time() -> None:
    flow = ms.Flow("ttl")
    out = testing.collect()
    script = [("k", 1), ("k", 5), ("other", 20), ("k", 26)]
    timed = flow.source("in", testing.items(script)).event_time(lambda item: item[1])
    counted(timed.key_by(lambda item: item[0])).sink("out", out)
    ms.run(flow)
    assert out == [1, 2, 1, 1]
