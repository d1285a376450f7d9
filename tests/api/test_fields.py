"""``key_by("name")`` reads the field of a mapping, a record or an object, whatever methods its class has."""

from __future__ import annotations

import json
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import millstream as ms
import pytest
from millstream import testing


@dataclass
class Order:
    items: str
    amount: int = 1


class Quote(ms.Record, format="<4sI"):
    items: bytes
    amount: int


def keyed(items: list[Any], name: str, on_error: Any = "fail") -> list[Any]:
    flow, out = ms.Flow("f"), testing.collect()
    flow.source("in", testing.items(items)).key_by(name, on_error=on_error).count().sink("out", out)
    ms.run(flow)
    return list(out)


@pytest.mark.parametrize("on_error", ["fail", "skip"])
def test_items_of_all_kinds_in_one_batch(on_error: str) -> None:
    # A dict has a method of the name `items`.
    plain = {"items": "dict"}
    items = [
        plain,
        Order("object"),
        OrderedDict(items="ordered"),
        MappingProxyType({"items": "proxy"}),
        plain,
    ]
    counted = keyed([*items, Quote.pack(b"ABCD", 7)], "items", on_error)
    assert counted == [("dict", 2), ("object", 1), ("ordered", 1), ("proxy", 1), (b"ABCD", 1)]


def test_items_of_connectors(tmp_path: Path) -> None:
    table, lines = tmp_path / "a.csv", tmp_path / "a.jsonl"
    table.write_text("user,v\nann,1\nbob,2\nann,3\n")
    lines.write_text('{"user": "ann"}\n{"user": "bob"}\n{"user": "ann"}\n')
    for kind in ("csv", "json"):
        flow, out = ms.Flow("f"), testing.collect()
        if kind == "csv":
            rows: ms.Stream[Any] = flow.source("in", ms.files.csv(table))
        else:
            rows = flow.source("in", ms.files.lines(lines)).map(json.loads)
        rows.key_by("user").count().sink("out", out)
        ms.run(flow)
        assert out == [("ann", 2), ("bob", 1)]


WRONG: dict[str, tuple[Any, str]] = {
    "dict": ({"user": "ann", "v": 1}, "the dict has no field 'usr', but 'user', 'v'"),
    "empty dict": ({}, "the dict has no field 'usr'"),
    "many fields": (dict.fromkeys(map(str, range(30))), "'18', '19', ..."),
    "object": (Order("a"), "the Order has no field 'usr', but 'amount', 'items'"),
    "record": (Quote.pack(b"ABCD", 7), "the Quote has no field 'usr', but 'amount', 'items'"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_an_absent_field_is_an_error_that_lists_those_there_are(kind: str) -> None:
    item, says = WRONG[kind]
    with pytest.raises(ms.StepError) as raised:
        keyed([item], "usr")
    assert says in str(raised.value) and raised.value.step == "key_by-1"
    assert keyed([item], "usr", "skip") == []
