"""User-defined sources: what wakes them, which worker reads them, positions of any type."""

from __future__ import annotations

import socket
import threading
from pathlib import Path
from typing import Any

import millstream as ms
import pytest


class Woken(ms.Source):
    """Counts its calls; returns the items that a test puts into a list."""

    def __init__(self) -> None:
        self.items: list[Any] = []
        self.asked = 0
        self.over = False
        self.ready = threading.Event()
        self.idle = threading.Event()

    def open(self, partition: str, position: Any, io: ms.SourceIo) -> Woken:
        self.io = io
        self.ready.set()
        return self

    def next_batch(self) -> list[Any] | None:
        self.asked += 1
        items = self.items
        self.items = []
        if not items and self.over:
            return None
        if not items:
            self.idle.set()
        return items

    def next_awake(self) -> None:
        return None

    def position(self) -> int:
        return 0


def running(flow: ms.Flow, **options: Any) -> threading.Thread:
    thread = threading.Thread(target=ms.run, args=(flow,), kwargs=options, daemon=True)
    thread.start()
    return thread


def test_a_source_is_woken_by_another_thread_and_not_polled() -> None:
    source = Woken()
    flow = ms.Flow("woken")
    seen = threading.Semaphore(0)
    flow.source("in", source).inspect(lambda item: seen.release()).sink("out", ms.testing.collect())
    thread = running(flow)
    assert source.ready.wait(60) and source.idle.wait(60)
    for item in range(50):
        source.items = [item]
        source.io.wake()
        assert seen.acquire(timeout=60)
    # It was asked only because it was woken: at most three times for each item, not each millisecond.
    assert source.asked <= 50 * 3 + 10
    threading.Event().wait(0.5)
    assert source.asked <= 50 * 3 + 10
    source.over = True
    source.io.wake()
    thread.join(60)
    assert not thread.is_alive()


class Reading(ms.Source):
    """Reads a socket a byte at a time, so that unread input remains."""

    def __init__(self, end: socket.socket, file: Any) -> None:
        self.end = end
        self.file = file
        end.setblocking(False)

    def open(self, partition: str, position: Any, io: ms.SourceIo) -> Reading:
        io.register(self.file)
        self.io = io
        self.asleep = False
        return self

    def next_batch(self) -> list[bytes] | None:
        # Every other call returns nothing: unread input must still wake it.
        self.asleep = not self.asleep
        if self.asleep:
            return []
        try:
            read = self.end.recv(1)
        except BlockingIOError:
            return []
        return [read] if read else None

    def next_awake(self) -> None:
        return None

    def position(self) -> int:
        return 0


@pytest.mark.parametrize("as_number", [False, True])
def test_a_registered_socket_wakes_a_source_for_as_long_as_it_has_input(as_number: bool) -> None:
    theirs, ours = socket.socketpair()
    out = ms.testing.collect()
    flow = ms.Flow("socket")
    flow.source("in", Reading(ours, ours.fileno() if as_number else ours)).sink("out", out)
    thread = running(flow)
    for text in (b"hel", b"lo"):
        theirs.sendall(text)
    theirs.close()
    thread.join(60)
    assert not thread.is_alive()
    assert b"".join(out) == b"hello"
    ours.close()


def test_what_cannot_be_watched_is_an_error_that_names_it(tmp_path: Path) -> None:
    class Wrong(Woken):
        fd = -1

        def open(self, partition: str, position: Any, io: ms.SourceIo) -> Woken:
            io.register(self.fd)
            return super().open(partition, position, io)

    source = Wrong()
    flow = ms.Flow("wrong")
    flow.source("in", source).sink("out", ms.testing.collect())
    with (tmp_path / "file").open("w") as file:
        source.fd = file.fileno()
        with pytest.raises(OSError, match=f"file descriptor {file.fileno()} cannot be watched"):
            ms.run(flow)
    source.fd = -1
    with pytest.raises(ms.FlowError, match="-1 is no file descriptor"):
        ms.run(flow)


class Dealt(ms.Source):
    def partitions(self, workers: int) -> list[str]:
        return [f"of {worker}" for worker in range(workers)]

    def open(self, partition: str, position: Any, io: ms.SourceIo) -> Dealt:
        dealt = Dealt()
        dealt.batches = [[(partition, io.worker, io.workers)]]
        return dealt

    def next_batch(self) -> Any:
        return self.batches.pop() if self.batches else None

    def next_awake(self) -> None:
        return None

    def position(self) -> int:
        return 0

    batches: list[Any]


@pytest.mark.parametrize("workers", [1, 3])
def test_a_source_knows_worker_and_number_of_workers(workers: int) -> None:
    out = ms.testing.collect()
    flow = ms.Flow("dealt")
    flow.source("in", Dealt()).sink("out", out)
    ms.run(flow, workers=workers)
    assert sorted(out) == [(f"of {worker}", worker, workers) for worker in range(workers)]


class Pages(ms.Source):
    """A service that returns pages, each with an opaque token for the next."""

    def __init__(self, tokens: list[Any], pages: int) -> None:
        self.tokens = tokens
        self.pages = pages

    def open(self, partition: str, position: Any) -> Pages:
        self.tokens.append(position)
        self.page = 0 if position is None else position["page"]
        return self

    def next_batch(self) -> list[int] | None:
        if self.page == self.pages:
            return None
        self.page += 1
        return [self.page]

    def next_awake(self) -> None:
        return None

    def position(self) -> Any:
        return {"page": self.page, "token": b"\xff" * self.page, "at": ("x", 1.5)}


def test_a_position_is_any_value_that_can_be_pickled(tmp_path: Path) -> None:
    tokens: list[Any] = []
    out = ms.testing.collect()
    source = Pages(tokens, 3)
    flow = ms.Flow("pages")
    flow.source("in", source).sink("out", out)
    ms.run(flow, state=tmp_path)
    source.pages = 5
    ms.run(flow, state=tmp_path)
    assert out == [1, 2, 3, 4, 5]
    assert tokens == [None, {"page": 3, "token": b"\xff" * 3, "at": ("x", 1.5)}]


def test_a_position_that_cannot_be_pickled_or_fails_names_the_source(tmp_path: Path) -> None:
    class Bad(Pages):
        bad: Any

        def position(self) -> Any:
            return self.bad()

    source = Bad([], 3)
    flow = ms.Flow("pages")
    flow.source("in", source).sink("out", ms.testing.collect())
    source.bad = lambda: threading.Lock()
    with pytest.raises(ms.StepError, match='step "in".*pickle'):
        ms.run(flow, state=tmp_path / "one")
    source.bad = lambda: 1 / 0
    with pytest.raises(ms.StepError, match='step "in".*division'):
        ms.run(flow, state=tmp_path / "two")
    for number, bad in enumerate((lambda: threading.Lock(), lambda: 1 / 0)):
        source.bad = bad
        durable = ms.Flow("pages")
        durable.source("in", source.durable()).sink("out", ms.testing.collect())
        with pytest.raises(ms.StepError, match='step "in".*(pickle|division)'):
            ms.run(durable, state=tmp_path / f"durable {number}")


def test_a_durable_source_resumes_from_a_position_of_any_type(tmp_path: Path) -> None:
    tokens: list[Any] = []
    out = ms.testing.collect()
    source = Pages(tokens, 3)
    plain = ms.Flow("pages")
    durable = ms.Flow("pages")
    plain.source("in", source).sink("out", out)
    durable.source("in", source.durable()).sink("out", out)
    # It becomes durable, and resumes from the position that was committed before.
    ms.run(plain, state=tmp_path)
    for pages in (4, 4, 6):
        source.pages = pages
        ms.run(durable, state=tmp_path)
    assert out == [1, 2, 3, 4, 5, 6]
    places = [position and (position["page"], len(position["token"])) for position in tokens]
    assert places == [None, (3, 3), (4, 4), (4, 4)]


class Notified(Pages):
    """Is notified of commits."""

    def __init__(self, tokens: list[Any], pages: int) -> None:
        super().__init__(tokens, pages)
        self.commits: list[dict[str, Any]] = []

    def commit(self, positions: dict[str, Any]) -> None:
        self.commits.append(positions)


def test_a_source_is_notified_of_commits(tmp_path: Path) -> None:
    source = Notified([], 3)
    flow = ms.Flow("pages")
    flow.source("in", source).sink("out", ms.testing.discard())
    ms.run(flow, state=tmp_path)
    assert source.commits[-1] == {"0": source.position()}


def test_a_failed_notification_ends_the_flow(tmp_path: Path) -> None:
    class Fails(Pages):
        def commit(self, positions: dict[str, Any]) -> None:
            raise OSError("the server is gone")

    flow = ms.Flow("pages")
    flow.source("in", Fails([], 3)).sink("out", ms.testing.discard())
    with pytest.raises((OSError, ms.FlowError), match="the server is gone"):
        ms.run(flow, state=tmp_path)


class Lists(Pages):
    """Lists of ten numbers, of which steps see at most three at once."""

    batch_size = 3

    def next_batch(self) -> list[int] | None:
        pages = super().next_batch()
        return pages and [pages[0] * 10 + n for n in range(10)]


def sizes(source: Any, path: Path | None = None, batch_size: int | None = None) -> list[int]:
    """The sizes of the batches that the first step sees."""
    out = ms.testing.collect()
    flow = ms.Flow("sizes")
    stream: Any = flow.source("in", source, batch_size=batch_size)
    stream.map_batch(lambda batch: [list(batch)]).sink("out", out)
    ms.run(flow, state=path)
    if isinstance(source, Lists):
        assert sum(out, []) == list(range(10, 10 + 10 * source.pages))
    return [len(batch) for batch in out]


def test_a_source_says_how_many_items_a_batch_has(tmp_path: Path) -> None:
    assert max(sizes(Lists([], 100))) == 3
    assert max(sizes(Lists([], 100).durable(), tmp_path / "one")) == 3
    assert max(sizes(Lists([], 100), batch_size=2)) == 2
    assert sizes(Lists([], 5), batch_size=1) == [1] * 50
    assert max(sizes(Lists([], 100), batch_size=1 << 70)) == 3
    lines = tmp_path / "lines"
    lines.write_text("one\n" * 100)
    for source in (
        ms.files.lines(lines),
        ms.files.directory(tmp_path, "lines"),
        ms.files.csv(lines, header=False),
        ms.generate(lambda: range(100)),
        ms.testing.items(range(100)),
        ms.generate(lambda: range(100), batch_size=4),
    ):
        found = sizes(source, batch_size=4)
        assert max(found) <= 4 and sum(found) == 100, (source, found)
    found = sizes(ms.files.lines(lines).durable(), tmp_path / "two", batch_size=4)
    assert max(found) <= 4 and sum(found) == 100


@pytest.mark.parametrize("size", [0, -1, "10", 2.5, True])
def test_a_size_of_batches_that_is_none_is_an_error_that_names_the_source(size: Any) -> None:
    source = Lists([], 5)
    said = f'source "in": batch_size is a number of items from 1, not {size!r}'
    with pytest.raises(ms.FlowUsageError, match=said):
        sizes(source, batch_size=size)
    source.batch_size = size
    for wrong in (source, source.durable()):
        with pytest.raises(ms.FlowUsageError, match=said):
            sizes(wrong)


class Refilled(ms.Source):
    """Fills one list again for each batch, and returns that list."""

    def open(self, partition: str, position: Any) -> Refilled:
        self.next = 0
        self.buffer = []
        return self

    def next_batch(self) -> list[int] | None:
        self.buffer.clear()
        self.buffer.extend(range(self.next, min(self.next + 11, 1_100)))
        self.next += 11
        return self.buffer or None

    def next_awake(self) -> float:
        return 0.0

    def position(self) -> int:
        return self.next


@pytest.mark.parametrize("workers", [1, 2])
def test_a_list_that_its_source_fills_again_is_copied(workers: int) -> None:
    """The engine gathers batches before a step of keys: each must keep the items it came with."""
    flow = ms.Flow("refilled")
    out = ms.testing.collect()
    keyed = flow.source("in", Refilled()).key_by(lambda n: n % 7)
    keyed.stateful_map("same", lambda state, n: (1, n)).values().sink("out", out)
    ms.run(flow, workers=workers)
    assert sorted(out) == list(range(1_100))


def test_the_writer_of_a_sink_may_keep_and_change_its_list() -> None:
    """A list that two branches read is not the one that either of them receives."""

    class Emptied:
        def open(self, worker: int) -> Emptied:
            return self

        def write_batch(self, items: list[int]) -> None:
            items.clear()

        def flush(self) -> None: ...

        def close(self) -> None: ...

    flow = ms.Flow("emptied")
    out = ms.testing.collect()
    items = flow.source("in", ms.testing.items(range(100), 10))
    items.sink("emptied", Emptied())
    items.sink("out", out)
    ms.run(flow)
    assert out == list(range(100))


class Many(ms.Source):
    """Partitions with an item each; counts the calls of the source."""

    def __init__(self, count: int) -> None:
        self.names = [f"partition {number}" for number in range(count)]
        self.listed = 0
        self.opened: list[tuple[str, Any]] = []

    def partitions(self) -> list[str]:
        self.listed += 1
        return self.names

    def open(self, partition: str, position: int | None) -> Single:
        self.opened.append((partition, position))
        return Single(partition, position or 0)


class Single:
    """The name of a partition as its only item."""

    def __init__(self, name: str, at: int) -> None:
        self.name = name
        self.at = at

    def next_batch(self) -> list[str] | None:
        if self.at:
            return None
        self.at = 1
        return [self.name]

    def next_awake(self) -> None:
        return None

    def position(self) -> int:
        return self.at


@pytest.mark.parametrize("workers", [1, 3])
def test_each_worker_lists_thousands_of_partitions_once(tmp_path: Path, workers: int) -> None:
    source = Many(3000)
    flow = ms.Flow("many")
    out = ms.testing.collect()
    names = sorted(source.names)
    timed = flow.source("in", source).event_time(lambda name: int(name.split()[1]), lateness=10_000)
    timed.key_by(str).count(name="count").sink("out", out)
    for position in (None, 1):
        source.listed = 0
        source.opened = []
        ms.run(flow, workers, state=tmp_path, sync=False)
        assert source.listed == workers
        assert sorted(source.opened) == [(name, position) for name in names]
        assert sorted(name for name, _ in out) == names
