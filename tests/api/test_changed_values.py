"""``changes``: the values that differ from the one before them of their key, judged by a plain model."""

from __future__ import annotations

import random
import re
import subprocess
import sys
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import Any

import millstream as ms
import pytest
from millstream import testing

LIFE = 20
Item = dict[str, Any]
TOPOLOGIES = pytest.mark.parametrize(("workers", "batch"), [(1, 1), (1, 100), (2, 3), (3, 7)])


def items(seed: int, number: int = 200) -> list[Item]:
    """Items of a few keys and levels, with gaps in time."""
    chance = random.Random(seed)
    at = 0
    made = []
    for index in range(number):
        at += chance.choice([0, 1, 3, 12])
        made.append({"key": f"k{chance.randrange(5)}", "at": at, "level": chance.randrange(3), "n": index})
    return made


def differing(given: list[Item], life: float) -> list[int]:
    """The numbers of the items that pass."""
    last: dict[str, Item] = {}
    passed = []
    for item in given:
        before = last.get(item["key"])
        if before is None or item["at"] >= before["at"] + life or before["level"] != item["level"]:
            passed.append(item["n"])
        last[item["key"]] = item
    return passed


FORMS: dict[str, Callable[[ms.KeyedStream[str, Item], float | None], ms.KeyedStream[str, Any]]] = {
    "a field": lambda keyed, ttl: keyed.changes("level", ttl=ttl),
    "a function": lambda keyed, ttl: keyed.changes(lambda item: [item["level"]], ttl=ttl),
}


@TOPOLOGIES
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("life", [LIFE, None])
def test_what_differs_passes(form: str, life: float | None, workers: int, batch: int) -> None:
    for seed in range(3):
        given = items(seed)
        out = testing.collect()
        flow = ms.Flow("f")
        keyed = flow.source("in", testing.items(given, batch)).event_time("at").key_by("key")
        FORMS[form](keyed, life).map(lambda item: item["n"]).values().sink("out", out)
        report = ms.run(flow, workers=workers)
        wanted = differing(given, float("inf") if life is None else life)
        assert sorted(out) == wanted and 50 < len(wanted) < len(given), f"seed {seed}"
        step = report.step("changes")
        assert step["items_in"] - step["items_out"] == len(given) - len(wanted)


@pytest.mark.parametrize(
    "values", [[1, 1, 2, 2, 1], [None, None, 0, False, None], [float("nan")] * 2, [[], [1]]]
)
@pytest.mark.parametrize("workers", [1, 2])
def test_values_without_times_are_compared_by_equality(values: list[Any], workers: int) -> None:
    flow = ms.Flow("f")
    out = testing.collect()
    flow.source("in", testing.items(values)).key_by(lambda value: "k").changes().values().sink("out", out)
    ms.run(flow, workers=workers)
    wanted = [value for index, value in enumerate(values) if index == 0 or not values[index - 1] == value]
    assert list(map(str, out)) == list(map(str, wanted))


def test_a_later_step_may_change_what_has_passed() -> None:
    flow = ms.Flow("f")
    out = testing.collect()
    keyed = flow.source("in", testing.items([[1], [1], [1, 0], [1]], 1)).key_by(len).map(list)
    keyed.map(lambda value: value[:1]).changes().inspect(lambda value: value.append(0)).sink("out", out)
    ms.run(flow)
    assert out == [(1, [1, 0]), (2, [1, 0])]


def test_a_key_is_forgotten_by_the_clock() -> None:
    clock = testing.clock(0)
    out = testing.collect()
    script = [5, testing.advance(clock, LIFE - 1), 5, testing.advance(clock, LIFE), 5]
    flow = ms.Flow("f")
    keyed = flow.source("in", testing.items(script)).key_by(lambda n: "k")
    keyed.changes(ttl=LIFE).values().sink("out", out)
    ms.run(flow, clock=clock)
    assert out == [5, 5]


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("timed", [True, False])
def test_a_crash_anywhere_changes_nothing(timed: bool, workers: int) -> None:
    flow = ms.Flow("f")
    stream = flow.source("in", testing.items(list[Item]()))
    keyed = (stream.event_time("at") if timed else stream).key_by("key")
    keyed.changes("level").sink("out", testing.collect())
    script = testing.items(items(5, 24), batch_size=4)
    assert testing.crash_everywhere(flow, {"in": script}, workers=workers) > 3


def test_the_last_value_is_remembered_over_runs(tmp_path: Path) -> None:
    out = testing.collect()
    values: list[Any] = ["a", "a", "b", "b", "a"]
    for part in (values[:2], values[:4], values):
        flow = ms.Flow("f")
        source = flow.source("in", testing.items([*part, testing.ABORT], 1))
        source.key_by(lambda value: "k").changes().values().sink("out", out)
        with pytest.raises(ms.FlowError):
            ms.run(flow, state=tmp_path, epoch=0.0)
    assert out == [value for value, _ in groupby(values)]


def test_a_value_that_cannot_be_read_is_skipped() -> None:
    flow = ms.Flow("f")
    out = testing.collect()
    source = flow.source("in", testing.items([{"a": 1}, {}, {"a": 1}, {"a": 2}])).key_by(lambda item: "k")
    source.changes("a", on_error="skip").values().sink("out", out)
    ms.run(flow)
    assert out == [{"a": 1}, {"a": 2}]


@pytest.mark.parametrize(
    ("use", "says"),
    [
        (lambda keyed: keyed.changes(3), "changes takes a function or the name of a field, not 3"),
        (lambda keyed: keyed.changes(ttl=0), "ttl is a number of seconds above 0"),
        (lambda keyed: keyed.changes(name=""), "a changes step keeps state and needs a name"),
    ],
)
def test_mistakes_are_found_when_the_flow_is_described(use: Callable[[Any], Any], says: str) -> None:
    with pytest.raises(ms.FlowUsageError, match=says):
        use(ms.Flow("f").source("in", testing.items([1])).key_by(str))


NAMED = """
import dataclasses, millstream as ms
@dataclasses.dataclass
class {name}:
    text: str
flow = ms.Flow("doors")
doors = flow.source("in", ms.files.lines("doors.txt")).key_by(lambda line: "front")
doors.changes({name}, aliases={aliases}).values().sink("out", ms.files.write("out.txt"))
ms.run(flow, state="state")
"""


def test_a_class_that_was_renamed_is_read_by_its_alias(tmp_path: Path) -> None:
    def run(name: str, aliases: str, *lines: str) -> subprocess.CompletedProcess[str]:
        with open(tmp_path / "doors.txt", "a") as doors:
            doors.writelines(f"{line}\n" for line in lines)
        (tmp_path / "flow.py").write_text(NAMED.format(name=name, aliases=aliases))
        command = [sys.executable, "flow.py"]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)

    assert run("Status", "None", "open").returncode == 0
    refused = run("State", "None", "open", "shut")
    assert refused.returncode == 1 and "aliases=" in refused.stderr
    advised = re.findall(r"aliases=\{[^}]*?\"?'?([\w.]*Status)", refused.stderr)
    renamed = run("State", f"{{{advised[-1]!r}: State}}")
    assert renamed.returncode == 0, renamed.stderr
    assert (tmp_path / "out.txt").read_text().split() == ["open", "shut"]
