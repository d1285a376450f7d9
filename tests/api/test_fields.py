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
    flow = ms.Flow("f")
    out = testing.collect()
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
    table = tmp_path / "a.csv"
    lines = tmp_path / "a.jsonl"
    table.write_text("user,v\nann,1\nbob,2\nann,3\n")
    lines.write_text('{"user": "ann"}\n{"user": "bob"}\n{"user": "ann"}\n')
    for kind in ("csv", "json"):
        flow = ms.Flow("f")
        out = testing.collect()
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


class Trade(ms.Record, format="<dI"):
    at: float
    cents: int


@dataclass
class Sale:
    at: float
    cents: int


KINDS: dict[str, Any] = {
    "mappings": lambda at, cents: {"at": at, "cents": cents},
    "objects": Sale,
    "records": Trade.pack,
}
SALES = [(1.0, 30), (12.0, 5), (3.0, 4), (14.0, 7)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("on_error", ["fail", "skip"])
@pytest.mark.parametrize("ordered", [False, True])
def test_times_and_aggregates_of_windows_by_field(kind: str, on_error: Any, ordered: bool) -> None:
    sales = [KINDS[kind](*sale) for sale in SALES]
    expected = {"sum": [34, 12], "min": [4, 5], "max": [30, 7], "mean": [17.0, 6.0]}
    for verb, values in expected.items():
        flow = ms.Flow("f")
        out = testing.collect()
        timed = flow.source("in", testing.items(sales)).event_time("at", lateness=20, on_error=on_error)
        tens = timed.key_by(lambda sale: "all").window(
            "w", ms.windows.tumbling(10), on_error=on_error, ordered=ordered
        )
        made = getattr(tens, verb)("cents")
        made.values().map(lambda ten: (ten.start, ten.value)).sink("out", out)
        ms.run(flow)
        assert out == list(zip([0, 10], values, strict=True)), verb


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("on_error", ["fail", "skip"])
@pytest.mark.parametrize("emit", ["end", "each"])
def test_aggregates_of_keys_by_field(kind: str, on_error: Any, emit: Any) -> None:
    sales = [KINDS[kind](*sale) for sale in SALES]
    expected: dict[str, list[float]] = {
        "sum": [30, 35, 39, 46],
        "min": [30, 5, 4, 4],
        "max": [30, 30, 30, 30],
        "mean": [30, 17.5, 13, 11.5],
    }
    for verb, values in expected.items():
        flow = ms.Flow("f")
        out = testing.collect()
        keyed = flow.source("in", testing.items(sales)).key_by(lambda sale: "all")
        getattr(keyed, verb)("cents", emit=emit, on_error=on_error).values().sink("out", out)
        ms.run(flow)
        assert out == (values if emit == "each" else values[-1:]), verb


USES: dict[str, Any] = {
    "event_time": lambda items, on_error: items.event_time("usr", on_error=on_error),
    "enrich_cached": lambda items, on_error: items.enrich_cached(str, key="usr", on_error=on_error),
    "sum": lambda items, on_error: items.key_by(str).sum("usr", on_error=on_error).values(),
    "max": lambda items, on_error: items.key_by(str).max("usr", on_error=on_error).values(),
    "agg": lambda items, on_error: items.key_by(str).agg(n=ms.sum("usr"), on_error=on_error).values(),
    **{
        f"{verb} of windows": lambda items, on_error, verb=verb: getattr(
            items.key_by(str).window("w", ms.windows.count(2), on_error=on_error), verb
        )("usr").values()
        for verb in ("sum", "min", "max", "mean")
    },
}


@pytest.mark.parametrize("use", USES)
def test_each_verb_lists_the_fields_that_there_are(use: str) -> None:
    def run(on_error: Any) -> list[Any]:
        flow = ms.Flow("f")
        out = testing.collect()
        USES[use](flow.source("in", testing.items([{"user": "ann", "v": 1}])), on_error).sink("out", out)
        ms.run(flow)
        return list(out)

    with pytest.raises(ms.StepError, match="the dict has no field 'usr', but 'user', 'v'"):
        run("fail")
    dead = testing.collect()
    run(ms.dead_letter(dead))
    assert [letter.item for letter in dead] == [{"user": "ann", "v": 1}]


@pytest.mark.parametrize("verb", ["event_time", "key_by"])
def test_neither_a_function_nor_a_field(verb: str) -> None:
    items = ms.Flow("f").source("in", testing.items([1]))
    with pytest.raises(ms.FlowUsageError, match=f"{verb} takes a function or the name of a field, not 3"):
        getattr(items, verb)(3)


def test_late_values_and_dead_letters_are_complete() -> None:
    flow = ms.Flow("f")
    out = testing.collect()
    late = testing.collect()
    dead = testing.collect()
    sales = [{"at": 1, "cents": 3}, {"at": 2, "cents": "4"}, {"at": 30, "cents": 5}, {"at": 4, "cents": 6}]
    timed = flow.source("in", testing.items(sales)).event_time("at").key_by(lambda sale: "all")
    sums = timed.window("w", ms.windows.tumbling(10), on_error=ms.dead_letter(dead)).sum("cents")
    sums.values().map(lambda ten: ten.value).sink("out", out)
    sums.late.values().sink("late", late)
    ms.run(flow)
    assert (out, late, [letter.item for letter in dead]) == ([3, 5], [sales[3]], [sales[1]])


def test_items_whose_field_was_seen_before() -> None:
    @ms.source(dedupe=ms.Dedupe("id"))
    def messages() -> Any:
        yield from ({"id": 1}, {"id": 2}, {"id": 1})

    flow = ms.Flow("f")
    out = testing.collect()
    flow.source("in", messages).sink("out", out)
    ms.run(flow)
    assert out == [{"id": 1}, {"id": 2}]
