"""Journals as sources and sinks of flows."""

from __future__ import annotations

import threading
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import millstream as ms
import pytest
from millstream._run.trial import run_crashing


class Tick(ms.Record, format=">4sI", fields="symbol price"):
    pass


@pytest.fixture
def numbers(tmp_path: Path) -> Path:
    path = tmp_path / "numbers"
    with ms.Journal(path) as journal:
        for number in range(10):
            journal.append(str(number))
    return path


def read(path: Path, **options: Any) -> list[Any]:
    flow = ms.Flow("read")
    out = ms.testing.collect()
    flow.source("in", ms.journals.read(path, **options)).sink("out", out)
    ms.run(flow)
    return list(out)


def test_from_the_first_from_a_number_and_up_to_one(numbers: Path) -> None:
    assert read(numbers) == [b"%d" % number for number in range(10)]
    assert read(numbers, start=7, decode=int) == [7, 8, 9]
    assert read(numbers, start=2, stop=4, decode=str) == ["2", "3"]
    assert read(numbers, start="next") == []


def test_from_a_time(numbers: Path) -> None:
    with ms.Journal(numbers, "r") as journal:
        later = journal[4].time_ns
    first = min(n for n in range(10) if ms.Journal(numbers, "r")[n].time_ns >= later)
    assert read(numbers, time=later, decode=int) == list(range(first, 10))
    assert read(numbers, time=datetime(2100, 1, 1, tzinfo=timezone.utc)) == []


def test_records_and_what_a_function_makes_of_them(tmp_path: Path) -> None:
    flow = ms.Flow("write")
    ticks = [Tick.pack(b" IBM", price) for price in (1, 2)]
    flow.source("ticks", ms.testing.items(ticks)).sink("out", ms.journals.append(tmp_path))
    ms.run(flow)
    assert [tick.price for tick in read(tmp_path, decode=Tick)] == [1, 2]
    assert read(tmp_path, decode=len) == [8, 8]
    with pytest.raises(ms.StepError, match='step "in", item journal .*, record 0: b. IBM'):
        read(tmp_path, decode=int)


def test_a_cursor_is_begun_at_and_moved_along(numbers: Path) -> None:
    with ms.Journal(numbers) as journal:
        cursor = journal.cursor("flow")
        cursor.position = 6
        cursor.close()
    assert read(numbers, cursor="flow", decode=int) == [6, 7, 8, 9]
    with ms.Journal(numbers, "r") as journal:
        assert journal.cursors() == {"flow": 10}
    assert read(numbers, cursor="flow") == []


def test_with_a_state_directory_commits_move_the_cursor(numbers: Path, tmp_path: Path) -> None:
    def flow(out: list[Any]) -> ms.Flow:
        flow = ms.Flow("read")
        flow.source("in", ms.journals.read(numbers, cursor="flow", decode=int)).sink("out", out)
        return flow

    out = ms.testing.collect()
    with pytest.raises(ms.SimulatedCrash):
        run_crashing(flow(out), 1, tmp_path / "state", 1)
    with ms.Journal(numbers) as journal:
        assert journal.cursors()["flow"] in (0, 10)
        journal.append("10")
    ms.run(flow(out), state=tmp_path / "state")
    assert list(out) == list(range(11))
    with ms.Journal(numbers, "r") as journal:
        assert journal.cursors() == {"flow": 11}


def test_following_continues_with_new_records(numbers: Path) -> None:
    flow = ms.Flow("follow")
    seen = []

    def see(number: int) -> None:
        seen.append(number)
        if number == 12:
            raise KeyboardInterrupt

    flow.source("in", ms.journals.read(numbers, start=9, follow=True, decode=int)).inspect(see).sink(
        "out", ms.testing.discard()
    )

    def append() -> None:
        while not seen:
            time.sleep(0.001)
        with ms.Journal(numbers) as journal:
            journal.append_many(["10", "11", "12"])

    thread = threading.Thread(target=append)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        ms.run(flow)
    thread.join()
    assert seen == [9, 10, 11, 12]


def test_output_is_cut_back_to_the_commit(numbers: Path, tmp_path: Path) -> None:
    with ms.Journal(numbers) as journal:
        journal.append_many([str(number) for number in range(10, 5000)])
    out = tmp_path / "sums"
    crashes = 0
    while True:
        flow = ms.Flow("sums")
        (
            flow.source("in", ms.journals.read(numbers, decode=int))
            .key_by(lambda number: 0)
            .sum(emit="each")
            .values()
            .map(str)
            .sink("out", ms.journals.append(out))
        )
        try:
            run_crashing(flow, 1, tmp_path / "state", 1)
        except ms.SimulatedCrash:
            crashes += 1
        else:
            break
    assert crashes > 1
    assert [int(record.body) for record in ms.Journal(out, "r")] == [n * (n + 1) // 2 for n in range(5000)]


@pytest.mark.parametrize("start", [-1, "last", 1.5, True, None])
def test_where_to_start_is_checked(numbers: Path, start: Any) -> None:
    with pytest.raises(ms.FlowUsageError, match="start is"):
        ms.journals.read(numbers, start=start)


def test_one_beginning_is_enough(numbers: Path) -> None:
    with pytest.raises(ms.FlowUsageError, match="give one of them"):
        ms.journals.read(numbers, start=3, cursor="flow")


def test_no_journal_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="nowhere"):
        read(tmp_path / "nowhere")
