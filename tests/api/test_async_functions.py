"""Asyncio functions, which steps do not wait for: refused when the flow is described."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any
from unittest import mock

import millstream as ms
import pytest
from millstream import testing


async def ask(*values: Any) -> Any:
    return values


async def several(*values: Any) -> AsyncIterator[Any]:
    yield values


class Asks:
    async def __call__(self, *values: Any) -> Any:
        return values


FUNCTIONS = {
    "function": ask,
    "generator": several,
    "partial": partial(ask, 1),
    "object": Asks(),
    "method": Asks().__call__,
}


def stream() -> Any:
    return ms.Flow("f").source("in", testing.items([1]))


def keyed() -> Any:
    return stream().event_time(float).key_by(str)


def windows() -> Any:
    return keyed().window("w", ms.windows.tumbling(3))


USES: dict[str, Callable[[Any], Any]] = {
    **{
        f"{verb} of {kind.__name__}": (lambda f, kind=kind, verb=verb: getattr(kind(), verb)(f))  # type: ignore[misc]
        for kind in (stream, keyed)
        for verb in (
            "map",
            "filter",
            "flat_map",
            "filter_map",
            "inspect",
            "map_batch",
            "branch",
            "enrich_cached",
        )
    },
    "key_by": lambda f: stream().key_by(f),
    "event_time": lambda f: stream().event_time(f),
    "event_clock": lambda f: stream().event_clock(f),
    "stateful": lambda f: keyed().stateful("s", f, state=dict),
    "stateful_map": lambda f: keyed().stateful_map("s", f, state=int),
    "stateful_batch": lambda f: keyed().stateful_batch("s", f, state=dict),
    "fold": lambda f: keyed().fold("s", int, f),
    "init of fold": lambda f: keyed().fold("s", f, lambda acc, value: acc),
    "reduce": lambda f: keyed().reduce("s", f),
    "sum": lambda f: keyed().sum(f),
    "agg": lambda f: keyed().agg(n=ms.top(3, by=f)),
    "reduce of windows": lambda f: windows().reduce(f),
    "fold of windows": lambda f: windows().fold(int, f),
    "result of aggregate": lambda f: windows().aggregate(int, lambda acc, value: acc, result=f),
    "max of windows": lambda f: windows().max(f),
}


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("use", USES)
def test_no_step_takes_one(use: str, function: str) -> None:
    with pytest.raises(
        ms.FlowUsageError, match="does not wait for it, and .* is async: map_async calls such"
    ):
        USES[use](FUNCTIONS[function])


class Mock7:
    def __getattr__(self, name: str) -> Any:
        return self

    def __call__(self, value: int) -> int:
        return 7


class Logic:
    def on_item(self, key: str, value: int) -> None: ...

    async def on_end(self, key: str) -> None: ...


class OnItem:
    async def on_item(self, key: str, value: int) -> list[int]:
        return [value]


class OnTimer:
    def on_item(self, key: str, value: int, ctx: ms.KeyContext) -> None: ...

    async def on_timer(self, key: str, at: float, ctx: ms.KeyContext) -> None: ...


class OnBatch:
    async def on_batch(self, key: str, values: list[int]) -> list[int]:
        return values


@pytest.mark.parametrize(
    ("verb", "logic", "method"),
    [
        ("stateful", Logic, "on_end"),
        ("stateful", OnItem, "on_item"),
        ("stateful", OnTimer, "on_timer"),
        ("stateful_batch", OnBatch, "on_batch"),
    ],
)
def test_no_method_of_a_logic_is_one(verb: str, logic: Any, method: str) -> None:
    says = f"{logic.__name__}.{method} is async, .* map_async before this step"
    with pytest.raises(ms.FlowUsageError, match=says):
        getattr(keyed(), verb)("s", logic)
    made = getattr(keyed(), verb)("s", lambda: logic())
    assert made  # which class a function makes is known at the first value


def test_an_object_that_a_function_makes_is_refused_at_its_first_value() -> None:
    flow = ms.Flow("f")
    out = testing.collect()
    flow.source("in", testing.items([1])).key_by(str).stateful("s", lambda: OnItem()).sink("out", out)
    with pytest.raises(ms.FlowError, match="OnItem.on_item is async"):
        ms.run(flow)


def test_objects_with_any_attribute_are_functions() -> None:
    for made in (mock.Mock(return_value=7), mock.MagicMock(return_value=7), type("Odd", (Mock7,), {})()):
        flow = ms.Flow("f")
        out = testing.collect()
        flow.source("in", testing.items([1])).map(made).sink("out", out)
        ms.run(flow)
        assert out == [7]
    with pytest.raises(ms.FlowUsageError, match="is async"):
        stream().map(mock.AsyncMock())


def test_map_async_takes_them() -> None:
    flow = ms.Flow("f")
    out = testing.collect()
    flow.source("in", testing.items([1])).map_async(Asks()).sink("out", out)
    ms.run(flow)
    assert out == [(1,)]
