"""Threads that use one journal, queue, publisher or recorder at once, and flows that run at once.

All of it holds in any interpreter; in a free-threaded one the threads really run at the same time.
"""

from __future__ import annotations

import gc
import subprocess
import sys
import sysconfig
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import millstream as ms
import pytest
from millstream.service import Recorder

THREADS = 4
EACH = 300
SMALL = 64 << 10


def at_once(work: Callable[[int], object], count: int = THREADS) -> None:
    """Calls ``work`` with the number of each thread, all at the same time; raises what one of them raises."""
    barrier = threading.Barrier(count)
    raised: list[BaseException] = []

    def run(number: int) -> None:
        try:
            barrier.wait()
            work(number)
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if raised:
        raise raised[0]


class Orders(Protocol):
    def place(self, thread: int, number: int) -> None: ...


def test_the_module_does_not_need_the_interpreter_lock() -> None:
    program = (
        "import sys; import millstream._millstream; print(getattr(sys, '_is_gil_enabled', lambda: True)())"
    )
    found = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=True
    )
    is_free = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
    assert found.stdout.strip() == str(not is_free)


def test_threads_append_to_one_journal_and_read_it(tmp_path: Path) -> None:
    with ms.Journal(tmp_path / "journal", segment_bytes=SMALL) as journal:

        def work(thread: int) -> None:
            for number in range(EACH):
                sequence = journal.append(f"{thread} {number}")
                record = journal[sequence]
                assert record.body == record.view.tobytes() == f"{thread} {number}".encode()
            journal.append_many([f"{thread} {number}" for number in range(EACH, 2 * EACH)])

        at_once(work)
        bodies = [record.body.decode().split() for record in journal]
        for thread in range(THREADS):
            own = [int(number) for by, number in bodies if int(by) == thread]
            assert own == list(range(2 * EACH))


def test_a_journal_that_one_thread_closes_is_closed_for_the_others(tmp_path: Path) -> None:
    for attempt in range(5):
        journal = ms.Journal(tmp_path / f"journal-{attempt}", segment_bytes=SMALL)

        def work(thread: int, journal: ms.Journal = journal) -> None:
            if thread == 0:
                journal.append("last")
                journal.close()
                journal.close()
                return
            with pytest.raises(ms.JournalClosedError):
                while True:
                    journal.append("more")
                    assert len(journal) > 0

        at_once(work)
        assert journal.closed


def test_a_reader_is_of_one_thread_and_says_so(tmp_path: Path) -> None:
    with ms.Journal(tmp_path / "journal") as journal:
        journal.append_many([str(number) for number in range(EACH * THREADS)])
        reader = journal.read()
        found: list[bytes] = []

        def work(_: int) -> None:
            while True:
                try:
                    record = next(reader, None)
                except ValueError as error:
                    assert str(error).startswith("another thread is using this reader")
                    continue
                if record is None:
                    return
                found.append(record.body)

        at_once(work)
        assert sorted(found) == sorted(b"%d" % number for number in range(EACH * THREADS))


def test_threads_share_one_queue(tmp_path: Path) -> None:
    taken: list[bytes] = []
    with ms.Queues(tmp_path / "queues", sync="never") as queues:
        queue = queues["work"]

        def work(thread: int) -> None:
            for number in range(EACH):
                queue.put(f"{thread} {number}")
                if number % 2:
                    item = queue.get(timeout=60)
                    assert item is not None
                    taken.append(item)
                else:
                    with queue.open(timeout=60) as opened:
                        assert opened is not None
                        taken.append(opened.body)

        at_once(work)
        assert len(queue) == 0
    wanted = {f"{thread} {number}".encode() for thread in range(THREADS) for number in range(EACH)}
    assert len(taken) == len(wanted) and set(taken) == wanted


def test_an_open_item_that_several_threads_close_is_closed_once(tmp_path: Path) -> None:
    with ms.Queues(tmp_path / "queues", sync="never") as queues:
        queue = queues["work"]
        for number in range(20):
            queue.put(str(number))
            with queue.open() as item:
                assert item is not None
                closed: list[bool] = []

                def close(_: int, item: ms.OpenItem = item, closed: list[bool] = closed) -> None:
                    closed.append(item.close())

                at_once(close)
            assert sorted(closed) == [False] * (THREADS - 1) + [True]
        assert len(queue) == 0


@pytest.mark.parametrize("place", ["journal", "recorder"])
def test_threads_share_one_publisher(place: str, tmp_path: Path) -> None:
    recorder = Recorder()
    orders = ms.publisher(Orders, tmp_path / "orders") if place == "journal" else recorder.publisher(Orders)

    def work(thread: int) -> None:
        for number in range(EACH):
            orders.place(thread, number)

    at_once(work)
    if place == "journal":
        # The schema is a record too.
        assert ms.Journal(tmp_path / "orders", mode="r").next == THREADS * EACH + 1
    else:
        calls = Counter(recorder.take())
        assert len(calls) == THREADS * EACH == calls.total()


def counted(numbers: list[int], sink: list[tuple[int, int]]) -> ms.Flow:
    flow = ms.Flow("counted")

    def count(state: list[int], number: int) -> int:
        state.append(number)
        return len(state)

    keyed = flow.source("numbers", ms.testing.items(numbers, batch_size=7)).key_by(lambda number: number % 5)
    keyed.stateful("count", count, state=list).items().sink("out", sink)
    return flow


def test_flows_run_at_once_with_several_workers() -> None:
    numbers = list(range(1000))
    found: list[list[tuple[int, int]]] = [[] for _ in range(THREADS)]

    def work(thread: int) -> None:
        out: list[tuple[int, int]] = ms.testing.collect()
        ms.run(counted(numbers, out), workers=2)
        found[thread] = sorted(out)

    at_once(work)
    assert found == [sorted((key, count) for key in range(5) for count in range(1, 201))] * THREADS


def test_a_list_is_the_sink_of_all_workers_while_others_read_it() -> None:
    """Workers that wait for the list let the collector pause them."""
    out: list[list[int]] = ms.testing.collect()
    flow = ms.Flow("rings")

    def ring(number: int) -> list[int]:
        # A reference cycle, so that the collector runs.
        cycle: list[object] = [number]
        cycle.append(cycle)
        return [number]

    partitions = [list(range(part, 8000, 4)) for part in range(4)]
    rings = flow.source("numbers", ms.testing.partitions(*partitions, batch_size=1)).map(ring)
    rings.sink("out", out)
    with flow.start(workers=4) as running:
        while not running.has_ended:
            assert all(one for one in out[-10:])
        running.wait()
    assert sorted(out) == [[number] for number in range(8000)]


def test_counters_lose_nothing() -> None:
    counter = ms.counter("test_free_threads_counted")
    before = counter.value

    def work(_: int) -> None:
        for _ in range(EACH):
            counter.inc()

    at_once(work)
    assert counter.value - before == THREADS * EACH


def test_states_are_restored_by_all_workers(tmp_path: Path) -> None:
    out: list[tuple[int, int]] = ms.testing.collect()
    for end in (1000, 1100):
        # The second run reads what the first has not.
        ms.run(counted(list(range(end)), out), workers=3, state=tmp_path / "state")
        assert sorted(out) == [(key, count) for key in range(5) for count in range(1, end // 5 + 1)]
    assert gc.isenabled()
