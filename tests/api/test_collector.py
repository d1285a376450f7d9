"""The collector of reference cycles while flows run."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator

import millstream as ms
import pytest
from millstream._run import workers

DEFAULT = gc.get_threshold()


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    yield
    gc.set_threshold(*DEFAULT)


def flow_that(does: Callable[[], object]) -> ms.Flow:
    flow = ms.Flow("collected")
    flow.source("in", ms.testing.items([1])).map(lambda _: does()).sink("out", ms.testing.discard())
    return flow


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("start", [ms.run, lambda flow, **options: flow.start(**options).wait()])
def test_it_runs_less_often_while_a_flow_runs(start: Callable[..., object], count: int) -> None:
    seen: list[tuple[int, int, int]] = []
    start(flow_that(lambda: seen.append(gc.get_threshold())), workers=count)
    assert seen[0][0] > 10 * DEFAULT[0]
    assert gc.get_threshold() == DEFAULT


def test_the_last_of_two_flows_restores_it() -> None:
    after_first: list[tuple[int, int, int]] = []

    def run_another() -> None:
        ms.run(flow_that(lambda: None))
        after_first.append(gc.get_threshold())

    ms.run(flow_that(run_another))
    assert after_first[0][0] > 10 * DEFAULT[0]
    assert gc.get_threshold() == DEFAULT


def test_a_program_that_sets_it_is_obeyed() -> None:
    seen: list[tuple[int, int, int]] = []
    gc.set_threshold(123, 4, 5)
    ms.run(flow_that(lambda: seen.append(gc.get_threshold())))
    assert seen == [(123, 4, 5)] and gc.get_threshold() == (123, 4, 5)
    gc.set_threshold(*DEFAULT)
    ms.run(flow_that(lambda: gc.set_threshold(321)))
    assert gc.get_threshold()[0] == 321


def test_it_is_off_until_the_last_worker_has_restored_its_states() -> None:
    workers.pause_collector()
    workers.pause_collector()
    workers.resume_collector()
    assert not gc.isenabled()
    workers.resume_collector()
    assert gc.isenabled()


def test_it_stays_off_where_a_program_has_turned_it_off() -> None:
    gc.disable()
    try:
        workers.pause_collector()
        workers.resume_collector()
        assert not gc.isenabled()
    finally:
        gc.enable()
