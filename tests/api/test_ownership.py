"""Ownership of objects: outputs do not change once they are emitted; an accumulator belongs to one window."""

from __future__ import annotations

from collections import Counter
from typing import Any

import millstream as ms
import pytest
from millstream import testing

WORDS = ["a", "b", "a", "c", "a"]


def counted(counts: dict[str, int], word: str) -> dict[str, int]:
    counts[word] = counts.get(word, 0) + 1
    return counts


def appended(words: list[str], word: str) -> list[str]:
    words.append(word)
    return words


def as_a_set(words: set[str], word: str) -> set[str]:
    words.add(word)
    return words


STATES: dict[str, Any] = {
    "stateful": lambda s, e: s.stateful("step", counted, state=dict, on_error=e),
    "stateful with a life": lambda s, e: s.stateful("step", counted, state=Counter, ttl=100, on_error=e),
    "stateful_map": lambda s, e: s.stateful_map(
        "step", lambda words, word: (appended(words, word),) * 2, state=list, on_error=e
    ),
    "fold": lambda s, e: s.fold("step", set, as_a_set, emit="each", on_error=e),
    "reduce": lambda s, e: s.map(lambda word: [word]).reduce(
        "step", lambda a, b: a.extend(b) or a, emit="each", on_error=e
    ),
}


@pytest.mark.parametrize("on_error", ["fail", "skip"])
@pytest.mark.parametrize("verb", STATES)
def test_a_state_that_is_returned_does_not_change_in_the_output(verb: str, on_error: str) -> None:
    seen = []
    for batch in (1, 2, 10):
        flow = ms.Flow("states")
        out = testing.collect()
        keyed = flow.source("in", testing.items(WORDS, batch)).key_by(lambda word: "all")
        STATES[verb](keyed, on_error).values().sink("out", out)
        ms.run(flow)
        seen.append(list(out))
    assert seen[0] == seen[1] == seen[2]
    assert [len(value) for value in seen[0]] in ([1, 2, 2, 3, 3], [1, 2, 3, 4, 5])


def test_the_first_value_of_reduce_keeps_its_content_for_other_readers() -> None:
    flow = ms.Flow("readers")
    sums = testing.collect()
    items = testing.collect()
    lists = flow.source("in", testing.items([1, 2, 3])).map(lambda n: [n])
    lists.key_by(lambda _: 0).reduce("sum", lambda a, b: a.extend(b) or a).values().sink("sums", sums)
    lists.sink("items", items)
    ms.run(flow)
    assert sums == [[1, 2, 3]] and items == [[1], [2], [3]]


def updated(a: Counter[str], b: Counter[str]) -> Counter[str]:
    a.update(b)
    return a


def either(a: Counter[str], b: Counter[str]) -> Counter[str]:
    return updated(a, b) if a else b


class Twice:
    """Each item is in two windows, like those that slide."""

    def windows(self, time: float) -> list[tuple[float, float]]:
        start = time // 2 * 2
        return [(start - 2, start + 2), (start, start + 4)]


@pytest.mark.parametrize("options", [{}, {"ordered": True}, {"watermark": "key"}, {"early": 2}])
@pytest.mark.parametrize("window", [ms.windows.sliding(4, every=2), Twice(), ms.windows.session(1)])
def test_an_accumulator_belongs_to_one_window(window: Any, options: dict[str, Any]) -> None:
    """Functions that change their first argument have the results of those that make a new one."""
    aggregates = [
        lambda w: w.reduce(updated),
        lambda w: w.fold(Counter, updated, merge=either),
        lambda w: w.fold(Counter, either, merge=either),
        lambda w: w.reduce(lambda a, b: a + b),
    ]
    results = []
    for aggregate in aggregates:
        flow = ms.Flow("windows")
        out = testing.collect()
        timed = flow.source("in", testing.items([0, 1, 2, 3, 4, 5, 9, 10, 11])).event_time(float)
        keyed = timed.key_by(lambda _: "k").map(lambda time: Counter({"x": 1, f"at {time}": 1}))
        windows = keyed.window("windows", window, **options)
        aggregate(windows).values().sink("out", out)
        ms.run(flow)
        results.append(sorted((w.start, w.end, w.early, sorted(w.value.items())) for w in out))
    assert results[0] == results[1] == results[2] == results[3]


def number(total: int, text: str) -> int:
    return total + int(text)


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize(
    "window",
    [ms.windows.tumbling(10), ms.windows.sliding(10, every=5), ms.windows.session(2), ms.windows.count(1)],
)
def test_a_window_whose_only_value_was_refused_is_not_emitted(window: Any, ordered: bool) -> None:
    flow = ms.Flow("nothing")
    out = testing.collect()
    bad = testing.collect()
    timed = flow.source("in", testing.items([(1, "5"), (11, "x"), (25, "7")])).event_time(
        lambda item: item[0]
    )
    texts = timed.key_by(lambda _: "k").map(lambda item: item[1])
    windows = texts.window("w", window, on_error=ms.dead_letter(bad), ordered=ordered)
    windows.fold(int, number, merge=lambda a, b: a + b).values().map(lambda w: w.value).sink("out", out)
    ms.run(flow)
    assert set(out) == {5, 7}
    assert {(letter.key, letter.item) for letter in bad} == {("k", "x")}


@pytest.mark.parametrize("early", [None, 1])
def test_a_value_that_fails_in_order_does_not_fail_its_window(early: int | None) -> None:
    flow = ms.Flow("order")
    out = testing.collect()
    bad = testing.collect()
    items = [(3, "3"), (1, "x"), (2, "2"), (5, "y"), (12, "4")]
    timed = flow.source("in", testing.items(items)).event_time(lambda item: item[0], lateness=5)
    texts = timed.key_by(lambda _: "k").map(lambda item: item[1])
    windows = texts.window(
        "w", ms.windows.tumbling(10), on_error=ms.dead_letter(bad), ordered=True, early=early
    )
    windows.fold(int, number).values().filter(lambda w: not w.early).map(lambda w: w.value).sink("out", out)
    ms.run(flow)
    assert out == [5, 4] and [letter.item for letter in bad] == ["x", "y"]


def test_a_value_that_fails_in_order_is_named_by_the_error() -> None:
    flow = ms.Flow("order")
    out = testing.collect()
    timed = flow.source("in", testing.items([1, 2])).event_time(float)
    windows = timed.key_by(lambda _: "k").window("w", ms.windows.tumbling(10), ordered=True)
    windows.fold(int, lambda total, n: total + 1 // (n - 2)).sink("out", out)
    with pytest.raises(ms.StepError, match="division") as raised:
        ms.run(flow)
    assert (raised.value.key, raised.value.item) == ("'k'", "2")


class Keeps:
    """A logic class that returns its own list."""

    def __init__(self) -> None:
        self.items: list[int] = []

    def on_item(self, key: str, item: int) -> list[list[int]]:
        self.items.append(item)
        return [self.items]


def priced(order: dict[str, int]) -> dict[str, int]:
    order["price"] *= 100
    return order


def changing(flow: ms.Flow) -> None:
    orders = flow.source("in", testing.items([]))
    orders.map(priced).sink("cents", testing.collect())
    orders.map(lambda order: order["price"]).sink("out", testing.collect())


def keeping(flow: ms.Flow) -> None:
    items = flow.source("in", testing.items([])).key_by(lambda item: "k")
    items.stateful("all", Keeps).values().sink("out", testing.collect())


def reading(flow: ms.Flow) -> None:
    orders = flow.source("in", testing.items([]))
    orders.map(lambda order: {**order, "price": order["price"] * 100}).sink("cents", testing.collect())
    orders.key_by("item").fold("totals", dict, lambda total, order: {**total, **order}, emit="each").sink(
        "out", testing.collect()
    )


ORDERS = [{"item": 1, "price": 3}, {"item": 2, "price": 5}, {"item": 1, "price": 4}]


@pytest.mark.parametrize("batch_size", [1, 10])
def test_copies_show_what_two_owners_change(batch_size: int) -> None:
    for build, items, said in (
        (changing, ORDERS, 'output "out": item 0 is 300 and was 3'),
        (keeping, [1, 2, 3], r'output "out": item 0 is \[1, 2, 3\] and was \[1\]'),
    ):
        flow = ms.Flow("shared")
        build(flow)
        script = testing.items([dict(x) if isinstance(x, dict) else x for x in items], batch_size=batch_size)
        with pytest.raises(AssertionError, match=f"copies of the items change the results: {said}"):
            testing.copy_everywhere(flow, {"in": script})


@pytest.mark.parametrize("workers", [1, 2])
def test_a_flow_whose_items_have_one_owner_is_the_same_with_copies(workers: int) -> None:
    flow = ms.Flow("owned")
    reading(flow)
    found = testing.copy_everywhere(flow, {"in": [dict(order) for order in ORDERS]}, workers=workers)
    assert sorted(item["price"] for item in found["cents"]) == [300, 400, 500]


def test_an_item_that_cannot_be_copied_is_named() -> None:
    flow = ms.Flow("unpicklable")
    flow.source("in", testing.items([])).map(lambda n: (n, lambda: n), name="made").sink(
        "out", testing.collect()
    )
    with pytest.raises(ms.StepError, match="made"):
        testing.copy_everywhere(flow, {"in": [1]})
