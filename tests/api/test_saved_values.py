"""What is accepted can be saved and loaded: positions, states, names of partitions, bounds of windows."""

from __future__ import annotations

import datetime
import decimal
import enum
import math
import random
from pathlib import Path
from typing import Any

import millstream as ms
import pytest


class Colour(enum.Enum):
    RED = 1


def nested(depth: int, kind: type) -> Any:
    value: Any = kind()
    for _ in range(depth):
        value = kind((value,))
    return value


ODD: list[Any] = [
    *("", "\ud800", "\udcff\x00", "x" * 100_000, b"", b"\xff" * 10),
    *(0, -1, 2**63, 2**64, -(2**63) - 1, 2**127, -(2**300), True, None, complex(1, 2)),
    *(1.5, math.inf, -math.inf, math.nan, -0.0, decimal.Decimal("NaN"), ...),
    *((), (1,), [], {}, {1: 2, "a": b"b"}, {(1, 2): {3}}, set(), frozenset([1]), range(3)),
    *(datetime.datetime(1, 1, 1), datetime.date.max, Colour.RED),
    *(nested(depth, kind) for depth in (15, 16, 17, 60, 400) for kind in (list, tuple)),
]


def value(chance: random.Random, depth: int = 0) -> Any:
    """A random value of plain types, up to some depth."""
    if depth > 4 or chance.random() < 0.4:
        return chance.choice(ODD[:20])
    members = [value(chance, depth + 1) for _ in range(chance.randrange(4))]
    if chance.random() < 0.4:
        return {repr(member): member for member in members}
    return members if chance.random() < 0.5 else tuple(members)


class Letters:
    def __init__(self, letters: str, position: Any, kept: Any) -> None:
        self.letters = letters
        self.kept = kept
        self.at = 0 if position is None else position[0]

    def next_batch(self) -> list[str] | None:
        self.at += 1
        return [self.letters[self.at - 1]] if self.at <= len(self.letters) else None

    def next_awake(self) -> float:
        return 0.0

    def position(self) -> Any:
        return min(self.at, len(self.letters)), self.kept


class Source(ms.Source[str]):
    def __init__(self, partition: str, letters: str, kept: Any) -> None:
        self.partition = partition
        self.letters = letters
        self.kept = kept
        self.opened: list[tuple[str, Any]] = []

    def partitions(self) -> list[str]:
        return [self.partition]

    def open(self, partition: str, position: Any) -> Letters:
        self.opened.append((partition, position))
        return Letters(self.letters, position, self.kept)


def run(
    state: Path, letters: str, kept: Any, partition: str = "p"
) -> tuple[list[tuple[str, Any]], list[Any]]:
    """Runs a flow whose position and state have `kept` in them; returns what they were at its start."""
    source = Source(partition, letters, kept)
    seen = list[Any]()

    def step(before: Any, letter: str) -> tuple[Any, str]:
        seen.append(before)
        return (kept,), letter

    flow = ms.Flow("kept")
    keyed = flow.source("in", source).key_by(lambda letter: "k")
    keyed.stateful_map("s", step).sink("out", ms.testing.discard())
    ms.run(flow, state=state, epoch=0)
    return source.opened, seen


def same(one: Any, other: Any) -> bool:
    return type(one) is type(other) and repr(one) == repr(other)


@pytest.mark.parametrize("kept", ODD, ids=lambda odd: f"{type(odd).__name__}-{len(repr(odd))}")
def test_an_odd_value_in_a_position_and_a_state_is_loaded_as_it_was(kept: Any, tmp_path: Path) -> None:
    run(tmp_path / "state", "a", kept)
    opened, seen = run(tmp_path / "state", "ab", kept)
    assert same(opened[0][1], (1, kept)) and len(seen) == 1 and same(seen[0], (kept,))


@pytest.mark.parametrize("seed", range(10))
def test_a_random_value_is_loaded_as_it_was(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    for number in range(8):
        kept = value(chance)
        run(tmp_path / str(number), "a", kept)
        opened, seen = run(tmp_path / str(number), "ab", kept)
        assert same(opened[0][1], (1, kept)) and same(seen, [(kept,)]), f"seed {seed}, value {number}"


@pytest.mark.parametrize("name", ["a/b", "..", "a\nb", "\x00", "\U0001f35c" * 50, "x" * 70_000, ""])
def test_a_partition_is_found_by_its_name(name: str, tmp_path: Path) -> None:
    run(tmp_path / "state", "a", None, partition=name)
    opened, _ = run(tmp_path / "state", "ab", None, partition=name)
    assert opened == [(name, (1, None))]


def test_a_name_that_is_no_text_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    said = r"partition '\\ud800': the name of a partition is a str that has UTF-8"
    with pytest.raises(ms.FlowError, match=said):
        run(tmp_path / "state", "a", None, partition="\ud800")


class Spans:
    """Windows whose bounds are at the ends of what a time can be."""

    def windows(self, time: float) -> list[tuple[float, float]]:
        far = 9e9
        return [(-far, far), (time, time + 0.5), (-far, time + 1)]


def test_windows_at_the_ends_of_time_are_saved(tmp_path: Path) -> None:
    def windows(items: list[float], out: list[Any], **state: Any) -> None:
        flow = ms.Flow("ends")
        source = flow.source("in", ms.testing.items(items, batch_size=1)).event_time(float)
        made = source.key_by(lambda time: "k").window("w", Spans()).collect()
        made.values().map(lambda w: (w.start, w.end, w.value)).sink("out", out)
        ms.run(flow, **state)

    whole: list[Any] = ms.testing.collect()
    windows([1.0, 2.0], whole)
    assert (-9e9, 9e9, [1.0, 2.0]) in whole
    out: list[Any] = ms.testing.collect()
    for items in ([1.0], [1.0, 2.0]):
        windows(items, out, state=tmp_path / "state", epoch=0)
    assert (-9e9, 9e9, [1.0, 2.0]) in out
