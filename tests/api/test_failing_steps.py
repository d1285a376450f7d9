"""Flows whose user code fails, in each possible way."""

import sys
from dataclasses import dataclass
from typing import Any

import millstream as ms
import pytest
from millstream import testing


class Unsayable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


class Huge:
    def __repr__(self) -> str:
        return "x" * 10_000_000


def flow_of(build: Any, script: Any = (1, 2, 3)) -> ms.Flow:
    flow = ms.Flow("failing")
    build(flow.source("in", testing.items(script))).sink("out", testing.discard())
    return flow


def raises(error: BaseException) -> Any:
    def f(item: Any) -> Any:
        if item == 2:
            raise error
        return item

    return f


def deep(item: Any) -> Any:
    return deep(item) + 1


def midway(item: int) -> Any:
    yield item
    raise ValueError("midway")


class BadEnd:
    def on_item(self, key: int, value: int) -> None: ...

    def on_end(self, key: int) -> Any:
        raise ValueError(f"end of {key}")


class Second:
    """Makes one state, and no second one."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.made = 0

    def __call__(self) -> list[int]:
        self.made += 1
        if self.made == 2:
            raise self.error
        return []


@dataclass
class Stops:
    number: int

    @property
    def field(self) -> int:
        return int(raises(StopIteration())(self.number))


class BadSink(ms.Sink):
    def open(self, worker: int) -> Any:
        return self

    def write_batch(self, items: list[Any]) -> None:
        raise ValueError("full")

    def flush(self) -> None: ...

    close = flush


class BadSource(ms.Source):
    def open(self, partition: str, position: int | None) -> Any:
        return self

    def next_batch(self) -> Any:
        raise ValueError("dry")


STEPS: dict[str, tuple[Any, type[BaseException], str | None]] = {
    "exception": (lambda s: s.map(raises(ValueError("no")), name="s"), ValueError, "2"),
    "recursion": (lambda s: s.map(deep, name="s"), RecursionError, "1"),
    "wrong type": (lambda s: s.map_batch(lambda batch: tuple(batch), name="s"), TypeError, "a batch of 1"),
    "none for a list": (lambda s: s.flat_map(lambda n: None, name="s"), TypeError, "1"),
    "none for a batch": (lambda s: s.map_batch(lambda batch: None, name="s"), TypeError, "a batch of 1"),
    "second state": (
        lambda s: s.key_by(int).stateful("s", list.append, state=Second(ValueError())),
        ValueError,
        "2",
    ),
    "state and stop": (
        lambda s: s.key_by(int).stateful("s", list.append, state=Second(StopIteration())),
        StopIteration,
        "2",
    ),
    "stateful and stop": (
        lambda s: s.key_by(int).stateful("s", lambda _, n: raises(StopIteration())(n), state=list),
        StopIteration,
        "2",
    ),
    "field and stop": (
        lambda s: s.map(Stops).key_by("field", name="s").count(),
        StopIteration,
        "Stops(number=2)",
    ),
    "unhashable key": (lambda s: s.key_by(lambda n: [n], name="s").count(), TypeError, "1"),
    "unsupported key": (lambda s: s.key_by(lambda n: 1.5, name="s").count(), TypeError, "1"),
    "generator": (lambda s: s.flat_map(midway, name="s"), ValueError, "1"),
    "unsayable": (lambda s: s.map(raises(Unsayable()), name="s"), Unsayable, "2"),
    "end": (lambda s: s.key_by(int).stateful("s", BadEnd), ValueError, None),
    "state": (lambda s: s.key_by(int).stateful("s", raises, state=lambda: 1 / 0), ZeroDivisionError, "1"),
    "stop iteration": (lambda s: s.map(raises(StopIteration()), name="s"), StopIteration, "2"),
}


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("name", STEPS)
def test_a_failing_step_is_named_with_its_item(name: str, workers: int) -> None:
    build, error, item = STEPS[name]
    flow = flow_of(build)
    with pytest.raises(ms.StepError) as caught:
        ms.run(flow, workers=workers)
    assert caught.value.step == "s"
    assert isinstance(caught.value.__cause__, error)
    # With two workers it may be the item of another key that fails first.
    assert item is None or workers == 2 or caught.value.item == item
    assert 'step "s"' in str(caught.value)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("on_error", ["fail", "skip"])
@pytest.mark.parametrize("error", [KeyboardInterrupt("k"), SystemExit(3)])
def test_an_exit_is_raised_as_it_is(error: BaseException, on_error: Any, workers: int) -> None:
    flow = flow_of(lambda s: s.map(raises(error), on_error=on_error))
    with pytest.raises(type(error)) as caught:
        ms.run(flow, workers=workers)
    assert caught.value is error


@pytest.mark.parametrize("script", [(2,), (1, 2), (2, 3)])
def test_a_property_that_stops_at_any_item_of_a_batch_fails_the_step(script: tuple[int, ...]) -> None:
    flow = flow_of(lambda s: s.map(Stops).key_by("field", name="s").count(), script)
    with pytest.raises(ms.StepError) as caught:
        ms.run(flow)
    assert (caught.value.step, caught.value.item) == ("s", "Stops(number=2)")


def test_the_traceback_ends_in_the_users_code() -> None:
    with pytest.raises(ms.StepError) as caught:
        ms.run(flow_of(lambda s: s.map(raises(ValueError("no")))))
    cause = caught.value.__cause__
    assert cause is not None
    frame = cause.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    assert frame is not None and frame.tb_frame.f_code.co_filename == __file__


def test_the_key_is_named() -> None:
    def fails(state: list[int], value: int) -> None:
        raise ValueError("no")

    flow = flow_of(lambda s: s.key_by(lambda n: f"k{n}").stateful("s", fails, state=list))
    with pytest.raises(ms.StepError, match="step \"s\", key 'k1', item 1: ValueError: no") as caught:
        ms.run(flow)
    assert (caught.value.key, caught.value.item) == ("'k1'", "1")


def test_a_huge_item_is_shown_short() -> None:
    def fails(item: Any) -> None:
        raise ValueError("huge")

    for item in ("x" * 10_000_000, list(range(1_000_000)), Huge(), 1 << 100_000):
        with pytest.raises(ms.StepError) as caught:
            ms.run(flow_of(lambda s: s.map(fails), [item]))
        assert len(str(caught.value)) < 2_000


def test_changed_input_is_the_users_own() -> None:
    """A function may change an item: the item is the very object of the source."""
    items = [[1], [2]]
    ms.run(flow_of(lambda s: s.map(lambda item: item.append(0) or item), items))
    assert items == [[1, 0], [2, 0]]


def test_failing_sink_source_and_decoder(tmp_path: Any) -> None:
    flow = ms.Flow("sink")
    flow.source("in", testing.items([1])).sink("out", BadSink())
    with pytest.raises(ms.StepError, match='step "out".*full'):
        ms.run(flow)
    flow = ms.Flow("source")
    flow.source("in", BadSource()).sink("out", testing.discard())
    with pytest.raises(ms.StepError, match='step "in".*dry'):
        ms.run(flow)
    (tmp_path / "numbers").write_bytes(b"1\nx\n")
    flow = ms.Flow("decoder")
    source = ms.files.frames(tmp_path / "numbers", "lines", decode=int)
    flow.source("in", source).sink("out", testing.discard())
    with pytest.raises(ms.StepError, match="frame of 1 bytes at offset 2") as caught:
        ms.run(flow)
    assert isinstance(caught.value.__cause__, ValueError) and caught.value.step == "in"


@pytest.mark.parametrize("keyed", [False, True])
def test_skip_counts_and_continues(keyed: bool) -> None:
    verbs: dict[str, Any] = {
        "map": lambda s, f: s.map(f, name="s", on_error="skip"),
        "filter": lambda s, f: s.filter(f, name="s", on_error="skip"),
        "flat_map": lambda s, f: s.flat_map(lambda n: [f(n)], name="s", on_error="skip"),
        "filter_map": lambda s, f: s.filter_map(f, name="s", on_error="skip"),
        "inspect": lambda s, f: s.inspect(f, name="s", on_error="skip"),
    }
    for verb, build in verbs.items():
        flow = ms.Flow(verb)
        out = testing.collect()
        stream: Any = flow.source("in", testing.items([1, 2, 3]))
        if keyed:
            stream = stream.key_by(int)
        built = build(stream, raises(ValueError("no")))
        (built.values() if keyed else built).sink("out", out)
        report = ms.run(flow)
        assert (out, report.step("s")["skipped"]) == ([1, 3], 1), verb


def test_dead_letters_carry_the_item_and_the_exception() -> None:
    flow = ms.Flow("f")
    out = testing.collect()
    dead = testing.collect()
    letters = ms.dead_letter(dead)

    def unless_two(state: list[int], value: float) -> float:
        if value == 2:
            raise ValueError("no")
        return value

    keyed = flow.source("in", testing.items([1, 2, 2.5, 3])).key_by(int, on_error=letters)
    keyed.stateful("s", unless_two, state=list, on_error=letters).values().sink("out", out)
    ms.run(flow)
    assert out == [1, 2.5, 3]
    assert [(letter.step, letter.key, letter.item, str(letter.error)) for letter in dead] == [
        ("s", 2, 2, "no")
    ]


def test_a_bad_key_can_be_skipped() -> None:
    flow = ms.Flow("f")
    out = testing.collect()
    keyed = flow.source("in", testing.items(["a", 1.5, "b"])).key_by(lambda item: item, on_error="skip")  # type: ignore[call-overload]
    keyed.count().sink("out", out)
    ms.run(flow)
    assert out == [("a", 1), ("b", 1)]


def test_a_failing_branch() -> None:
    flow = ms.Flow("f")
    for half in flow.source("in", testing.items([1, 2, 3])).branch(raises(ValueError("no")), name="s"):
        half.sink(f"out {id(half)}", testing.discard())
    with pytest.raises(ms.StepError) as caught:
        ms.run(flow)
    assert (caught.value.step, caught.value.item) == ("s", "2")


def test_abort_fails_the_flow() -> None:
    with pytest.raises(ms.StepError, match="aborted"):
        ms.run(flow_of(lambda s: s, [1, testing.ABORT]))


def test_references_are_let_go() -> None:
    item = object()
    before = sys.getrefcount(item)
    ms.run(flow_of(lambda s: s.map(lambda n: n), [item]))
    assert sys.getrefcount(item) == before
