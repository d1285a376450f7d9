"""Feeds for browsers, with clients of WebSockets and of server-sent events."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import millstream as ms
import pytest
import websockets.sync.client
from servers import free_port
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

PATIENCE = 60.0
EXAMPLE = Path(__file__).parents[2] / "examples" / "live_count"


class Feeding:
    """A flow in the background that feeds what is posted."""

    def __init__(self, feed: Callable[[Callable[[str], object]], Any], state: Path | None = None) -> None:
        bound: dict[str, str] = {}
        ready = {name: threading.Event() for name in ("posts", "feed")}

        def note(name: str) -> Callable[[str], object]:
            def on_bound(address: str) -> None:
                bound[name] = address
                ready[name].set()

            return on_bound

        flow = ms.Flow("feeding")
        flow.source("in", ms.http.listen("127.0.0.1:0", on_bound=note("posts"))).sink(
            "out", feed(note("feed"))
        )
        self.running = flow.start(state=state)
        assert all(event.wait(PATIENCE) for event in ready.values())
        self.address = bound["feed"]
        self.posts = httpx.Client(base_url=f"http://{bound['posts']}", timeout=PATIENCE)

    def post(self, *items: object) -> None:
        assert self.posts.post("/", json=list(items)).status_code == 200

    def stop(self) -> None:
        self.posts.close()
        self.running.stop()
        self.running.wait()


@contextmanager
def feeding(state: Path | None = None, **options: Any) -> Iterator[Feeding]:
    running = Feeding(lambda on_bound: ms.http.feed("127.0.0.1:0", on_bound=on_bound, **options), state)
    try:
        yield running
    finally:
        running.stop()


def received(response: httpx.Response) -> Iterator[Any]:
    """The items of server-sent events."""
    for line in response.iter_lines():
        if line.startswith("data: "):
            yield json.loads(line.removeprefix("data: "))


@pytest.mark.parametrize("durable", [False, True])
def test_clients_get_the_items_from_their_connection_on(tmp_path: Path, durable: bool) -> None:
    with feeding(tmp_path / "state" if durable else None) as flow:
        flow.post("missed")
        if durable:
            # The flow may read the record after the answer: a client sees when it has.
            with websockets.sync.client.connect(f"ws://{flow.address}/") as first:
                flow.post("begin")
                while json.loads(first.recv(PATIENCE)) != "begin":
                    pass
        with httpx.stream("GET", f"http://{flow.address}/", timeout=PATIENCE) as response:
            assert response.headers["content-type"] == "text/event-stream"
            events = received(response)
            with websockets.sync.client.connect(f"ws://{flow.address}/") as client:
                items = [{"n": 1}, ["two", "zwölf"], None, "line\nbreak"]
                flow.post(*items)
                assert [json.loads(client.recv(PATIENCE)) for _ in items] == items
                assert [next(events) for _ in items] == items


def test_the_end_of_the_flow_closes_after_the_last_item() -> None:
    flow = Feeding(lambda on_bound: ms.http.feed("127.0.0.1:0", on_bound=on_bound))
    with httpx.stream("GET", f"http://{flow.address}/", timeout=PATIENCE) as response:
        with websockets.sync.client.connect(f"ws://{flow.address}/") as client:
            flow.post(*range(1000))
            flow.running.stop()
            assert [json.loads(client.recv(PATIENCE)) for _ in range(1000)] == list(range(1000))
            with pytest.raises(ConnectionClosed) as closed:
                client.recv(PATIENCE)
            assert closed.value.rcvd is not None and closed.value.rcvd.code == 1001
        assert list(received(response)) == list(range(1000))
    flow.stop()


def test_a_slow_client_is_dropped_and_a_quick_one_gets_all() -> None:
    count = 300
    text = "x" * 100_000

    async def run(flow: Feeding) -> tuple[list[int], list[int]]:
        async with connect(f"ws://{flow.address}/", max_queue=1, ping_interval=None) as slow:
            async with connect(f"ws://{flow.address}/") as quick:
                items = []
                for number in range(count):
                    await asyncio.to_thread(flow.post, [number, text])
                    items.append(json.loads(await asyncio.wait_for(quick.recv(), PATIENCE))[0])
            late = []
            with pytest.raises(ConnectionClosed):
                while True:
                    late.append(json.loads(await asyncio.wait_for(slow.recv(), PATIENCE))[0])
        return items, late

    with feeding(max_client="1MiB") as flow:
        quick, slow = asyncio.run(run(flow))
        assert quick == list(range(count))
        assert slow == list(range(len(slow))) and len(slow) < count
        # The next client is served.
        with websockets.sync.client.connect(f"ws://{flow.address}/") as client:
            flow.post("next")
            assert json.loads(client.recv(PATIENCE)) == "next"


def refused(address: str, **options: Any) -> int:
    with pytest.raises(InvalidStatus) as error:
        with websockets.sync.client.connect(f"ws://{address}", open_timeout=PATIENCE, **options):
            pass
    return error.value.response.status_code


def test_origins_and_tokens_are_checked() -> None:
    with feeding(origins=["https://good.example"], token="sec-ret", path="/feed") as flow:
        url = f"{flow.address}/feed"
        assert refused(url) == 401
        assert refused(f"{url}?token=wrong") == 403
        assert refused(f"{flow.address}/?token=sec-ret") == 404
        assert refused(f"{url}?token=sec-ret", origin="https://evil.example") == 403
        accepted = f"ws://{url}?token=sec-ret"
        with websockets.sync.client.connect(accepted, origin=websockets.Origin("https://good.example")):
            pass
        bearer = {"Authorization": "Bearer sec-ret"}
        with websockets.sync.client.connect(f"ws://{url}", additional_headers=bearer) as client:
            flow.post("a")
            assert json.loads(client.recv(PATIENCE)) == "a"


def test_a_function_encodes_and_its_text_is_sent() -> None:
    with feeding(encode=lambda item: f"<{item}>") as flow:
        with websockets.sync.client.connect(f"ws://{flow.address}/") as client:
            flow.post("a")
            assert client.recv(PATIENCE) == "<a>"


def test_a_unix_socket(tmp_path: Path) -> None:
    path = tmp_path / "feed"
    flow = Feeding(lambda on_bound: ms.http.feed(f"unix:{path}", on_bound=on_bound))
    with websockets.sync.client.unix_connect(str(path), "ws://localhost/") as client:
        flow.post("a")
        assert json.loads(client.recv(PATIENCE)) == "a"
        flow.stop()
    assert not path.exists()


def test_wrong_options_are_named() -> None:
    with pytest.raises(ms.FlowUsageError, match="max_client is a number of bytes"):
        ms.http.feed("127.0.0.1:0", max_client="much")
    with pytest.raises(ms.FlowUsageError, match="origins is a list of texts"):
        ms.http.feed("127.0.0.1:0", origins="https://example.org")
    for options, line in (
        ({"origins": ["example.org"]}, "an origin is like"),
        ({"token": "a b"}, "a token is one or more visible ASCII"),
        ({"path": "feed"}, "the path begins with /"),
    ):
        with pytest.raises(ms.FlowUsageError, match=line):
            ms.http.feed("127.0.0.1:0", **options)  # type: ignore[arg-type]


def connected(
    url: str, process: subprocess.Popen[str], origin: str
) -> websockets.sync.client.ClientConnection:
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return websockets.sync.client.connect(url, origin=websockets.Origin(origin))
        except OSError:
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.02)


def test_the_example_counts_what_is_posted_also_after_a_kill(tmp_path: Path) -> None:
    page = (EXAMPLE / "page.html").read_text()
    assert 'new WebSocket("ws://127.0.0.1:8082/counts")' in page
    posts = f"127.0.0.1:{free_port()}"
    feed = f"127.0.0.1:{free_port()}"
    origin = "http://127.0.0.1:8000"
    command = [sys.executable, "-m", "millstream", "run", str(EXAMPLE / "live_count.py")]
    command += ["--state", str(tmp_path / "state"), "--epoch", "20ms"]

    def counts(lines: bytes, last: dict[str, object]) -> dict[str, int]:
        process = subprocess.Popen(command, env=os.environ | {"LISTEN": posts, "FEED": feed}, text=True)
        try:
            with connected(f"ws://{feed}/counts", process, origin) as client:
                with urllib.request.urlopen(f"http://{posts}/words", lines, PATIENCE) as answer:
                    assert answer.status == 200
                found: dict[str, int] = {}
                while True:
                    item = json.loads(client.recv(PATIENCE))
                    found[item["word"]] = item["count"]
                    if item == last:
                        return found
        finally:
            process.kill()
            process.wait()

    first = counts(b"To be\nor not to be\nend\n", {"word": "end", "count": 1})
    assert first == {"to": 2, "be": 2, "or": 1, "not": 1, "end": 1}
    assert counts(b"to END", {"word": "end", "count": 2})["to"] == 3
