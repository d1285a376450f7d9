"""The sources in examples/connectors, each against a server of its kind. The flows are killed with -9."""

from __future__ import annotations

import http.server
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

PATIENCE = 60.0
"""Seconds after which something that does not happen has failed."""
EXAMPLES = Path(__file__).parents[2] / "examples" / "connectors"
COUNT = 200


class Example:
    """A flow of examples/connectors with its output and its state."""

    def __init__(self, name: str, folder: Path, **settings: object) -> None:
        self.path = EXAMPLES / f"{name}.py"
        self.folder = folder
        self.out = folder / "out"
        self.settings = {name: str(value) for name, value in settings.items()}
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "millstream", "run", str(self.path)]
        self.process = subprocess.Popen(
            [*command, "--state", str(self.folder / "state"), "--epoch", "100ms"],
            env=os.environ | self.settings | {"OUT": str(self.out)},
            stderr=subprocess.PIPE,
            text=True,
        )

    def lines(self) -> list[str]:
        return self.out.read_text().splitlines() if self.out.exists() else []

    def wait(self, reached: Callable[[list[str]], bool]) -> None:
        """Waits until the output is as ``reached`` says."""
        until = time.monotonic() + PATIENCE
        while not reached(self.lines()):
            assert self.process is not None
            if self.process.poll() is not None or time.monotonic() > until:
                self.process.kill()
                raise AssertionError(f"{self.lines()[-3:]}\n{self.process.communicate()[1]}")
            time.sleep(0.01)

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.communicate()

    def stop(self) -> str:
        """Ends the flow as Ctrl-C does; returns what it wrote to standard error."""
        assert self.process is not None
        self.process.send_signal(signal.SIGINT)
        _, errors = self.process.communicate(timeout=PATIENCE)
        assert self.process.returncode == 0, errors
        return errors

    def run_with_a_kill(self, send: Callable[[int], None]) -> list[int]:
        """Sends numbers, kills the flow after some of them, sends the others; returns the output."""
        self.start()
        for number in range(COUNT // 2):
            send(number)
        self.wait(lambda lines: len(lines) > COUNT // 4)
        self.kill()
        self.start()
        for number in range(COUNT // 2, COUNT):
            send(number)
        self.wait(lambda lines: len(set(lines)) >= COUNT)
        self.stop()
        return [int(line) for line in self.lines()]


def test_websocket(tmp_path: Path) -> None:
    from websockets.sync.server import ServerConnection, serve

    sent: list[int] = []
    connected: list[ServerConnection] = []
    failed: list[bool] = []
    may_send = threading.Semaphore(0)

    def handle(client: ServerConnection) -> None:
        """Sends each number once, to the first connection that is there for it."""
        connected.append(client)
        here = len(connected)
        while len(connected) == here and len(sent) < COUNT and not failed:
            if not may_send.acquire(timeout=0.05):
                continue
            if len(connected) > here:
                may_send.release()
                return
            client.send(str(len(sent)))
            sent.append(len(sent))

    with serve(handle, "127.0.0.1", 0) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            example = Example("websocket", tmp_path, URL=f"ws://127.0.0.1:{server.socket.getsockname()[1]}")
            example.start()
            may_send.release(50)
            example.wait(lambda lines: len(lines) == 50)
            # A connection that breaks is an attempt that failed.
            connected[-1].socket.shutdown(socket.SHUT_RDWR)
            wait_for(lambda: len(connected) == 2)
            may_send.release(50)
            example.wait(lambda lines: len(lines) == 100)
            example.kill()
            example.start()
            wait_for(lambda: len(connected) == 3)
            may_send.release(COUNT)
            assert example.process is not None
            # A server that closes the connection as the protocol says ends the source.
            _, errors = example.process.communicate(timeout=PATIENCE)
            assert example.process.returncode == 0, errors
        except BaseException:
            # The server waits for its connections.
            failed.append(True)
            raise
    assert [int(line) for line in example.lines()] == list(range(COUNT))


def wait_for(reached: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE
    while not reached():
        assert time.monotonic() < until
        time.sleep(0.01)


class Web(http.server.ThreadingHTTPServer):
    """Numbers as server-sent events after the id of the last one, or as entries after a number.

    A response has ten of them and ends, so that a client must connect again for the others.
    """

    daemon_threads = True

    def __init__(self) -> None:
        self.there = 0
        super().__init__(("127.0.0.1", 0), Pages)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def send(self, number: int) -> None:
        self.there = number + 1


class Pages(http.server.BaseHTTPRequestHandler):
    server: Web

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        after = int(parse_qs(url.query).get("after", [self.headers.get("Last-Event-ID", "0")])[0])
        numbers = range(after, min(after + 10, self.server.there))
        if url.path == "/events":
            events = [f": of ten\nid: {n + 1}\nevent: number\ndata: {n}\n\n" for n in numbers]
            self.answer("text/event-stream", "".join(events))
        else:
            self.answer("application/json", json.dumps([{"id": n + 1, "text": str(n)} for n in numbers]))

    def answer(self, kind: str, body: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.parametrize(("name", "page"), [("server_sent_events", "events"), ("polling_http", "entries")])
def test_pages_of_a_web_server(name: str, page: str, tmp_path: Path) -> None:
    with Web() as web:
        url = f"http://127.0.0.1:{web.server_address[1]}/{page}"
        example = Example(name, tmp_path, URL=url, SECONDS=0.01)
        found = example.run_with_a_kill(web.send)
        web.shutdown()
    assert found == list(range(COUNT))
