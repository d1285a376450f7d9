"""``max_ahead`` of ``event_time``: one wrong time does not move the watermark."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import millstream as ms
import pytest
from millstream import testing

NOW = 1_000_000
YEAR = 365 * 86_400


def run(times: list[Any], workers: int = 1, **options: Any) -> tuple[list[Any], list[Any], list[Any]]:
    """The numbers of items of minutes, late items and dead letters; the clock stands still."""
    flow = ms.Flow("f")
    out = testing.collect()
    late = testing.collect()
    dead = testing.collect()
    items = [{"at": time} for time in times]
    options = {"on_error": ms.dead_letter(dead), **options}
    timed = flow.source("in", testing.items(items, 2)).event_time("at", name="times", **options)
    counts = timed.key_by(lambda item: "all").window("minutes", ms.windows.tumbling(60)).count()
    counts.values().map(lambda window: window.value).sink("out", out)
    counts.late.values().map(lambda item: item["at"]).sink("late", late)
    ms.run(flow, workers=workers, clock=testing.clock(NOW))
    return list(out), list(late), list(dead)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_time_in_the_far_future_closes_no_window(workers: int) -> None:
    times = [NOW, NOW + 10, NOW + YEAR, NOW + 20, NOW + 70]
    assert run(times, workers)[:2] == ([2, 1], [NOW + 20, NOW + 70])
    out, late, dead = run(times, workers, max_ahead=3600)
    assert (out, late) == ([2, 2], [])
    assert [letter.item for letter in dead] == [{"at": NOW + YEAR}]
    assert isinstance(dead[0].error, ms.FutureTimeError) and isinstance(dead[0].error, ValueError)
    says = f"its time is {YEAR} s ahead of the clock of the run, and max_ahead is 3600 s"
    assert str(dead[0].error) == says


@pytest.mark.parametrize("life", [60, timedelta(minutes=1), "1m", "60 s"])
def test_times_up_to_the_limit_are_good(life: Any) -> None:
    out, late, dead = run([NOW + 60, NOW + 61, NOW + 59.5], max_ahead=life)
    assert ([letter.item["at"] for letter in dead], late, sum(out)) == ([NOW + 61], [], 2)


def test_datetimes() -> None:
    now = datetime.fromtimestamp(NOW, timezone.utc)
    out, _, dead = run([now, now + timedelta(days=400)], max_ahead=timedelta(days=1))
    assert out == [1] and [letter.item["at"] for letter in dead] == [now + timedelta(days=400)]


def test_the_clock_of_the_run_continues() -> None:
    clock = testing.clock(0)
    dead = testing.collect()
    flow = ms.Flow("f")
    out = testing.collect()
    script = [5, 100, testing.advance(clock, 95), 100]
    timed = flow.source("in", testing.items(script)).event_time(
        float, max_ahead=10, on_error=ms.dead_letter(dead)
    )
    timed.sink("out", out)
    ms.run(flow, clock=clock)
    assert (out, [letter.item for letter in dead]) == ([5, 100], [100])


def test_without_another_policy_the_flow_fails() -> None:
    with pytest.raises(ms.StepError, match='step "times".* s ahead of the clock') as raised:
        run([NOW + YEAR], max_ahead=3600, on_error="fail")
    assert isinstance(raised.value.__cause__, ms.FutureTimeError)


def test_a_limit_is_a_time() -> None:
    with pytest.raises(ms.FlowUsageError, match="max_ahead is a number of seconds from 0"):
        run([1], max_ahead=-1)
    with pytest.raises(ms.FlowUsageError, match="max_ahead is a number of seconds, a timedelta or text like"):
        run([1], max_ahead="an hour")
