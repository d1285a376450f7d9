"""``enrich_cached`` and ``inspect_debug``."""

from __future__ import annotations

import logging
from typing import Any

import millstream as ms
import pytest
from millstream import testing
from millstream._run.trial import run_crashing
from millstream._streams.lookups import Cache


class Service:
    """Answers with the number of requests for a key, and fails while it is down."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.down = False
        self.now = 0.0

    def __call__(self, key: Any) -> str:
        self.asked.append(key)
        if self.down:
            raise ConnectionError("the service is down")
        return f"{key}{self.asked.count(key)}"


def cache(service: Service, **options: Any) -> Cache:
    how = {"ttl": float("inf"), "size": 100, "stale": 0.0, "retry": 1.0, **options}
    return Cache(service, None, how["ttl"], how["size"], how["stale"], how["retry"], lambda: service.now)


def test_an_answer_is_asked_for_once_in_its_time() -> None:
    service = Service()
    answers = cache(service, ttl=10.0)
    for now, due in [(0, "a1"), (9.9, "a1"), (10, "a2"), (19, "a2"), (50, "a3")]:
        service.now = now
        assert answers.pair("a") == ("a", due)


def test_the_least_recently_used_answer_is_evicted_first() -> None:
    service = Service()
    answers = cache(service, size=2)
    for key in "abacab":
        answers.pair(key)
    assert service.asked == ["a", "b", "c", "b"]
    assert len(answers.answers) == 2


def test_an_old_answer_serves_while_the_service_is_down() -> None:
    service = Service()
    answers = cache(service, ttl=10.0, stale=20.0, retry=5.0)
    answers.pair("a")
    service.down = True
    for now, asked in [(10, 2), (14.9, 2), (15, 3), (29, 4)]:
        service.now = now
        assert answers.pair("a") == ("a", "a1")
        assert len(service.asked) == asked
    service.now = 34
    with pytest.raises(ConnectionError):
        answers.pair("a")
    with pytest.raises(ConnectionError):
        answers.pair("b")
    service.down = False
    assert answers.pair("a") == ("a", "a6")


@pytest.mark.parametrize("on_error", ["fail", "skip", "letter"])
@pytest.mark.parametrize("kind", ["plain", "timed", "keyed"])
def test_in_a_flow_a_failure_does_as_on_error_says(kind: str, on_error: str) -> None:
    def price(name: str) -> int:
        return {"tea": 3, "coffee": 4}[name]

    flow = ms.Flow("f")
    out = testing.collect()
    letters = testing.collect()
    policy: Any = ms.dead_letter(letters) if on_error == "letter" else on_error
    orders = [("tea", 1), ("gold", 2), ("coffee", 3), ("tea", 4)]
    stream: Any = flow.source("in", testing.items(orders))
    if kind != "plain":
        stream = stream.event_time(lambda order: order[1])
    if kind == "keyed":
        stream = stream.key_by(lambda order: order[0])
    priced = stream.enrich_cached(price, key=lambda order: order[0], name="price", on_error=policy)
    (priced.values() if kind == "keyed" else priced).sink("out", out)
    if on_error == "fail":
        with pytest.raises(ms.StepError, match=r"""step "price".*item \('gold', 2\): KeyError: 'gold'"""):
            ms.run(flow)
        return
    ms.run(flow)
    assert out == [(("tea", 1), 3), (("coffee", 3), 4), (("tea", 4), 3)]
    assert [letter.item for letter in letters] == ([("gold", 2)] if on_error == "letter" else [])


def test_each_worker_has_answers_of_its_own() -> None:
    service = Service()
    flow = ms.Flow("f")
    out = testing.collect()
    source = testing.partitions(["a"] * 50, ["a"] * 50)
    flow.source("in", source).enrich_cached(service).sink("out", out)
    ms.run(flow, workers=2)
    assert len(service.asked) == 2 and len(out) == 100


@pytest.mark.parametrize("timed", [False, True])
def test_answers_expire_by_the_clock_of_the_run(timed: bool) -> None:
    service = Service()
    clock = testing.clock(1000)
    flow = ms.Flow("f")
    out = testing.collect()
    script = [
        "a",
        testing.advance(clock, 5),
        "a",
        testing.advance(clock, 20),
        "a",
        testing.advance(clock, 9),
        "a",
    ]
    stream: ms.Stream[str] = flow.source("in", testing.items(script, batch_size=1))
    if timed:
        stream = stream.processing_time()
    stream.enrich_cached(service, ttl=10).map(lambda pair: pair[1]).sink("out", out)
    ms.run(flow, clock=clock)
    assert out == ["a1", "a1", "a2", "a2"]


def test_mistakes_are_errors_with_a_remedy() -> None:
    stream = ms.Flow("f").source("in", testing.items([]))
    for options, said in (
        ({"size": 0}, "size is a number of answers, 1 or more, not 0"),
        ({"ttl": 0}, "ttl is a number of seconds above 0"),
        ({"stale": -1}, "stale is a number of seconds from 0"),
        ({"key": 7}, "key= takes a function or the name of a field, not 7"),
    ):
        with pytest.raises(ms.FlowUsageError, match=said):
            stream.enrich_cached(str, **options)  # type: ignore[arg-type]
    with pytest.raises(ms.FlowUsageError, match="inspect_debug takes a label"):
        stream.inspect_debug("")


def test_inspect_debug_shows_epoch_worker_key_and_item(tmp_path: Any, capfd: Any, caplog: Any) -> None:
    lines: list[str] = []

    def build(out: list[Any]) -> ms.Flow:
        flow = ms.Flow("debug")
        numbers = flow.source("in", testing.items(range(4), batch_size=2)).inspect_debug("raw")
        keyed = numbers.key_by(lambda n: f"k{n % 2}")
        with_log = keyed.inspect_debug("logged", to=logging.getLogger("orders").warning)
        with_log.inspect_debug("keyed", to=lines.append).values().sink("out", out)
        return flow

    ms.run(build(testing.collect()))
    assert capfd.readouterr().err == "".join(f"raw epoch=- worker=0: {n}\n" for n in range(4))
    assert lines == [f"keyed epoch=- worker=0 key='k{n % 2}': {n}" for n in range(4)]
    assert [record.getMessage() for record in caplog.records] == [
        f"logged epoch=- worker=0 key='k{n % 2}': {n}" for n in range(4)
    ]
    lines.clear()
    out: list[Any] = []
    for crash in [("after", 1), ("after", 1), None]:
        try:
            run_crashing(build(out), 1, tmp_path, crash)  # type: ignore[arg-type]
        except ms.SimulatedCrash:
            continue
    assert out == [0, 1, 2, 3]
    # A batch to an epoch, numbered on from run to run.
    epoch = {int(line.split()[-1]): int(line.split("epoch=")[1].split()[0]) for line in lines}
    assert 1 <= epoch[0] == epoch[1] < epoch[2] == epoch[3]


def test_inspect_debug_shows_the_worker() -> None:
    flow = ms.Flow("debug")
    lines = []
    keyed = flow.source("in", testing.items(range(50))).key_by(lambda n: n).count("each")
    keyed.inspect_debug("w", to=lines.append).sink("out", testing.discard())
    ms.run(flow, workers=2)
    assert {line.split("worker=")[1][0] for line in lines} == {"0", "1"}
    assert len(lines) == 50
