"""Windows between datetimes where event times were datetimes, across runs too; between numbers elsewhere."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import millstream as ms
import pytest
from millstream import testing
from millstream._run.trial import run_crashing

UTC = timezone.utc
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
TOKYO = timezone(timedelta(hours=9))


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def keyed(flow: ms.Flow, items: list[Any], batch_size: int = 1) -> ms.KeyedStream[str, Any]:
    source = flow.source("in", testing.items(items, batch_size))
    return source.event_time(lambda item: item).key_by(lambda item: "k")


def bounds(items: list[Any], window: Any, **options: Any) -> list[Any]:
    flow = ms.Flow("windows")
    out = testing.collect()
    counts = keyed(flow, items).window("w", window, **options).count()
    counts.values().map(lambda count: (count.start, count.end, count.value)).sink("out", out)
    ms.run(flow)
    return out


WINDOWS = [
    (ms.windows.tumbling(60), {}, [(0, 60, 2), (60, 120, 1)]),
    (ms.windows.tumbling(60), {"ordered": True}, [(0, 60, 2), (60, 120, 1)]),
    (ms.windows.tumbling(60), {"watermark": "key"}, [(0, 60, 2), (60, 120, 1)]),
    (ms.windows.session(10), {}, [(1, 12.5, 2), (70, 80, 1)]),
    (ms.windows.count(2), {}, [(1, 2.5, 2), (70, 70, 1)]),
]


@pytest.mark.parametrize(("window", "options", "wanted"), WINDOWS)
def test_bounds_are_of_the_kind_of_the_times(window: Any, options: Any, wanted: list[Any]) -> None:
    times = [1, 2.5, 70]
    assert bounds(times, window, **options) == wanted
    assert all(type(start) is float for start, _, _ in bounds(times, window, **options))
    moments = [(at(start), at(end), count) for start, end, count in wanted]
    found = bounds([at(time) for time in times], window, **options)
    assert found == moments
    assert all(start.tzinfo is UTC and end.tzinfo is UTC for start, end, _ in found)
    # Other time zones name the same moments.
    assert bounds([at(time).astimezone(TOKYO) for time in times], window, **options) == moments


def test_the_ends_of_time_are_datetimes_too() -> None:
    first = datetime(1678, 6, 20, tzinfo=UTC)
    last = datetime(2261, 7, 14, 23, 59, 59, 999_999, tzinfo=UTC)
    found = bounds([first, last], ms.windows.tumbling(3600))
    assert [start for start, _, _ in found] == [first, last.replace(minute=0, second=0, microsecond=0)]


def test_a_result_is_made_with_datetimes_and_windows_of_windows_are_between_them() -> None:
    flow = ms.Flow("windows")
    out = testing.collect()
    told = []
    minutes = keyed(flow, [at(1), at(61), at(200)]).window("minutes", ms.windows.tumbling(60))

    def result(count: int, window: ms.windows.Bounds) -> int:
        told.append((window.start, window.end))
        return count

    counts = minutes.aggregate(lambda: 0, lambda count, _: count + 1, None, result)
    pairs = counts.window("pairs", ms.windows.tumbling(120)).collect()
    pairs.values().map(lambda pair: (pair.start, len(pair.value))).sink("out", out)
    ms.run(flow, workers=2)
    assert told == [(at(0), at(60)), (at(60), at(120)), (at(180), at(240))]
    assert out == [(at(0), 2), (at(120), 1)]


def test_a_join_within_windows_and_its_late_values_keep_the_kind_of_their_times() -> None:
    flow = ms.Flow("pairs")
    out = testing.collect()

    def timed(name: str, seconds: list[int]) -> ms.KeyedStream[str, Any]:
        source = flow.source(name, testing.items([at(second) for second in seconds]))
        return source.event_time(lambda time: time).key_by(lambda time: "k")

    pairs = timed("left", [1, 70]).join("pairs", timed("right", [2]), window=ms.windows.tumbling(60))
    pairs.values().map(lambda pair: (pair.start, pair.value)).sink("out", out)
    ms.run(flow)
    assert out == [(at(0), (at(1), at(2)))]


def test_a_clock_of_the_users_may_give_datetimes() -> None:
    class Clock:
        def on_item(self, item: datetime, now: float) -> tuple[datetime, datetime]:
            return item, item

    flow = ms.Flow("clock")
    out = testing.collect()
    times = flow.source("in", testing.items([at(1), at(70)])).event_clock(lambda partition: Clock())
    counts = times.key_by(lambda time: "k").window("w", ms.windows.tumbling(60)).count()
    counts.values().map(lambda count: count.start).sink("out", out)
    ms.run(flow)
    assert out == [at(0), at(60)]


def test_processing_time_is_in_seconds() -> None:
    flow = ms.Flow("now")
    out = testing.collect()
    clock = testing.clock(60)
    times = flow.source("in", testing.items([at(1)])).processing_time().key_by(lambda time: "k")
    times.window("w", ms.windows.tumbling(60)).count().values().map(lambda w: w.start).sink("out", out)
    ms.run(flow, clock=clock)
    assert out == [60.0]


@pytest.mark.parametrize("options", [{}, {"ordered": True}, {"watermark": "key"}])
def test_a_window_that_is_open_at_a_crash_closes_between_datetimes(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    def build(items: list[Any]) -> tuple[ms.Flow, list[Any]]:
        flow = ms.Flow("windows")
        out = testing.collect()
        counts = keyed(flow, items).window("w", ms.windows.session(10), **options).collect()
        counts.values().map(lambda window: (window.start, window.end, len(window.value))).sink("out", out)
        return flow, out

    state = str(tmp_path)
    times = [at(1), at(2), at(3), at(500)]
    with pytest.raises(ms.SimulatedCrash):
        run_crashing(build(times)[0], 1, state, ("after", 3))
    # Nothing but the end of the input closes it: no time has been read in this run.
    flow, out = build(times[:2])
    run_crashing(flow, 2, state, None, ["out"])
    assert out[:1] == [(at(1), at(12), 2)] or out[:1] == [(at(1), at(13), 3)]
    assert testing.crash_everywhere(build(times)[0], workers=2) > 6
