"""The sources of ``examples/connectors`` in the states of ``conformance.py``: generators with ``retry``.

What an attempt fails with is the text of the client library, so that only its address is expected here.
"""

from __future__ import annotations

import http.server
import json
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

from conformance import (
    Connector,
    Continues,
    Expected,
    Missing,
    SourceConnector,
    test_ctrl_c_ends_it,
    test_it_is_killed,
    test_it_recovers,
)
from tcp_link import Link

__all__ = ["test_ctrl_c_ends_it", "test_it_is_killed", "test_it_recovers"]

EXAMPLES = Path(__file__).parents[2] / "examples" / "connectors"
TRIES_AGAIN = Continues("attempt 1 failed")
OTHER_SERVER = Missing(
    "an attempt that fails, as in the other states; the servers of the tests ask for no login"
)


class Example(SourceConnector):
    """A source of examples/connectors, which tries again soon."""

    name: ClassVar[str]

    def flow(self) -> str:
        text = (EXAMPLES / f"{self.name}.py").read_text()
        assert "ms.Backoff()" in text
        return text.replace("ms.Backoff()", "ms.Backoff(first=0.05, most=0.2)")

    def settings(self) -> Mapping[str, object]:
        """The variables of the environment that the example reads."""
        raise NotImplementedError

    def environment(self) -> dict[str, str]:
        found = {name: str(value) for name, value in self.settings().items()}
        return found | {"OUT": str(self.out)}


class Pages(http.server.BaseHTTPRequestHandler):
    """Numbers as server-sent events after the id of the last one, or as entries after a number."""

    server: Web

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        if url.path not in self.server.pages:
            return self.answer(404, "text/plain", "")
        if parse_qs(url.query).get("token", [""])[0] == "wrong":
            return self.answer(401, "text/plain", "")
        after = int(parse_qs(url.query).get("after", [self.headers.get("Last-Event-ID", "0")])[0])
        numbers = range(after, self.server.there)
        if url.path == "/events":
            events = [f"id: {number + 1}\ndata: {number}\n\n" for number in numbers]
            self.answer(200, "text/event-stream", "".join(events))
        else:
            entries = [{"id": number + 1, "text": str(number)} for number in numbers]
            self.answer(200, "application/json", json.dumps(entries))

    def answer(self, status: int, kind: str, body: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_: object) -> None:
        pass


class Web(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        self.there = 0
        self.pages: tuple[str, ...] = ("/events", "/entries")
        super().__init__(("127.0.0.1", 0), Pages)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, *_: object) -> None:
        """A client that goes away is a part of the tests."""


class PollingHttp(Example):
    name = "polling_http"
    title = "polling_http.py"
    page = "/entries"
    states: ClassVar[Mapping[str, Expected]] = {
        "absent": TRIES_AGAIN,
        "away": TRIES_AGAIN,
        "login": OTHER_SERVER,
        "unknown": Continues("attempt 1 failed", "404", "{address}{thing}"),
        "slow": Continues(),
        "rubbish": TRIES_AGAIN,
    }

    @property
    def thing(self) -> str:  # type: ignore[override]
        return self.page

    def prepare(self, servers: Callable[[str], Any]) -> None:
        self.web = Web()
        self.link = Link(self.web.server_port)

    def settings(self) -> Mapping[str, object]:
        return {"URL": f"http://{self.address}{self.page}", "SECONDS": 0.01}

    def feed(self, numbers: range) -> None:
        self.web.there = numbers.stop

    def enter(self, state: str) -> None:
        super().enter(state)
        if state == "unknown":
            self.web.pages = ()

    def leave(self) -> None:
        self.web.pages = ("/events", "/entries")
        super().leave()

    def close(self) -> None:
        super().close()
        self.web.shutdown()
        self.web.server_close()


class ServerSentEvents(PollingHttp):
    name = "server_sent_events"
    title = "server_sent_events.py"
    page = "/events"


class WebSocket(Example):
    """The server sends everything to each client, so that items may come twice."""

    name = "websocket"
    title = "websocket.py"
    is_once = False
    states: ClassVar[Mapping[str, Expected]] = {
        "absent": TRIES_AGAIN,
        "away": TRIES_AGAIN,
        "login": OTHER_SERVER,
        "unknown": OTHER_SERVER,
        "slow": Continues(),
        "rubbish": TRIES_AGAIN,
    }

    def prepare(self, servers: Callable[[str], Any]) -> None:
        from websockets.sync.server import ServerConnection, serve

        self.numbers: list[int] = []
        self.closing = threading.Event()

        def handle(client: ServerConnection) -> None:
            sent = 0
            while not self.closing.is_set():
                for number in self.numbers[sent:]:
                    client.send(str(number))
                    sent += 1
                time.sleep(0.01)
                client.ping()

        self.server = serve(handle, "127.0.0.1", 0, ping_interval=None)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.link = Link(self.server.socket.getsockname()[1])

    def settings(self) -> Mapping[str, object]:
        return {"URL": f"ws://{self.address}"}

    def feed(self, numbers: range) -> None:
        self.numbers += numbers

    def close(self) -> None:
        self.closing.set()
        super().close()
        self.server.shutdown()


CONNECTORS: list[type[Connector]] = [
    PollingHttp,
    ServerSentEvents,
    WebSocket,
]
