"""A full disk: what was taken stays taken, draining frees space, and sets go on by themselves."""

import os
import random
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from queue_server import Line, QueueServer
from small_disk import SmallDisk, small_disk
from soak import variations

ITEM = 4096
ROUNDS = int(os.environ.get("MILLSTREAM_KILLS", "0"))

Disk = Callable[[str, int], SmallDisk]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    """Mounts file systems until the end of the test: `disk("tmpfs", 24)`."""
    with ExitStack() as stack:
        count = iter(range(100))
        yield lambda kind, megabytes: stack.enter_context(
            small_disk(kind, megabytes, tmp_path / str(next(count)))
        )


@contextmanager
def server(program: Path, disk: SmallDisk, *options: str, config: str | None = None) -> Iterator[QueueServer]:
    """A server whose queues are on the disk, killed at the end."""
    server = QueueServer(program, disk.path / "queues", *options, config=config)
    server.log_path = disk.path.parent / "server.log"
    server.log_path.write_text("")
    server.start()
    try:
        yield server
    finally:
        if server.process is not None:
            server.kill()


def item(number: int, length: int = ITEM) -> bytes:
    return b"%010d" % number + b"x" * (length - 10)


def fill(line: Line, key: str, first: int, length: int = ITEM) -> list[int]:
    """Set items with numbers from `first` on until the disk is full; those that were stored."""
    stored: list[int] = []
    while True:
        numbers = range(first, first + 32)
        sets = [
            b"set %s 0 0 %d\r\n%s\r\n" % (key.encode(), length, item(number, length)) for number in numbers
        ]
        line.send(b"".join(sets))
        answers = dict(zip(numbers, [line.read() for _ in numbers], strict=True))
        good = [number for number, answer in answers.items() if answer == b"STORED"]
        bad = [answer for answer in answers.values() if answer != b"STORED"]
        assert all(b"No space left on device" in answer for answer in bad), bad
        stored += good
        first += 32
        if not good:
            return stored


def take(line: Line, key: str, count: int) -> list[int]:
    """The numbers of the next items, at most `count`."""
    line.send(b"get %s\r\n" % key.encode() * count)
    items = [line.value(line.read()) for _ in range(count)]
    return [int(item[:10]) for item in items if item is not None]


def wait_until(holds: Callable[[], bool], said: str) -> None:
    until = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < until, said
        time.sleep(0.05)


@pytest.mark.parametrize("kind", ["tmpfs", "ext4"])
def test_what_was_taken_from_a_queue_on_a_full_disk_stays_taken(
    kind: str, millstream_bin: Path, disk: Disk
) -> None:
    """The original failure: 80 MB, items of 4 KB; fill, take half, kill, take the rest."""
    mounted = disk(kind, 80)
    with server(millstream_bin, mounted, "--sync=never") as queues:
        with queues.connect() as line:
            items = fill(line, "q", 0)
            assert len(items) > 10_000
            taken: list[int] = []
            while len(taken) < len(items) // 2:
                taken += take(line, "q", 100)
        half = mounted.used
        queues.kill()
        queues.start()
        with queues.connect() as line:
            assert int(line.stats()["curr_items"]) == len(items) - len(taken), "items came back"
            while more := take(line, "q", 100):
                taken += more
            assert taken == items
            assert mounted.used < half / 4, "nothing was freed"
            # Sets go on, and the whole disk can be used again.
            again = fill(line, "q", items[-1] + 1)
            assert len(again) > (len(items) * 9) // 10
        assert queues.stop() == 0
        queues.start()
        with queues.connect() as line:
            assert take(line, "q", 1) == again[:1]


@pytest.mark.parametrize(
    ("kind", "sync", "rounds"),
    variations(
        [
            ("tmpfs", "never", 30),
            ("tmpfs", "50ms", 12),
            ("tmpfs", "always", 12),
            ("ext4", "never", 8),
            ("ext4", "always", 4),
            ("xfs", "never", 3),
            ("xfs", "always", 3),
            # A refused set takes long here: btrfs looks everywhere for room.
            ("btrfs", "never", 2),
            ("btrfs", "always", 2),
        ],
        lambda case: (
            case[:2] in [("tmpfs", "never"), ("ext4", "always"), ("xfs", "never"), ("btrfs", "never")]
        ),
    ),
)
def test_a_disk_is_filled_drained_and_filled_again_under_kills(
    kind: str, sync: str, rounds: int, millstream_bin: Path, disk: Disk
) -> None:
    """Each round fills the disk, takes a random part of the items, and kills the server."""
    seed = int(os.environ.get("MILLSTREAM_SEED", "1"))
    choice = random.Random(seed)
    mounted = disk(kind, 8)
    with server(millstream_bin, mounted, f"--sync={sync}") as queues:
        number = 0
        waiting: list[int] = []
        more = ROUNDS if kind == "tmpfs" else ROUNDS // 5
        for round_ in range(more or rounds):
            said = f"seed {seed}, round {round_}"
            with queues.connect(timeout=120) as line:
                stored = fill(line, "q", number, choice.choice([100, 1000, ITEM, 20_000]))
                number += 1 << 20
                waiting += stored
                for _ in range(choice.randrange(len(waiting) + 1) // 50):
                    assert take(line, "q", 50) == waiting[:50], said
                    del waiting[:50]
                if choice.random() < 0.3:
                    # All of it: the disk has nearly all of its space again.
                    while got := take(line, "q", 50):
                        assert got == waiting[: len(got)], said
                        del waiting[: len(got)]
                    wait_until(lambda: mounted.used < 3 << 20, said)
                    stored = fill(line, "q", number - (1 << 19), ITEM)
                    waiting += stored
                    assert stored, f"{said}: wedged"
                if choice.random() < 0.5:
                    # In flight while it is killed: any number of these may have left or not.
                    line.send(b"get q\r\n" * 20)
            queues.kill()
            queues.start()
            with queues.connect() as line:
                left = int(line.stats()["curr_items"])
                assert left <= len(waiting), f"{said}: {left - len(waiting)} items came back"
                assert left >= len(waiting) - 20, f"{said}: {len(waiting) - left} items are lost"
                del waiting[: len(waiting) - left]
                if left:
                    head = line.value(line.ask(b"get q/peek"))
                    assert head is not None and int(head[:10]) == waiting[0], said


def test_items_that_are_confirmed_out_of_order_on_a_full_disk_stay_confirmed(
    millstream_bin: Path, disk: Disk
) -> None:
    """The first items stay open while all others are confirmed: no segment can go."""
    mounted = disk("tmpfs", 8)
    config = "[defaults]\nmax_opens = 100\n"
    with server(millstream_bin, mounted, "--sync=never", config=config) as queues:
        with queues.connect() as held, queues.connect() as line:
            items = fill(line, "q", 0, 300)
            assert [held.get("q/open") for _ in range(10)] == [item(number, 300) for number in items[:10]]
            for _ in items[10:]:
                line.send(b"get q/close/open\r\n")
            got = [line.value(line.read()) for _ in items[10:]]
            assert got == [item(number, 300) for number in items[10:]]
            assert line.ask(b"get q/close") == b"END"
            queues.kill()
        queues.start()
        with queues.connect() as line:
            assert int(line.stats()["curr_items"]) == 10, "items came back"
            assert take(line, "q", 11) == items[:10]
            wait_until(lambda: mounted.used < 1 << 20, "nothing was freed")


def test_a_queue_on_a_full_disk_can_be_flushed_and_another_be_made_when_there_is_room(
    millstream_bin: Path, disk: Disk
) -> None:
    mounted = disk("tmpfs", 8)
    with server(millstream_bin, mounted, "--sync=never") as queues:
        with queues.connect() as line:
            ballast = mounted.path / "ballast"
            ballast.write_bytes(bytes(4 << 20))
            items = fill(line, "q", 0)
            assert b"No space left" in line.set("other", b"x")
            # By the operator: without a restart the other queue is made.
            ballast.unlink()
            assert line.set("other", b"x") == b"STORED"
            items += fill(line, "q", 1 << 20)
            assert line.ask(b"flush q") == b"END"
            wait_until(lambda: mounted.used < 1 << 20, "nothing was freed")
            queues.kill()
        queues.start()
        with queues.connect() as line:
            assert take(line, "q", 1) == []
            assert line.get("other") == b"x"
            assert len(fill(line, "q", 1 << 21)) > len(items) // 2


def test_space_is_freed_at_once_after_a_small_set_has_found_room(millstream_bin: Path, disk: Disk) -> None:
    mounted = disk("tmpfs", 24)
    with server(millstream_bin, mounted, "--sync=never") as queues, queues.connect() as line:
        ballast = mounted.path / "ballast"
        ballast.write_bytes(bytes(1 << 20))
        items = fill(line, "q", 0)
        full = mounted.used
        ballast.unlink()
        assert line.set("q", item(items[-1] + 1, 100)) == b"STORED"
        for step in range(8):
            assert take(line, "q", len(items) // 10) == items[: len(items) // 10]
            del items[: len(items) // 10]
            if step == 4:
                assert mounted.used < full - (6 << 20), "nothing was freed"


@pytest.mark.parametrize("kind", ["tmpfs", "ext4"])
def test_a_set_right_after_a_delete_has_the_room_of_what_was_deleted(
    millstream_bin: Path, disk: Disk, kind: str
) -> None:
    mounted = disk(kind, 24)
    with server(millstream_bin, mounted, "--sync=never") as queues, queues.connect() as line:
        for turn in range(10):
            assert len(fill(line, f"q{turn}", 0)) > 1000
            # Files are removed beside the thread that answers.
            assert line.ask(b"delete q%d" % turn) == b"DELETED"
            assert line.set(f"other{turn}", item(turn)) == b"STORED"
            assert take(line, f"other{turn}", 2) == [turn]
            assert line.ask(b"delete other%d" % turn) == b"DELETED"


def take_all_room(disk: SmallDisk) -> None:
    """Makes a file that leaves no block to others."""
    ballast = disk.path / "ballast"
    with ballast.open("wb", buffering=0) as file:
        for length in (1 << 20, 4096):
            try:
                while True:
                    file.write(bytes(length))
            except OSError:
                pass


def test_a_full_disk_makes_the_server_not_ready_and_is_one_line_of_the_log(
    millstream_bin: Path, disk: Disk, free_port: Callable[[], int]
) -> None:
    page = free_port()

    def ready() -> tuple[int, str]:
        try:
            answer = urllib.request.urlopen(f"http://127.0.0.1:{page}/readyz", timeout=30)
        except urllib.error.HTTPError as refused:
            answer = refused
        return answer.status, answer.read().decode()

    mounted = disk("tmpfs", 24)
    with server(millstream_bin, mounted, "--sync=never", f"--http=127.0.0.1:{page}") as queues:
        with queues.connect() as line:
            wait_until(lambda: ready()[0] == 200, "it starts")
            fill(line, "q", 0)
            wait_until(lambda: ready()[0] == 503, "it is ready")
            assert "No space left on device" in ready()[1]
            assert int(line.stats()["queue_q_refused_disk"]) >= 32
            while take(line, "q", 100):
                pass
            assert line.set("q", b"x") == b"STORED"
            wait_until(lambda: ready()[0] == 200, "it is not ready")
        assert queues.stop() == 0
    assert queues.log_path.read_text().count('items are refused: queue "q": ') == 1


@pytest.mark.parametrize("kind", ["tmpfs", "ext4"])
def test_a_queue_on_a_disk_without_a_free_block_is_emptied_across_kills(
    kind: str, millstream_bin: Path, disk: Disk
) -> None:
    """So many items that their tombstones need more than the first file; each start finds no block."""
    mounted = disk(kind, 24 if kind == "ext4" else 8)
    with server(millstream_bin, mounted, "--sync=never") as queues:
        with queues.connect() as line:
            items = fill(line, "q", 0, 100)
            assert len(items) > 33_000
        queues.kill()
        take_all_room(mounted)
        taken: list[int] = []
        for get in (b"get q\r\n", b"get q/open\r\nget q/close\r\n", b"get q/close/open\r\n"):
            queues.start()
            with queues.connect() as line:
                assert int(line.stats()["curr_items"]) == len(items) - len(taken), "items came back"
                for _ in range(100):
                    line.send(get * 50)
                    answers = [line.value(line.read()) for _ in range(50 * get.count(b"get"))]
                    taken += [int(answer[:10]) for answer in answers if answer is not None]
                assert line.ask(b"get q/close") == b"END"
            queues.kill()
        assert taken == items[: len(taken)] and len(taken) == 15_000
        queues.start()
        with queues.connect() as line:
            while more := take(line, "q", 50):
                taken += more
        queues.kill()
        assert taken == items
        queues.start()
        with queues.connect() as line:
            assert take(line, "q", 1) == []
            assert len(fill(line, "q", 1 << 21)) > 0
