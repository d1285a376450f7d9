"""Queues in process: their guarantees, their exceptions, and that other threads run while they wait."""

from __future__ import annotations

import multiprocessing
import queue as standard
import random
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from datetime import timedelta
from pathlib import Path

import millstream as ms
import pytest

LONG = 120.0


@pytest.fixture
def queues(tmp_path: Path):
    with ms.Queues(tmp_path / "queues", sync="never") as queues:
        yield queues


def configured(tmp_path: Path, text: str) -> ms.Queues:
    config = tmp_path / "queues.toml"
    config.write_text(text)
    return ms.Queues(tmp_path / "queues", sync="never", config=config)


def test_items_are_read_as_they_were_written(queues: ms.Queues) -> None:
    queue = queues["q"]
    queue.put(b"bytes")
    queue.put("text")
    queue.put(bytearray(b"array"), flags=7)
    queue.put(memoryview(b"view"))
    queue.put(b"")
    assert queue.put_many(str(n) for n in range(10_000)) == 10_000
    assert len(queue) == 10_005 and "q" in queues and list(queues) == ["q"]
    assert queue.peek() == b"bytes" == queue.get()
    assert list(queue)[:4] == [b"text", b"array", b"view", b""]
    assert queue.get() is None and queue.peek() is None and bool(queue)


def test_what_ends_the_consumer_is_no_failure_of_the_item(tmp_path: Path) -> None:
    config = tmp_path / "queues.toml"
    config.write_text("[queue.q]\nmax_deliveries = 1\n")

    def opened() -> ms.Queues:
        return ms.Queues(tmp_path / "queues", sync="never", config=config)

    queues = opened()
    queues["q"].put("job")
    for error in (KeyboardInterrupt, SystemExit):
        with pytest.raises(error), queues["q"].open() as item:
            raise error
    for _ in queues["q"].each(timeout=0):
        break
    with queues["q"].open() as item:
        assert item is not None
        item.abort(failed=False)
    kept = queues["q"]._open(0)
    assert kept is not None
    queues.close()
    del kept
    with opened() as queues:
        assert len(queues["q"]) == 1
        with pytest.raises(ValueError), queues["q"].open() as item:
            raise ValueError
        assert len(queues["q"]) == 0


def test_an_open_item_is_confirmed_at_the_end_of_its_block_and_comes_back_after_an_exception(
    queues: ms.Queues,
) -> None:
    queue = queues["q"]
    queue.put_many(["a", "b"], flags=3)
    with pytest.raises(KeyError), queue.open() as item:
        assert item is not None and item.body == b"a" and item.flags == 3 and item.is_open
        assert time.time() - 3600 < item.added < time.time() + 3600 and item.expires is None
        assert item.first_failed is None and item.origin is None
        raise KeyError("a")
    with queue.open() as item:
        assert item is not None and (bytes(item), item.deliveries) == (b"a", 1)
        assert item.first_failed is not None and item.first_failed >= item.added and item.origin is None
        assert queue.stats()["open_transactions"] == 1
    assert not item.is_open and not item.close()
    with queue.open() as item:
        assert item is not None
        item.abort()
    item = queue._open(0)
    assert item is not None and item.body == b"b"
    del item
    assert len(queue) == 1
    for item in queue.each(timeout=0):
        assert item.body == b"b"
    assert len(queue) == 0
    with queue.open(timeout=0.001) as item:
        assert item is None


def test_a_fan_out_queue_an_alias_and_a_delay(tmp_path: Path) -> None:
    with configured(tmp_path, '[alias]\nall = ["a", "b"]\n[queue.a]\nexpire_to = "late"\n') as queues:
        assert queues["a+audit"].get() is None
        queues["all"].put("x")
        assert [queues[name].get() for name in ("a", "a+audit", "b")] == [b"x"] * 3
        queues["a"].put("soon", expires=timedelta(milliseconds=5))
        assert queues["late"].get(LONG) == b"soon"
        queues["b"].put("later", delay=0.005)
        assert queues["b"].get() is None and queues["b"].get(timeout=LONG) == b"later"
        assert queues["b"].flush() and queues["b"].delete() and not queues["b"].delete()


def test_errors_are_their_own_and_builtin_ones(tmp_path: Path, queues: ms.Queues) -> None:
    with pytest.raises(ValueError, match="must not begin with"):
        queues["../evil"]
    with pytest.raises(ms.QueueUsageError, match="other settings"):
        ms.Queues(tmp_path / "queues", sync="always")
    with pytest.raises(ms.QueueUsageError, match='sync is "never", "always" or'):
        ms.Queues(tmp_path / "other", sync="sometimes")  # type: ignore[arg-type]
    with pytest.raises(ms.QueueUsageError, match="timeout is a number of seconds"):
        queues["q"].get(timeout=-1)
    with pytest.raises(ms.QueueUsageError, match="timeout is a number of seconds, .*not 'x'"):
        queues["q"].get(timeout="x")  # type: ignore[arg-type]
    for flags in (-1, 1 << 32):
        with pytest.raises(ms.QueueUsageError, match=f"flags is a number from 0 to 4294967295, not {flags}"):
            queues["q"].put("a", flags=flags)
        with pytest.raises(ms.QueueUsageError, match="flags is a number"):
            queues["q"].put_many(["a"], flags=flags)
    with pytest.raises(TypeError, match="not int"):
        queues["q"].put(5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="not one item of type str"):
        queues["q"].put_many("abc")
    (tmp_path / "bad.toml").write_text("[defaults]\nmax_itmes = 1")
    with pytest.raises(ms.QueueUsageError, match=r"bad.toml: line 2: unknown field `max_itmes`"):
        ms.Queues(tmp_path / "other", config=tmp_path / "bad.toml")
    queue = queues["q"]
    queues.close()
    assert queues.closed
    with pytest.raises(ms.QueuesClosedError, match="the queues are closed"):
        queue.put("x")


def test_limits(tmp_path: Path) -> None:
    limits = "[queue.q]\nmax_items = 3\nmax_item_bytes = 4\n"
    with configured(tmp_path, limits) as queues:
        with pytest.raises(standard.Full) as full:
            queues["q"].put_many(["1", "2", "3", "4"])
        assert isinstance(full.value, ms.QueueFullError) and full.value.stored == 3
        with pytest.raises(ms.QueueItemTooLargeError, match="an item of 5 bytes"):
            queues["q"].put("12345")
        (tmp_path / "queues.toml").write_text("")
        queues.reload()
        queues["q"].put("12345")


def test_a_damaged_queue_is_kept_closed(tmp_path: Path) -> None:
    folder = tmp_path / "queues"
    with ms.Queues(folder) as queues:
        queues["bad"].put_many(["aaaaa", "bbbbb"])
        queues["good"].put("x")
    segment = folder / "bad" / "segment-0000000000.log"
    data = bytearray(segment.read_bytes())
    data[data.index(b"aaaaa")] = 0
    segment.write_bytes(data)
    with ms.Queues(folder) as queues:
        assert list(queues) == ["good"] and "damaged at offset" in queues.damaged()["bad"]
        with pytest.raises(OSError, match="damaged at offset"):
            queues["bad"].get()


def test_other_threads_run_while_one_waits(queues: ms.Queues) -> None:
    ticks = [0]
    stop = threading.Event()

    def tick() -> None:
        while not stop.is_set():
            ticks[0] += 1
            time.sleep(0.001)

    ticking = threading.Thread(target=tick)
    ticking.start()
    try:
        before = ticks[0]
        assert queues["q"].get(timeout=0.2) is None
        assert ticks[0] > before
        waiting = threading.Thread(target=lambda: found.append(queues["q"].get(timeout=LONG)))
        found: list[bytes | None] = []
        waiting.start()
        queues["q"].put("at last")
        waiting.join(LONG)
        assert found == [b"at last"]
    finally:
        stop.set()
        ticking.join()


def test_a_wait_ends_when_the_queues_are_closed(tmp_path: Path) -> None:
    queues = ms.Queues(tmp_path / "queues", sync="never")
    raised: list[BaseException] = []

    def wait() -> None:
        try:
            queues["q"].get(timeout=None)
        except ms.QueuesClosedError as error:
            raised.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    while not queues["q"].stats().get("waiters"):
        time.sleep(0.001)
    queues.close()
    waiting.join(LONG)
    assert len(raised) == 1


def test_ctrl_c_ends_a_wait(tmp_path: Path) -> None:
    program = (
        "import sys, millstream as ms\n"
        "with ms.Queues(sys.argv[1]) as queues:\n"
        "    print('waiting', flush=True)\n"
        "    queues['q'].get(timeout=None)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, tmp_path], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None and running.stdout.readline() == "waiting\n"
        time.sleep(0.2)
        running.send_signal(signal.SIGINT)
        _, told = running.communicate(timeout=LONG)
    assert "KeyboardInterrupt" in told and running.returncode != 0


def _in_child(queues: ms.Queues, told) -> None:
    try:
        queues["q"].get()
    except Exception as error:
        told.put(type(error).__name__)
    else:
        told.put("nothing")


def test_a_forked_child_has_no_queues(queues: ms.Queues) -> None:
    queues["q"].put("x")
    fork = multiprocessing.get_context("fork")
    told = fork.Queue()
    child = fork.Process(target=_in_child, args=(queues, told))
    child.start()
    assert told.get(timeout=LONG) == "QueuesForkedError"
    child.join(LONG)
    assert queues["q"].get() == b"x"


def test_random_use_does_as_a_deque_does(tmp_path: Path) -> None:
    seed = random.randrange(1 << 31)
    print(f"seed {seed}")
    chance = random.Random(seed)
    model: deque[bytes] = deque()
    queues = ms.Queues(tmp_path / "queues", sync="never")
    for step in range(3000):
        queue = queues["q"]
        match chance.randrange(7):
            case 0 | 1:
                item = f"{step}" * chance.randrange(4)
                queue.put(item)
                model.append(item.encode())
            case 2:
                items = [f"{step} {n}" for n in range(chance.randrange(4))]
                assert queue.put_many(items) == len(items)
                model.extend(item.encode() for item in items)
            case 3 | 4:
                assert queue.get() == (model.popleft() if model else None)
            case 5:
                with queue.open() as opened:
                    assert (opened and opened.body) == (model[0] if model else None)
                    if opened and chance.random() < 0.5:
                        opened.abort()
                    elif opened:
                        model.popleft()
            case _ if chance.random() < 0.05:
                queues.close()
                queues = ms.Queues(tmp_path / "queues", sync="never")
        assert len(queues["q"]) == len(model), step
    assert list(queues["q"]) == list(model)
    queues.close()
