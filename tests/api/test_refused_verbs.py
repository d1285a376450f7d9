"""A verb that is refused leaves the flow as it was: in a notebook the cell is corrected and run again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import millstream as ms
import pytest

Build: TypeAlias = Callable[[Any, Any], Any]

WINDOW = ms.windows.tumbling(5)
BAD: Any = "no such"


def keyed(flow: ms.Flow, name: str, timed: bool = True) -> Any:
    numbers = flow.source(name, ms.testing.items([1, 2, 3]))
    return (numbers.event_time(float) if timed else numbers).key_by(str)


# For each verb a call with a wrong argument, and the same one with the right argument.
KEYED: dict[str, tuple[Build, Build]] = {
    "join": (lambda a, b: a.join("j", b, within=5, ttl=-1), lambda a, b: a.join("j", b, within=5)),
    "join of no stream": (lambda a, b: a.join("j", 7, within=5), lambda a, b: a.join("j", b, within=5)),
    "join in windows": (
        lambda a, b: a.join("j", b, window=WINDOW, watermark=BAD),
        lambda a, b: a.join("j", b, window=WINDOW),
    ),
    "join of no window": (
        lambda a, b: a.join("j", b, window=BAD),
        lambda a, b: a.join("j", b, window=WINDOW),
    ),
    "join how": (
        lambda a, b: a.join("j", b, within=5, how=BAD),
        lambda a, b: a.join("j", b, within=5, how="left"),
    ),
    "lookup": (lambda a, b: a.lookup("l", b, ttl=-1), lambda a, b: a.lookup("l", b, ttl=9)),
    "join_all": (lambda a, b: a.join_all("j", b, ttl=-1), lambda a, b: a.join_all("j", b)),
    "merge": (lambda a, b: a.merge(7), lambda a, b: a.merge(b)),
    "sink": (lambda a, b: a.sink("out", 7), lambda a, b: a.sink("out", [])),
    "sink on_error": (
        lambda a, b: a.sink("out", [], on_error=BAD),
        lambda a, b: a.sink("out", []),
    ),
    "map": (lambda a, b: a.map(7), lambda a, b: a.map(str)),
    "filter": (lambda a, b: a.filter(7), lambda a, b: a.filter(bool)),
    "flat_map": (lambda a, b: a.flat_map(7), lambda a, b: a.flat_map(range)),
    "filter_map": (lambda a, b: a.filter_map(7), lambda a, b: a.filter_map(str)),
    "inspect": (lambda a, b: a.inspect(7), lambda a, b: a.inspect(print)),
    "map_batch": (lambda a, b: a.map_batch(7), lambda a, b: a.map_batch(list)),
    "branch": (lambda a, b: a.branch(7), lambda a, b: a.branch(bool)[0]),
    "collect": (lambda a, b: a.collect(0), lambda a, b: a.collect(3)),
    "map_async": (lambda a, b: a.map_async(7), lambda a, b: a.map_async(ask)),
    "map_async concurrency": (
        lambda a, b: a.map_async(ask, concurrency=0),
        lambda a, b: a.map_async(ask, concurrency=1),
    ),
    "stateful": (lambda a, b: a.stateful("s", 7), lambda a, b: a.stateful("s", Stateful)),
    "stateful ttl": (
        lambda a, b: a.stateful("s", Stateful, ttl=-1),
        lambda a, b: a.stateful("s", Stateful, ttl=9),
    ),
    "stateful_map": (
        lambda a, b: a.stateful_map("s", int, 7),
        lambda a, b: a.stateful_map("s", int, following),
    ),
    "stateful_batch": (lambda a, b: a.stateful_batch("s", 7), lambda a, b: a.stateful_batch("s", Stateful)),
    "window": (lambda a, b: a.window("w", BAD), lambda a, b: a.window("w", WINDOW).count()),
    "window aggregate": (
        lambda a, b: a.window("w", WINDOW).sum(7),
        lambda a, b: a.window("w", WINDOW).sum(),
    ),
    "fold": (lambda a, b: a.fold("f", int, 7), lambda a, b: a.fold("f", int, max)),
    "count": (lambda a, b: a.count(BAD), lambda a, b: a.count("each")),
    "sum": (lambda a, b: a.sum(7), lambda a, b: a.sum()),
    "min": (lambda a, b: a.min(7), lambda a, b: a.min()),
    "max": (lambda a, b: a.max(emit=BAD), lambda a, b: a.max()),
    "mean": (lambda a, b: a.mean(7), lambda a, b: a.mean()),
    "dedupe": (lambda a, b: a.dedupe(-1), lambda a, b: a.dedupe(9)),
    "throttle": (lambda a, b: a.throttle(0, 1), lambda a, b: a.throttle(1, 1)),
    "changes": (lambda a, b: a.changes(7), lambda a, b: a.changes()),
}
BOTH = ("merge", "map_batch", "branch", "collect", "map_async", "sink", "sink on_error")
PLAIN: dict[str, tuple[Build, Build]] = {
    "event_time": (lambda a, b: a.event_time(7), lambda a, b: a.event_time(float)),
    "event_time lateness": (
        lambda a, b: a.event_time(float, lateness=-1),
        lambda a, b: a.event_time(float, lateness=1),
    ),
    "event_clock": (lambda a, b: a.event_clock(7), lambda a, b: a.event_clock(Clock)),
    "key_by": (lambda a, b: a.key_by(7), lambda a, b: a.key_by(str)),
    **{verb: KEYED[verb] for verb in BOTH},
    "source": (
        lambda a, b: FLOWS[-1].source("more", 7),
        lambda a, b: FLOWS[-1].source("more", ms.testing.items([1])),
    ),
}
FLOWS: list[ms.Flow] = []


async def ask(value: object) -> object:
    return value


def following(state: int, value: int) -> tuple[int, int]:
    return state + value, state


class Stateful:
    def on_item(self, key: str, item: int) -> list[int]:
        return [item]

    def on_batch(self, key: str, items: list[int]) -> list[int]:
        return items

    def snapshot(self) -> None: ...

    def restore(self, state: None) -> None: ...


class Clock:
    def __init__(self, partition: str) -> None: ...

    def on_item(self, item: int, now: float) -> tuple[float, float]:
        return item, item


def built(make: Callable[[ms.Flow, str], Any], *calls: Build) -> str:
    flow = ms.Flow("f")
    FLOWS.append(flow)
    one, other = make(flow, "a"), make(flow, "b")
    for wrong in calls[:-1]:
        with pytest.raises((ms.FlowUsageError, TypeError)):
            wrong(one, other)
    calls[-1](one, other)
    FLOWS.pop()
    return flow.describe("json")


@pytest.mark.parametrize("verb", KEYED)
@pytest.mark.parametrize("merged", [False, True])
def test_a_verb_that_is_refused_leaves_the_flow_as_it_was(verb: str, merged: bool) -> None:
    def make(flow: ms.Flow, name: str) -> Any:
        first = keyed(flow, name)
        return first.merge(keyed(flow, f"{name}2")) if merged else first

    wrong, right = KEYED[verb]
    assert built(make, wrong, right) == built(make, right)


@pytest.mark.parametrize("verb", PLAIN)
def test_a_verb_without_keys_does_too(verb: str) -> None:
    wrong, right = PLAIN[verb]
    make = lambda flow, name: flow.source(name, ms.testing.items([1, 2]))  # noqa: E731
    assert built(make, wrong, right) == built(make, right)
