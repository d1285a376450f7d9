"""Trials: `run_all` and `crash_everywhere`, and the faults that they must find."""

from __future__ import annotations

import re
import sys
import threading
from typing import Any

import millstream as ms
import pytest

WORDS = [f"w{i * i % 7}" for i in range(24)]


def from_outside(steps: Any) -> ms.Flow:
    """A flow whose source and sink would fail if they were opened."""
    flow = ms.Flow("outside")
    words = flow.source("words", ms.tcp.connect("127.0.0.1:1", framing="lines", decode=str))
    steps(words).sink("out", ms.tcp.send_to("127.0.0.1:1", framing="lines"))
    return flow


def test_other_directories_are_untouched() -> None:
    flow = from_outside(lambda words: words.map(str.upper))
    assert ms.testing.run_all(flow, {"words": ["to", "be"]}) == {"out": ["TO", "BE"]}
    assert ms.testing.run_all(flow, {"words": [b"or"]}, workers=2) == {"out": ["OR"]}
    with pytest.raises(OSError, match="127.0.0.1:1"):
        ms.run(flow)


def test_each_sink_is_there_by_its_name_and_dead_letters_too() -> None:
    flow = ms.Flow("two")
    numbers = flow.source("in", ms.testing.items(["1", "x", "2"]))
    dead = ms.dead_letter(ms.tcp.send_to("127.0.0.1:1", "lines"))
    ints = numbers.map(int, name="int", on_error=dead)
    ints.sink("ints", ms.tcp.send_to("127.0.0.1:1", encode=lambda n: n.to_bytes(1, "big")))
    ints.map(lambda n: -n).sink("negative", [])
    outputs = ms.testing.run_all(flow)
    assert outputs["ints"] == [1, 2] and outputs["negative"] == [-1, -2]
    assert [letter.item for letter in outputs["int.dead_letters"]] == ["x"]


def test_what_is_not_in_the_flow_is_reported() -> None:
    flow = from_outside(lambda words: words)
    with pytest.raises(ms.FlowUsageError, match='no source "lines"; it has words'):
        ms.testing.run_all(flow, {"lines": []})
    with pytest.raises(ms.FlowError, match="source of bytes takes bytes, str or a Record, not int"):
        ms.testing.run_all(flow, {"words": [7]})


def test_the_flow_runs_on_the_thread_that_calls_where_a_tracer_sees_it() -> None:
    threads = []
    lines = []

    def step(word: str) -> str:
        threads.append(threading.current_thread())
        return word

    def tracer(frame: Any, event: str, argument: Any) -> Any:
        if frame.f_code is step.__code__:
            lines.append(event)
        return tracer

    flow = from_outside(lambda words: words.map(step).key_by(str).map(step))
    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        ms.testing.run_all(flow, {"words": ["to"]})
    finally:
        sys.settrace(before)
    assert threads == [threading.current_thread()] * 2
    assert lines.count("call") == 2 and "line" in lines


def test_an_exception_of_a_step_comes_out_as_from_a_run() -> None:
    flow = from_outside(lambda words: words.map(int, name="int"))
    with pytest.raises(ms.StepError) as raised:
        ms.testing.run_all(flow, {"words": ["to"]})
    assert raised.value.step == "int" and isinstance(raised.value.__cause__, ValueError)


class Longest:
    """The longest value so far, and how many there were."""

    def __init__(self) -> None:
        self.word = ""
        self.seen = 0

    def on_item(self, key: str, word: str) -> list[Any]:
        self.seen += 1
        self.word = max(self.word, word, key=len)
        return [(self.word, self.seen)]

    def on_end(self, key: str) -> list[Any]:
        return [("end", self.word)]

    def snapshot(self) -> Any:
        return self.word, self.seen

    def restore(self, saved: Any) -> None:
        self.word, self.seen = saved


class Forgetful(Longest):
    """Its snapshot leaves something out."""

    def snapshot(self) -> Any:
        return self.word, 0


class Outside(Longest):
    """Keeps what it knows where no snapshot sees it."""

    total = 0

    def on_item(self, key: str, word: str) -> list[Any]:
        Outside.total += 1
        return [Outside.total]


def trial(logic: type, **options: Any) -> int:
    flow = from_outside(lambda words: words.key_by(str).stateful("longest", logic))
    return ms.testing.crash_everywhere(flow, {"words": ms.testing.items(WORDS, batch_size=3)}, **options)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_crash_makes_no_difference_to_logic_that_saves_all(workers: int) -> None:
    # 8 batches, and three moments around each of their commits.
    assert trial(Longest, workers=workers) >= 3 * 8


def test_logic_that_forgets_something_is_found() -> None:
    with pytest.raises(AssertionError) as raised:
        trial(Forgetful)
    said = str(raised.value)
    # Which commit it is depends on when epochs began.
    assert re.match('a crash before commit . changes the results: output "out": item . is ', said), said
    assert re.search(r"\('(w.)', 1\)\) and was \('\1', \('\1', .\)\)$", said), said


def test_state_shared_with_the_program_is_found() -> None:
    with pytest.raises(AssertionError, match='a crash before commit . changes the results: output "out"'):
        trial(Outside)


class Lazy(Longest):
    """What it forgets shows in its state only."""

    def on_item(self, key: str, word: str) -> list[Any]:
        self.seen += 1
        return [word]

    def restore(self, saved: Any) -> None:
        self.word = saved[0]
        self.seen = 0


def test_state_that_differs_is_found_where_no_output_does() -> None:
    with pytest.raises(AssertionError, match='state of step "longest", key .*: it is Lazy.restore'):
        trial(Lazy)


def test_several_sources_are_compared_without_order() -> None:
    flow = ms.Flow("two")
    left, right = (flow.source(name, ms.testing.items(WORDS, batch_size=4)) for name in ("left", "right"))
    left.merge(right).key_by(str).count("each", name="count").sink("out", [])
    inputs = {"left": ms.testing.items(WORDS, batch_size=5)}
    assert ms.testing.crash_everywhere(flow, inputs) > 3 * 5


def test_the_clock_returns_to_its_time_at_the_commit() -> None:
    clock = ms.testing.clock(100)
    script = ["a", ms.testing.advance(clock, 5), "b", ms.testing.advance(clock, 5), "c"]
    flow = from_outside(lambda words: words.map(lambda word: (word, clock.time())))
    inputs = {"words": ms.testing.items(script, batch_size=1)}
    expected = {"out": [("a", 100.0), ("b", 105.0), ("c", 110.0)]}
    assert ms.testing.run_all(flow, inputs, clock=clock) == expected
    assert ms.testing.crash_everywhere(flow, inputs, clock=clock) > 6
    assert ms.testing.run_all(flow, inputs, clock=clock) == expected
