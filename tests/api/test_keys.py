"""Keys that ``key_by`` accepts can be hashed, saved and loaded; it refuses others, under its policy."""

from __future__ import annotations

import enum
import hashlib
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import millstream as ms
import pytest
from millstream import _millstream, testing
from millstream._run.trial import run_crashing


class Folded(str):
    """Text with an equality of its own."""

    def __eq__(self, other: object) -> bool:
        return self.lower() == str(other).lower()

    def __hash__(self) -> int:
        return hash(self.lower())


class User(NamedTuple):
    name: str
    device: int


class Kind(str, enum.Enum):
    BUY = "buy"


class Level(enum.IntEnum):
    HIGH = 3


class Data(bytes):
    pass


def nested(depth: int) -> Any:
    key: Any = "inner"
    for _ in range(depth):
        key = (key,)
    return key


REFUSED: dict[str, tuple[Any, str, str]] = {
    "surrogate": (
        "\ud800",
        "key is '\\ud800', text with a lone surrogate",
        'item.user.encode("utf-8", "surrogatepass")',
    ),
    "wide": (2**127, "an integer of more than 128 bits", "hex(item.user)"),
    "wide, negative": (-(2**127) - 1, "an integer of more than 128 bits", "hex(item.user)"),
    "very wide": (1 << 100_000, "an integer of more than 128 bits", "hex(item.user)"),
    "deep": (nested(17), "nested more than 16 deep", "repr(item.user)"),
    "very deep": (nested(50_000), "nested more than 16 deep", "repr(item.user)"),
    "long": (
        "x" * (1 << 20),
        "longer than 1048576 bytes",
        "hashlib.sha256(repr(item.user).encode()).digest()",
    ),
    "many": (
        tuple(range(1 << 16)),
        "key is longer than 1048576 bytes",
        "hashlib.sha256(repr(item.user).encode()).digest()",
    ),
    "subclass": (Folded("Ann"), "of the type Folded and not exactly str", "str(item.user)"),
    "bytes": (Data(b"a"), "of the type Data and not exactly bytes", "bytes(item.user)"),
    "named tuple": (User("ann", 1), "of the type User and not exactly tuple", "tuple(item.user)"),
    "text enum": (Kind.BUY, "of the type Kind and not exactly str", "item.user.value"),
    "integer enum": (Level.HIGH, "of the type Level and not exactly int", "item.user.value"),
    "float": (2.0, "key is 2.0, of the type float;", "str(item.user)"),
    "None": (None, "key is None, of the type NoneType;", 'item.user or ""'),
    "list": (["a"], "of the type list;", "tuple(item.user)"),
    "member": ((1, 2.0), "key[1] is 2.0, of the type float;", "str(item.user)"),
    "member of a member": (("a", (1, Kind.BUY)), "key[1][1] is <Kind.BUY: 'buy'>", "item.user.value"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_key_is_refused_in_key_by_with_step_key_and_remedy(name: str) -> None:
    key, fault, remedy = REFUSED[name]
    flow = ms.Flow("f")
    flow.source("in", testing.items([0])).key_by(lambda _: key, name="by user").count().sink("out", [])
    with pytest.raises(ms.StepError) as raised:
        ms.run(flow)
    assert raised.value.step == "by user" and raised.value.key, raised.value
    assert fault in str(raised.value) and str(raised.value).endswith(f"key_by(lambda item: {remedy})")


@pytest.mark.parametrize("name", [name for name in REFUSED if name != "very deep"])
def test_the_remedy_makes_a_key(name: str) -> None:
    part, _, remedy = REFUSED[name]
    while name.startswith("member") and isinstance(part, tuple):
        part = part[-1]
    key = eval(remedy, {"item": SimpleNamespace(user=part), "hashlib": hashlib})
    assert type(key) in (str, bytes, int, tuple) and accepted(key)


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("workers", [1, 3])
def test_a_bad_key_is_a_dead_letter_and_stops_no_durable_flow(
    name: str, workers: int, tmp_path: Path
) -> None:
    key, _, _ = REFUSED[name]
    flow = ms.Flow("f")
    out = testing.collect()
    dead = testing.collect()
    source = testing.items(["ann", key, "bob", key, "ann"], batch_size=1)
    keyed = flow.source("in", source).key_by(lambda item: item, on_error=ms.dead_letter(dead))
    keyed.count("each").sink("out", out)
    for _ in range(2):  # the second run resumes after the end of the first
        ms.run(flow, state=tmp_path, epoch=0, workers=workers)
    assert sorted(out) == [("ann", 1), ("ann", 2), ("bob", 1)]
    assert [type(letter.key) for letter in dead] == [type(key)] * 2


def a_key(chance: random.Random, depth: int = 0) -> Any:
    """A key or something like one: the edges of each range are frequent."""
    kind = chance.randrange(9 if depth < 18 else 6)
    if kind == 0:
        return "".join(chance.choices("aä€🌊\0\udc80", [9, 9, 9, 9, 9, 1], k=chance.randrange(40)))
    if kind == 1:
        return chance.randbytes(chance.randrange(300))
    if kind in (2, 3):
        edge = 1 << chance.choice([0, 5, 7, 8, 15, 16, 31, 32, 63, 64, 126, 127, 128, 200])
        return chance.choice([1, -1]) * edge + chance.randrange(-2, 3)
    if kind == 4:
        return chance.choice([True, False])
    if kind == 5:
        return (
            chance.choice([1.5, None, Folded("a"), User("a", 1), Kind.BUY, Level.HIGH, Data(b"a"), ["a"]])
            if chance.random() < 0.2
            else "usual"
        )
    if kind == 6:
        return nested(chance.randrange(14, 19))
    return tuple(a_key(chance, depth + 1) for _ in range(chance.randrange(4)))


def typed(key: Any) -> str:
    return repr((type(key), [typed(member) for member in key] if isinstance(key, tuple) else key))


def accepted(key: Any) -> bool:
    try:
        _millstream.key_hash(key)
    except (TypeError, ValueError):
        return False
    return True


def distinct(keys: list[Any]) -> list[Any]:
    """Of equal keys the first, as a table of keys has it."""
    known: list[Any] = []
    for key in keys:
        if not any(key == other for other in known):
            known.append(key)
    return known


@pytest.mark.parametrize("seed", range(20))
def test_a_key_that_is_accepted_is_loaded_as_an_equal_key_of_its_type(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    keys = distinct([a_key(chance) for _ in range(60)])
    good = [key for key in keys if accepted(key)]
    assert 0 < len(good) < len(keys)
    flow = ms.Flow("keys")
    dead = testing.collect()
    counted = testing.collect()
    closed = testing.collect()
    items = list(enumerate([*keys, *keys]))
    source = flow.source("in", testing.items(items, batch_size=10)).event_time(lambda item: float(item[0]))
    keyed = source.key_by(lambda item: item[1], on_error=ms.dead_letter(dead))
    keyed.count().sink("counted", counted)
    windows = keyed.window("all", ms.windows.tumbling(1_000)).count()
    windows.map(lambda window: window.value).sink("closed", closed)
    for workers in [1, 3, 2, 1]:
        try:
            run_crashing(flow, workers, tmp_path, 3)
        except ms.SimulatedCrash:
            continue
    ms.run(flow, state=tmp_path)
    for out in (counted, closed):
        assert sorted((typed(key), count) for key, count in out) == sorted((typed(key), 2) for key in good)
    refused = [typed(key) for key in keys if not accepted(key)]
    assert sorted(typed(letter.key) for letter in dead) == sorted(refused * 2)


class Once:
    """Forgets its key with each second item."""

    seen = 0

    def on_item(self, key: Any, value: Any, ctx: Any) -> list[int]:
        self.seen += 1
        if self.seen == 2:
            ctx.discard()
        return [self.seen]


def test_true_and_one_are_one_key_through_removal_and_restart(tmp_path: Path) -> None:
    keys: list[Any] = [True, True, 1, 1, True, 1, 1, True, True]

    def build(out: list[Any]) -> ms.Flow:
        flow = ms.Flow("f")
        keyed = flow.source("in", testing.items(keys, batch_size=3)).key_by(lambda key: key)
        keyed.stateful("once", Once).sink("out", out)
        return flow

    whole = testing.collect()
    out = testing.collect()
    ms.run(build(whole))
    flow = build(out)
    for _ in range(3):
        with pytest.raises(ms.SimulatedCrash):
            run_crashing(flow, 1, tmp_path, 1)
    ms.run(flow, state=tmp_path)
    assert [(typed(key), n) for key, n in out] == [(typed(key), n) for key, n in whole]
