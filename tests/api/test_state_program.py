"""`millstream state` of the Python package: states of Python flows, without the flow."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import millstream as ms
import msgspec
import pytest
from millstream._run.shown import show
from millstream._values.saving import PICKLE, SNAPSHOT, STRUCT, dump


@dataclass
class Seen:
    times: int = 0
    words: list[str] = field(default_factory=list)


def see(seen: Seen, word: str) -> None:
    seen.times += 1
    seen.words.append(word)


def program(*args: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "millstream", "state", *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


@pytest.fixture
def state(tmp_path: Path) -> Path:
    flow = ms.Flow("words")
    keyed = flow.source("in", ms.testing.items(["to", "be", "to"])).key_by(str)
    keyed.stateful("see", see, state=Seen).merge(keyed.count("each", name="count")).sink("out", [])
    ms.run(flow, state=tmp_path / "state", sync=False)
    return tmp_path / "state"


def test_states_are_shown_as_python_shows_them(state: Path) -> None:
    assert program("get", state, "see", "to").stdout == "\"to\": Seen(times=2, words=['to', 'to'])\n"
    assert program("get", state, "count", "be").stdout == '"be": 1\n'
    assert program("keys", state, "see").stdout == '"to"\n"be"\n'
    lines = [json.loads(line) for line in program("export", state, "--step", "count").stdout.splitlines()]
    assert [(line["key"], line["state"], line["written"]) for line in lines] == [
        ("to", 2, "messagepack"),
        ("be", 1, "messagepack"),
    ]
    report = json.loads(program("info", state, "--json").stdout)
    assert [(step["name"], step["keys"]) for step in report["steps"]] == [("count", 2), ("see", 2)]


def test_the_rust_program_names_what_shows_a_pickle(state: Path, run: Any) -> None:
    told = run("state", "get", state, "see", "to")
    assert told.returncode == 0 and told.stdout.startswith('"to": pickle, '), told
    assert "the command millstream of the Python package" in told.stdout
    line = json.loads(run("state", "get", state, "see", "to", "--json").stdout)
    assert pickle.loads(bytes.fromhex(line["hex"])) == Seen(2, ["to", "to"])


def test_a_step_that_is_not_there(state: Path) -> None:
    done = program("keys", state, "sum")
    assert done.returncode == 1
    assert done.stderr.endswith('no step "sum" has state; those that have are "count", "see"\n'), done.stderr


# What a state may be made of.


class Slots:
    __slots__ = ("a", "b")

    def __init__(self, a: int, b: Any) -> None:
        self.a = a
        self.b = b


class Orders(dict):  # type: ignore[type-arg]
    pass


class Lines(list):  # type: ignore[type-arg]
    pass


class Order(msgspec.Struct):
    symbol: str
    lots: int


class Last:
    def snapshot(self) -> dict[str, int]:
        return {"last": 7}

    def restore(self, value: dict[str, int]) -> None: ...


class Dangerous:
    """Unpickling it would end the process."""

    def __reduce__(self) -> Any:
        import os

        return os._exit, (9,)


def knot() -> Seen:
    seen = Seen()
    seen.words = [seen]  # type: ignore[list-item]
    return seen


@pytest.mark.parametrize(
    ("value", "how", "text"),
    [
        ([1, {"a": (2.5, None)}], PICKLE, "[1, {'a': (2.5, None)}]"),
        (Seen(1), PICKLE, "Seen(times=1, words=[])"),
        (Slots(1, Lines([2])), PICKLE, "Slots(a=1, b=Lines(2))"),
        (Orders({"a": [1]}), PICKLE, "Orders('a': [1])"),
        (Order("IBM", 3), STRUCT, "Order(symbol='IBM', lots=3)"),
        ([Order("IBM", 3)], PICKLE, "[Order('IBM', 3)]"),
        (Last(), SNAPSHOT, "Last.restore({'last': 7})"),
        (Dangerous(), PICKLE, "_exit(9)"),
        (knot(), PICKLE, "Seen(times=0, words=[...])"),
    ],
)
def test_a_state_is_shown_without_its_class(value: Any, how: int, text: str) -> None:
    written = dump(value)
    assert written[0] == how
    assert show(*written) == text


def test_what_python_did_not_write_is_left_to_others() -> None:
    assert show(ord("m"), b"\x01") is None
    assert "cannot be shown" in (show(PICKLE, b"\x80\x05") or "")
