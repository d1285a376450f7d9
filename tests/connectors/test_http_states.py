"""HTTP in the states of ``conformance.py``."""

from __future__ import annotations

import http.client
import http.server
import json
import socket
import struct
import threading
from collections.abc import Callable
from typing import Any

from conformance import (
    PATIENCE,
    Connector,
    Continues,
    Ends,
    Listener,
    SinkConnector,
    test_ctrl_c_ends_it,
    test_it_is_killed,
    test_it_recovers,
)
from tcp_link import RUBBISH, Link

__all__ = ["test_ctrl_c_ends_it", "test_it_is_killed", "test_it_recovers"]

TOKEN = "secret"


class Store(http.server.ThreadingHTTPServer):
    """Takes the item of each request to ``/numbers``, and the work of a key once."""

    daemon_threads = True

    def __init__(self) -> None:
        self.items: dict[str, int] = {}
        super().__init__(("127.0.0.1", 0), Requests)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, *_: object) -> None:
        """A client that goes away is a part of the tests."""


class Requests(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Store

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers["Authorization"] != f"Bearer {TOKEN}":
            return self.answer(401)
        if self.path != "/numbers":
            return self.answer(404)
        self.server.items[self.headers["Idempotency-Key"]] = json.loads(body)
        self.answer(204)

    def answer(self, status: int) -> None:
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


class HttpPost(SinkConnector):
    title = "ms.http.post"
    states = {
        "absent": Continues("{address}{thing}", "refused"),
        "away": Continues("{address}{thing}"),
        "login": Ends("{address}{thing}", "401"),
        "unknown": Ends("{address}{thing}", "404"),
        "slow": Continues("{address}{thing}"),
        "rubbish": Continues("{address}{thing}"),
    }

    def prepare(self, servers: Callable[[str], Any]) -> None:
        self.server = Store()
        self.link = Link(self.server.server_port)

    @property
    def thing(self) -> str:  # type: ignore[override]
        return "/others" if self.state == "unknown" else "/numbers"

    def flow(self) -> str:
        token = "wrong" if self.state == "login" else TOKEN
        options = f"body='each', token={token!r}, timeout=1, retry=ms.Backoff(first=0.05, most=0.2)"
        self.sink = f"ms.http.post('http://{self.address}{self.thing}', {options})"
        return super().flow()

    def delivered(self) -> list[int]:
        return list(self.server.items.values())

    def close(self) -> None:
        super().close()
        self.server.shutdown()
        self.server.server_close()


class HttpListen(Listener):
    """A client that has no answer posts again, so that its items may come twice."""

    title = "ms.http.listen"
    is_once = False
    thing = "/numbers"
    states = {
        "absent": Ends("{address}", "in use"),
        "away": Continues(),
        "login": Continues(),
        "unknown": Continues(),
        "slow": Continues(),
        "rubbish": Continues(),
    }

    @property
    def source(self) -> str:  # type: ignore[override]
        options = f"body='lines', decode=str, token={TOKEN!r}"
        return f"ms.http.listen({self.address!r}, {self.thing!r}, {options})"

    def post(self, numbers: range, path: str, token: str) -> int:
        """Returns the status of the answer."""
        client = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            body = "".join(f"{number}\n" for number in numbers)
            client.request("POST", path, body, {"Authorization": f"Bearer {token}"})
            return client.getresponse().status
        except http.client.HTTPException as error:
            raise ConnectionError(str(error)) from None
        finally:
            client.close()

    def send(self, numbers: range) -> None:
        status = self.post(numbers, self.thing, TOKEN)
        if status != 200:
            raise ConnectionError(f"status {status}")

    def begin_request(self) -> socket.socket:
        """A connection on which a part of a request was sent."""
        client = self.connect()
        header = f"POST {self.thing} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n"
        client.sendall(f"{header}Content-Length: 2\r\n\r\n".encode() + b"0")
        return client

    def enter(self, state: str) -> None:
        super().enter(state)
        if state == "away":
            reset(self.begin_request())
        elif state == "login":
            assert self.post(range(100, 110), self.thing, "wrong") == 403
        elif state == "unknown":
            assert self.post(range(100, 110), "/others", TOKEN) == 404
        elif state == "slow":
            self.begin_request()
        elif state == "rubbish":
            client = self.connect()
            client.sendall(RUBBISH)
            assert b" 400 " in client.recv(4096).split(b"\r\n")[0]

    def leave(self) -> None:
        if self.state == "slow" and self.process is not None and not self.ended():
            # The number 0 arrives again: the rest of the request is understood.
            self.clients[0].sendall(b"\n")
            assert b" 200 " in self.clients[0].recv(4096).split(b"\r\n")[0]
        super().leave()


def reset(client: socket.socket) -> None:
    """Closes a connection in a way that the other side notices as an error."""
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


CONNECTORS: list[type[Connector]] = [HttpPost, HttpListen]
