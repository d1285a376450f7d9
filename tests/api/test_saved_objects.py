"""Objects as states: each way to save them writes a pickle, which restores an equal object."""

from __future__ import annotations

import enum
import json
import math
import pickle
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import millstream as ms
import pytest


class Same:
    """Equal when class and attributes are."""

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and attributes(self) == attributes(other)

    def __hash__(self) -> int:
        return 0


def attributes(thing: object) -> dict[str, Any]:
    names = {*getattr(thing, "__dict__", ()), *(name for base in type(thing).__mro__ for name in slots(base))}
    return {name: getattr(thing, name) for name in names if hasattr(thing, name)}


def slots(base: type) -> list[str]:
    return list(vars(base).get("__slots__", ()))


class Open(Same):
    def __init__(self, **attributes: Any) -> None:
        vars(self).update(attributes)


class Slots:
    __slots__ = ("first", "second")
    __eq__ = Same.__eq__
    __hash__ = Same.__hash__

    def __init__(self, **attributes: Any) -> None:
        for name, value in attributes.items():
            setattr(self, name, value)


class MoreSlots(Slots):
    __slots__ = ("third",)


class SlotsAndMore(Slots):
    """Has a dictionary as well."""


@dataclass
class Data:
    number: int = 1
    words: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Frozen:
    text: str
    other: float | None = None


class Outer:
    @dataclass
    class Inner:
        flag: bool


class Pair(NamedTuple):
    left: int
    right: str


class Colour(enum.Enum):
    RED = "red"


class Counting(int):
    pass


class Lines(list[int]):
    pass


class Halved(Same):
    """Defines its own saved form."""

    def __init__(self, kept: int) -> None:
        self.kept = kept
        self.lost = 0

    def __getstate__(self) -> dict[str, int]:
        return {"kept": self.kept}

    def __setstate__(self, state: dict[str, int]) -> None:
        vars(self).update(state, lost=-1)


class Filled(Same):
    """Receives its saved attributes."""

    def __setstate__(self, state: dict[str, int]) -> None:
        vars(self).update(state, told=True)


def filled(**attributes: int) -> Filled:
    made = Filled()
    vars(made).update(attributes)
    return made


class Reduced(Same):
    def __init__(self, value: int) -> None:
        self.value = value

    def __reduce__(self) -> tuple[Any, ...]:
        return Reduced, (self.value + 1,)


class Needs(Same):
    def __new__(cls, needed: int) -> Needs:
        made = super().__new__(cls)
        made.needed = needed
        return made

    needed: int

    def __getnewargs__(self) -> tuple[int]:
        return (self.needed,)


NUMBERS = [0, 1, -1, 255, 256, 2**31 - 1, -(2**31), 2**31, -(2**31) - 1, 2**63 - 1, -(2**63), 2**63, -(2**64)]
PLAIN = [None, True, False, 0.0, -2.5, math.inf, "", "é", "x" * 255, "x" * 256, "\ud800", *NUMBERS]

STATES = [
    *(Open(value=value) for value in PLAIN),
    *(Slots(first=value, second=1) for value in PLAIN),
    *([value] for value in PLAIN),
    *({"key": value} for value in PLAIN),
    *({value: 1} for value in PLAIN),
    [],
    {},
    [[1], {"a": (2,)}],
    Open(),
    Open(deep=[Open(a=1)], b={"c": {1, 2}}),
    Open(**{"no identifier": 1}),
    Slots(),
    Slots(first=1),
    Slots(first=[1, 2], second=Open(a=1)),
    MoreSlots(first=1, second=2, third=3),
    SlotsAndMore(first=1, second=2),
    SlotsAndMore(first=1, second=2, other=3),
    Data(7, ["a"]),
    Frozen("a"),
    Outer.Inner(True),
    Pair(1, "b"),
    Colour.RED,
    Counting(3),
    Lines([1, 2]),
    Halved(4),
    filled(a=1),
    filled(),
    Reduced(5),
    Needs(6),
    ValueError("x", 1),
    b"bytes",
    (1, 2),
    {1, 2},
    range(4),
]


def saved(states: list[Any], folder: Path) -> ms.Flow:
    flow = ms.Flow("objects")
    made = iter(states)
    keyed = flow.source("in", ms.testing.items(range(len(states)))).key_by(lambda number: number)
    keyed.stateful_map("keep", lambda state, item: (state, item), state=lambda: next(made)).sink("out", [])
    ms.run(flow, state=folder, sync=False)
    return flow


def test_what_is_saved_is_a_pickle_of_the_same_object(tmp_path: Path, run: Any) -> None:
    states = STATES
    saved(states, tmp_path / "state")
    exported = run("state", "export", str(tmp_path / "state"), "--step", "keep").stdout.splitlines()
    lines = {line["key"]: line for line in map(json.loads, exported)}
    assert len(lines) == len(states)
    for number, state in enumerate(states):
        line = lines[number]
        if line["written"] == "pickle":
            found = pickle.loads(bytes.fromhex(line["hex"]))
            expected = pickle.loads(pickle.dumps(state, 5))
            assert (type(found), found) == (type(expected), expected) or str(found) == str(expected), line
        else:
            assert line["written"] == "messagepack", line


class Total(Slots):
    """A state that is written and read again and again."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(first=0, second="")


def add(total: Total, number: int) -> tuple[int, str]:
    total.first += number
    total.second += str(number)
    return total.first, total.second


def test_states_come_back_after_a_crash() -> None:
    flow = ms.Flow("totals")
    keyed = flow.source("in", ms.testing.items(list(range(60)), batch_size=7)).key_by(
        lambda number: number % 5
    )
    keyed.stateful("total", add, state=Total).sink("out", [])
    assert ms.testing.crash_everywhere(flow) > 0


@pytest.mark.parametrize(
    ("state", "why"),
    [
        (type("Local", (), {})(), "Can't pickle|not the same object|it's not found"),
        (Open(held=(item for item in ())), "cannot pickle 'generator' object"),
        ((item for item in ()), "cannot pickle 'generator' object"),
    ],
)
def test_what_pickle_refuses_is_refused(state: Any, why: str, tmp_path: Path) -> None:
    with pytest.raises(ms.StepError, match=why) as raised:
        saved([state], tmp_path)
    assert (raised.value.step, raised.value.key) == ("keep", "0")
