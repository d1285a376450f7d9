"""The queue server with clients that know nothing of it: the memcache libraries in use, and typed lines."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import memcache
import pylibmc
import pytest
from pymemcache.client.base import Client as PyMemcache

Serve = Callable[..., Any]
DOCUMENT = Path(__file__).parent.parent.parent / "docs" / "memcache.md"


class PyMemcacheClient:
    """pymemcache: set and delete do not wait for an answer unless told to."""

    def __init__(self, port: int) -> None:
        self.client = PyMemcache(("127.0.0.1", port), default_noreply=False)

    def put(self, queue: str, item: bytes) -> None:
        assert self.client.set(queue, item)

    def get(self, key: str) -> Any:
        return self.client.get(key)

    def delete(self, queue: str) -> None:
        assert self.client.delete(queue)


class PythonMemcachedClient:
    """python-memcached: a blank at the end of the line of a set, flags that say the type."""

    def __init__(self, port: int) -> None:
        self.client = memcache.Client([f"127.0.0.1:{port}"], socket_timeout=10)

    def put(self, queue: str, item: bytes) -> None:
        assert self.client.set(queue, item)

    def get(self, key: str) -> Any:
        return self.client.get(key)

    def delete(self, queue: str) -> None:
        assert self.client.delete(queue) == 1


class PylibmcClient:
    """pylibmc: libmemcached, by the text protocol."""

    def __init__(self, port: int) -> None:
        self.client = pylibmc.Client([f"127.0.0.1:{port}"], binary=False)
        self.client.behaviors = {"receive_timeout": 10_000_000, "_poll_timeout": 10_000}

    def put(self, queue: str, item: bytes) -> None:
        assert self.client.set(queue, item)

    def get(self, key: str) -> Any:
        return self.client.get(key)

    def delete(self, queue: str) -> None:
        assert self.client.delete(queue)


@pytest.mark.parametrize("make", [PyMemcacheClient, PythonMemcachedClient, PylibmcClient])
def test_a_memcache_client_is_a_queue_client(serve_queues: Serve, make: Callable[[int], Any]) -> None:
    server = serve_queues()
    client, other = make(server.port), make(server.port)
    for n in range(100):
        client.put("jobs", b"job %d" % n)
    assert [other.get("jobs") for _ in range(50)] == [b"job %d" % n for n in range(50)]
    # A reliable read: open, close and open the next, give back.
    assert client.get("jobs/open") == b"job 50"
    assert client.get("jobs/close/open") == b"job 51"
    assert client.get("jobs/abort") is None
    assert other.get("jobs/peek") == b"job 51"
    # A blocking read that ends with its time, and one that finds an item.
    assert client.get("empty/t=30") is None
    client.put("empty", b"no longer")
    assert client.get("empty/t=5000") == b"no longer"
    client.put("large", b"x" * 900_000)
    assert len(other.get("large")) == 900_000
    client.delete("jobs")
    assert client.get("jobs") is None


def test_noreply_sets_of_pymemcache_arrive(serve_queues: Serve) -> None:
    server = serve_queues()
    client = PyMemcache(("127.0.0.1", server.port))
    for n in range(1_000):
        client.set("jobs", str(n))
    assert client.get_many(["jobs", "nothing"]) == {"jobs": b"0"}
    assert client.gets("jobs")[0] == b"1"
    assert client.stats()[b"curr_items"] == 998
    client.flush_all()
    assert client.get("jobs") is None


def test_a_line_typed_by_hand_needs_no_carriage_return(serve_queues: Serve) -> None:
    assert serve_queues().ask(b"set q 0 0 2\nhi\nget q\n") == b"STORED|VALUE q 0 2|hi|END|"


def test_the_document_shows_what_happens(serve_queues: Serve, tmp_path: Path) -> None:
    """Each example of docs/memcache.md, in their order: `>` is sent, the rest is the answer."""
    known = tmp_path / "known"
    known.write_text("ann:secret\n")
    plain, asking = serve_queues(), serve_queues("--auth-file", str(known))
    blocks = re.findall(r"```\n(> .*?)```", DOCUMENT.read_text("utf-8"), re.DOTALL)
    assert len(blocks) >= 7
    for block in blocks:
        lines = block.splitlines()
        sent = [line[2:] for line in lines if line.startswith("> ")]
        expected = "".join(line + "\r\n" for line in lines if not line.startswith("> "))
        server = asking if sent[0].startswith("set auth") else plain
        with server.connect() as connection, connection.makefile("rb") as answers:
            connection.sendall("".join(line + "\r\n" for line in sent).encode())
            assert answers.read(len(expected)).decode() == expected, block


def test_the_verbs_of_the_program_are_clients_too(serve_queues: Serve, run: Callable[..., Any]) -> None:
    server = serve_queues()
    where = ("--server", f"127.0.0.1:{server.port}")
    assert run("queue", "put", "jobs", "first", *where).returncode == 0
    assert run("queue", "put", "jobs", *where, input="second\nthird\n").returncode == 0
    assert run("queue", "peek", "jobs", *where).stdout == "first\n"
    assert run("queue", "get", "jobs", "--count", "2", *where).stdout == "first\nsecond\n"
    assert '"jobs":{"items":1,"bytes":5,' in run("queue", "list", "--json", *where).stdout
    assert "\ntotal_items 3\n" in run("queue", "stats", "jobs", *where).stdout
    assert run("queue", "drain", "jobs", *where).stdout == "third\n"
    nothing = run("queue", "get", "jobs", "--wait", "200ms", *where)
    assert (nothing.returncode, nothing.stderr) == (1, 'millstream queue get: queue "jobs" has no item\n')
    assert run("queue", "put", "a/b", "x", *where).returncode == 2
    server.stop()
    assert run("queue", "list", *where).stderr.startswith(
        f"millstream queue list: cannot connect to 127.0.0.1:{server.port}"
    )


def test_old_queues_are_taken_over(tmp_path: Any, run: Callable[..., Any], serve_queues: Serve) -> None:
    spool = tmp_path / "spool"
    spool.mkdir()
    push = b"\0" + (9).to_bytes(4, "little") + bytes(4)
    (spool / "jobs").write_bytes(push + b"first" + push + b"secnd" + b"\1" + push + b"torn")
    server = serve_queues()
    server.stop()
    done = run("queue", "import", "--from", "starling", spool, "--dir", server.folder)
    assert done.returncode == 1
    damage = "damaged at offset 29: an item of 5 bytes, of which 4 are there"
    assert done.stdout == f"jobs: 1 items; {spool / 'jobs'}: {damage}\n"
    server.start()
    assert server.ask(b"get jobs|get jobs|") == b"VALUE jobs 0 5|secnd|END|END|"


def test_bad_options_are_refused_with_one_line(
    run: Callable[..., Any], tmp_path: Any, free_port: Callable[[], int]
) -> None:
    config = tmp_path / "queues.toml"
    config.write_text("[defaults]\nmax_itmes = 5\n")
    port = f"127.0.0.1:{free_port()}"
    wrong = run("queue", "serve", "--config", config, "--dir", tmp_path / "q", "--listen", port)
    assert wrong.returncode == 1
    assert wrong.stderr.startswith(f"millstream queue serve: {config}: line 2: unknown field `max_itmes`")
    assert run("queue", "serve", "--sync", "sometimes").returncode == 2
    assert run("queue", "serve", "--tls-cert", "x.pem").returncode == 2
