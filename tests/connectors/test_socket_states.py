"""TCP in the states of ``conformance.py``."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable
from typing import Any

from conformance import (
    Connector,
    Continues,
    Ends,
    Finishes,
    Listener,
    Missing,
    SinkConnector,
    SourceConnector,
    test_ctrl_c_ends_it,
    test_it_is_killed,
    test_it_recovers,
)
from tcp_link import RUBBISH, Link

__all__ = ["test_ctrl_c_ends_it", "test_it_is_killed", "test_it_recovers"]

NO_LOGIN = Missing("TCP has no login")
NO_THING = Missing("TCP has no names")


def frame(number: int) -> bytes:
    text = str(number).encode()
    return struct.pack(">I", len(text)) + text


class Peer:
    """A server that sends all its numbers to each client, and records the numbers that it receives."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.received: list[int] = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self.listener.getsockname()[1])
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self) -> None:
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            for serve in (self.send, self.receive):
                threading.Thread(target=serve, args=(client,), daemon=True).start()

    def send(self, client: socket.socket) -> None:
        sent = 0
        try:
            while client.fileno() >= 0:
                for number in self.numbers[sent:]:
                    client.sendall(frame(number))
                    sent += 1
                time.sleep(0.01)
        except OSError:
            pass

    def receive(self, client: socket.socket) -> None:
        data = b""
        try:
            while new := client.recv(4096):
                data += new
                while len(data) >= 4 and len(data) >= (end := 4 + struct.unpack(">I", data[:4])[0]):
                    self.received.append(int(data[4:end]))
                    data = data[end:]
        except OSError:
            pass
        client.close()

    def close(self) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()


class TcpConnect(SourceConnector):
    """TCP cannot be read twice: the server sends everything again."""

    title = "ms.tcp.connect"
    is_once = False
    states = {
        "absent": Ends("{address}", "refused"),
        "away": Finishes(),
        "login": NO_LOGIN,
        "unknown": NO_THING,
        "slow": Continues(),
        "rubbish": Ends("{address}", "no message was understood"),
    }

    def prepare(self, servers: Callable[[str], Any]) -> None:
        self.peer = Peer()
        self.link = Link(self.peer.port)

    @property
    def source(self) -> str:  # type: ignore[override]
        return f"ms.tcp.connect({self.address!r}, decode=str).durable()"

    def feed(self, numbers: range) -> None:
        self.peer.numbers += numbers

    def close(self) -> None:
        super().close()
        self.peer.close()


class TcpSend(SinkConnector):
    """There are no acknowledgements: what was written to a connection that breaks may be lost."""

    title = "ms.tcp.send_to"
    is_once = False
    unconfirmed = range(10, 20)
    steps = ".map(str)"
    states = {
        "absent": Ends("{address}", "refused"),
        "away": Ends("{address}"),
        "login": NO_LOGIN,
        "unknown": NO_THING,
        "slow": Continues(),
        "rubbish": Missing("a sink reads nothing"),
    }

    def prepare(self, servers: Callable[[str], Any]) -> None:
        self.peer = Peer()
        self.link = Link(self.peer.port)

    def flow(self) -> str:
        self.sink = f"ms.tcp.send_to({self.address!r}, connect_timeout=0.3)"
        return super().flow()

    def delivered(self) -> list[int]:
        return list(self.peer.received)

    def close(self) -> None:
        super().close()
        self.peer.close()


class TcpListen(Listener):
    """A durable source. There are no acknowledgements: what was sent before a kill may not have been read."""

    is_once = False

    title = "ms.tcp.listen"
    unconfirmed = range(10, 20)
    states = {
        "absent": Ends("{address}", "in use"),
        "away": Continues("connection from 127.0.0.1"),
        "login": NO_LOGIN,
        "unknown": NO_THING,
        "slow": Continues(),
        "rubbish": Continues("connection from 127.0.0.1"),
    }

    @property
    def source(self) -> str:  # type: ignore[override]
        return f"ms.tcp.listen({self.address!r}, decode=str).durable()"

    def send(self, numbers: range) -> None:
        with socket.create_connection(("127.0.0.1", self.port)) as client:
            client.sendall(b"".join(map(frame, numbers)))

    def enter(self, state: str) -> None:
        super().enter(state)
        if state in ("away", "slow"):
            client = self.connect()
            client.sendall(frame(10)[:-1])
            if state == "away":
                client.close()
        elif state == "rubbish":
            self.connect().sendall(RUBBISH)

    def leave(self) -> None:
        if self.state == "slow" and self.process is not None and not self.ended():
            self.clients[0].sendall(frame(10)[-1:])
        super().leave()


CONNECTORS: list[type[Connector]] = [TcpConnect, TcpSend, TcpListen]
