"""What queues take: nothing for a read, little for a few items, no descriptors while idle."""

import os
import time
from collections.abc import Callable
from pathlib import Path

from queue_server import Line, QueueServer, Serve
from small_disk import small_disk

# 10,000 queues take 1 GiB; a quarter of both unless there is time.
QUEUES = 10_000 if os.environ.get("MILLSTREAM_KILLS") else 2_500
DISK_MEBIBYTES = QUEUES * 1024 // 10_000


def disk_bytes(folder: Path) -> int:
    """As `du` counts."""
    return sum(
        Path(root, name).lstat().st_blocks * 512
        for root, folders, files in os.walk(folder)
        for name in [*files, "."]
    )


def descriptors(server: QueueServer) -> int:
    assert server.process is not None
    return len(os.listdir(f"/proc/{server.process.pid}/fd"))


def wait_until(holds: Callable[[], bool], said: Callable[[], object]) -> None:
    until = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < until, said()
        time.sleep(0.1)


def test_a_read_makes_nothing_on_the_disk(serve: Serve) -> None:
    server = serve("--sync=never")
    with server.connect() as line:
        for key in ["typo/t=1", "typo/open", "typo/peek"]:
            assert line.get(key) is None
    assert [path.name for path in server.folder.iterdir()] == [".lock"]
    # A fan-out queue is registered by its first mention: it gets its copies after a restart too.
    with server.connect() as line:
        assert line.get("work+typo") is None
    server.kill()
    server.start()
    with server.connect() as line:
        assert line.set("work", b"item") == b"STORED"
        assert line.get("work+typo") == b"item"
    assert sorted(path.name for path in server.folder.iterdir()) == [".lock", "work", "work+typo"]


def test_a_queue_with_a_few_items_takes_little_and_says_how_much(serve: Serve) -> None:
    server = serve("--sync=never")
    with server.connect() as line:
        for number in range(10):
            assert line.set("small", b"item %d" % number) == b"STORED"
        held = disk_bytes(server.folder / "small")
        assert held <= 64 << 10
        assert int(line.stats()["queue_small_logsize"]) == held
        # Larger and then empty and not used: its space and its descriptors are freed.
        before = descriptors(server)
        for _ in range(200):
            assert line.set("small", bytes(100_000)) == b"STORED"
        assert disk_bytes(server.folder / "small") > 16 << 20
        for _ in range(210):
            assert line.get("small") is not None
        wait_until(lambda: descriptors(server) < before, lambda: (descriptors(server), before))
        assert disk_bytes(server.folder / "small") <= 128 << 10
        # It is opened again when it is used.
        assert line.set("small", b"again") == b"STORED"
    server.kill()
    server.start()
    with server.connect() as line:
        assert line.get("small") == b"again"


def test_ten_thousand_queues_fit_in_a_gibibyte_and_a_thousand_descriptors(
    millstream_bin: Path, tmp_path: Path
) -> None:
    with small_disk("tmpfs", DISK_MEBIBYTES, tmp_path) as disk:
        server = QueueServer(millstream_bin, disk.path / "queues", "--sync=never")
        server.log_path = tmp_path / "server.log"
        server.log_path.write_text("")
        server.start()
        try:
            make_and_read_many(server)
        finally:
            server.kill()


def make_and_read_many(server: QueueServer) -> None:
    def each(line: Line, request: Callable[[int], bytes], lines: int) -> list[list[bytes]]:
        answers = []
        for first in range(0, QUEUES, 100):
            line.send(b"".join(request(number) for number in range(first, first + 100)))
            answers += [[line.read() for _ in range(lines)] for _ in range(100)]
        return answers

    with server.connect(timeout=120) as line:
        stored = each(line, lambda n: b"set q%d 0 0 6\r\n%06d\r\n" % (n, n), 1)
        assert stored == [[b"STORED"]] * QUEUES
        wait_until(lambda: descriptors(server) < 1000, lambda: descriptors(server))
    assert disk_bytes(server.folder) < DISK_MEBIBYTES << 20
    server.kill()
    server.start()
    assert descriptors(server) < 1000
    with server.connect(timeout=120) as line:
        got = each(line, lambda n: b"get q%d\r\n" % n, 3)
        assert [answer[1] for answer in got] == [b"%06d" % n for n in range(QUEUES)]
