"""``stateful_batch``: all values of a key in a batch at once."""

from __future__ import annotations

import tempfile
from random import Random
from typing import Any

import millstream as ms
import pytest
from millstream import testing


class Total:
    def __init__(self) -> None:
        self.total = 0

    def on_batch(self, key: int, values: list[int]) -> list[Any]:
        if -1 in values:
            raise ValueError("a value that is wrong")
        self.total += sum(values)
        return [(values, self.total)]

    def on_end(self, key: int) -> list[Any]:
        return [("end", self.total)]


def totals(logic: Any, items: Any, workers: int = 1, **options: Any) -> list[Any]:
    flow = ms.Flow("f")
    out = testing.collect()
    keyed = flow.source("in", testing.items(items, batch_size=6)).key_by(lambda n: abs(n) % 2)
    keyed.stateful_batch("total", logic, **options).sink("out", out)
    run_in_lockstep(flow, workers)
    return out


def run_in_lockstep(flow: ms.Flow, workers: int = 1) -> None:
    """With an epoch for each batch, batches are as large as the script says, from the first one on."""
    with tempfile.TemporaryDirectory() as state:
        ms.run(flow, workers, state=state, epoch=0, sync=False)


def test_a_key_is_called_once_for_a_batch() -> None:
    assert totals(Total, range(9)) == [
        (0, ([0, 2, 4], 6)),
        (1, ([1, 3, 5], 9)),
        (0, ([6, 8], 20)),
        (1, ([7], 16)),
        (0, ("end", 20)),
        (1, ("end", 16)),
    ]
    assert sorted(map(repr, totals(Total, range(9), 3))) == sorted(map(repr, totals(Total, range(9))))


def test_a_function_with_a_state_is_given_the_values() -> None:
    def keep(state: list[int], values: list[int]) -> int:
        state.extend(values)
        return len(state)

    assert totals(keep, range(9), state=list) == [(0, 3), (1, 3), (0, 5), (1, 4)]


def test_what_fails_is_all_values_of_the_key() -> None:
    items = [2, 3, -1, 4, 5]
    with pytest.raises(ms.StepError, match=r"key 1, item \[3, -1, 5\]: ValueError: a value that is wrong"):
        totals(Total, items)
    assert totals(Total, items, on_error="skip") == [(0, ([2, 4], 6)), (0, ("end", 6)), (1, ("end", 0))]
    letters = testing.collect()
    totals(Total, items, on_error=ms.dead_letter(letters))
    assert [(letter.key, letter.item) for letter in letters] == [(1, [3, -1, 5])]


def test_mistakes_are_errors_with_a_remedy() -> None:
    class Item:
        def on_item(self, key: int, value: int) -> None: ...

    with pytest.raises(ms.FlowUsageError, match=r"Item has no method on_batch\(key, values\)"):
        totals(Item, [])
    with pytest.raises(ms.FlowUsageError, match="needs state="):
        totals(lambda state, values: None, [])
    with pytest.raises(ms.FlowUsageError, match="a stateful_batch step keeps state and needs a name"):
        ms.Flow("f").source("in", testing.items([])).key_by(int).stateful_batch("", Total)


class Quiet:
    """Says how many values came in bursts, once event time has gone on by 5."""

    def __init__(self) -> None:
        self.calls: list[list[int]] = []

    def on_batch(self, key: str, values: list[int], ctx: ms.KeyContext) -> None:
        assert ctx.time == max(values)
        self.calls.append(values)
        ctx.set_timer(max(values) + 5)

    def on_timer(self, key: str, at: float, ctx: ms.KeyContext) -> list[Any]:
        return [(at, [*self.calls])]


def quiet(out: list[Any], times: list[int]) -> ms.Flow:
    flow = ms.Flow("quiet")
    timed = flow.source("in", testing.items(times, batch_size=3)).event_time(lambda time: time, lateness=2)
    timed.key_by(lambda time: "k").stateful_batch("quiet", Quiet).sink("out", out)
    return flow


def test_timers_and_times_of_batches() -> None:
    out = testing.collect()
    run_in_lockstep(quiet(out, [1, 3, 2, 4, 20, 21, 30]))
    # A timer that is due between two values of a list comes between them.
    assert out == [
        ("k", (8.0, [[1, 3, 2], [4]])),
        ("k", (9.0, [[1, 3, 2], [4]])),
        ("k", (25.0, [[1, 3, 2], [4], [20], [21]])),
        ("k", (26.0, [[1, 3, 2], [4], [20], [21]])),
    ]


class Numbered:
    """Numbers the values of a key since it was forgotten last."""

    def __init__(self) -> None:
        self.seen = 0

    def on_batch(self, key: str, values: list[Any]) -> list[Any]:
        first = self.seen
        self.seen += len(values)
        return [(value, number) for number, value in enumerate(values, first)]


def number_all(state: Numbered, values: list[Any]) -> list[Any]:
    return state.on_batch("", values)


@pytest.mark.parametrize("how", ["class", "function"])
@pytest.mark.parametrize("seed", range(4))
def test_a_life_ends_between_the_same_values_in_batches_of_any_size(how: str, seed: int) -> None:
    random = Random(seed)
    times = []
    now = 0
    for _ in range(200):
        now += random.choice([0, 1, 2, 3, 30])
        # Some are late.
        times.append((random.choice("ab"), max(0, now - random.choice([0, 0, 5, 40]))))

    def numbered(batch_size: int) -> dict[str, list[Any]]:
        flow = ms.Flow("numbered")
        out = testing.collect()
        source = flow.source("in", testing.items(times, batch_size=batch_size))
        keyed = source.event_time(lambda item: item[1], lateness=6).key_by(lambda item: item[0])
        if how == "class":
            result = keyed.stateful_batch("numbers", Numbered, ttl=10)
        else:
            result = keyed.stateful_batch("numbers", number_all, state=Numbered, ttl=10).flat_map(iter)
        result.sink("out", out)
        run_in_lockstep(flow)
        return {key: [value for of, value in out if of == key] for key in "ab"}

    one = numbered(1)
    assert sum(number == 0 for values in one.values() for _, number in values) > 4
    for batch_size in (2, 3, 7, 50, 200):
        assert numbered(batch_size) == one


class Running:
    def __init__(self) -> None:
        self.total = 0

    def on_batch(self, key: int, values: list[int]) -> list[Any]:
        self.total += sum(values)
        return [(values, self.total)]


@pytest.mark.parametrize(("logic", "workers"), [(Total, 1), (Total, 2), (Running, 2)])
def test_a_crash_at_every_commit_changes_nothing(logic: Any, workers: int) -> None:
    flow = ms.Flow("f")
    out = testing.collect()
    keyed = flow.source("in", testing.items(range(60), batch_size=5)).key_by(lambda n: n % 3)
    keyed.stateful_batch("total", logic).sink("out", out)
    assert testing.crash_everywhere(flow, workers=workers) > 12


def test_nor_to_logic_with_timers() -> None:
    flow = quiet(testing.collect(), [n * n % 50 + n for n in range(60)])
    assert testing.crash_everywhere(flow) > 12
