"""Sources of different speeds, partitions that are all idle, and clocks that were wrong."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import millstream as ms
import pytest


def leads(build: Callable[[ms.Stream[int], ms.Stream[int]], None], count: int = 6000) -> int:
    """How many items the source of large batches is ahead of the other at most."""
    flow = ms.Flow("leads")
    read = {"fast": 0, "slow": 0}
    most = 0

    def counted(name: str) -> Callable[[int], None]:
        def count_one(item: int) -> None:
            nonlocal most
            read[name] += 1
            most = max(most, read["fast"] - read["slow"])

        return count_one

    fast = flow.source("fast", ms.testing.items(range(count), batch_size=500)).inspect(counted("fast"))
    slow = flow.source("slow", ms.testing.items(range(count), batch_size=1)).inspect(counted("slow"))
    build(fast, slow)
    ms.run(flow)
    assert read == {"fast": count, "slow": count}
    return most


def test_sources_that_are_joined_are_read_by_time() -> None:
    """A backfill of one does not fill the memory with what waits for the other."""
    pairs = ms.testing.collect()

    def joined(fast: ms.Stream[int], slow: ms.Stream[int]) -> None:
        one, other = (stream.event_time(float).key_by(lambda n: n % 7) for stream in (fast, slow))
        one.join("j", other, within=0.5).values().sink("out", pairs)

    def apart(fast: ms.Stream[int], slow: ms.Stream[int]) -> None:
        for name, stream in (("a", fast), ("b", slow)):
            stream.event_time(float).key_by(lambda n: n % 7).count("each", name=name).sink(
                f"{name} out", ms.testing.discard()
            )

    assert leads(joined) < 2000 < leads(apart)
    assert sorted(pairs) == [(n, n) for n in range(6000)]


def test_a_time_far_ahead_does_not_stop_its_source() -> None:
    flow = ms.Flow("ahead")
    out = ms.testing.collect()
    fast = flow.source("fast", ms.testing.items([10**9, *range(2000)], batch_size=1))
    slow = flow.source("slow", ms.testing.items(range(200_000), batch_size=100))
    seen: list[int] = []
    one = fast.inspect(seen.append).event_time(float, lateness=10**9).key_by(lambda n: "k")
    marked: list[int] = []

    def mark(n: int) -> None:
        if n == 150_000:
            marked.append(len(seen))

    other = slow.inspect(mark).event_time(float).key_by(lambda n: "k")
    one.merge(other).window("w", ms.windows.tumbling(10**6)).count().values().sink("out", out)
    ms.run(flow)
    assert marked[0] > 1


def test_when_all_partitions_are_idle_time_is_the_latest_of_them() -> None:
    clock = ms.testing.clock(0)
    flow = ms.Flow("idle")
    out = ms.testing.collect()
    pause = ms.testing.pause(0.05)
    advance = ms.testing.advance(clock, 10)
    ahead = [1, 25, pause, advance, pause, pause, pause]
    behind = [3, pause, pause, pause, pause]
    source = flow.source("in", ms.testing.partitions(ahead, behind, batch_size=1))
    counts = (
        source.event_time(float, idle=5).key_by(lambda n: "k").window("w", ms.windows.tumbling(10)).count()
    )
    counts.values().sink("out", out)
    ms.run(flow, clock=clock)
    assert [(made.start, made.value) for made in out] == [(0, 2), (20, 1)]


class Ring:
    """Rings one second after an item by the clock of the run."""

    def on_item(self, key: str, item: int, ctx: ms.KeyContext) -> list[Any]:
        ctx.set_timer(ctx.now + 1, kind="processing")
        return []

    def on_timer(self, key: str, at: float, ctx: ms.KeyContext) -> list[Any]:
        return ["rang"]


class Words:
    """A partition of words; between two of them it waits until the clock has been seen."""

    def __init__(self, words: list[str], position: int, between: Callable[[], None]) -> None:
        self.words = words
        self.at = position
        self.between = between
        self.quiet = 0

    def next_batch(self) -> list[str] | None:
        if self.at < len(self.words):
            self.at += 1
            return [self.words[self.at - 1]]
        if self.quiet == 0:
            self.between()
        self.quiet += 1
        return None if self.quiet > 20 else []

    def next_awake(self) -> float:
        return 0.005

    def position(self) -> int:
        return self.at


class Source(ms.Source[str]):
    def __init__(self, words: list[str], between: Callable[[], None]) -> None:
        self.words = words
        self.between = between

    def open(self, partition: str, position: int | None) -> Words:
        return Words(self.words, position or 0, self.between)


@pytest.mark.parametrize("reset", [False, True])
def test_a_clock_that_was_wrong_can_be_set_back(
    reset: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    out: list[Any] = ms.testing.collect()

    def run(at: float, words: list[str], **options: Any) -> None:
        clock = ms.testing.clock(at)
        flow = ms.Flow("wrong")
        keyed = flow.source("in", Source(words, lambda: clock.set(at + 2))).key_by(str)
        keyed.stateful("ring", Ring).sink("out", out)
        ms.run(flow, state=tmp_path / "state", clock=clock, **options)

    with caplog.at_level(logging.WARNING):
        year = 365 * 86400.0
        run(1000 + year, ["a"])
        assert out == [("a", "rang")] and "ahead of the clock" not in caplog.text
        run(1000, ["a", "b"], reset_clock=reset)
        assert out == [("a", "rang"), ("b", "rang")][: 1 + reset]
        said = "the state was saved at a time" in caplog.text
        assert said is not reset
        if said:
            # The advice is followed: the timer that waited rings when the clock has come to it.
            assert (
                "start once with reset_clock=True" in caplog.text and str(tmp_path / "state") in caplog.text
            )
            run(2000, ["a", "b", "c"], reset_clock=True)
            assert out == [("a", "rang"), ("c", "rang")]


def test_reset_clock_needs_a_state() -> None:
    flow = ms.Flow("f")
    flow.source("in", ms.testing.items([1])).sink("out", ms.testing.discard())
    with pytest.raises(
        ms.FlowUsageError, match="reset_clock needs the directory that holds the state: state="
    ):
        ms.run(flow, reset_clock=True)
