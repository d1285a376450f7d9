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
from millstream._run.trial import run_crashing
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


def seconds(count: int) -> str:
    return f"1970-01-01T00:00:{count:02}.000000000Z"


def at(count: int, value: Any) -> dict[str, Any]:
    return {"time": seconds(count), "value": value}


class Waits:
    def on_item(self, key: str, value: int, ctx: ms.KeyContext) -> None:
        ctx.set_timer(at=50.0)

    def snapshot(self) -> int:
        return 7

    def restore(self, value: int) -> None: ...


SHOWN: dict[str, tuple[bool, Any, Any]] = {
    "count": (False, lambda keyed: keyed.count(name="step"), 3),
    "sum ttl": (
        True,
        lambda keyed: keyed.sum(emit="each", name="step", ttl=30),
        {"expires": seconds(33), "state": 6},
    ),
    "agg": (False, lambda keyed: keyed.agg(name="step", n=ms.count()), "{'n': ['count', 3]}"),
    "stateful_map": (False, lambda keyed: keyed.stateful_map("step", lambda n, v: (n + v, n), state=int), 6),
    "timer": (
        True,
        lambda keyed: keyed.stateful("step", Waits),
        {"state": {"repr": "Waits.restore(7)"}, "timers": [{"event": seconds(50)}]},
    ),
    "ordered": (
        True,
        lambda keyed: keyed.stateful_map("step", lambda n, v: (n + v, n), state=int, ordered=True),
        {"state": 3, "waiting": [at(3, 3)]},
    ),
    "dedupe": (False, lambda keyed: keyed.dedupe(name="step"), True),
    "window": (
        True,
        lambda keyed: keyed.window("step", ms.windows.tumbling(60)).sum(),
        [{"start": seconds(0), "end": "1970-01-01T00:01:00.000000000Z", "items": 3, "value": 6}],
    ),
    "session": (
        True,
        lambda keyed: keyed.window("step", ms.windows.session(60)).agg(n=ms.count()),
        [{"first": seconds(1), "last": seconds(3), "items": 3, "value": {"repr": "{'n': ['count', 3]}"}}],
    ),
    "window in order": (
        True,
        lambda keyed: keyed.window("step", ms.windows.session(60), ordered=True).sum(),
        [{"first": seconds(1), "last": seconds(3), "items": 3, "value": [at(1, 1), at(2, 2), at(3, 3)]}],
    ),
    "watermark by key": (
        True,
        lambda keyed: keyed.window("step", ms.windows.session(60), watermark="key").count(),
        {
            "watermark": seconds(3),
            "state": [{"first": seconds(1), "last": seconds(3), "items": 3, "value": 3}],
        },
    ),
    "join": (
        True,
        lambda keyed: keyed.join("step", keyed.filter(lambda value: value > 1), within=60),
        {
            "left": [at(1, 1), at(2, 2)],
            "right": [at(2, 2)],
            "waiting": [at(3, 3) | {"side": "right"}, at(3, 3) | {"side": "left"}],
        },
    ),
    "join_all": (
        False,
        lambda keyed: keyed.join_all("step", keyed.filter(lambda value: value > 5), emit="running"),
        "Sides.restore([[3], []])",
    ),
}


@pytest.mark.parametrize(("timed", "add", "wanted"), SHOWN.values(), ids=SHOWN)
def test_the_state_of_each_step_is_shown_by_its_values(
    timed: bool, add: Any, wanted: Any, tmp_path: Path
) -> None:
    flow = ms.Flow("shown")
    numbers = flow.source("in", ms.testing.items([1, 2, 3]))
    add((numbers.event_time(float) if timed else numbers).key_by(lambda _: "k")).sink("out", [])
    ms.run(flow, state=tmp_path / "state", sync=False)
    [line] = program("export", tmp_path / "state", "--step", "step").stdout.splitlines()
    found = json.loads(line)
    assert found.get("state", found.get("repr")) == wanted
    text = program("get", tmp_path / "state", "step", "k").stdout
    assert text == f'"k": {wanted}\n' or json.loads(text.removeprefix('"k": ')) == wanted


@pytest.mark.parametrize("verb", ["collect", "window"])
def test_a_list_that_grew_over_many_commits_is_shown_as_one(verb: str, tmp_path: Path) -> None:
    flow = ms.Flow("shown")
    words = flow.source("in", ms.testing.items([f"{number:0100}" for number in range(200)], 20))
    keyed = words.event_time(lambda word: int(word) / 10).key_by(lambda _: "k")
    if verb == "collect":
        keyed.collect(1000, name="step").sink("out", [])
    else:
        keyed.window("step", ms.windows.session(60), ordered=True).count().sink("out", [])
    with pytest.raises(ms.SimulatedCrash):
        run_crashing(flow, 1, tmp_path / "state", ("after", 9))
    [line] = program("export", tmp_path / "state").stdout.splitlines()
    found = json.loads(line)["state"]
    values = found if verb == "collect" else [item["value"] for item in found[0]["value"]]
    assert len(values) >= 140 and [int(value) for value in values] == list(range(len(values)))


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
