"""HTTP sources, with real clients."""

from __future__ import annotations

import json
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import millstream as ms
import pytest

PATIENCE = 60.0


@contextmanager
def listening(out: list[Any], **options: Any) -> Iterator[str]:
    """Runs a flow in the background that collects items; yields its address, and waits for its end."""
    bound: list[str] = []
    ready = threading.Event()

    def on_bound(address: str) -> None:
        bound.append(address)
        ready.set()

    failures: list[BaseException] = []
    flow = ms.Flow("posts")
    address = options.pop("address", "127.0.0.1:0")
    state = options.pop("state", None)
    flow.source("in", ms.http.listen(address, on_bound=on_bound, **options)).sink("out", out)

    def run() -> None:
        try:
            ms.run(flow, state=state)
        except BaseException as failure:
            failures.append(failure)
            ready.set()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert ready.wait(PATIENCE)
    if failures:
        raise failures[0]
    yield bound[0]
    thread.join(PATIENCE)
    assert not thread.is_alive()
    if failures:
        raise failures[0]


def post(address: str, body: bytes, path: str = "/", **headers: str) -> tuple[int, str]:
    request = urllib.request.Request(
        f"http://{address}{path}", body, {"Content-Type": "application/json"} | headers
    )
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


@pytest.mark.parametrize("durable", [False, True])
def test_json_values_are_items(tmp_path: Path, durable: bool) -> None:
    out = ms.testing.collect()
    with listening(out, requests=3, state=tmp_path / "state" if durable else None) as address:
        with httpx.Client(base_url=f"http://{address}", timeout=PATIENCE) as client:
            assert client.post("/", json={"a": [1, None]}).json() == {"items": 1}
            assert client.post("/", json=[1, "x"]).json() == {"items": 2}
            lines = client.post("/", content="2\n3\n", headers={"Content-Type": "application/x-ndjson"})
            assert lines.json() == {"items": 2}
    assert out == [{"a": [1, None]}, 1, "x", 2, 3]


@pytest.mark.parametrize(
    ("options", "items"),
    [
        ({"body": "lines"}, [b"to", b"be"]),
        ({"body": "lines", "decode": str}, ["to", "be"]),
        ({"body": "bytes"}, [b"to\nbe"]),
        ({"body": "bytes", "decode": len}, [5]),
    ],
)
def test_lines_and_bytes_are_items(options: dict[str, Any], items: list[Any]) -> None:
    out = ms.testing.collect()
    with listening(out, requests=1, **options) as address:
        assert post(address, b"to\nbe")[0] == 200
    assert out == items


def test_refusals_have_one_line() -> None:
    out = ms.testing.collect()
    with listening(out, requests=1, path="/in", token="secret", max_body=20) as address:
        token = {"Authorization": "Bearer secret"}
        assert post(address, b"1", "/in")[0] == 401
        assert post(address, b"1", "/in", Authorization="Bearer wrong") == (403, "the token is wrong\n")
        assert post(address, b"1", "/", **token) == (404, "no such path: /\n")
        assert httpx.get(f"http://{address}/in", headers=token).status_code == 405
        assert post(address, b"[1", "/in", **token)[0] == 400
        assert post(address, b"[1" * 20, "/in", **token) == (413, "the body is larger than 20 bytes\n")
        assert post(address, b"1", "/in", **token | {"Content-Type": "text/plain"})[0] == 415
        assert post(address, b"1", "/in", **token)[0] == 200
    assert out == [1]


def test_pages_of_accepted_origins_may_post() -> None:
    out = ms.testing.collect()
    with listening(out, requests=1, origins=["https://shop.example"]) as address:
        assert post(address, b"1", Origin="https://other.example")[0] == 403
        assert post(address, b"1", Origin="https://shop.example")[0] == 200
    assert out == [1]
    with pytest.raises(ms.FlowUsageError, match="list of texts"):
        ms.http.listen("127.0.0.1:0", origins="*")


def test_unix_socket(tmp_path: Path) -> None:
    out = ms.testing.collect()
    address = f"unix:{tmp_path}/socket"
    with listening(out, address=address, requests=1) as bound:
        assert bound == address
        transport = httpx.HTTPTransport(uds=f"{tmp_path}/socket")
        with httpx.Client(transport=transport, timeout=PATIENCE) as client:
            assert client.post("http://socket/", json=1).status_code == 200
    assert out == [1]
    assert not (tmp_path / "socket").exists()


def test_many_clients_at_once(tmp_path: Path) -> None:
    out = ms.testing.collect()
    clients = 8
    each = 100

    def send(address: str, client: int) -> None:
        with httpx.Client(base_url=f"http://{address}", timeout=PATIENCE) as connection:
            for n in range(each):
                assert (
                    connection.post("/", json=[client, n] if n % 2 else {"n": [client, n]}).status_code == 200
                )

    with listening(out, requests=clients * each, state=tmp_path) as address:
        threads = [threading.Thread(target=send, args=(address, client)) for client in range(clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
    assert sum(1 if isinstance(item, dict) else 0 for item in out) == clients * each // 2
    assert sum(0 if isinstance(item, dict) else 1 for item in out) == clients * each
    assert {tuple(item["n"]) for item in out if isinstance(item, dict)} == {
        (client, n) for client in range(clients) for n in range(0, each, 2)
    }


@pytest.mark.parametrize(
    ("mistake", "says"),
    [
        (lambda: ms.http.listen("127.0.0.1:0", body="xml"), "not 'xml'"),  # type: ignore[call-overload]
        (lambda: ms.http.listen("127.0.0.1:0", timeout=-1.0), "timeout is a number of seconds"),
        (lambda: ms.http.listen("127.0.0.1:0").durable(), "durable already"),
    ],
)
def test_a_wrong_option_is_an_error(mistake: Callable[[], object], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        mistake()


@pytest.mark.parametrize(
    ("address", "options", "says"),
    [
        ("nonsense", {}, "nonsense"),
        ("unix:/no/such/directory/socket", {}, "/no/such/directory/socket"),
        ("127.0.0.1:0", {"path": "in"}, 'begins with /, unlike "in"'),
        ("127.0.0.1:0", {"path": "/%4"}, 'the path /%4: "%4" is no escape'),
        ("127.0.0.1:0", {"token": "two words"}, "visible ASCII"),
        ("127.0.0.1:0", {"origins": ["shop.example"]}, "an origin is like"),
    ],
)
def test_a_source_that_cannot_open_says_why(address: str, options: dict[str, Any], says: str) -> None:
    with (
        pytest.raises((ms.FlowError, OSError), match=says),
        listening(ms.testing.collect(), address=address, **options),
    ):
        pass


def test_an_address_in_use_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(OSError, match=address), listening(ms.testing.collect(), address=address):
            pass


def test_items_that_cannot_be_decoded_follow_the_policy() -> None:
    out = ms.testing.collect()
    flow = ms.Flow("posts")

    def send(address: str) -> None:
        thread = threading.Thread(target=post, args=(address, json.dumps(["1", "x", "2"]).encode()))
        thread.start()

    def number(text: bytes) -> int:
        return int(json.loads(text))

    source = ms.http.listen("127.0.0.1:0", decode=number, requests=1, on_bound=send)
    flow.source("in", source, on_error="skip").sink("out", out)
    ms.run(flow)
    assert out == [1, 2]


HOSTILE = [
    b'{"n": ' + b"9" * 5000 + b"}",
    b'"\\ud800"',
    b'{"\\udfff": 1}',
    b"NaN",
    b"[-Infinity]",
    b"1e999",
    b"[" * 500 + b"]" * 500,
    b'"\xff"',
    b'[1, {"n": 1e999}]',
]


@pytest.mark.parametrize("durable", [False, True])
def test_json_that_the_flow_cannot_read_is_refused_at_the_door(tmp_path: Path, durable: bool) -> None:
    out = ms.testing.collect()
    state = tmp_path / "state" if durable else None
    fine = [b'"\\ud83d\\ude00"', b"9" * 400, b"[" * 100 + b"]" * 100]
    with listening(out, requests=len(fine), state=state) as address:
        for body in HOSTILE:
            status, line = post(address, body)
            assert (status, line.count("\n")) == (400, 1), (body[:40], line)
        assert post(address, HOSTILE[-1])[1].startswith("element 2: ")
        assert [post(address, body)[0] for body in fine] == [200] * len(fine)
    assert out[:2] == ["\U0001f600", int("9" * 400)]
    # Every sink of JSON can write it.
    assert [json.dumps(item).encode().decode() for item in out]


def test_a_decoder_checks_at_the_door(tmp_path: Path) -> None:
    out = ms.testing.collect()
    with listening(out, requests=1, state=tmp_path / "state", body="lines", decode=int) as address:
        status, line = post(address, b"1\nx\n")
        assert status == 400 and line.startswith("line 2: ValueError: invalid literal"), line
        assert post(address, b"1\n2\n")[0] == 200
    assert out == [1, 2]
