"""Requests of ``ms.http.post`` that are parallel, or differ from item to item, and tokens of OAuth."""

from __future__ import annotations

import json
import logging
import os
import random
import signal
import subprocess
import sys
import threading
import time
from base64 import b64decode
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import millstream as ms
import pytest

PATIENCE = 60.0
QUICK = ms.Backoff(first=0.005, most=0.05)


class Server(ThreadingHTTPServer):
    """Keeps what it accepts; a subclass chooses the status."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.requests: list[tuple[str, str, dict[str, str], bytes]] = []
        self.active = self.most = 0
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"

    def status(self, method: str, path: str, headers: dict[str, str], body: bytes) -> int:
        return 200

    def answer(self, path: str) -> bytes:
        return b""

    def bodies(self) -> list[Any]:
        return [json.loads(body) for _, _, _, body in self.requests]


class Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        server = self.server
        headers = {name.lower(): value for name, value in self.headers.items()}
        with server.lock:
            server.active += 1
            server.most = max(server.most, server.active)
        status = server.status(self.command, self.path, headers, body)
        with server.lock:
            server.active -= 1
            server.requests.append((self.command, self.path, headers, body))
        answer = server.answer(self.path)
        self.send_response(status)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    do_PUT = do_PATCH = do_DELETE = do_POST

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serving(of: type[Server] = Server) -> Iterator[Any]:
    with of() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def run(sink: Any, items: list[Any], state: Path | None = None, **options: Any) -> ms.Report:
    flow = ms.Flow("posts")
    flow.source("in", ms.testing.items(items)).sink("out", sink, **options)
    return ms.run(flow, state=state)


class Together(Server):
    """Answers none of its first four requests before the fourth has arrived."""

    def __init__(self) -> None:
        self.barrier = threading.Barrier(4)
        super().__init__()

    def status(self, method: str, path: str, headers: dict[str, str], body: bytes) -> int:
        if json.loads(body)["n"] < 4:
            self.barrier.wait(PATIENCE)
        return 200


def in_order(found: list[Any], count: int) -> None:
    assert sorted(item["n"] for item in found) == list(range(count))
    for key in range(7):
        assert [item["n"] for item in found if item["key"] == key] == list(range(key, count, 7))


def test_requests_are_parallel_and_those_of_a_key_in_order(tmp_path: Path) -> None:
    items = [{"key": n % 7, "n": n} for n in range(300)]

    def deliver(url: str) -> None:
        options: Any = {"body": "each", "parallel": 4, "retry": QUICK, "wait_at_end": 0}
        run(ms.http.post(url, key=lambda item: item["key"], **options), items, tmp_path)

    with serving() as server:
        away = server.url
    # All wait in the outbox when the server is there.
    with pytest.raises(ms.FlowError, match="300 records wait"):
        deliver(away)
    with serving(Together) as server:
        for _ in range(2):
            deliver(server.url)
        assert server.most == 4
        in_order(server.bodies(), 300)
        keys = [headers["idempotency-key"] for _, _, headers, _ in server.requests]
        assert len(set(keys)) == 300


def test_requests_of_a_key_are_in_order_without_a_state_directory() -> None:
    items = [{"key": n % 7, "n": n} for n in range(300)]
    with serving() as server:
        run(ms.http.post(server.url, body="each", parallel=4, key=lambda item: item["key"]), items)
        assert server.most <= 4
        in_order(server.bodies(), 300)


class Flaky(Server):
    """Refuses each item 13, and is away for one request of five."""

    def __init__(self) -> None:
        self.random = random.Random(1)
        self.taken: dict[str, list[int]] = defaultdict(list)
        super().__init__()

    def status(self, method: str, path: str, headers: dict[str, str], body: bytes) -> int:
        item = json.loads(body)
        if item["n"] % 20 == 13:
            return 422
        with self.lock:
            if self.random.random() < 0.2:
                return 503
            self.taken[item["key"]].append(item["n"])
        return 200


@pytest.mark.parametrize("durable", [True, False])
def test_outages_and_refused_items_repeat_no_item_that_was_taken(tmp_path: Path, durable: bool) -> None:
    items = [{"key": f"k{n % 5}", "n": n} for n in range(200)]
    with serving(Flaky) as server:
        sink = ms.http.post(server.url, body="each", parallel=8, key=lambda item: item["key"], retry=QUICK)
        report = run(sink, items, tmp_path if durable else None, on_error="skip")
        expected = [n for n in range(200) if n % 20 != 13]
        assert sorted(n for taken in server.taken.values() for n in taken) == expected
        for key in range(5):
            assert server.taken[f"k{key}"] == [n for n in expected if n % 5 == key]
        refused = [item["n"] for item in server.bodies() if item["n"] % 20 == 13]
        assert sorted(refused) == list(range(13, 200, 20))
        assert report.outboxes[0]["refused_records"] == 10


class Limited(Server):
    """Takes two requests, and asks then to come back: it is never away."""

    def __init__(self) -> None:
        self.left = 2
        super().__init__()

    def status(self, method: str, path: str, headers: dict[str, str], body: bytes) -> int:
        with self.lock:
            self.left -= 1
            if self.left < 0:
                self.left = 2
                return 429
        return 200


def test_progress_of_a_part_counts_as_progress(tmp_path: Path) -> None:
    with serving(Limited) as server:
        retry = ms.Backoff(first=0.001, most=0.001, tries=8)
        run(ms.http.post(server.url, body="each", parallel=4, retry=retry), list(range(100)), tmp_path)
        assert sorted(set(server.bodies())) == list(range(100))


def test_a_refusal_names_the_record_and_the_next_run_resumes_there(tmp_path: Path) -> None:
    class Picky(Server):
        def status(self, method: str, path: str, headers: dict[str, str], body: bytes) -> int:
            return 422 if body == b"13" else 200

    with serving(Picky) as server:
        sink = ms.http.post(server.url, body="each", parallel=4)
        with pytest.raises(ms.FlowError, match="record 13: .*422"):
            run(sink, list(range(20)), tmp_path)
    with serving() as server:
        run(ms.http.post(server.url, body="each", parallel=4), list(range(20)), tmp_path)
        assert set(server.bodies()) <= set(range(13, 20))
        assert 13 in server.bodies()


def test_method_url_and_headers_by_item(tmp_path: Path) -> None:
    methods = {"new": "POST", "changed": "PUT", "part": "PATCH", "gone": "DELETE"}
    items = [{"id": n, "event": event} for n, event in enumerate(methods)]
    with serving() as server:
        sink = ms.http.post(
            lambda item: f"{server.url}/orders/{item['id']}?x=1",
            body="each",
            method=lambda item: methods[item["event"]],
            headers=lambda item: {"X-Event": item["event"], "Idempotency-Key": f"mine-{item['id']}"},
            token="secret",
        )
        run(sink, items, tmp_path)
        requests = server.requests
    assert [request[0] for request in requests] == list(methods.values())
    assert [request[1] for request in requests] == [f"/orders/{n}?x=1" for n in range(4)]
    assert [request[2]["x-event"] for request in requests] == list(methods)
    assert [request[2]["idempotency-key"] for request in requests] == [f"mine-{n}" for n in range(4)]
    assert {request[2]["authorization"] for request in requests} == {"Bearer secret"}
    assert [json.loads(request[3]) for request in requests[:3]] == items[:3]
    assert requests[3][3] == b""


@pytest.mark.parametrize("durable", [True, False])
def test_an_item_of_which_no_request_can_be_made_is_a_dead_letter(tmp_path: Path, durable: bool) -> None:
    letters = ms.testing.collect()
    items = [
        {"path": "/a"},
        {"path": "no url", "base": ""},
        {"path": "/b", "method": "GET"},
        {"path": "/c", "headers": {"a b": "secret"}},
        {"path": "/d", "headers": {"X": "secret\r\nY: 1"}},
        {"path": "/e", "headers": [1]},
        {"path": "/f", "key": 1.5},
        {"path": "/g", "headers": {"Content-Length": "1"}},
        {},
        {"path": "/h", "key": b"k", "method": "PUT", "headers": {"X": "ok"}},
    ]
    with serving() as server:
        sink = ms.http.post(
            lambda item: item.get("base", server.url) + item["path"],
            body="each",
            encode=lambda item: json.dumps(item["path"]),
            method=lambda item: item.get("method", "POST"),
            headers=lambda item: item.get("headers", {}),
            key=lambda item: item.get("key", ""),
        )
        run(sink, items, tmp_path if durable else None, on_error=ms.dead_letter(letters))
        assert [request[1] for request in server.requests] == ["/a", "/h"]
    assert [letter.item for letter in letters] == items[1:-1]
    assert not any("secret" in str(letter.error) for letter in letters)


NO_JSON = ["NaN", "[Infinity]", '{"a": -Infinity}', "1e999", '"\\ud800"', "", "{", "1 2", b"\xff"]


@pytest.mark.parametrize("body", ["array", "lines", "each"])
@pytest.mark.parametrize("durable", [True, False])
def test_what_an_encoder_makes_is_json_or_a_dead_letter(tmp_path: Path, body: Any, durable: bool) -> None:
    letters = ms.testing.collect()
    with serving() as server:
        sink = ms.http.post(server.url, body=body, encode=lambda item: item)
        state = tmp_path if durable else None
        run(sink, ["1", *NO_JSON, '{"a": [2.5]}'], state, on_error=ms.dead_letter(letters))
        sent = b"".join(request[3] for request in server.requests)
    assert [letter.item for letter in letters] == NO_JSON
    assert not any(bad in sent for bad in (b"NaN", b"Infinity", b"1e999", b"ud800"))
    assert b"2.5" in sent
    with serving() as server, pytest.raises(ms.FlowError, match="not JSON"):
        run(ms.http.post(server.url, body=body, encode=json.dumps), [1, float("nan")])


def test_a_body_of_another_content_type_is_sent_as_it_is() -> None:
    with serving() as server:
        plain = {"Content-Type": "text/plain"}
        run(ms.http.post(server.url, body="each", encode=str, headers=plain), ["NaN"])
        by_item = ms.http.post(server.url, body="each", encode=str, headers=lambda _: plain)
        run(by_item, ["Infinity"])
        assert [request[3] for request in server.requests] == [b"NaN", b"Infinity"]


def test_records_of_another_body_are_named_and_wait(tmp_path: Path) -> None:
    with serving() as server:
        url = server.url
    once = ms.Backoff(first=0.005, tries=1)
    for before, after in (("array", "each"), ("each", "lines")):
        state = tmp_path / after
        with pytest.raises(ms.FlowError, match="refused"):
            run(ms.http.post(url, body=before, retry=once), [1, 2], state)
        with serving() as server:
            with pytest.raises(ms.FlowError, match="another body="):
                run(ms.http.post(server.url, body=after), [1, 2], state)
            assert server.requests == []
            run(ms.http.post(server.url, body=before), [1, 2], state)
            assert b"".join(request[3] for request in server.requests) in (b"[1,2]", b"[1][2]", b"12")


@pytest.mark.parametrize(
    ("mistake", "says"),
    [
        (lambda: ms.http.post("http://x", parallel=2), 'parallel needs body="each"'),
        (lambda: ms.http.post("http://x", body="each", parallel=0), "from 1 to 256"),
        (lambda: ms.http.post("http://x", body="each", parallel=257), "from 1 to 256"),
        (lambda: ms.http.post("http://x", key=str), 'a function for key needs body="each"'),
        (lambda: ms.http.post(str), 'a function for url needs body="each"'),
        (lambda: ms.http.post("http://x", method="GET"), "method is one of"),
        (lambda: ms.http.post("http://x", body="each", key="id"), "key is a function"),  # type: ignore[call-overload]
        (
            lambda: ms.http.post("http://x", token="a", oauth=ms.http.OAuth("http://x", "a", "b")),
            "oauth",
        ),
        (lambda: ms.http.OAuth("http://x", "a", None), "secret is a text"),  # type: ignore[arg-type]
    ],
)
def test_a_wrong_option_is_an_error(mistake: Any, says: str) -> None:
    with pytest.raises(ms.FlowUsageError, match=says):
        mistake()


class Tokens(Server):
    """A token server at /token, and a server that takes the last token that it has made."""

    def __init__(self) -> None:
        self.made = 0
        self.statuses: list[int] = []
        self.lasts: object = 3600
        self.expired = False
        self.said = b'{"error": "invalid_client", "error_description": "hidden is wrong"}'
        super().__init__()

    def status(self, method: str, path: str, headers: dict[str, str], body: bytes) -> int:
        with self.lock:
            if path == "/token":
                status = self.statuses.pop(0) if self.statuses else 200
                self.made += status == 200
                return status
            if self.expired:
                self.expired = False
                self.made += 1
            return 200 if headers.get("authorization") == f"Bearer t{self.made}" else 401

    def answer(self, path: str) -> bytes:
        if path != "/token":
            return b""
        token = {"access_token": f"t{self.made}", "token_type": "bearer", "expires_in": self.lasts}
        return json.dumps(token).encode() if self.made else self.said

    def asked(self) -> list[tuple[dict[str, str], dict[str, str]]]:
        asked = [request for request in self.requests if request[1] == "/token"]
        return [(headers, dict(parse_qsl(body.decode()))) for _, _, headers, body in asked]

    def taken(self) -> list[Any]:
        return [json.loads(request[3]) for request in self.requests if request[1] != "/token"]


@pytest.mark.parametrize("parallel", [1, 8])
def test_a_token_is_fetched_once_and_once_more_after_a_401(tmp_path: Path, parallel: int) -> None:
    with serving(Tokens) as server:
        oauth = ms.http.OAuth(
            f"{server.url}/token", "my id", "hi:den", scope="a b", parameters={"audience": "x"}
        )
        sink = ms.http.post(server.url, body="each", parallel=parallel, oauth=oauth, retry=QUICK)
        run(sink, list(range(50)), tmp_path)
        assert sorted(server.taken()) == list(range(50))
        [(headers, form)] = server.asked()
        assert b64decode(headers["authorization"].removeprefix("Basic ")) == b"my+id:hi%3Aden"
        assert form == {"grant_type": "client_credentials", "scope": "a b", "audience": "x"}
        server.requests.clear()
        server.expired = True
        run(sink, list(range(51)), tmp_path)
        assert len(server.asked()) == 1


def test_a_token_that_ends_is_fetched_again(tmp_path: Path) -> None:
    with serving(Tokens) as server:
        server.lasts = 0
        oauth = ms.http.OAuth(f"{server.url}/token", "me", "hidden", in_body=True)
        run(ms.http.post(server.url, body="each", oauth=oauth), [1, 2, 3], tmp_path)
        assert server.taken() == [1, 2, 3]
        asked = server.asked()
        assert len(asked) == 3
        assert asked[0][1] == {
            "grant_type": "client_credentials",
            "client_id": "me",
            "client_secret": "hidden",
        }
        assert "authorization" not in asked[0][0]


@pytest.mark.parametrize("parallel", [1, 4])
def test_an_outage_of_the_token_server_is_waited_for(
    tmp_path: Path, parallel: int, caplog: pytest.LogCaptureFixture
) -> None:
    with serving(Tokens) as server, caplog.at_level(logging.INFO):
        server.statuses = [500, 429, 503]
        oauth = ms.http.OAuth(f"{server.url}/token", "me", "hidden")
        run(ms.http.post(server.url, body="each", parallel=parallel, oauth=oauth, retry=QUICK), [1], tmp_path)
        assert server.taken() == [1]
        assert len(server.asked()) == 4
    assert "the token server" in caplog.text
    assert "hidden" not in caplog.text


def test_a_client_that_is_not_known_fails_the_flow_without_its_secret(tmp_path: Path) -> None:
    with serving(Tokens) as server:
        server.statuses = [400]
        oauth = ms.http.OAuth(f"{server.url}/token", "me", "hidden")
        with pytest.raises(ms.FlowError) as failure:
            run(ms.http.post(server.url, oauth=oauth), [1])
        assert f"the token server {server.url}/token: the answer is 400 Bad Request: invalid_client" in str(
            failure.value
        )
        assert "hidden" not in str(failure.value)
        assert server.taken() == []
        assert "hidden" not in repr(oauth)


class Revoked(Tokens):
    def status(self, method: str, path: str, headers: dict[str, str], body: bytes) -> int:
        return super().status(method, path, headers, body) if path == "/token" else 401


def test_a_second_401_fails_the_flow(tmp_path: Path) -> None:
    with serving(Revoked) as server:
        oauth = ms.http.OAuth(f"{server.url}/token", "me", "hidden")
        with pytest.raises(ms.FlowError, match="the answer is 401"):
            run(ms.http.post(server.url, oauth=oauth), [1], tmp_path)
        assert len(server.asked()) == 2
        assert server.taken() == [[1], [1]]


KILLED = """
import sys
import millstream as ms

url, state = sys.argv[1:]
flow = ms.Flow("posts")
items = [{"key": n % 10, "n": n} for n in range(3000)]
sink = ms.http.post(url, body="each", parallel=16, key=lambda item: item["key"])
flow.source("in", ms.testing.items(items)).sink("out", sink)
ms.run(flow, state=state, epoch=0.05)
"""


class Counting(Server):
    """Does the work of a key once, and notes in which order the items of a key came first."""

    def __init__(self) -> None:
        self.work: dict[str, int] = {}
        self.first: dict[int, list[int]] = defaultdict(list)
        super().__init__()

    def status(self, method: str, path: str, headers: dict[str, str], body: bytes) -> int:
        item = json.loads(body)
        with self.lock:
            if headers["idempotency-key"] not in self.work:
                self.first[item["key"]].append(item["n"])
            assert self.work.setdefault(headers["idempotency-key"], item["n"]) == item["n"]
        return 200


def test_nothing_is_lost_when_the_process_is_killed(tmp_path: Path) -> None:
    with serving(Counting) as server:
        command = [sys.executable, "-c", KILLED, server.url, str(tmp_path / "state")]
        for more in (300, 900, 1500):
            process = subprocess.Popen(command)
            end = time.monotonic() + PATIENCE
            while len(server.work) < more and process.poll() is None:
                assert time.monotonic() < end
                time.sleep(0.005)
            if process.poll() is None:
                os.kill(process.pid, signal.SIGKILL)
            process.wait(PATIENCE)
        subprocess.run(command, check=True, timeout=PATIENCE)
        assert sorted(server.work.values()) == list(range(3000))
        for key, order in server.first.items():
            assert order == list(range(key, 3000, 10))
