"""``join_all``: joins of any number of streams."""

from __future__ import annotations

from itertools import product
from random import Random
from typing import Any

import millstream as ms
import pytest
from millstream import testing

EMIT = ["complete", "running", "final"]
INSERT = ["first", "last", "product"]


def joined(
    script: list[tuple[int, str, int]], emit: Any, insert: Any, out: list[Any], **options: Any
) -> ms.Flow:
    """Three streams out of one script of stream, key and value, which keeps their order."""
    flow = ms.Flow("join")
    items = flow.source("in", testing.items(script, batch_size=options.pop("batch_size", 1)))
    keyed = items.key_by(lambda item: item[1])
    # One after the other through one exchange, so that the order is that of the script.
    sides = [
        keyed.filter(lambda item, side=side: item[0] == side).map(lambda item: item[2]) for side in range(3)
    ]
    sides[0].join_all("all", *sides[1:], emit=emit, insert=insert, **options).sink("out", out)
    return flow


def model(script: list[tuple[int, str, int]], emit: str, insert: str) -> list[Any]:
    seen: dict[str, list[list[int]]] = {}
    out: list[Any] = []

    def rows(key: str) -> list[Any]:
        return [(key, row) for row in product(*[side or [None] for side in seen[key]])]

    for side, key, value in script:
        sides = seen.setdefault(key, [[], [], []])
        if insert == "product":
            sides[side].append(value)
        elif insert == "last" or not sides[side]:
            sides[side][:] = [value]
        if emit == "running":
            out += rows(key)
        elif emit == "complete" and all(sides):
            out += rows(key)
            del seen[key]
    return out + [row for key in seen if emit == "final" for row in rows(key)]


SCRIPT = [(n * n % 7 % 3, "abc"[n * 5 % 11 % 3], n) for n in range(40)]


@pytest.mark.parametrize("emit", EMIT)
@pytest.mark.parametrize("insert", INSERT)
def test_each_way_to_emit_and_to_insert(emit: str, insert: str) -> None:
    out = testing.collect()
    # Streams have no order between them, unless each item is through before the next one is read.
    apart: list[Any] = [piece for item in SCRIPT for piece in (item, testing.pause(0.001))]
    ms.run(joined(apart, emit, insert, out))
    assert out == model(SCRIPT, emit, insert)
    assert out


@pytest.mark.parametrize(("emit", "workers"), [("complete", 1), ("running", 2), ("final", 1), ("final", 2)])
def test_a_crash_at_every_commit_changes_nothing(emit: str, workers: int) -> None:
    flow = joined(SCRIPT, emit, "last", testing.collect(), batch_size=4)
    assert testing.crash_everywhere(flow, workers=workers) >= 10


def test_streams_of_several_sources_and_two_workers() -> None:
    flow = ms.Flow("orders")
    out = testing.collect()

    def side(name: str) -> ms.KeyedStream:
        pairs = [(key, f"{name}{key}") for key in range(100)]
        source = flow.source(name, testing.items(pairs))
        return source.key_by(lambda pair: pair[0]).map(lambda pair: pair[1])

    side("a").join_all("all", side("b"), side("c"), side("d")).sink("out", out)
    ms.run(flow, workers=2)
    assert sorted(out) == [(key, (f"a{key}", f"b{key}", f"c{key}", f"d{key}")) for key in range(100)]


@pytest.mark.parametrize(("ttl", "due"), [(10, (None, None, 60)), (100, (1, None, 60))])
def test_a_key_is_forgotten_with_its_ttl(ttl: int, due: Any) -> None:
    flow = ms.Flow("ttl")
    out = testing.collect()
    script = [(0, "k", 1), testing.pause(0.001), (1, "other", 30), testing.pause(0.001), (2, "k", 60)]
    timed = flow.source("in", testing.items(script, batch_size=1)).event_time(lambda item: item[2])
    keyed = timed.key_by(lambda item: item[1])
    a, b, c = [
        keyed.filter(lambda item, side=side: item[0] == side).map(lambda item: item[2]) for side in range(3)
    ]
    a.join_all("all", b, c, emit="final", ttl=ttl).sink("out", out)
    ms.run(flow)
    assert ("k", due) in out


def rows_in_order(values: list[tuple[int, int]], ttl: int) -> list[tuple[int | None, int | None]]:
    """The rows of a running join of two streams, from pairs of stream and time."""
    rows, last, seen = [], 0, [None, None]  # type: ignore[var-annotated]
    for time, side in sorted((time, side) for side, time in values):
        if time >= last + ttl:
            seen = [None, None]
        last, seen[side] = time, time
        rows.append(tuple(seen))
    return rows


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("batch_size", [1, 2, 5, 200])
def test_values_with_times_are_joined_in_the_order_of_their_times(seed: int, batch_size: int) -> None:
    random = Random(seed)
    values = []
    now = 0
    for _ in range(100):
        now += random.choice([0, 1, 4, 20])
        values.append((random.randrange(2), max(0, now - random.choice([0, 0, 3]))))
    flow = ms.Flow("ordered")
    out = testing.collect()
    timed = flow.source("in", testing.items(values, batch_size=batch_size))
    keyed = timed.event_time(lambda pair: pair[1], lateness=3).key_by(lambda pair: "k")
    left, right = [keyed.filter(lambda pair, side=side: pair[0] == side) for side in range(2)]
    times = left.map(lambda pair: pair[1]).join_all(
        "all", right.map(lambda pair: pair[1]), emit="running", ttl=10
    )
    times.values().sink("out", out)
    ms.run(flow, workers=1 + seed % 2)
    assert out == rows_in_order(values, 10)


def test_values_that_wait_for_their_turn_are_saved() -> None:
    values = [(n % 2, n * 3 - n % 3) for n in range(24)]
    flow = ms.Flow("ordered")
    timed = flow.source("in", testing.items(values, batch_size=4)).event_time(
        lambda pair: pair[1], lateness=9
    )
    keyed = timed.key_by(lambda pair: "k")
    right = keyed.filter(lambda pair: pair[0] == 1)
    keyed.join_all("all", right, emit="running", ttl=10).sink("out", testing.collect())
    assert testing.crash_everywhere(flow) > 6


def test_values_that_are_late_are_a_stream_of_their_own() -> None:
    flow = ms.Flow("late")
    out = testing.collect()
    late = testing.collect()
    items = [5, testing.pause(0.01), 20, testing.pause(0.01), 7, 30]
    timed = flow.source("in", testing.items(items, batch_size=1)).event_time(float).key_by(lambda n: "k")
    joined = timed.join_all("all", timed.filter(lambda n: False), emit="running")
    joined.values().sink("out", out)
    joined.late.values().sink("late", late)
    ms.run(flow)
    assert (out, late) == ([(5, None), (20, None), (30, None)], [7])


def test_mistakes_are_errors_with_a_remedy() -> None:
    keyed = ms.Flow("f").source("in", testing.items([])).key_by(int)
    for call, said in (
        (lambda: keyed.join_all("j"), "join_all joins this stream with one or more others"),
        (lambda: keyed.join_all("", keyed), "a join_all step keeps state and needs a name"),
        (
            lambda: keyed.join_all("j", keyed.values()),
            "a keyed stream is joined with keyed streams, not with",
        ),  # type: ignore[arg-type]
        (lambda: keyed.join_all("j", keyed, emit="each"), 'emit is "complete", "running" or "final", not'),  # type: ignore[arg-type]
        (lambda: keyed.join_all("j", keyed, insert="all"), 'insert is "first", "last" or "product", not'),  # type: ignore[arg-type]
    ):
        with pytest.raises(ms.FlowUsageError, match=said):
            call()
