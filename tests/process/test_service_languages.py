"""A publisher in one language, a consumer in the other, one journal: all types, versions of an interface.

The Rust end is ``everything.rs``, an example of the crate, as a process of its own.
"""

from __future__ import annotations

import enum
import subprocess
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Protocol

import millstream as ms
import msgspec
import pytest
from millstream import service
from millstream.service import aliases, char, f32, i8, i16, i32, timestamp, u8, u16, u32, u64

COUNT = 600
TIMEOUT = 60


class Side(enum.Enum):
    Buy = 1
    Sell = 2


@dataclass
class Leg:
    symbol: str
    ratio: u8


@dataclass
class Placed:
    id: str
    leg: Leg


class Moved(msgspec.Struct, tag=True):
    by: int
    side: Side | None


class Ended(msgspec.Struct, tag="Closed"):
    """Rust has another name for it."""


Event = Annotated[Placed | Moved | Ended, "Event"]


@dataclass
class Everything:
    flag: bool
    i8: i8
    i16: i16
    i32: i32
    i64: int
    u8: u8
    u16: u16
    u32: u32
    u64: u64
    f32: f32
    f64: float
    char: char
    text: str
    bytes: bytes
    decimal: Decimal
    at: timestamp
    side: Side
    leg: Leg
    some: int | None
    none: str | None
    legs: list[Leg]
    table: dict[str, list[int]]
    nested: list[list[float | None]]
    event: Event
    last: Event | None
    events: list[Event]


class Values(Protocol):
    def value(self, number: int, value: Everything) -> None: ...


class Prices(Protocol):
    """A later version than the one in Rust: an argument has a new name, another one was added."""

    def price(self, symbol: str, amount: Annotated[float, aliases("value")], venue: str = "XLON") -> None: ...


class PricesToo(Protocol):
    """An interface that Rust reads: a method that it does not know is skipped."""

    def price(self, venue: str, symbol: str, value: float) -> None: ...


PricesToo.__name__ = "Prices"


def everything(n: int) -> Everything:
    """The same values as in ``everything.rs``."""

    def leg(ratio: int) -> Leg:
        return Leg(f"LEG-{ratio}", ratio % 256)

    def event(n: int) -> Placed | Moved | Ended:
        if n % 3 == 0:
            return Placed(f"E-{n}", leg(n))
        return Moved(n, Side.Sell if n % 2 == 0 else None) if n % 3 == 1 else Ended()

    return Everything(
        flag=n % 2 == 0,
        i8=n % 256 - 128,
        i16=n * 257 % 65_536 - 32_768,
        i32=n * 65_537 - 2_000_000_000,
        i64=-(1 << 63) + n,
        u8=n % 256,
        u16=n * 257 % 65_536,
        u32=4_000_000_000 + n,
        u64=(1 << 64) - 1 - n,
        f32=n / 4,
        f64=n / 10,
        char=chr(ord("A") + n % 26),
        text=f"n\u00fcmber {n} \U0001f980",
        bytes=bytes([n % 256]) * (n % 300),
        decimal=Decimal(f"{n}.50"),
        at=1_795_253_400_000_000_000 + n,
        side=Side.Buy if n % 2 == 0 else Side.Sell,
        leg=leg(n),
        some=-n if n % 3 else None,
        none=None,
        legs=[leg(at) for at in range(n % 20)],
        table={f"key {at:02}": list(range(at)) for at in range(n % 18)},
        nested=[[], [None, float(n)]],
        event=event(n),
        last=event(n + 1) if n % 4 else None,
        events=[event(at) for at in range(n % 5)],
    )


class Check(Values, Prices):
    """Compares what it is called with to what it must be."""

    seen: list[int]
    prices: list[tuple[str, float, str]]

    def __init__(self) -> None:
        Check.seen = []
        Check.prices = []

    def value(self, number: int, value: Everything) -> None:
        assert value == everything(number)
        assert str(value.decimal) == f"{number}.50"
        self.seen.append(number)

    def price(self, symbol: str, amount: Annotated[float, aliases("value")], venue: str = "XLON") -> None:
        self.prices.append((symbol, amount, venue))


@pytest.fixture
def rust(rust_examples: Path) -> Path:
    """The program of ``everything.rs``."""
    return rust_examples / "everything"


def run(*command: object) -> None:
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=TIMEOUT)
    assert done.returncode == 0, done.stderr


def test_python_reads_what_rust_publishes(rust: Path, tmp_path: Path) -> None:
    run(rust, "publish", tmp_path / "values", COUNT)
    ms.serve(Check, tmp_path / "values", drain=True)
    assert Check.seen == list(range(COUNT))
    assert Check.prices == [("VOD.L", float(n), "XLON") for n in range(COUNT)]


def test_rust_reads_what_python_publishes_and_python_what_rust_passes_on(rust: Path, tmp_path: Path) -> None:
    values = ms.publisher(Values, tmp_path / "values")
    prices = ms.publisher(PricesToo, tmp_path / "values")
    for n in range(COUNT):
        values.value(n, everything(n))
        prices.price("XPAR", "VOD.L", n / 8)
    run(rust, "pass", tmp_path / "values", tmp_path / "passed")
    ms.serve(Check, tmp_path / "passed", drain=True)
    assert Check.seen == list(range(COUNT))
    assert Check.prices == [("VOD.L", n / 8, "XLON") for n in range(COUNT)]


def test_both_ends_call_the_types_the_same(rust: Path, tmp_path: Path) -> None:
    """The schemas have one id, so that no call needs to be adapted."""
    run(rust, "publish", tmp_path / "values", 1)
    ms.publisher(Values, tmp_path / "ours").value(0, everything(0))
    ids = []
    for name in ("values", "ours"):
        bodies = [bytes(record.body) for record in ms.Journal(tmp_path / name)]
        # A call: nil, an array, and the id of its schema as four bytes.
        ids.append(next(body[3:7] for body in bodies if body[2] == 0xCE))
    assert ids[0] == ids[1]
    assert ms.service.described(Values).id == int.from_bytes(ids[0], "big")
    assert service.replay(Check, tmp_path / "ours") == []


def test_a_change_that_cannot_be_is_told_by_the_other_language(rust: Path, tmp_path: Path) -> None:
    class Prices(Protocol):
        def price(self, symbol: str, value: str) -> None: ...

    ms.publisher(Prices, tmp_path / "prices").price("VOD.L", "72.5")
    command = [rust, "pass", tmp_path / "prices", tmp_path / "passed"]
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=TIMEOUT)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert f"{tmp_path / 'prices'}, record 1: " in line and "price" in line and "value" in line
