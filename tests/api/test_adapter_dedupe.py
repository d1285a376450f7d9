"""Generator sources that drop items which came before."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import millstream as ms
import pytest


def run(source: Any, **options: Any) -> list[Any]:
    flow = ms.Flow("dedupe")
    out = ms.testing.collect()
    flow.source("in", source).sink("out", out)
    ms.run(flow, **options)
    return list(out)


def numbers(dedupe: ms.Dedupe, *items: int, **options: Any) -> Any:
    @ms.source(dedupe=dedupe, **options)
    def some() -> Iterator[int]:
        yield from items

    return some


def identity(number: int) -> int:
    return number


def test_a_key_is_remembered_until_count_others_have_come() -> None:
    assert run(numbers(ms.Dedupe(identity, count=2), 1, 2, 1, 3, 2, 1, 1)) == [1, 2, 3, 1]


def test_a_key_is_remembered_within_a_time() -> None:
    clock = ms.testing.clock(0.0)

    @ms.source(dedupe=ms.Dedupe(identity, within=10), batches=True, buffer=1)
    def some() -> Iterator[list[int]]:
        yield [1, 1]
        yield [2]
        yield [1, 2, 3]

    def advance(number: int) -> int:
        if number == 2:
            clock.advance(timedelta(seconds=10))
        return number

    flow = ms.Flow("dedupe")
    out = ms.testing.collect()
    flow.source("in", some, batch_size=1).map(advance).sink("out", out)
    ms.run(flow, clock=clock)
    assert list(out) == [1, 2, 1, 2, 3]


@pytest.mark.parametrize("durable", [True, False])
def test_keys_are_remembered_over_restarts(durable: bool, tmp_path: Path) -> None:
    dedupe = ms.Dedupe(identity)

    @ms.source(dedupe=dedupe, durable=durable, resume=True)
    def some(items: list[int], resume: int | None = None) -> Iterator[ms.At[int]]:
        for number in items:
            yield ms.At(number, number)

    out = tmp_path / "out"
    for items in ([1, 2, 3], [3, 2, 4]):
        flow = ms.Flow("dedupe")
        flow.source("in", some(items)).map(str).sink("out", ms.files.write(out))
        ms.run(flow, state=tmp_path / "state")
    assert out.read_text().split() == ["1", "2", "3", "4"]


def test_partitions_share_the_keys_and_keep_their_order() -> None:
    @ms.source(dedupe=ms.Dedupe(identity), partitions=["a", "b"])
    def some(partition: str) -> Iterator[int]:
        yield from range(1000)

    assert run(some, workers=2) == list(range(1000))


def test_durable_by_method_keeps_the_option(tmp_path: Path) -> None:
    source = numbers(ms.Dedupe(identity), 1, 1).durable()
    assert run(source, state=tmp_path / "state") == [1]
    assert (tmp_path / "state" / "inputs" / "in").is_dir()


def test_wrong_options() -> None:
    with pytest.raises(ms.FlowUsageError, match="key is a function or a text"):
        ms.Dedupe(3)  # type: ignore[arg-type]
    with pytest.raises(ms.FlowUsageError, match="1 or more"):
        ms.Dedupe(identity, count=0)
    with pytest.raises(ms.FlowUsageError, match="within"):
        ms.Dedupe(identity, within=-1)
    with pytest.raises(ms.FlowUsageError, match=r"dedupe is a ms\.Dedupe"):
        ms.source(dedupe=identity)  # type: ignore[call-overload]
