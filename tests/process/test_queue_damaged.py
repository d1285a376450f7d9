"""Queues that are damaged on the disk, deleted over the wire of a real server in each way.

Afterwards their names can be used again.
"""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from queue_server import QueueServer, Serve

Run = Callable[..., subprocess.CompletedProcess[str]]
Delete = Callable[[QueueServer, Run, int], None]


def by_memcache(server: QueueServer, _run: Run, _kestrel_port: int) -> None:
    with server.connect() as line:
        assert line.ask(b"delete jobs") == b"DELETED"


def by_kestrel(server: QueueServer, _run: Run, kestrel_port: int) -> None:
    memcached_port = server.port
    server.port = kestrel_port
    with server.connect() as line:
        assert line.ask(b"delete jobs") == b"DELETED"
    server.port = memcached_port


def by_program(server: QueueServer, run: Run, _kestrel_port: int) -> None:
    done = run("queue", "delete", "jobs", "--server", f"127.0.0.1:{server.port}")
    assert done.returncode == 0, done.stderr


def flip(file: Path, at: int) -> None:
    content = bytearray(file.read_bytes())
    content[at] ^= 0x10
    file.write_bytes(content)


def a_record(queue: Path) -> None:
    file = queue / "segment-0000000000.log"
    flip(file, file.read_bytes().index(b"item-3"))


def the_header(queue: Path) -> None:
    flip(queue / "segment-0000000000.log", 24)


def the_start(queue: Path) -> None:
    (queue / "start").write_bytes(bytes(4096))


def no_segment(queue: Path) -> None:
    (queue / "segment-0000000000.log").unlink()


@pytest.mark.parametrize("damage", [a_record, the_header, the_start, no_segment])
@pytest.mark.parametrize("delete", [by_memcache, by_kestrel, by_program])
def test_a_damaged_queue_is_deleted_and_its_name_used_again(
    delete: Delete,
    damage: Callable[[Path], None],
    serve: Serve,
    run: Run,
    free_port: Callable[[], int],
) -> None:
    kestrel_port = free_port()
    server = serve(f"--listen-kestrel=127.0.0.1:{kestrel_port}")
    with server.connect() as line:
        for number in range(8):
            assert line.set("jobs", b"item-%d" % number) == b"STORED"
        assert line.set("sound", b"kept") == b"STORED"
    assert server.stop() == 0
    damage(server.folder / "jobs")

    server.start()
    with server.connect() as line:
        for request in (b"get jobs", b"flush jobs"):
            assert line.ask(request).startswith(b'SERVER_ERROR queue "jobs" is closed: '), request
        assert line.set("jobs", b"refused").startswith(b'SERVER_ERROR queue "jobs" is closed: ')
        assert line.stats()["queue_jobs_closed"] == "1"
        listed = run("queue", "list", "--json", "--server", f"127.0.0.1:{server.port}")
        assert {name: queue["closed"] for name, queue in json.loads(listed.stdout).items()} == {
            "jobs": True,
            "sound": False,
        }
        delete(server, run, kestrel_port)
        assert not (server.folder / "jobs").exists()
        assert line.get("jobs") is None
        assert line.set("jobs", b"anew") == b"STORED"
        assert "queue_jobs_closed" not in line.stats()
    server.kill()
    server.start()
    with server.connect() as line:
        assert (line.get("jobs"), line.get("jobs"), line.get("sound")) == (b"anew", None, b"kept")
