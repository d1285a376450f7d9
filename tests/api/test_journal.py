"""Journals from Python: appending, reading, views, cursors, retention, and how they fail."""

import array
import datetime
import gc
import pickle
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import millstream as ms
import pytest

SMALL = 64 << 10


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[ms.Journal]:
    with ms.Journal(tmp_path / "orders", segment_bytes=SMALL) as journal:
        yield journal


def bodies(records: Any) -> list[bytes]:
    return [record.body for record in records]


def numbers(count: int) -> list[bytes]:
    return [b"%d" % n for n in range(count)]


def test_every_kind_of_body_is_kept_as_its_bytes(journal: ms.Journal) -> None:
    class Pair(ms.Record, format=">HH", fields="a b"):
        pass

    kinds: list[tuple[Any, bytes]] = [
        (b"bytes", b"bytes"),
        ("text \u00fc", "text \u00fc".encode()),
        (bytearray(b"array"), b"array"),
        (memoryview(b"a view")[2:], b"view"),
        (array.array("B", [1, 2]), b"\x01\x02"),
        (Pair.pack(1, 2), b"\0\1\0\2"),
        (b"", b""),
        (b"x" * 40_000, b"x" * 40_000),
    ]
    for number, (body, kept) in enumerate(kinds):
        assert journal.append(body) == number
        assert journal[number].body == bytes(journal[-1]) == kept
    assert journal.append_many([body for body, _ in kinds]) == range(len(kinds), 2 * len(kinds))
    assert bodies(journal[len(kinds) :]) == [kept for _, kept in kinds]
    assert journal.append(journal[0]) == 2 * len(kinds)
    assert journal[-1].body == b"bytes"


@pytest.mark.parametrize("wrong", [1, None, ["list"], object()])
def test_what_is_no_body_is_refused_and_appends_nothing(journal: ms.Journal, wrong: object) -> None:
    with pytest.raises(TypeError, match="a record is bytes, str, or a buffer of bytes, not "):
        journal.append(wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="a record is bytes"):
        journal.append_many([b"good", wrong])  # type: ignore[list-item]
    assert len(journal) == 0


def test_one_body_is_not_many(journal: ms.Journal) -> None:
    for one in (b"abc", "abc"):
        with pytest.raises(TypeError, match="not one record"):
            journal.append_many(one)  # type: ignore[arg-type]
    assert journal.append_many([]) == range(0, 0)
    assert journal.append_many(iter([])) == range(0, 0)


def test_batches_from_any_iterable(journal: ms.Journal) -> None:
    assert journal.append_many(tuple(numbers(3))) == range(0, 3)
    assert journal.append_many(b"%d" % n for n in range(10_000)) == range(3, 10_003)
    assert bodies(journal) == numbers(3) + numbers(10_000)

    def failing() -> Iterator[bytes]:
        yield b"one"
        raise KeyError("source")

    with pytest.raises(KeyError):
        journal.append_many(failing())
    assert len(journal) == 10_003


def test_numbers_and_slices(journal: ms.Journal) -> None:
    journal.append_many(numbers(1_000))
    assert (journal.first, journal.next, len(journal)) == (0, 1_000, 1_000)
    model = numbers(1_000)
    for part in (
        slice(5),
        slice(990, None),
        slice(-3, None),
        slice(10, 20),
        slice(20, 10),
        slice(-2_000, 2_000),
    ):
        assert bodies(journal[part]) == model[part]
    assert journal[-1_000].sequence == 0
    for beyond in (1_000, -1_001, 1 << 80):
        with pytest.raises((IndexError, OverflowError)):
            journal[beyond]
    with pytest.raises(ms.RecordNotYetError, match="there is no record 1000 yet"):
        journal[1_000]
    with pytest.raises(ValueError, match="step"):
        journal[::2]
    with pytest.raises(TypeError):
        journal["1"]  # type: ignore[call-overload]


def test_a_record_describes_itself(journal: ms.Journal) -> None:
    before = time.time_ns()
    journal.append(b"body")
    record = journal[0]
    assert (record.sequence, record.body, len(record), bytes(record)) == (0, b"body", 4, b"body")
    assert before <= record.time_ns <= time.time_ns()
    assert record.time.tzinfo is datetime.timezone.utc
    assert abs(record.time.timestamp() - record.time_ns / 1e9) < 1e-5
    assert record == journal[0] and hash(record) == hash(journal[0])
    journal.append(b"body")
    assert record != journal[1] and record != b"body"
    assert repr(record) == f"<record 0 of {record.time.isoformat()}: b'body'>"
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(record)


def test_a_view_copies_nothing_and_outlives_everything(tmp_path: Path) -> None:
    journal = ms.Journal(tmp_path / "orders", segment_bytes=SMALL)
    journal.append_many(numbers(20_000))
    views = [record.view for record in journal]
    records = list(journal[:100])
    assert views[7].readonly and views[7].obj is views[8].obj, "views of one segment share its mapping"
    assert journal.prune(bytes=0) > 0
    late = [record.view for record in records]
    journal.close()
    gc.collect()
    assert [view.tobytes() for view in views] == numbers(20_000)
    assert [record.body for record in records] == [view.tobytes() for view in late] == numbers(100)
    with pytest.raises(TypeError):
        views[0][0] = 0


def test_readers_have_a_position(journal: ms.Journal) -> None:
    journal.append_many(numbers(500))
    reader = journal.read(10, 400)
    assert reader.position == 10
    assert next(reader).sequence == 10 and reader.position == 11
    reader.seek(398)
    assert [record.sequence for record in reader] == [398, 399]
    reader.seek(0)
    assert next(reader).body == b"0"
    reader.close()
    with pytest.raises(StopIteration):
        next(reader)
    with pytest.raises(ms.RecordNotYetError):
        journal.read(501)
    # An iterator at the end continues when there are new records.
    rest = journal.read(500)
    assert list(rest) == []
    journal.append(b"late")
    assert bodies(rest) == [b"late"]


def test_seek_by_time(journal: ms.Journal) -> None:
    for n in range(5):
        journal.append(b"%d" % n)
        time.sleep(0.001)
    third = journal[3]
    assert journal.seek(time=third.time_ns) == 3
    assert journal.seek(time=third.time_ns + 1) == 4
    assert journal.seek(time=third.time) in (3, 4), "a datetime has microseconds only"
    assert journal.seek(time=third.time_ns / 1e9 - 1) == 0
    assert journal.seek(time=datetime.datetime.max.replace(year=2500, tzinfo=datetime.timezone.utc)) == 5
    for wrong in (-1, -0.5, datetime.datetime(2026, 1, 1), float("nan"), 1e30):
        with pytest.raises(ms.JournalUsageError):
            journal.seek(time=wrong)


def test_a_tail_waits_for_others_and_lets_threads_run(journal: ms.Journal, tmp_path: Path) -> None:
    code = (
        "import sys, time, millstream as ms\n"
        "with ms.Journal(sys.argv[1]) as journal:\n"
        "    for n in range(200):\n"
        "        journal.append(b'%d' % n)\n"
        "        time.sleep(0.001)\n"
    )
    ticks = 0
    done = threading.Event()

    def tick() -> None:
        nonlocal ticks
        while not done.is_set():
            ticks += 1
            time.sleep(0.001)

    ticker = threading.Thread(target=tick)
    ticker.start()
    with subprocess.Popen([sys.executable, "-c", code, str(journal.path)]):
        seen = bodies(islice(journal.tail(0, timeout=30), 200))
    done.set()
    ticker.join()
    assert seen == numbers(200)
    assert ticks > 20, "the interpreter lock was held while waiting"


@pytest.mark.parametrize("wait", ["block", "backoff", "spin"])
def test_a_tail_ends_after_its_time(journal: ms.Journal, wait: Any) -> None:
    journal.append(b"old")
    assert bodies(journal.tail(timeout=0.01, wait=wait)) == []
    tail = journal.tail(0, timeout=datetime.timedelta(milliseconds=10), wait=wait)
    assert bodies(tail) == [b"old"]
    journal.append(b"new")
    assert bodies(tail) == [b"new"]


def test_a_tail_ends_when_it_or_the_journal_is_closed(journal: ms.Journal) -> None:
    def follow(tail: ms.JournalReader, seen: queue.Queue[bytes | None]) -> None:
        for record in tail:
            seen.put(record.body)
        seen.put(None)

    tails = [journal.tail(), journal.tail()]
    seen: list[queue.Queue[bytes | None]] = [queue.Queue(), queue.Queue()]
    threads = [
        threading.Thread(target=follow, args=each, daemon=True) for each in zip(tails, seen, strict=True)
    ]
    for thread in threads:
        thread.start()
    journal.append(b"one")
    assert [each.get(timeout=10) for each in seen] == [b"one", b"one"]
    with pytest.raises(ValueError, match="another thread is using this reader"):
        # It is in use nearly all the time.
        while True:
            tails[0].position  # noqa: B018
    tails[0].close()
    assert seen[0].get(timeout=10) is None
    journal.close()
    assert seen[1].get(timeout=10) is None


def test_cursors_outlive_their_journal(tmp_path: Path) -> None:
    with ms.Journal(tmp_path, segment_bytes=SMALL) as journal:
        journal.append_many(numbers(10_000))
        with journal.cursor("billing") as cursor:
            assert (cursor.name, cursor.position, repr(cursor)) == ("billing", 0, "<cursor 'billing' at 0>")
            cursor.position = 9_000
            cursor.sync()
            with pytest.raises(ms.JournalBusyError, match="in use by another reader"):
                journal.cursor("billing")
            with pytest.raises(ms.RecordNotYetError):
                cursor.position = 10_001
        with pytest.raises(ValueError, match="closed"):
            cursor.position  # noqa: B018
        assert journal.prune(keep_for_cursors=True) > 1_000
    with ms.Journal(tmp_path) as journal:
        assert journal.cursors() == {"billing": 9_000}
        with journal.cursor("billing", shared=True) as one, journal.cursor("billing", shared=True) as two:
            one.position = 9_500
            assert two.position == 9_500
        with pytest.raises(ms.RecordPrunedError, match="has been pruned; the first one is "):
            journal[0]
        journal.remove_cursor("billing")
        assert journal.cursors() == {}
        with pytest.raises(ms.JournalUsageError, match="cursor"):
            journal.cursor("../etc")


def test_each_way_to_read_a_removed_record_says_that_it_was_pruned(tmp_path: Path) -> None:
    with ms.Journal(tmp_path, segment_bytes=SMALL) as journal, ms.Journal(tmp_path, mode="r") as reading:
        journal.append_many(numbers(20_000))
        # Records are found some hundreds at a time: these readers are still in the first segment.
        started: list[Iterator[ms.JournalRecord]] = []
        for each in (journal, reading):
            started += [
                iter(each),
                each[:],
                each.read(3),
                each.tail(0),
                each.tail(0, wait="spin"),
                each.tail(0, wait="backoff"),
            ]
        for reader in started:
            next(reader)
        view = reading[0].view
        with journal.cursor("slow") as cursor:
            first = journal.prune(bytes=SMALL)
            assert first > 10_000
            for reader in started:
                with pytest.raises(ms.RecordPrunedError, match=f"the first one is {first}$"):
                    for _ in reader:
                        pass
            for each in (journal, reading):
                for read in (each.read, each.tail, each.__getitem__):
                    for number in (0, cursor.position, first - 1):
                        with pytest.raises(ms.RecordPrunedError, match=f"the first one is {first}$"):
                            read(number)
                # Numbers that do not exist are skipped, as in a slice of a list.
                assert [record.sequence for record in each[: first + 2]] == [first, first + 1]
                assert next(iter(each)).sequence == first
        assert bytes(view) == b"0"


def test_retention_while_appending(tmp_path: Path) -> None:
    with ms.Journal(tmp_path, segment_bytes=SMALL, retain_bytes=4 * SMALL) as journal:
        for _ in range(20):
            journal.append_many(numbers(5_000))
        deadline = time.monotonic() + 10
        while journal.first == 0 and time.monotonic() < deadline:
            journal.append(b"more")
            time.sleep(0.01)
        assert journal.first > 0
    # Retention works in the background of a writer: only a closed journal holds still.
    with ms.Journal(tmp_path, mode="r") as journal:
        assert 0 < journal.first < journal.next
        assert len(journal) == journal.next - journal.first
        assert next(iter(journal)).sequence == journal.first


def test_sync_is_one_of_three(tmp_path: Path) -> None:
    for at, sync in enumerate(["never", "always", 0.01, datetime.timedelta(seconds=1)]):
        with ms.Journal(tmp_path / str(at), sync=sync) as journal:  # type: ignore[arg-type]
            journal.append(b"one")
            if sync == "always":
                assert journal.durable == 1
            assert journal.sync() == journal.durable == 1
    for wrong in ("sometimes", 0, -1, float("inf")):
        with pytest.raises(ms.JournalUsageError, match="sync is"):
            ms.Journal(tmp_path, sync=wrong)  # type: ignore[arg-type]


def test_modes(tmp_path: Path) -> None:
    path = tmp_path / "orders"
    with pytest.raises(FileNotFoundError, match="there is no journal here") as caught:
        ms.Journal(path, "r")
    assert isinstance(caught.value, ms.JournalError) and caught.value.path == path
    with ms.Journal(path, "x") as made:
        made.append(b"one")
        with pytest.raises(FileExistsError):
            ms.Journal(path, "x")
    with ms.Journal(str(path), "r") as journal:
        assert (journal.mode, journal.path, bodies(journal)) == ("r", path, [b"one"])
        with pytest.raises(ms.JournalReadOnlyError):
            journal.append(b"two")
        with pytest.raises(OSError):
            journal.append_many([b"two"])
    with ms.Journal(path, exclusive=True), pytest.raises(BlockingIOError, match="exclusively"):
        ms.Journal(path)
    with pytest.raises(ValueError, match='mode is "a", "r" or "x", not \'w\''):
        ms.Journal(path, "w")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="segment_bytes = 1000"):
        ms.Journal(tmp_path / "other", segment_bytes=1000)
    (tmp_path / "file.txt").write_text("text")
    with pytest.raises(ms.NotAJournalError, match='the directory holds "'):
        ms.Journal(tmp_path)


def test_a_closed_journal_says_so(journal: ms.Journal) -> None:
    journal.append_many(numbers(300))
    reader = iter(journal)
    record = journal[0]
    next(reader)
    assert repr(journal) == f"<journal '{journal.path}', mode 'a', records 0..300>"
    journal.close()
    journal.close()
    assert journal.closed and repr(journal) == f"<journal '{journal.path}', closed>"
    calls = [
        lambda: journal.append(b""),
        lambda: journal.append_many([b""]),
        lambda: journal[0],
        lambda: journal[0:1],
        lambda: iter(journal),
        lambda: len(journal),
        lambda: journal.tail(),
        lambda: journal.sync(),
        lambda: journal.cursor("c"),
        lambda: journal.__enter__(),
        lambda: list(reader),
    ]
    for call in calls:
        with pytest.raises(ms.JournalClosedError, match="the journal is closed"):
            call()
    assert (record.body, record.view.tobytes()) == (b"0", b"0")


def test_limits_are_clear_errors(tmp_path: Path) -> None:
    with ms.Journal(tmp_path, segment_bytes=SMALL, record_bytes_max=100) as journal:
        with pytest.raises(ms.RecordTooLargeError, match="a record of 101 bytes is over the limit of 100"):
            journal.append(b"x" * 101)
        with pytest.raises(ValueError):
            journal.append_many([b"x", b"x" * 101])
        assert len(journal) == 0


@pytest.mark.parametrize("collected", [list, tuple])
def test_a_batch_with_a_wrong_record_leaves_nothing(
    tmp_path: Path, collected: Callable[[list[object]], Sequence[bytes]]
) -> None:
    with ms.Journal(tmp_path, segment_bytes=SMALL, record_bytes_max=1_000) as journal:
        assert journal.append(b"before") == 0
        for wrong, expected in ((b"x" * 1_001, ms.RecordTooLargeError), (7, TypeError)):
            # Into several segments.
            with pytest.raises(expected):
                journal.append_many(collected([*[b"x" * 1_000] * 200, wrong]))
            assert [record.body for record in journal] == [b"before"]
        # What another iterable yields goes in batches of 4,096, and each is a batch of its own.
        with pytest.raises(ms.RecordTooLargeError):
            journal.append_many(b"x" * (1_001 if n == 5_000 else 1) for n in range(6_000))
        assert len(journal) == 1 + 4_096


def test_damage_names_file_and_offset(tmp_path: Path) -> None:
    with ms.Journal(tmp_path, segment_bytes=SMALL) as journal:
        journal.append_many(numbers(300))
        journal.sync()
    file = tmp_path / "segment-0000000000.log"
    content = bytearray(file.read_bytes())
    content[8192 + 100 * 24 + 16] ^= 1
    file.write_bytes(content)
    with ms.Journal(tmp_path, "r") as journal:
        reader = iter(journal)
        with pytest.raises(OSError, match="damaged at offset") as caught:
            list(reader)
        error = caught.value
        assert isinstance(error, ms.JournalDamageError)
        assert (error.path, error.offset) == (file, 8192 + 100 * 24)


def test_a_forked_child_must_open_again(journal: ms.Journal) -> None:
    # In a process of its own: a fork of this one would inherit its threads' locks.
    code = (
        "import os, sys, millstream as ms\n"
        "journal = ms.Journal(sys.argv[1])\n"
        "journal.append(b'parent')\n"
        "if (child := os.fork()) == 0:\n"
        "    try:\n"
        "        journal.append(b'child')\n"
        "    except ms.JournalForkedError as error:\n"
        "        print(error, isinstance(error, RuntimeError), flush=True)\n"
        "    with ms.Journal(sys.argv[1]) as own:\n"
        "        own.append(b'own')\n"
        "    os._exit(0)\n"
        "os.waitpid(child, 0)\n"
        "journal.append(b'parent again')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(journal.path)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert "this journal was opened before a fork; open it again in the child True" in done.stdout
    assert bodies(journal) == [b"parent", b"own", b"parent again"]
    with pytest.raises(TypeError, match="cannot pickle"):
        pickle.dumps(journal)


def test_many_threads_append_and_read_one_journal(journal: ms.Journal) -> None:
    each = 2_000

    def write(name: int) -> None:
        for n in range(each):
            if n % 10 == 0:
                journal.append_many([b"%d %d" % (name, n)])
            else:
                journal.append(b"%d %d" % (name, n))

    threads = [threading.Thread(target=write, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    seen = bodies(islice(journal.tail(0, timeout=30), 4 * each))
    for thread in threads:
        thread.join()
    for name in range(4):
        mine = [body for body in seen if body.startswith(b"%d " % name)]
        assert mine == [b"%d %d" % (name, n) for n in range(each)]


def test_ctrl_c_ends_a_tail(journal: ms.Journal) -> None:
    code = (
        "import sys, millstream as ms\n"
        "with ms.Journal(sys.argv[1]) as journal:\n"
        "    try:\n"
        "        print('ready', flush=True)\n"
        "        list(journal.tail())\n"
        "    except KeyboardInterrupt:\n"
        "        print('interrupted')\n"
    )
    command = [sys.executable, "-c", code, str(journal.path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        child.send_signal(signal.SIGINT)
        assert child.stdout.read() == "interrupted\n"
    assert child.returncode == 0
