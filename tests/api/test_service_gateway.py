"""The gateway of services, as a command and as a part of a system, with clients of HTTP and WebSockets."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import millstream as ms
import pytest
import websockets.sync.client
from websockets.typing import Origin

PATIENCE = 60.0

DESK = """
from dataclasses import dataclass
from enum import Enum
from typing import Protocol


class Side(Enum):
    BUY = 1
    SELL = 2


@dataclass
class NewOrder:
    id: str
    quantity: int
    side: Side = Side.BUY


class Orders(Protocol):
    def new_order(self, order: NewOrder) -> None: ...
    def cancel(self, id: str) -> None: ...


class Replies(Protocol):
    def accepted(self, id: str, total: int) -> None: ...


class Desk(Orders):
    def __init__(self, replies: Replies) -> None:
        self.replies = replies
        self.total = 0

    def new_order(self, order: NewOrder) -> None:
        self.total += order.quantity
        self.replies.accepted(order.id, self.total)

    def cancel(self, id: str) -> None: ...
"""

SYSTEM = """
gateway.listen = "unix:gateway.socket"

[services.desk]
component = "desk.py:Desk"
in = "orders"
out = "replies"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "desk.py").write_text(DESK)
    return tmp_path


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "millstream", "service", *words]


@contextmanager
def gateway(folder: Path, *options: str) -> Iterator[tuple[httpx.Client, subprocess.Popen[str]]]:
    """A gateway, and a client of it."""
    words = command("gateway", "127.0.0.1:0", *options)
    process = subprocess.Popen(words, cwd=folder, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
        assert line.startswith("listening on "), line
        with httpx.Client(base_url=f"http://{line.split()[-1]}", timeout=PATIENCE) as client:
            yield client, process
    finally:
        process.kill()
        process.wait()


def exported(folder: Path, journal: str) -> str:
    done = subprocess.run(command("export", journal), cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_requests_are_calls_until_a_signal(folder: Path, number: int) -> None:
    with gateway(folder, "--calls", "orders=desk.py:Desk") as (client, process):
        order = {"id": "A-1", "quantity": 100, "side": "SELL"}
        answer = client.post("/Orders/new_order", json={"order": order})
        assert (answer.status_code, answer.json()) == (200, {"journal": "orders", "sequence": 1})
        assert client.post("/Orders/cancel", json={"id": "A-1"}).json()["sequence"] == 2
        process.send_signal(number)
        assert process.wait(PATIENCE) == 0
    text = exported(folder, "orders")
    assert "new_order:\n  id: A-1\n  quantity: 100\n  side: SELL\n" in text
    assert "cancel: A-1\n" in text


def events(client: httpx.Client, count: int, **headers: str) -> list[tuple[str, int]]:
    """The ids and the numbers of the next calls of a feed."""
    found: list[tuple[str, int]] = []
    last = ""
    with client.stream("GET", "/feeds/orders", headers=headers) as response:
        assert response.status_code == 200, response.read()
        for line in response.iter_lines():
            if line.startswith("id: "):
                last = line.removeprefix("id: ")
            if line.startswith("data: "):
                found.append((last, json.loads(line.removeprefix("data: "))["arguments"]["id"]))
            if len(found) == count:
                break
    return found


def test_a_feed_resumes_after_a_gateway_that_was_killed(folder: Path) -> None:
    options = ["--calls", "orders=desk.py:Orders", "--feed", "orders"]

    def cancel(client: httpx.Client, *ids: int) -> None:
        for number in ids:
            assert client.post("/Orders/cancel", json={"id": str(number)}).status_code == 200

    with gateway(folder, *options) as (client, process):
        cancel(client, 0, 1, 2)
        first = events(client, 2, **{"Last-Event-ID": "begin"})
        assert [it for _, it in first] == ["0", "1"]
        process.kill()
    with gateway(folder, *options) as (client, _):
        cancel(client, 3)
        again = events(client, 2, **{"Last-Event-ID": first[-1][0]})
        assert [it for _, it in again] == ["2", "3"]
        # A WebSocket has the number in its URL.
        address = str(client.base_url).replace("http://", "ws://")
        with websockets.sync.client.connect(f"{address}/feeds/orders?after=1") as socket:
            shown = [json.loads(socket.recv(PATIENCE))["arguments"]["id"] for _ in range(3)]
            assert shown == ["1", "2", "3"]
        refused = client.get("/feeds/orders", headers={"Last-Event-ID": "99"})
        assert (refused.status_code, refused.text) == (
            410,
            "the id 99 is after the end of the journal: its next record is 6\n",
        )


def test_a_repeated_request_is_one_call_also_after_a_kill(folder: Path) -> None:
    body = {"id": "A-1"}
    answers = []
    for _ in range(2):
        with gateway(folder, "--calls", "orders=desk.py:Orders", "--idempotency-keep", "1h") as (client, _):
            for key in ("one", "two"):
                answers.append(client.post("/Orders/cancel", json=body, headers={"Idempotency-Key": key}))
    assert [answer.status_code for answer in answers] == [200] * 4
    assert [answer.headers.get("Idempotent-Replayed") for answer in answers] == [None, None, "true", "true"]
    assert [answer.json()["sequence"] for answer in answers] == [1, 2, 1, 2]
    assert exported(folder, "orders").count("cancel:") == 2


def test_a_refusal_names_the_argument(folder: Path) -> None:
    (folder / "token").write_text("s3cret\n")
    options = ["--calls", "orders=desk.py:Orders", "--token-file", "token", "--max-body", "200"]
    with gateway(folder, *options) as (client, _):
        assert client.post("/Orders/cancel", json={"id": "A"}).status_code == 401
        wrong = {"Authorization": "Bearer S3cret"}
        assert client.post("/Orders/cancel", json={"id": "A"}, headers=wrong).status_code == 403
        client.headers["Authorization"] = "Bearer s3cret"
        for path, body, status, line in [
            (
                "/Orders/new_order",
                {"order": {"id": "A"}},
                400,
                "new_order.order.quantity: the field is missing",
            ),
            (
                "/Orders/new_order",
                {"order": {"id": "A", "quantity": "1"}},
                400,
                'quantity: expected i64, found "1"',
            ),
            (
                "/Orders/new_order",
                {"order": {"id": "A", "quantity": 1, "side": "UP"}},
                400,
                "Side is one of BUY, SELL",
            ),
            ("/Orders/new_order", {}, 400, "new_order.order: the argument is missing"),
            ("/Orders/cancel", {"ID": "A"}, 400, 'cancel: there is no argument "ID"'),
            ("/Orders/cancel", {"id": 7}, 400, "cancel.id: expected str, found 7"),
            ("/Orders/cancel", {"id": "x" * 200}, 413, "the body is larger than 200 bytes"),
            ("/Orders/place", {}, 404, "the interface Orders has no method place; it has new_order, cancel"),
            ("/Replies/accepted", {}, 404, "there is no interface Replies; there is Orders"),
        ]:
            answer = client.post(path, json=body)
            assert (answer.status_code, line in answer.text) == (status, True), answer.text
        assert client.get("/Orders/cancel").status_code == 405
        assert (
            client.post("/Orders/cancel", content=b"x", headers={"Content-Type": "text/plain"}).status_code
            == 415
        )
        assert exported(folder, "orders") == ""


def test_a_feed_has_the_calls_of_a_journal(folder: Path) -> None:
    options = ["--calls", "orders=desk.py:Orders", "--feed", "orders", "--feed", "replies"]
    with gateway(folder, *options, "--origin", "https://shop.example") as (client, process):
        address = str(client.base_url).replace("http", "ws", 1)
        origin = Origin("https://shop.example")
        page = websockets.sync.client.connect(f"{address}/feeds/orders", origin=origin)
        with page, client.stream("GET", "/feeds/replies") as events:
            client.post("/Orders/cancel", json={"id": "B"})
            item = json.loads(page.recv(PATIENCE))
            assert (item["method"], item["arguments"]) == ("cancel", {"id": "B"})
            client.post("/Orders/new_order", json={"order": {"id": "A", "quantity": 2}})
            done = subprocess.run(
                command("run", "desk.py:Desk", "--in", "orders", "--out", "replies", "--drain"), cwd=folder
            )
            assert done.returncode == 0
            reply = next(line for line in events.iter_lines() if line.startswith("data: "))
            item = json.loads(reply.removeprefix("data: "))
            assert (item["method"], item["arguments"]) == ("accepted", {"id": "A", "total": 2})
            assert item["effect_of"] == {"journal": "orders", "sequence": 2}
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE) == 0


@pytest.mark.parametrize(
    ("options", "code", "line"),
    [
        ([], 2, "one of --calls, --feed and --state, or several"),
        (["--calls", "orders"], 2, "'orders': expected DIR=MODULE:CLASS"),
        (["--calls", "orders=desk.py:Nothing"], 2, "desk has no class Nothing"),
        (["--calls", "orders=desk.py:NewOrder"], 2, "desk.py:NewOrder: NewOrder derives from no interface"),
        (
            ["--calls", "a=desk.py:Orders", "--calls", "b=desk.py:Desk"],
            1,
            "the interface Orders is of a and of b",
        ),
        (["--feed", "a/x", "--feed", "b/x"], 1, "a/x and b/x are feeds of one name"),
        (["--feed", "x", "--sync", "often"], 2, '--sync: sync is "never", "always"'),
        (["--feed", "x", "--max-body", "0"], 2, "'0' is no number from 1 to 16777216"),
        (["--feed", "x", "--idempotency-keep", "0s"], 2, "'0s' is no time from 1s to 366d"),
        (["--feed", "x", "--idempotency-keep", "1"], 2, "'1' is no time from 1s to 366d"),
        (["--feed", "x", "--token-file", "none"], 2, "none: No such file or directory"),
        (["--feed", "x", "--token-file", "desk.py"], 1, "a token is one or more visible ASCII"),
        (
            ["--feed", "x", "--origin", "shop"],
            1,
            'an origin is like https://example.org:8080, or *, not "shop"',
        ),
    ],
)
def test_a_gateway_that_cannot_work_does_not_start(
    folder: Path, options: list[str], code: int, line: str
) -> None:
    words = command("gateway", "127.0.0.1:0", *options)
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, line in done.stderr) == (code, True), done.stderr
    assert done.stderr.count("\n") == 1


def test_a_system_has_a_gateway_by_a_line_of_its_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)  # the path of a socket has 107 bytes at most
    (folder / "desk.toml").write_text(SYSTEM)
    with (folder / "log").open("w") as log:
        up = subprocess.Popen(command("up", "desk.toml"), cwd=folder, stdout=log, stderr=log)
    try:
        transport = httpx.HTTPTransport(uds="gateway.socket")
        with httpx.Client(transport=transport, base_url="http://gateway", timeout=PATIENCE) as client:
            post(client, "A-1", 2)
            order = {"order": {"id": "A-0", "quantity": 0}}
            answered = client.post("/Orders/new_order?answer=1&timeout=60", json=order).json()
            assert answered["answer"]["arguments"] == {"id": "A-0", "total": 2}
            # The desk has no queries.
            assert client.get("/state/replies/total").status_code == 503
            with client.stream("GET", "/feeds/replies") as events:
                lines = events.iter_lines()
                assert next(lines).startswith(": ")
                last = post(client, "A-2", 3)
                items = (json.loads(line[6:]) for line in lines if line.startswith("data: "))
                item = next(item for item in items if item["arguments"]["id"] == "A-2")
                assert item["arguments"]["total"] == 5
                assert item["effect_of"] == {"journal": "orders", "sequence": last}

            shown = subprocess.run(command("status", "desk.toml"), cwd=folder, capture_output=True, text=True)
            assert re.search(r"^gateway  running +\d+  0 +-  ", shown.stdout, re.MULTILINE), shown.stdout

            # Killed, it is started again.
            first = status(folder)["gateway"]
            assert (first["listen"], first["state"]) == ("unix:gateway.socket", "running")
            os.kill(first["pid"], signal.SIGKILL)
            wait(folder, lambda it: it["state"] == "running" and it["restarts"] == 1)
            post(client, "A-3", 4)

        # Changed, it is another process; removed, there is none.
        desk = services(folder)
        changed = SYSTEM.replace("\n[services", 'gateway.max_body = "1 KiB"\n[services')
        (folder / "desk.toml").write_text(changed)
        done = subprocess.run(command("up", "desk.toml"), cwd=folder, capture_output=True, text=True)
        assert done.stdout == "gateway: restarted\ndesk: unchanged\n", done.stdout + done.stderr
        (folder / "desk.toml").write_text(SYSTEM.replace('gateway.listen = "unix:gateway.socket"', ""))
        done = subprocess.run(command("up", "desk.toml"), cwd=folder, capture_output=True, text=True)
        assert done.stdout == "gateway: stopped\ndesk: unchanged\n", done.stdout + done.stderr
        assert status(folder)["gateway"] is None
        assert services(folder) == desk
    finally:
        up.send_signal(signal.SIGTERM)
        assert up.wait(PATIENCE) == 0, (folder / "log").read_text()
    assert exported(folder, "orders").count("new_order:") == 4


def test_a_system_ends_when_only_its_gateway_is_left(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    failing = DESK.replace("self.total += order.quantity", "raise ValueError(order.id)")
    (folder / "desk.py").write_text(failing)
    (folder / "desk.toml").write_text(SYSTEM + "[processes.desk]\nrestart = { limit = 0 }\n")
    with (folder / "log").open("w") as log:
        up = subprocess.Popen(command("up", "desk.toml"), cwd=folder, stdout=log, stderr=log)
    try:
        transport = httpx.HTTPTransport(uds="gateway.socket")
        with httpx.Client(transport=transport, base_url="http://gateway", timeout=PATIENCE) as client:
            post(client, "A-1", 2)
            assert up.wait(PATIENCE) == 1
        # The gateway ends with the supervisor.
        deadline = time.monotonic() + PATIENCE
        while (folder / "gateway.socket").exists():
            assert time.monotonic() < deadline
            time.sleep(0.05)
    finally:
        up.kill()
        up.wait()
    assert "nothing is left that could run" in (folder / "log").read_text()


def post(client: httpx.Client, order: str, quantity: int) -> int:
    """Posts a call; waits for a gateway that starts."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            answer = client.post("/Orders/new_order", json={"order": {"id": order, "quantity": quantity}})
            assert answer.status_code == 200, answer.text
            number: int = answer.json()["sequence"]
            return number
        except httpx.ConnectError:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def status(folder: Path) -> dict[str, Any]:
    words = command("status", "desk.toml", "--json")
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def services(folder: Path) -> list[Any]:
    return [(it["name"], it["pid"], it["restarts"]) for it in status(folder)["services"]]


def wait(folder: Path, until: Any) -> None:
    deadline = time.monotonic() + PATIENCE
    while not until(status(folder)["gateway"]):
        assert time.monotonic() < deadline, (folder / "log").read_text()


def test_calls_are_those_of_publishers(folder: Path) -> None:
    """A gateway and a publisher of Python write one journal, with one schema."""
    program = "import millstream as ms\nfrom desk import NewOrder, Orders\n"
    program += "ms.publisher(Orders, 'orders').new_order(NewOrder('P', 1))\n"
    with gateway(folder, "--calls", "orders=desk.py:Orders") as (client, _):
        client.post("/Orders/new_order", json={"order": {"id": "G", "quantity": 1}})
        subprocess.run([sys.executable, "-c", program], cwd=folder, check=True)
        client.post("/Orders/new_order", json={"order": {"id": "G", "quantity": 1}})
    with ms.Journal(folder / "orders", "r") as journal:
        bodies = [record.body for record in journal]
    notes = [body for body in bodies if b"schema" in body]
    assert len(set(notes)) == 1
    calls = [body for body in bodies if body not in notes]
    assert len(calls) == 3
    assert {body.replace(b"P", b"G") for body in calls} == {calls[0]}
