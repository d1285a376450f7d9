"""Servers and clients that die under load, and servers that are told to stop."""

import random
import signal
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

Serve = Callable[..., Any]
KILLS = 8


class Producer(threading.Thread):
    """Sets numbers, one at a time, and remembers which were acknowledged. Connects again after a death."""

    def __init__(self, server: Any, name: str) -> None:
        super().__init__(daemon=True)
        self.server = server
        self.label = name
        self.acknowledged: list[int] = []
        self.tried = 0
        self.ending = threading.Event()

    def run(self) -> None:
        while not self.ending.is_set():
            try:
                with self.server.connect() as connection, connection.makefile("rb") as answers:
                    while not self.ending.is_set():
                        self.tried += 1
                        item = b"%s %d" % (self.label.encode(), self.tried)
                        connection.sendall(b"set q 0 0 %d\r\n%s\r\n" % (len(item), item))
                        if answers.readline() != b"STORED\r\n":
                            break
                        self.acknowledged.append(self.tried)
            except OSError:
                time.sleep(0.005)


@pytest.mark.parametrize("sync", ["always", "never"])
def test_no_acknowledged_item_is_lost_when_the_server_is_killed(serve_queues: Serve, sync: str) -> None:
    seed = random.randrange(1 << 32)
    print(f"random.Random({seed})")
    moments = random.Random(seed)
    server = serve_queues("--sync", sync)
    producers = [Producer(server, f"p{n}") for n in range(4)]
    for producer in producers:
        producer.start()
    for _ in range(KILLS):
        time.sleep(moments.uniform(0.02, 0.2))
        server.kill()
        server.start()
    for producer in producers:
        producer.ending.set()
    for producer in producers:
        producer.join()
    found: dict[str, list[int]] = {producer.label: [] for producer in producers}
    with server.connect() as connection, connection.makefile("rb") as answers:
        while True:
            connection.sendall(b"get q\r\n")
            if answers.readline() == b"END\r\n":
                break
            label, number = answers.readline().decode().split()
            assert answers.readline() == b"END\r\n"
            found[label].append(int(number))
    for producer in producers:
        numbers = found[producer.label]
        assert len(producer.acknowledged) > 20
        assert numbers == sorted(set(numbers)), "out of order, or twice"
        assert not set(producer.acknowledged) - set(numbers), "lost"


def test_an_item_open_at_a_client_that_dies_comes_back(serve_queues: Serve) -> None:
    server = serve_queues()
    server.ask(b"set q 0 0 1|1|set q 0 0 1|2|")
    client = server.connect()
    client.sendall(b"get q/open\r\n")
    assert client.recv(100).startswith(b"VALUE")
    # A reset, as when a machine is switched off and on.
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    client.close()
    assert server.ask(b"get q/t=5000|get q/t=5000|") == b"VALUE q/t=5000 0 1|1|END|VALUE q/t=5000 0 1|2|END|"


def test_an_item_open_at_a_server_that_is_killed_comes_back(serve_queues: Serve) -> None:
    server = serve_queues("--sync", "never")
    with server.connect() as client:
        client.sendall(b"set q 0 0 1\r\n1\r\nget q/open\r\n")
        assert client.recv(100).startswith(b"STORED")
        server.kill()
    server.start()
    assert server.ask(b"get q|get q|") == b"VALUE q 0 1|1|END|END|"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_server_that_is_told_to_stop_ends_well(serve_queues: Serve, number: int) -> None:
    server = serve_queues()
    with server.connect() as waiting, server.connect() as idle, server.connect() as half:
        waiting.sendall(b"get q/t=60000\r\n")
        idle.sendall(b"set r 0 0 1\r\n1\r\n")
        assert idle.recv(100) == b"STORED\r\n"
        half.sendall(b"set r 0 0 100\r\nhalf")
        time.sleep(0.1)
        assert server.stop(number) == 0
        assert waiting.recv(100) == b"END\r\n"
        assert idle.recv(100) == b""
    server.start()
    assert server.ask(b"get r|get r|") == b"VALUE r 0 1|1|END|END|"


def test_the_configuration_is_read_again_at_sighup(serve_queues: Serve, tmp_path: Any) -> None:
    config = tmp_path / "queues.toml"
    config.write_text("")
    server = serve_queues("--config", str(config))
    assert server.ask(b"set q 0 0 1|1|set q 0 0 1|2|") == b"STORED|STORED|"
    config.write_text("[queue.q]\nmax_items = 2\n")
    server.process.send_signal(signal.SIGHUP)
    deadline = time.monotonic() + 10
    while server.ask(b"set q 0 0 1|3|") != b"NOT_STORED|":
        assert time.monotonic() < deadline
        server.ask(b"get q|")
    config.write_text("[queue.q]\nmax_itmes = 2\n")
    server.process.send_signal(signal.SIGHUP)
    time.sleep(0.1)
    assert server.ask(b"set q 0 0 1|3|") == b"NOT_STORED|"
