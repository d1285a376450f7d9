"""Steps with event time resume from the last commit: each key has the output of an uninterrupted run."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import millstream as ms
import pytest
from millstream import windows
from millstream._run.trial import run_crashing

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass
class Event:
    key: str
    time: int
    number: int


def events(seed: int) -> list[Event]:
    """Out of order, some of them late, with leaps in time."""
    chance = random.Random(seed)
    now = 0
    out = []
    for number in range(250):
        now += chance.randrange(4) + (90 if chance.randrange(40) == 0 else 0)
        out.append(Event(f"k{chance.randrange(8)}", now - chance.randrange(20), number))
    return out


def timed(flow: ms.Flow, name: str, seed: int) -> ms.KeyedStream:
    source = flow.source(name, ms.testing.items(events(seed), batch_size=7))
    return source.event_time(lambda event: event.time, lateness=8).key_by(lambda event: event.key)


class Diary:
    """Sets timers, cancels some, discards its key at times, and writes its own state."""

    def __init__(self) -> None:
        self.seen = 0

    def on_item(self, key: str, event: Event, ctx: ms.KeyContext) -> list[str]:
        self.seen += 1
        ctx.set_timer(event.time + event.number % 13)
        if event.number % 5 == 0:
            ctx.cancel_timer(event.time + 3)
        if event.number % 17 == 0:
            ctx.discard()
        return [f"{self.seen} sees {event.number} at {ctx.watermark}"]

    def on_timer(self, key: str, at: float, ctx: ms.KeyContext) -> list[str]:
        if at % 3 == 0:
            ctx.set_timer(at + 40)
        return [f"{self.seen} at {at}"]

    def on_end(self, key: str) -> list[str]:
        return [f"{self.seen} at the end"]

    def snapshot(self) -> int:
        return self.seen

    def restore(self, seen: int) -> None:
        self.seen = seen


def remember(seen: list[int], event: Event) -> list[int]:
    seen.append(event.number)
    return list(seen)


def number(event: Event) -> int:
    return event.number


def add(total: int, event: Event) -> int:
    return total + event.number


def plus(total: int, later: int) -> int:
    return total + later


def numbers(pair: tuple[Event | None, Event | None]) -> list[int | None]:
    return [None if event is None else event.number for event in pair]


async def twice(value: int) -> int:
    await asyncio.sleep(value % 5 / 1000)
    return 2 * value


def both(outcome: ms.LateStream) -> list[ms.KeyedStream]:
    """What comes out, and what is late."""
    return [outcome, outcome.late.map(number)]


STEPS: dict[str, Callable[[ms.Flow], list[ms.KeyedStream]]] = {
    "timers": lambda flow: [timed(flow, "in", 1).stateful("step", Diary)],
    "ttl": lambda flow: [timed(flow, "in", 2).stateful("step", Diary, ttl=30)],
    "function": lambda flow: [timed(flow, "in", 3).stateful("step", remember, state=list)],
    "count": lambda flow: both(timed(flow, "in", 4).window("step", windows.tumbling(10)).count()),
    "sum": lambda flow: [timed(flow, "in", 4).map(number).window("step", windows.tumbling(10)).sum()],
    "mean": lambda flow: [timed(flow, "in", 5).map(number).window("step", windows.sliding(15, 5)).mean()],
    "least": lambda flow: [timed(flow, "in", 5).map(str).window("step", windows.tumbling(15)).min()],
    "lists": lambda flow: both(timed(flow, "in", 5).window("step", windows.session(12)).collect()),
    "reduce": lambda flow: [
        timed(flow, "in", 5).map(number).window("step", windows.session(12), early=3).reduce(max)
    ],
    "fold": lambda flow: both(
        timed(flow, "in", 6).window("step", windows.sliding(15, 5)).fold(int, add, plus)
    ),
    "count windows": lambda flow: [
        timed(flow, "in", 6)
        .window("step", windows.count(5))
        .aggregate(initial=int, add=add, result=lambda total, bounds: (total, bounds.end))
    ],
    "join of the latest": lambda flow: [
        timed(flow, "left", 7).join("step", timed(flow, "right", 8), how="full", ttl=40).map(numbers)
    ],
    "join within": lambda flow: [
        timed(flow, "left", 7).join("step", timed(flow, "right", 8), how="full", within=6).map(numbers)
    ],
    "lookup": lambda flow: [timed(flow, "left", 7).lookup("step", timed(flow, "right", 8)).map(numbers)],
    "collect": lambda flow: [timed(flow, "in", 9).map(number).collect(max=4)],
    "collect of all": lambda flow: [
        timed(flow, "in", 9).map(number).values().collect(max=4).key_by(lambda collected: "all")
    ],
    "map_async": lambda flow: [
        timed(flow, "in", 9).map(number).map_async(twice, concurrency=20, name="step")
    ],
    "map_async between steps with state": lambda flow: [
        timed(flow, "in", 9)
        .map(number)
        .count("each", name="before")
        .map_async(twice, concurrency=20, ordered=False, name="step")
        .count("each", name="behind")
    ],
}


def build(step: str, out: list[Any]) -> ms.Flow:
    flow = ms.Flow(step)
    tagged = [
        stream.items().map(lambda pair, place=place: (place, *pair))
        for place, stream in enumerate(STEPS[step](flow))
    ]
    merged = tagged[0].merge(*tagged[1:]) if len(tagged) > 1 else tagged[0]
    merged.sink("out", out)
    return flow


def by_key(out: list[Any]) -> dict[Any, list[Any]]:
    keys: dict[Any, list[Any]] = defaultdict(list)
    for place, key, said in out:
        keys[place, key].append(said)
    return keys


def play(step: str, state: str, commits: int, workers: Callable[[int], int]) -> None:
    whole: list[Any] = []
    ms.run(build(step, whole))
    out: list[Any] = []
    flow = build(step, out)
    for crashes in range(1000):
        try:
            run_crashing(flow, workers(crashes), state, commits)
            break
        except ms.SimulatedCrash:
            continue
    assert 3 < crashes < 999
    assert whole
    if step == "collect of all" and workers(0) != workers(1):
        # Which items share a list depends on the workers; all of them are in one.
        assert sorted(n for _, _, some in out for n in some) == sorted(
            n for _, _, some in whole for n in some
        )
    else:
        assert by_key(out) == by_key(whole)


@pytest.mark.parametrize("step", STEPS)
def test_a_crash_at_every_commit_changes_nothing(step: str, tmp_path: Any) -> None:
    play(step, str(tmp_path), 1, lambda crashes: 1)


@pytest.mark.parametrize("step", STEPS)
def test_nor_do_other_numbers_of_workers(step: str, tmp_path: Any) -> None:
    play(step, str(tmp_path), 3, lambda crashes: (1, 2, 3)[crashes % 3])


def test_what_was_asked_and_not_answered_is_asked_again(tmp_path: Any) -> None:
    asked: dict[int, int] = defaultdict(int)
    slow = True

    async def ask(n: int) -> int:
        asked[n] += 1
        if slow and n % 10 == 9:
            await asyncio.sleep(10)
        return n

    out: list[int] = []
    flow = ms.Flow("questions")
    source = flow.source("in", ms.testing.items(range(60), batch_size=5))
    source.map_async(ask, concurrency=100, ordered=False, name="ask").sink("out", out)
    for state in map(str, (tmp_path / f"{attempt}" for attempt in range(50))):
        out.clear()
        try:
            run_crashing(flow, 1, state, 8)
        except ms.SimulatedCrash:
            if out:
                break
        # On a busy machine the items may be over before the epochs, or these before the first answer.
    assert not [n for n in out if n % 10 == 9]
    slow = False
    for workers in (3, 2):
        with pytest.raises(ms.SimulatedCrash):
            run_crashing(flow, workers, state, 1)
    run_crashing(flow, 1, state)
    assert sorted(out) == list(range(60))
    assert asked[9] > 1


def test_an_item_that_cannot_be_saved_names_step_and_key(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As bytes the item would be refused at the exchange, before it is in a state.
    monkeypatch.setenv("MILLSTREAM_PACKETS", "memory")

    def fails(make: Callable[[ms.KeyedStream], ms.KeyedStream]) -> ms.StepError:
        flow = ms.Flow("bad")
        source = flow.source("in", ms.testing.items([("a", 0)] * 30, batch_size=3))
        keyed = source.event_time(lambda item: item[1]).key_by(lambda item: item[0])
        make(keyed.map(lambda item: (n for n in ()))).sink("out", [])
        with pytest.raises(ms.StepError, match="cannot pickle 'generator' object") as raised:
            ms.run(flow, state=tmp_path / str(random.random()), epoch=0)
        return raised.value

    async def never(item: Any) -> None:
        await asyncio.sleep(3600)

    steps: list[tuple[str, Callable[[ms.KeyedStream], ms.KeyedStream]]] = [
        ("windows", lambda keyed: keyed.window("windows", windows.tumbling(10)).collect()),
        ("lists", lambda keyed: keyed.collect(max=100, name="lists")),
        ("join", lambda keyed: keyed.join("join", keyed.map(str))),
        ("ask", lambda keyed: keyed.map_async(never, name="ask")),
    ]
    for name, make in steps:
        error = fails(make)
        assert (error.step, error.key) == (name, "'a'")
