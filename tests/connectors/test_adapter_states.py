"""The sources of ``examples/connectors`` in the states of ``conformance.py``: generators with ``retry``.

What an attempt fails with is the text of the client library, so that only its address is expected here.
"""

from __future__ import annotations

import http.server
import json
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

import paho.mqtt.client as paho
from conformance import (
    PATIENCE,
    Connector,
    Continues,
    Expected,
    Missing,
    SourceConnector,
    test_ctrl_c_ends_it,
    test_it_is_killed,
    test_it_recovers,
)
from event_loop import EventLoop
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

    @property
    def stream(self) -> str:
        """A name of this test."""
        return self.unique.replace("-", "").replace("_", "")


class RedisStreams(Example):
    name = "redis_streams"
    title = "redis_streams.py"
    states: ClassVar[Mapping[str, Expected]] = {
        "absent": TRIES_AGAIN,
        "away": TRIES_AGAIN,
        "login": OTHER_SERVER,
        "unknown": Missing("the source creates the stream"),
        "slow": Continues(),
        "rubbish": TRIES_AGAIN,
    }

    def prepare(self, servers: Callable[[str], Any]) -> None:
        import redis

        port = servers("redis_port")
        self.client = redis.Redis(port=port, decode_responses=True)
        self.link = Link(port)

    def settings(self) -> Mapping[str, object]:
        return {"URL": f"redis://{self.address}", "STREAM": self.stream}

    def feed(self, numbers: range) -> None:
        for number in numbers:
            self.client.xadd(self.stream, {"text": number})

    def close(self) -> None:
        super().close()
        self.client.close()


class NatsJetstream(Example):
    name = "nats_jetstream"
    title = "nats_jetstream.py"
    states: ClassVar[Mapping[str, Expected]] = {
        "absent": TRIES_AGAIN,
        "away": TRIES_AGAIN,
        "login": OTHER_SERVER,
        "unknown": TRIES_AGAIN,
        "slow": Continues(),
        "rubbish": TRIES_AGAIN,
    }

    def prepare(self, servers: Callable[[str], Any]) -> None:
        import nats

        port = servers("nats_port")
        self.loop = EventLoop().__enter__()
        self.client: Any = self.loop.result(nats.connect(f"nats://127.0.0.1:{port}"))
        self.streams = self.client.jetstream()
        self.waiting: list[int] = []
        self.create_stream()
        self.link = Link(port)

    def create_stream(self) -> None:
        self.loop.result(self.streams.add_stream(name=self.stream, subjects=[self.stream]))

    def settings(self) -> Mapping[str, object]:
        return {"URL": f"nats://{self.address}", "SUBJECT": self.stream, "ACK_WAIT": 2}

    def enter(self, state: str) -> None:
        super().enter(state)
        if state == "unknown":
            self.loop.result(self.streams.delete_stream(self.stream))

    def leave(self) -> None:
        if self.state == "unknown":
            self.create_stream()
        super().leave()
        waiting, self.waiting = self.waiting, []
        self.publish(waiting)

    def feed(self, numbers: range) -> None:
        if self.state == "unknown":
            self.waiting += numbers
        else:
            self.publish(numbers)

    def publish(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            self.loop.result(self.streams.publish(self.stream, b"%d" % number))

    def close(self) -> None:
        super().close()
        self.loop.result(self.client.close())
        self.loop.__exit__()


class Mqtt(Example):
    """The client connects again by itself, so that only its first connection is an attempt that fails."""

    name = "mqtt"
    title = "mqtt.py"
    is_once = False
    states: ClassVar[Mapping[str, Expected]] = {
        "absent": TRIES_AGAIN,
        "away": Continues(),
        "login": OTHER_SERVER,
        "unknown": Missing("a topic is there when a client names it"),
        "slow": Continues(),
        "rubbish": Continues(),
    }

    def prepare(self, servers: Callable[[str], Any]) -> None:
        port = servers("mosquitto_port")
        self.client = self.connected(port)
        # A broker keeps messages for a session from its first connection on.
        subscribed = threading.Event()
        session = self.connected(port, client_id=self.stream, clean_session=False)
        session.on_subscribe = lambda *_: subscribed.set()
        session.subscribe(self.stream, qos=1)
        assert subscribed.wait(PATIENCE)
        session.disconnect()
        session.loop_stop()
        self.link = Link(port)

    @staticmethod
    def connected(port: int, **options: Any) -> paho.Client:
        client = paho.Client(paho.CallbackAPIVersion.VERSION2, **options)
        client.connect("127.0.0.1", port)
        client.loop_start()
        return client

    def flow(self) -> str:
        text = super().flow()
        assert 'client_id="millstream"' in text
        return text.replace('client_id="millstream"', f'client_id="{self.stream}"')

    def settings(self) -> Mapping[str, object]:
        assert self.link is not None
        return {"HOST": "127.0.0.1", "PORT": self.link.port, "TOPIC": self.stream}

    def feed(self, numbers: range) -> None:
        for number in numbers:
            self.client.publish(self.stream, number, qos=1).wait_for_publish(PATIENCE)

    def close(self) -> None:
        super().close()
        self.client.disconnect()
        self.client.loop_stop()


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
    RedisStreams,
    NatsJetstream,
    Mqtt,
    PollingHttp,
    ServerSentEvents,
    WebSocket,
]
