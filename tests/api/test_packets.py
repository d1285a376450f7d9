"""Batches of Python objects as bytes, as they travel between processes.

Every item arrives unchanged, and an item that cannot be sent is an error with its step and key.

The tests of flows also run in this form as a whole: ``MILLSTREAM_PACKETS=bytes``.
"""

import dataclasses
import datetime
import decimal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import millstream as ms
import pytest


@dataclasses.dataclass(frozen=True)
class Order:
    symbol: str
    price: decimal.Decimal
    tags: tuple[str, ...] = ()


ITEMS: list[Any] = [
    None,
    0,
    -(2**70),
    1.5,
    "größe",
    b"\0\xff",
    (1, [2, {"three": 3}]),
    {"nested": {1, 2}},
    datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.timezone.utc),
    Order("VOD.L", decimal.Decimal("72.50"), ("new",)),
]


@pytest.fixture(params=["memory", "bytes"])
def packets(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("MILLSTREAM_PACKETS", request.param)
    return str(request.param)


def keep(state: None, item: Any) -> tuple[None, Any]:
    return state, item


@pytest.mark.parametrize("workers", [1, 2])
def test_every_item_crosses_an_exchange_unchanged(packets: str, workers: int) -> None:
    flow = ms.Flow("items")
    out = ms.testing.collect()
    numbered = flow.source("in", ms.testing.items(list(enumerate(ITEMS))))
    numbered.key_by(lambda item: item[0]).stateful_map("keep", keep).sink("out", out)
    ms.run(flow, workers=workers)
    assert sorted(out, key=lambda pair: pair[0]) == [(n, (n, item)) for n, item in enumerate(ITEMS)]


def test_items_are_copied_only_as_bytes(packets: str) -> None:
    item = ["one object"]
    flow = ms.Flow("identity")
    out = ms.testing.collect()
    flow.source("in", ms.testing.items([item])).key_by(len).stateful_map("keep", keep).sink("out", out)
    ms.run(flow)
    [(_, received)] = out
    assert received == item and (received is item) == (packets == "memory")


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (lambda: (n for n in ()), "cannot pickle 'generator' object"),
        (lambda: lambda: None, "lambda"),
    ],
)
def test_an_item_that_cannot_be_sent_names_step_and_key(
    packets: str, bad: Callable[[], Any], says: str
) -> None:
    flow = ms.Flow("bad")
    out = ms.testing.collect()
    texts = flow.source("in", ms.testing.items(["a", "b"]))
    made = texts.map(lambda text: (text, bad() if text == "b" else 1))
    kept = made.key_by(lambda item: item[0]).stateful_map("keep", keep)
    kept.map(lambda item: item[0]).sink("out", out)
    if packets == "memory":
        ms.run(flow)
        assert sorted(out) == [("a", "a"), ("b", "b")]
        return
    with pytest.raises(ms.StepError, match=says) as raised:
        ms.run(flow)
    assert (raised.value.step, raised.value.key) == ("key_by-2", "'b'")


def test_an_unknown_form_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MILLSTREAM_PACKETS", "byte")
    flow = ms.Flow("items")
    flow.source("in", ms.testing.items([1])).sink("out", ms.testing.collect())
    with pytest.raises(ms.FlowUsageError, match='MILLSTREAM_PACKETS is "byte"'):
        ms.run(flow)
