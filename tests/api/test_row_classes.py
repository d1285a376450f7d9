"""Rows of CSV as objects of a class: what is made of each field, and what becomes of rows that do not fit."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypedDict

import millstream as ms
import msgspec
import pytest


class Side(enum.Enum):
    BUY = 1
    SELL = 2


@dataclass(frozen=True)
class Trade:
    symbol: str
    price: Decimal
    at: datetime
    day: date
    side: Side
    kind: Literal["limit", "market"]
    n: int | None
    open: bool

    def __post_init__(self) -> None:
        if self.price < 0:
            raise ValueError("a price is not negative")


class Item(NamedTuple):
    name: str
    cents: int


class Row(TypedDict):
    name: str
    cents: float


class Struct(msgspec.Struct):
    name: str
    cents: int


def read(path: Path, types: Any, on_error: Any = "fail", **options: Any) -> list[Any]:
    flow, out = ms.Flow("rows"), ms.testing.collect()
    flow.source("rows", ms.files.csv(path, types=types, **options), on_error=on_error).sink("out", out)
    ms.run(flow)
    return out


TRADES = """\
at,symbol,price,day,side,kind,n,open,other
2026-11-30T10:00:00Z,A,1.10,2026-11-30,1,limit,3,true,x
2026-11-30T12:00:00+02:00,B,2,2026-12-01,2,market,,NO,y
"""


def test_each_field_has_the_value_that_its_annotation_says(tmp_path: Path) -> None:
    (tmp_path / "trades.csv").write_text(TRADES)
    at = datetime(2026, 11, 30, 10, tzinfo=timezone.utc)
    first, second = read(tmp_path / "trades.csv", Trade)
    assert first == Trade("A", Decimal("1.10"), at, date(2026, 11, 30), Side.BUY, "limit", 3, True)
    assert second == Trade("B", Decimal(2), at, date(2026, 12, 1), Side.SELL, "market", None, False)


@pytest.mark.parametrize(
    ("of", "rows"),
    [
        (Item, [Item("tea", 3), Item("rum", 9)]),
        (Row, [{"name": "tea", "cents": 3.0}, {"name": "rum", "cents": 9.0}]),
        (Struct, [Struct("tea", 3), Struct("rum", 9)]),
    ],
)
def test_each_kind_of_class_has_its_rows(of: type[Any], rows: list[Any], tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("cents,more,name\n3,x,tea\n9,y,rum\n")
    assert read(tmp_path / "a.csv", of) == rows
    (tmp_path / "b.csv").write_text("tea;3\nrum;9\n")
    assert read(tmp_path / "b.csv", of, header=["name", "cents"], delimiter=";") == rows
    flow, out = ms.Flow("rows"), ms.testing.collect()
    source = ms.files.csv_directory(tmp_path, "a.csv", types=of)
    flow.source("rows", source).sink("out", out)
    ms.run(flow, state=tmp_path / "state")
    assert out == rows and {type(row) for row in out} == {type(row) for row in rows}


@pytest.mark.parametrize(
    ("field", "text", "why"),
    [
        ("price", "x", 'the field price has "x"'),
        ("kind", "stop", "'stop' is none of limit, market"),
        ("side", "3", "'3' is none of 1, 2"),
        ("open", "maybe", "'maybe' is none of true, yes, 1, false, no, 0"),
        ("at", "ten", "Invalid isoformat string"),
        ("price", "-1", "the row: ValueError: a price is not negative"),
    ],
)
def test_a_row_that_does_not_fit_is_named_by_its_place(
    field: str, text: str, why: str, tmp_path: Path
) -> None:
    names, first, second = (line.split(",") for line in TRADES.splitlines())
    index = names.index(field)
    first[index] = text
    path = tmp_path / "trades.csv"
    path.write_text("".join(",".join(line) + "\n" for line in (names, first, second)))
    column = 1 if why.startswith("the row") else len(",".join(first[:index])) + (1 if index == 0 else 2)
    with pytest.raises(ms.StepError) as error:
        read(path, Trade)
    assert f"{path}, line 2, column {column}: " in str(error.value) and why in str(error.value)
    bad: list[Any] = ms.testing.collect()
    (good,) = read(path, Trade, on_error=ms.dead_letter(bad))
    assert good.symbol == "B"
    assert [letter.item for letter in bad] == [path.read_bytes().splitlines()[1]]


class Nested(NamedTuple):
    names: list[str]


@pytest.mark.parametrize(
    ("of", "why"),
    [
        (Nested, r"Nested.names is of list\[str\], which is not made of text"),
        (int, "types is a dataclass, NamedTuple, TypedDict or msgspec.Struct, or functions"),
        (Item("tea", 3), "types is a mapping from texts to functions, a class or None"),
    ],
)
def test_another_class_is_refused_when_the_source_is_made(of: Any, why: str) -> None:
    with pytest.raises(ms.FlowUsageError, match=why):
        ms.files.csv("a.csv", types=of)


def test_a_field_that_the_file_does_not_have_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("name\ntea\n")
    with pytest.raises(ms.FlowError, match='types has "cents", which is no field: the fields are'):
        read(tmp_path / "a.csv", Item)
    with pytest.raises(ms.FlowUsageError, match="types has 'cents', which is no field"):
        ms.files.csv("a.csv", types=Item, header=["name"])
    with pytest.raises(ms.FlowUsageError, match="types needs the names of the fields"):
        ms.files.csv("a.csv", types=Item, header=False)  # type: ignore[call-overload]
