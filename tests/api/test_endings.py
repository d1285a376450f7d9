"""What is reported of a run: keys that never matched, failures that are not waited for, results that come at
the end; and sources that are closed."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import millstream as ms
import pytest
from millstream import testing


def messages(caplog: pytest.LogCaptureFixture, part: str) -> list[str]:
    return [record.getMessage() for record in caplog.records if part in record.getMessage()]


def until(check: Callable[[], Any]) -> Any:
    """Waits for a true result."""
    woken = threading.Event()
    for _ in range(6000):
        if found := check():
            return found
        woken.wait(0.01)
    raise AssertionError("it has not come")


# Keys of a join.

Streams = Callable[[ms.KeyedStream, ms.KeyedStream], Any]
JOINS: dict[str, Streams] = {
    "latest": lambda left, right: left.join("pairs", right),
    "full": lambda left, right: left.join("pairs", right, how="full"),
    "within": lambda left, right: left.join("pairs", right, within=5),
    "by key": lambda left, right: left.join("pairs", right, watermark="key", lateness=3),
    "lookup": lambda left, right: left.lookup("pairs", right),
    "window": lambda left, right: left.join("pairs", right, window=ms.windows.tumbling(10)),
    "window by key": lambda left, right: left.join(
        "pairs", right, window=ms.windows.session(10), watermark="key", lateness=3
    ),
}


def joined(use: Streams, lefts: list[Any], rights: list[Any], workers: int = 1, **options: Any) -> list[Any]:
    flow = ms.Flow("f")
    out = testing.collect()

    def stream(name: str, keys: list[Any]) -> ms.KeyedStream:
        items = flow.source(name, testing.items(list(enumerate(keys)), 1)).event_time(lambda item: item[0])
        return items.key_by(lambda item: item[1])

    use(stream("left", lefts), stream("right", rights)).sink("out", out)
    ms.run(flow, workers=workers, **options)
    return list(out)


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("kind", JOINS)
def test_keys_that_are_never_equal_are_reported_once(
    kind: str, workers: int, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="millstream"):
        joined(JOINS[kind], ["1", "2", "3"], [1, 2, True, 3], workers)
    (said,) = messages(caplog, "never equal")
    assert said == (
        'join "pairs": no value has met one of the other stream: the keys of its left stream are str, those '
        "of its right one int, and these are never equal; convert one of them in key_by"
    )


SILENT: dict[str, tuple[list[Any], list[Any]]] = {
    "they met": ([1, 2], [2, 3]),
    "none has met": (["a"], ["b"]),
    "one has both types": (["a", 1], [2]),
    "one is empty": (["a"], []),
    "a bool is a number": ([True], [0]),
    "after others": (["a", "b", 1], [1]),
}


@pytest.mark.parametrize("case", SILENT)
def test_other_keys_are_no_mistake(case: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="millstream"):
        joined(JOINS["full"], *SILENT[case])
        joined(JOINS["full"], *SILENT[case], workers=2)
    assert messages(caplog, "never equal") == []


def test_each_run_says_it(caplog: pytest.LogCaptureFixture) -> None:
    flow = ms.Flow("f")
    left, right = (
        flow.source(str(kind), testing.items([1])).key_by(kind) for kind in (lambda n: "a", lambda n: 1)
    )
    left.join("pairs", right).sink("out", testing.discard())
    with caplog.at_level(logging.WARNING, logger="millstream"):
        ms.run(flow)
        ms.run(flow)
    assert len(messages(caplog, "never equal")) == 2


def test_the_late_values_of_a_join_are_one_stream() -> None:
    for window in (None, ms.windows.tumbling(3)):
        flow = ms.Flow("f")
        one, two = (
            flow.source(name, testing.items([1])).event_time(float).key_by(str) for name in ("one", "two")
        )
        joined = one.join("pairs", two, window=window) if window else one.join("pairs", two)
        assert joined.late is joined.late
        joined.late.sink("late", testing.discard())
        before = flow.describe()
        assert joined.late is joined.late and flow.describe() == before


# Partitions of sources.


class Closing(ms.Source[int]):
    def __init__(self, names: list[str], numbers: list[int], fails: bool = False) -> None:
        self.names = names
        self.numbers = numbers
        self.fails = fails
        self.opened: list[str] = []
        self.closed: list[str] = []

    def partitions(self, workers: int) -> list[str]:
        return self.names

    def open(self, partition: str, position: Any) -> Any:
        self.opened.append(partition)
        return Part(self, partition)


class Part:
    def __init__(self, source: Closing, name: str) -> None:
        self.source, self.name, self.left = source, name, list(source.numbers)

    def next_batch(self) -> list[int] | None:
        if not self.left and self.source.fails:
            raise OSError("the device is gone")
        return [self.left.pop()] if self.left else None

    def next_awake(self) -> None:
        return None

    def position(self) -> int:
        return len(self.left)

    def close(self) -> None:
        self.source.closed.append(self.name)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("saved", [False, True])
def test_each_partition_is_closed_once(saved: bool, workers: int, tmp_path: Path) -> None:
    source = Closing(["a", "b", "c"], [1, 2])
    flow = ms.Flow("f")
    flow.source("in", source).sink("out", testing.discard())
    ms.run(flow, workers=workers, **({"state": tmp_path, "epoch": 0.0} if saved else {}))
    assert sorted(source.closed) == sorted(source.opened) == ["a", "b", "c"]


FAILURES: dict[str, Callable[[ms.Stream, Closing], Any]] = {
    "of a step": lambda items, source: items.map(lambda n: n // 0),
    "of the source": lambda items, source: items,
}


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("failure", FAILURES)
def test_partitions_are_closed_after_a_failure(failure: str, workers: int) -> None:
    source = Closing(["a", "b"], [1, 2], fails=failure == "of the source")
    flow = ms.Flow("f")
    FAILURES[failure](flow.source("in", source), source).sink("out", testing.discard())
    with pytest.raises(ms.StepError):
        ms.run(flow, workers=workers)
    assert sorted(source.closed) == sorted(source.opened)


def test_partitions_are_closed_after_a_stop() -> None:
    source = Closing(["a"], [1] * 10_000)
    flow = ms.Flow("f")
    seen = threading.Event()
    flow.source("in", source).inspect(lambda n: seen.set()).sink("out", testing.discard())
    with flow.start():
        assert seen.wait(60)
    assert source.closed == ["a"]


# Failures of flows that were started.


def failing() -> ms.Flow:
    flow = ms.Flow("failing")
    flow.source("in", testing.items([1])).map(lambda n: n // 0, name="divide").sink("out", testing.discard())
    return flow


def test_a_failure_that_is_not_waited_for_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    running = failing().start()
    (said,) = until(lambda: messages(caplog, "has failed"))
    assert said.startswith(
        'flow "failing" has failed, which wait() raises: step "divide", item 1: ZeroDivisionError'
    )
    with pytest.raises(ms.StepError):
        running.wait()


def test_one_that_is_waited_for_is_raised_alone(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ms.StepError):
        failing().start().wait()
    # The one that is logged was started later.
    later = failing().start()
    until(lambda: messages(caplog, "has failed"))
    assert len(messages(caplog, "has failed")) == 1 and later.has_ended


# Results at the end.

AT_END: dict[str, Callable[[Any], Any]] = {
    "count": lambda keyed: keyed.count(name="step"),
    "sum": lambda keyed: keyed.sum(name="step"),
    "max": lambda keyed: keyed.max(name="step"),
    "mean": lambda keyed: keyed.mean(name="step"),
    "fold": lambda keyed: keyed.fold("step", int, lambda total, n: total + n),
    "reduce": lambda keyed: keyed.reduce("step", lambda a, b: a + b),
    "agg": lambda keyed: keyed.agg(n=ms.count(), name="step"),
}
IN_BETWEEN: dict[str, Callable[[Any], Any]] = {
    "count": lambda keyed: keyed.count(name="step", emit="each"),
    "agg": lambda keyed: keyed.agg(n=ms.count(), name="step", emit="each"),
    "stateful": lambda keyed: keyed.stateful("step", lambda state, n: n, state=list),
}


def waited(
    use: Callable[[Any], Any], caplog: pytest.LogCaptureFixture, seconds: float, workers: int
) -> list[str]:
    """What is reported of a step whose values have come for so many seconds."""
    clock = testing.clock(0)
    script = [
        1,
        2,
        testing.advance(clock, seconds / 2),
        3,
        testing.advance(clock, seconds / 2),
        testing.pause(0.2),
    ]
    flow = ms.Flow("f")
    # The keys of a worker alone: it is not the first one that has values.
    for name in ("a", "b"):
        keyed = flow.source(name, testing.items(script if name == "a" else [])).key_by(lambda n: f"{n}")
        if name == "a":
            use(keyed).sink("out", testing.discard())
        else:
            keyed.sink("other", testing.discard())
    with caplog.at_level(logging.INFO, logger="millstream"):
        ms.run(flow, workers=workers, clock=clock)
    return messages(caplog, "when all input has ended")


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("verb", AT_END)
def test_a_step_that_emits_at_the_end_says_so_once(
    verb: str, workers: int, caplog: pytest.LogCaptureFixture
) -> None:
    (said,) = waited(AT_END[verb], caplog, 12, workers)
    assert (
        said.startswith('step "step": it emits its results when all input has ended')
        and 'emit="each"' in said
    )


@pytest.mark.parametrize("verb", AT_END)
def test_it_says_nothing_of_a_short_run(verb: str, caplog: pytest.LogCaptureFixture) -> None:
    assert waited(AT_END[verb], caplog, 8, 1) == []


@pytest.mark.parametrize("verb", IN_BETWEEN)
def test_others_say_nothing(verb: str, caplog: pytest.LogCaptureFixture) -> None:
    assert waited(IN_BETWEEN[verb], caplog, 60, 1) == []
