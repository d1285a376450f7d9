"""HTTP sinks, against a server whose answers the test chooses."""

from __future__ import annotations

import json
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TypeVar

import millstream as ms
import pytest

S = TypeVar("S", bound="Server")
QUICK = ms.Backoff(first=0.005, most=0.05)


class Server(ThreadingHTTPServer):
    """Answers with the next status, the last one for ever, and keeps what it accepts by key."""

    daemon_threads = True

    def __init__(self, statuses: list[int]) -> None:
        self.statuses = statuses
        self.lock = threading.Lock()
        self.requests: list[tuple[str, bytes, Message]] = []
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_port}/in"

    def status(self, body: bytes, number: int) -> int:
        return self.statuses[min(number, len(self.statuses) - 1)]

    def accepted(self) -> list[Any]:
        by_key = {key: body for key, body, _ in self.requests}
        return [item for body in by_key.values() for item in json.loads(body)]


class Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        with self.server.lock:
            number = len(self.server.requests)
            self.server.requests.append((self.headers["Idempotency-Key"], body, self.headers))
        status = self.server.status(body, number)
        self.send_response(status)
        self.send_header("Content-Length", "0")
        if status == 429:
            self.send_header("Retry-After", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serving(*statuses: int, of: type[S] = Server) -> Iterator[S]:
    with of(list(statuses)) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def run(sink: Any, items: list[Any], state: Path | None = None, on_error: Any = "fail") -> ms.Report:
    flow = ms.Flow("posts")
    flow.source("in", ms.testing.items(items)).sink("out", sink, on_error=on_error)
    return ms.run(flow, state=state)


@pytest.mark.parametrize("durable", [True, False])
def test_items_arrive_once_whatever_the_server_answers_first(tmp_path: Path, durable: bool) -> None:
    with serving(500, 429, 503, 200) as server:
        items = [{"n": n, "text": "größe"} for n in range(10)]
        run(ms.http.post(server.url, batch=4, retry=QUICK), items, tmp_path if durable else None)
        assert server.accepted() == items
        assert len({key for key, _, _ in server.requests[:4]}) == 1


def test_bodies_headers_and_keys(tmp_path: Path) -> None:
    with serving(200) as server:
        each = ms.http.post(server.url, body="each", token="secret", headers={"X-Of": "me"})
        run(each, [1, "x"], tmp_path / "each")
        assert [body for _, body, _ in server.requests] == [b"1", b'"x"']
        keys = [key for key, _, _ in server.requests]
        assert [key.rsplit("-", 2)[1:] for key in keys] == [["0", "0"], ["1", "1"]]
        headers = server.requests[0][2]
        assert headers["Authorization"] == "Bearer secret"
        assert (headers["X-Of"], headers["Content-Type"]) == ("me", "application/json")
    with serving(200) as server:
        run(
            ms.http.post(server.url, body="lines", encode=lambda item: json.dumps(item.upper())),
            ["a"],
            tmp_path / "lines",
        )
        assert [body for _, body, _ in server.requests] == [b'"A"\n']


def test_a_refusal_fails_the_flow_and_the_next_run_delivers(tmp_path: Path) -> None:
    with serving(400, 200) as server:
        with pytest.raises(ms.FlowError, match="400 Bad Request"):
            run(ms.http.post(server.url), [1], tmp_path)
        run(ms.http.post(server.url), [1], tmp_path)
        assert server.accepted() == [1]


def test_refused_items_can_be_skipped(tmp_path: Path) -> None:
    with serving(200, 422, 200) as server:
        run(ms.http.post(server.url, body="each"), [1, 2, 3], tmp_path, "skip")
        assert [body for _, body, _ in server.requests] == [b"1", b"2", b"3"]


class Picky(Server):
    """Refuses each request that has an item 13."""

    def status(self, body: bytes, number: int) -> int:
        return 422 if b"13" in body else 200

    def taken(self) -> list[Any]:
        bodies = [json.loads(body) for _, body, _ in self.requests if b"13" not in body]
        return [item for items in bodies for item in items]


@pytest.mark.parametrize("durable", [True, False])
def test_one_refused_item_of_many_holds_up_only_itself(
    tmp_path: Path, durable: bool, caplog: pytest.LogCaptureFixture
) -> None:
    state = tmp_path if durable else None
    with serving(of=Picky) as server:
        report = run(ms.http.post(server.url), list(range(100)), state, "skip")
        assert server.taken() == [n for n in range(100) if n != 13]
        # At most 100 records are halved, seven times; the first deliveries may have few.
        assert len([body for _, body, _ in server.requests if b"13" in body]) <= 8
        assert report.outboxes[0]["refused_records"] == 1
        assert report.outboxes[0]["delivered_records"] == 99
    assert "record 13 is refused and skipped: the answer is 422" in caplog.text
    with serving(of=Picky) as server:
        with pytest.raises(ms.FlowError, match="record 13.*422|422.*record 13"):
            run(ms.http.post(server.url), list(range(100)), tmp_path / "fails" if durable else None)


@pytest.mark.parametrize("body", ["array", "lines", "each", "requests"])
@pytest.mark.parametrize("durable", [True, False])
def test_a_refused_item_is_a_dead_letter(tmp_path: Path, durable: bool, body: str) -> None:
    letters: list[ms.DeadLetter] = []
    parts: dict[str, Any] = {"body": body}
    if body == "requests":
        parts = {"body": "each", "headers": lambda item: {"X-Number": str(item)}}
    with serving(of=Picky) as server:
        sink = ms.http.post(server.url, **parts)
        run(sink, list(range(100)), tmp_path if durable else None, ms.dead_letter(letters))
        assert len([body for _, body, _ in server.requests if b"13" in body]) <= 8
    assert [letter.item for letter in letters] == [b"13"]
    assert str(letters[0].error).startswith("the answer is 422")


@pytest.mark.parametrize("status", [401, 403, 404, 302])
def test_what_is_not_about_the_items_is_never_skipped(tmp_path: Path, status: int) -> None:
    with serving(status) as server:
        with pytest.raises(ms.FlowError, match=f"the answer is {status}"):
            run(ms.http.post(server.url), [1, 2, 3], tmp_path, "skip")
        assert len(server.requests) == 1
    with serving(200) as server:
        run(ms.http.post(server.url), [1, 2, 3], tmp_path, "skip")
        assert server.accepted() == [1, 2, 3]


def test_values_that_are_no_json_go_to_the_policy(tmp_path: Path) -> None:
    letters = ms.testing.collect()
    with serving(200) as server:
        flow = ms.Flow("posts")
        items = [1, float("nan"), "\ud800", {2}, 2]
        out = ms.http.post(server.url)
        flow.source("in", ms.testing.items(items)).sink("out", out, on_error=ms.dead_letter(letters))
        ms.run(flow, state=tmp_path)
        assert server.accepted() == [1, 2]
    assert [repr(letter.item) for letter in letters] == ["nan", "'\\ud800'", "{2}"]


def test_a_server_that_is_away_and_comes_back(tmp_path: Path) -> None:
    with serving(200) as server:
        url = server.url
    with pytest.raises(ms.FlowError, match="refused"):
        run(ms.http.post(url, retry=ms.Backoff(first=0.005, tries=3)), [1, 2], tmp_path)
    with serving(200) as server:
        run(ms.http.post(server.url), [1, 2], tmp_path)
        assert server.accepted() == [1, 2]


@pytest.mark.parametrize(
    "mistake",
    [
        lambda: ms.http.post("http://x", body="xml"),  # type: ignore[call-overload]
        lambda: ms.http.post("http://x", timeout=0.0),
        lambda: ms.http.post("http://x", batch=0),
        lambda: ms.http.post("http://x", headers={"a": 1}),  # type: ignore[dict-item]
    ],
)
def test_a_wrong_option_is_an_error(mistake: Callable[[], object]) -> None:
    with pytest.raises(ValueError):
        mistake()


@pytest.mark.parametrize("url", ["example.com", "ftp://example.com/", "http://me:hidden@example.com/"])
def test_a_wrong_url_is_an_error_that_shows_no_password(url: str) -> None:
    with pytest.raises(ms.FlowError, match="http post") as failure:
        run(ms.http.post(url), [1])
    assert "hidden" not in str(failure.value)


def test_tls_with_a_certificate_of_an_own_authority(tmp_path: Path) -> None:
    certificate = tmp_path / "cert.pem"
    key = tmp_path / "key.pem"
    make = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost"
    names = ["-addext", "subjectAltName=DNS:localhost", "-addext", "basicConstraints=critical,CA:FALSE"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*make.split(), *names, *files], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with serving(200) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        url = f"https://localhost:{server.server_port}/in"
        once = ms.Backoff(first=0.005, tries=1)
        # A certificate that no list has is an error of the connection, and the record waits.
        with pytest.raises(ms.FlowError, match="certificate"):
            run(ms.http.post(url, retry=once), [1], tmp_path / "state")
        assert server.requests == []
        run(ms.http.post(url, ca=certificate, retry=once), [1], tmp_path / "state")
        assert server.accepted() == [1]
        # The name is checked, too.
        with pytest.raises(ms.FlowError, match="certificate"):
            run(ms.http.post(f"https://127.0.0.1:{server.server_port}/in", ca=certificate, retry=once), [2])
        assert server.accepted() == [1]


def test_a_file_that_has_no_certificate_is_named(tmp_path: Path) -> None:
    empty = tmp_path / "empty.pem"
    empty.write_text("nothing")
    for path, line in ((empty, "there is no certificate in PEM"), (tmp_path / "none.pem", "No such file")):
        with pytest.raises(ms.FlowError, match=f"{path.name}: {line}"):
            run(ms.http.post("https://localhost:1/", ca=path), [1])
