"""What broken and hostile clients do to the queue server, while a good client goes on."""

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

Serve = Callable[..., Any]
CONFIG = """
[limits]
connections = 300
request_timeout = "1s"
"""


@pytest.fixture
def server(serve_queues: Serve, tmp_path: Any) -> Any:
    config = tmp_path / "limits.toml"
    config.write_text(CONFIG)
    return serve_queues("--sync", "never", "--config", str(config))


class GoodClient(threading.Thread):
    """Sets and gets, and notes the slowest answer."""

    def __init__(self, server: Any) -> None:
        super().__init__(daemon=True)
        self.connection = server.connect()
        self.rounds = 0
        self.failure: Exception | None = None
        self.ending = threading.Event()

    def run(self) -> None:
        try:
            with self.connection, self.connection.makefile("rb") as answers:
                while not self.ending.is_set():
                    self.connection.sendall(b"set good 0 0 5\r\nhello\r\nget good\r\n")
                    lines = [answers.readline() for _ in range(4)]
                    assert lines == [b"STORED\r\n", b"VALUE good 0 5\r\n", b"hello\r\n", b"END\r\n"], lines
                    self.rounds += 1
        except Exception as failure:
            self.failure = failure


@pytest.fixture
def good(server: Any) -> Iterator[GoodClient]:
    client = GoodClient(server)
    client.start()
    yield client
    before = client.rounds
    time.sleep(0.2)
    client.ending.set()
    client.join()
    assert client.failure is None
    assert client.rounds > before, "the good client stands still"


ABUSE = {
    "half a value": b"set q 0 0 1000\r\nhalf",
    "half a line": b"set q 0 0",
    "a huge length": b"set q 0 0 2147483647\r\n" + b"x" * 100_000,
    "a length beyond all numbers": b"set q 0 0 99999999999999999999\r\nx\r\n",
    "a negative length": b"set q 0 0 -1\r\nx\r\n",
    "a huge key": b"get " + b"k" * 1_000_000 + b"\r\n",
    "a line without end": b"a" * 1_000_000,
    "many keys": b"get " + b"k " * 8_000 + b"\r\n",
    "random bytes": os.urandom(200_000),
    "binary memcache": b"\x80\x00" + bytes(100),
    "zeros": bytes(200_000),
    "a browser": b"POST / HTTP/1.1\r\nHost: localhost\r\n\r\nset q 0 0 1\r\nx\r\n",
    "a path": b"set ../../evil 0 0 1\r\nx\r\n",
}


@pytest.mark.parametrize("bad", ABUSE)
def test_a_bad_client_hurts_nobody_else(server: Any, good: GoodClient, bad: str) -> None:
    for _ in range(5):
        with server.connect() as connection:
            try:
                connection.sendall(ABUSE[bad])
                connection.settimeout(0.05)
                connection.recv(65536)
            except OSError:
                pass
    assert server.ask(b"version|").startswith(b"VERSION")
    assert server.process.poll() is None
    assert not (server.folder.parent / "evil").exists()


def test_a_client_that_never_reads_costs_little_and_is_closed(server: Any, good: GoodClient) -> None:
    server.ask(b"set big 0 0 500000|" + b"x" * 500_000 + b"|")
    with server.connect() as deaf:
        deaf.settimeout(0.2)
        deadline = time.monotonic() + 15
        with pytest.raises(ConnectionError):
            while time.monotonic() < deadline:
                try:
                    deaf.sendall(b"get big/peek\r\n" * 100)
                except TimeoutError:
                    pass
    assert memory_mib(server) < 200


def test_drips_and_half_sent_requests_are_ended(server: Any, good: GoodClient) -> None:
    dripping = [server.connect() for _ in range(250)]
    begun = time.monotonic()
    alive = set(dripping)
    while alive and time.monotonic() - begun < 15:
        for connection in list(alive):
            try:
                connection.sendall(b"g")
            except OSError:
                alive.discard(connection)
        time.sleep(0.05)
    assert not alive, f"{len(alive)} of 250 still drip"
    for connection in dripping:
        connection.close()


def test_one_connection_too_many_is_told_so(server: Any) -> None:
    held = [server.connect() for _ in range(300)]
    for connection in held:
        connection.sendall(b"version\r\n")
        assert connection.recv(100).startswith(b"VERSION")
    with server.connect() as late:
        assert late.recv(100) == b"SERVER_ERROR too many open connections\r\n"
        assert late.recv(100) == b""
    held.pop().close()
    deadline = time.monotonic() + 10
    while not server.ask(b"version|").startswith(b"VERSION"):
        assert time.monotonic() < deadline
    for connection in held:
        connection.close()


def test_a_waiting_client_is_not_idle(server: Any) -> None:
    with server.connect() as waiting:
        waiting.sendall(b"get q/t=20000\r\n")
        time.sleep(2.5)
        server.ask(b"set q 0 0 1|1|")
        assert waiting.recv(100).startswith(b"VALUE q/t=20000 0 1\r\n")


def memory_mib(server: Any) -> float:
    with open(f"/proc/{server.process.pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("RssAnon")) / 1024


def test_a_reset_in_the_middle_of_an_answer_is_nothing(server: Any, good: GoodClient) -> None:
    for _ in range(50):
        connection = server.connect()
        connection.sendall(b"stats\r\n" * 100)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        connection.close()
