"""A sink that posts, in a flow that is killed with -9, against a server that keeps the body of each key.

The server fails as servers do: it refuses for a while, answers rubbish, and closes connections before it
reads a body and after it has stored one. No item is lost, a key never has two bodies, and with a request for
each item each item has one key. A failure prints the seed.
"""

from __future__ import annotations

import http.server
import json
import os
import random
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import millstream as ms
import pytest
from flow_traffic import KILLS, PATIENCE, Killed

SEED = int(os.environ.get("MILLSTREAM_SEED", "0")) or random.randrange(1 << 31)

FLOW = """
import json
import os
import millstream as ms

flow = ms.Flow("posts")
source = ms.journals.read(os.environ["IN"], follow=True, decode=json.loads)
retry = ms.Backoff(first=0.005, most=0.05)
sink = ms.http.post(os.environ["URL"], body=os.environ["BODY"], batch=20, retry=retry, timeout=5)
flow.source("in", source).sink("out", sink)
"""


class Server(http.server.ThreadingHTTPServer):
    """Keeps the body of each key, and fails at random until `well` is set."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, chance: random.Random) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.lock = threading.Lock()
        self.chance = chance
        self.well = False
        self.bodies: dict[str, bytes] = {}
        self.repeated = 0
        self.wrong: list[str] = []

    def fault(self) -> str:
        with self.lock:
            if self.well or self.chance.random() < 0.8:
                return ""
            return self.chance.choice(["close", "close after", "429", "500", "rubbish"])

    def store(self, key: str, body: bytes) -> None:
        with self.lock:
            known = self.bodies.setdefault(key, body)
            self.repeated += known is not body
            if known != body:
                self.wrong.append(f"{key}: {known!r}, then {body!r}")

    def count(self) -> int:
        with self.lock:
            return len(self.bodies)

    def numbered(self) -> dict[int, set[str]]:
        """The items of each record number, as JSON text: one, if no number was ever used twice."""
        with self.lock:
            bodies = dict(self.bodies)
        found: dict[int, set[str]] = {}
        for key, body in bodies.items():
            first, last = (int(number) for number in key.split("-")[-2:])
            items = json.loads(body)
            items = items if isinstance(items, list) else [items]
            assert len(items) == last - first + 1, key
            for number, item in enumerate(items, first):
                found.setdefault(number, set()).add(json.dumps(item))
        return found


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        fault = self.server.fault()
        if fault == "close":
            self.close_connection = True
            return
        size = int(self.headers["Content-Length"])
        body = self.rfile.read(size)
        if len(body) < size:
            return  # The flow was killed while it sent.
        if fault in ("429", "500"):
            self.answer(int(fault))
            return
        if fault == "rubbish":
            self.wfile.write(b"rubbish\r\n\r\n")
            self.close_connection = True
            return
        self.server.store(self.headers["Idempotency-Key"], body)
        if fault == "close after":
            self.close_connection = True
            return
        self.answer(204)

    def answer(self, status: int) -> None:
        self.send_response(status)
        if status == 429:
            self.send_header("Retry-After", "0")
        if status != 204:
            self.send_header("Content-Length", "0")
        self.end_headers()

    def handle(self) -> None:
        try:
            super().handle()
        except OSError:
            pass  # the flow was killed

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serving(chance: random.Random) -> Iterator[Server]:
    with Server(chance) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join(PATIENCE)


class Appender(threading.Thread):
    """Appends numbers to the input, each once, until it is stopped."""

    def __init__(self, path: Path) -> None:
        super().__init__(daemon=True)
        self.journal = ms.Journal(path)
        self.appended = 0
        self.stopping = threading.Event()
        self.start()

    def run(self) -> None:
        while not self.stopping.wait(0.002):
            self.journal.append(str(self.appended))
            self.appended += 1

    def stop(self) -> None:
        self.stopping.set()
        self.join(PATIENCE)
        self.journal.close()


def command(flow: Path, state: Path, workers: int) -> list[str]:
    flow.write_text(FLOW)
    options = ["--state", str(state), "--epoch", "20ms", "--workers", str(workers)]
    return [sys.executable, "-m", "millstream", "run", str(flow), *options]


@pytest.mark.parametrize(("body", "workers"), [("each", 1), ("array", 1), ("array", 2)])
def test_no_item_is_lost_and_a_key_has_one_body(tmp_path: Path, body: str, workers: int) -> None:
    print(f"seed {SEED}")
    with serving(random.Random(SEED + 1)) as server:
        appender = Appender(tmp_path / "in")
        environment = os.environ | {
            "IN": str(tmp_path / "in"),
            "URL": f"http://127.0.0.1:{server.server_port}/",
            "BODY": body,
        }
        run = command(tmp_path / "flow.py", tmp_path / "state", workers)
        killed = Killed(run, environment, server.count, random.Random(SEED))
        killed.kill(KILLS)
        last = killed.start()
        killed.go_on(last)
        appender.stop()
        server.well = True
        deadline = time.monotonic() + PATIENCE
        while len(server.numbered()) < appender.appended:
            assert last.poll() is None, last.communicate()[1]
            assert time.monotonic() < deadline, "items are missing"
            time.sleep(0.05)
        last.send_signal(signal.SIGINT)
        _, errors = last.communicate(timeout=PATIENCE)
        assert last.returncode == 0, errors
        found = server.numbered()
        figures = {"items": len(found), "keys": server.count(), "repeated": server.repeated}
        print(json.dumps(figures | killed.figures()))
        assert not server.wrong, server.wrong[:3]
        # Each record number has one item, and each item one number.
        assert sorted(found) == list(range(min(found), min(found) + appender.appended))
        assert all(len(items) == 1 for items in found.values())
        items = [json.loads(item) for numbered in found.values() for item in numbered]
        assert sorted(items) == list(range(appender.appended))


def silent(listener: socket.socket) -> None:
    """Accepts connections, and never answers."""
    held = []
    try:
        while True:
            held.append(listener.accept()[0])
    except OSError:
        return


@pytest.mark.parametrize("state", ["away", "silent", "answers 500", "works"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_flow_and_the_next_run_delivers(
    tmp_path: Path, state: str, number: signal.Signals
) -> None:
    with ms.Journal(tmp_path / "in") as journal:
        journal.append_many(["0", "1", "2"])
    flow = command(tmp_path / "flow.py", tmp_path / "state", 1)
    with serving(random.Random(SEED)) as server:
        server.well = True
        well = f"http://127.0.0.1:{server.server_port}/"
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
            if state == "silent":
                listener.listen()
                threading.Thread(target=silent, args=(listener,), daemon=True).start()
            if state == "answers 500":
                server.fault = lambda: "500"  # type: ignore[method-assign]
            url = url if state in ("away", "silent") else well
            environment = os.environ | {"IN": str(tmp_path / "in"), "URL": url, "BODY": "each"}
            killed = Killed(flow, environment, server.count, random.Random(SEED))
            first = killed.start()
            committed = tmp_path / "state" / "outputs" / "out"
            deadline = time.monotonic() + PATIENCE
            while not length(committed) == 3 or (state == "works" and server.count() < 3):
                assert first.poll() is None, first.communicate()[1]
                assert time.monotonic() < deadline
                time.sleep(0.02)
            first.send_signal(number)
            _, errors = first.communicate(timeout=PATIENCE)
            assert first.returncode == 0, errors
            if state == "silent":
                listener.shutdown(socket.SHUT_RDWR)
        server.__dict__.pop("fault", None)
        environment["URL"] = well
        with ms.Journal(tmp_path / "in") as journal:
            journal.append("3")
        last = killed.start()
        deadline = time.monotonic() + PATIENCE
        while server.count() < 4:
            assert last.poll() is None, last.communicate()[1]
            assert time.monotonic() < deadline
            time.sleep(0.02)
        last.send_signal(number)
        assert last.wait(PATIENCE) == 0
        last.communicate()
        assert sorted(server.bodies.values()) == [b"0", b"1", b"2", b"3"]
        assert not server.wrong


def length(path: Path) -> int:
    try:
        with ms.Journal(path, "r") as journal:
            return journal.next
    except ms.JournalError:
        return 0
