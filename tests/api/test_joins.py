"""Joins in Python, judged by a plain model that takes the values in the order of their times."""

import random
from collections import defaultdict
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
    chance, now, made = random.Random(seed), 0, {}
    for number in range(500):
        now += chance.randrange(step)
        key, time = f"k{chance.randrange(8)}", now - chance.randrange(16)
        made.setdefault((key, time), (key, time, number))
    return list(made.values())


def in_time(items: list[Item]) -> list[Item]:
    """What is not late, in the order of time."""
    watermark, kept = float("-inf"), []
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


def within(left: list[Item], right: list[Item], how: str) -> list[Any]:
    out: list[Any] = [(a[2], b[2]) for a in left for b in right if abs(a[1] - b[1]) <= WITHIN]
    paired_left, paired_right = {pair[0] for pair in out}, {pair[1] for pair in out}
    if how in ("left", "full"):
        out += [(a[2], None) for a in left if a[2] not in paired_left]
    if how == "full":
        out += [(None, b[2]) for b in right if b[2] not in paired_right]
    return out


def rank(pair: tuple[int | None, int | None]) -> tuple[int, int]:
    return (-1 if pair[0] is None else pair[0], -1 if pair[1] is None else pair[1])


CASES = [("latest", how) for how in ("inner", "left", "full")]
CASES += [("lookup", how) for how in ("inner", "left")]
CASES += [("within", how) for how in ("inner", "left", "full")]


@TOPOLOGIES
@pytest.mark.parametrize(("kind", "how"), CASES)
def test_joins_pair_what_the_model_pairs(kind: str, how: Any, workers: int, batch: int) -> None:
    left, right = items(1, 3), items(2, 5)
    flow, out, late = ms.Flow("join"), testing.collect(), testing.collect()

    def stream(name: str, given: list[Item]) -> ms.KeyedStream:
        timed = flow.source(name, testing.items(given, batch)).event_time(lambda i: i[1], lateness=LATENESS)
        return timed.key_by(lambda i: i[0]).map(lambda i: i[2])

    own, other = stream("left", left), stream("right", right)
    if kind == "lookup":
        joined = own.lookup("joined", other, how)
    else:
        joined = own.join("joined", other, how, within=WITHIN if kind == "within" else None)
    joined.sink("out", out)
    joined.late.values().sink("late", late)
    ms.run(flow, workers=workers)
    seen: dict[str, list[Any]] = defaultdict(list)
    for key, pair in out:
        seen[key].append(pair)
    model = {"latest": latest, "lookup": lookup, "within": within}[kind]
    kept, table = in_time(left), in_time(right)
    for key in {item[0] for item in left + right}:
        of_key = [i for i in kept if i[0] == key], [i for i in table if i[0] == key]
        expected = model(*of_key, how)
        if kind == "within":
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
    flow, looked_up, joined = ms.Flow("untimed"), testing.collect(), testing.collect()
    rows, given = flow.source("in", testing.items(script, 1)).branch(lambda i: i[0] == "row")
    table, keyed = (s.key_by(lambda i: i[1]).map(lambda i: i[2]) for s in (rows, given))
    keyed.lookup("looked up", table).sink("looked up out", looked_up)
    keyed.join("joined", table).sink("joined out", joined)
    ms.run(flow)
    assert looked_up == [("a", ("x", 1)), ("b", ("y", None)), ("a", ("z", 2))]
    assert joined == [("a", ("x", 1)), ("a", ("x", 2)), ("a", ("z", 2))]


def test_a_key_is_forgotten_after_its_time_to_live() -> None:
    flow, out = ms.Flow("ttl"), testing.collect()

    def stream(name: str, times: list[int]) -> ms.KeyedStream:
        return flow.source(name, testing.items(times)).event_time(lambda t: t).key_by(lambda t: "k")

    stream("left", [5, 15, 26, 30]).lookup("joined", stream("right", [0, 27]), ttl=10).values().sink(
        "out", out
    )
    ms.run(flow, workers=2)
    assert out == [(5, 0), (15, 0), (26, None), (30, 27)]


def test_mistakes_are_told() -> None:
    flow = ms.Flow("mistakes")
    numbers = flow.source("in", testing.items([1]))
    untimed, timed = numbers.key_by(str), numbers.event_time(lambda n: n).key_by(str)
    cases: list[Any] = [
        (lambda: untimed.join("j", timed), "merges only with streams behind event_time"),
        (lambda: untimed.join("j", untimed, within=3), "within needs times"),
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
