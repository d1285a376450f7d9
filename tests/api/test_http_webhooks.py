"""Sources of web hooks: requests as items, signatures, packed bodies, probes."""

from __future__ import annotations

import gzip
import hashlib
import hmac
import json
import pickle
import threading
import time
import zlib
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import millstream as ms
import pytest

PATIENCE = 60.0
SECRET = "a secret"


class Running:
    """A flow in the background, and a client of its source."""

    def __init__(self, client: httpx.Client, flow: Any) -> None:
        self.client = client
        self.flow = flow

    def post(self, body: bytes | str, path: str = "/", **headers: str) -> int:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.client.post(path, content=body, headers=sent).status_code


@contextmanager
def listening(
    out: list[Any], path: Any = "/", state: Path | None = None, **options: Any
) -> Iterator[Running]:
    """A flow that collects items, and ends when the block does: the items are there then."""
    bound: list[str] = []
    ready = threading.Event()

    def on_bound(address: str) -> None:
        bound.append(address)
        ready.set()

    policy = options.pop("on_error", "fail")
    flow = ms.Flow("hooks")
    source = ms.http.listen("127.0.0.1:0", path, on_bound=on_bound, **options)
    flow.source("in", source, on_error=policy).sink("out", out)
    with flow.start(state=state) as running:
        assert ready.wait(PATIENCE)
        with httpx.Client(base_url=f"http://{bound[0]}", timeout=PATIENCE) as client:
            yield Running(client, running)


def wait_for(out: list[Any], count: int) -> list[Any]:
    end = time.monotonic() + PATIENCE
    while len(out) < count:
        assert time.monotonic() < end, out
        time.sleep(0.005)
    return list(out)


@pytest.mark.parametrize("durable", [False, True])
def test_an_item_is_a_request(tmp_path: Path, durable: bool) -> None:
    out = ms.testing.collect()
    options: dict[str, Any] = {
        "item": "request",
        "methods": ["POST", "PUT", "DELETE"],
        "token": "token",
        "state": tmp_path if durable else None,
    }
    with listening(out, ["/orders", "/my events"], **options) as running:
        client = running.client
        login = {"Authorization": "Bearer token"}
        headers = [*login.items(), ("X-Event", "paid"), ("X-Of", "a"), ("X-Of", "b"), ("Cookie", "c=d")]
        answer = client.post("/orders?shop=7&shop=%C3%BC&x", json={"id": [1, 2]}, headers=headers)
        assert answer.json() == {"items": 1}
        assert client.put("/my%20events", json=[1, 2], headers=login).json() == {"items": 1}
        assert client.delete("/orders?id=1", headers=login).status_code == 200
        assert client.post("/orders", content=b"[1", headers=login).status_code == 400
        assert client.post("/orders", content=b"", headers=login).status_code == 400
        assert client.post("/orders?a=%ff", json=1, headers=login).status_code == 400
        assert client.patch("/orders", json=1, headers=login).headers["Allow"] == "POST, PUT, DELETE"
        assert client.post("/other", json=1, headers=login).status_code == 404
        assert client.post("/orders", json=1).status_code == 401
        first, second, third = wait_for(out, 3)
    assert isinstance(first, ms.http.Request)
    assert (first.method, first.path, first.body) == ("POST", "/orders", {"id": [1, 2]})
    assert first.query == {"shop": ["7", "ü"], "x": [""]}
    assert (first.headers["x-event"], first.headers["x-of"]) == ("paid", "a, b")
    assert not first.headers.keys() & {"authorization", "cookie"}
    assert (second.method, second.path, second.body) == ("PUT", "/my events", [1, 2])
    assert (third.method, third.query, third.body) == ("DELETE", {"id": ["1"]}, None)
    assert pickle.loads(pickle.dumps(first)) == first


def test_a_secret_of_a_request_is_not_recorded(tmp_path: Path) -> None:
    out = ms.testing.collect()
    with listening(out, item="request", token="hidden-token", state=tmp_path) as running:
        cookie = "a=hidden-cookie"
        assert running.post(b'"recorded"', Authorization="Bearer hidden-token", Cookie=cookie) == 200
        files = [path for path in (tmp_path / "http").rglob("*") if path.is_file()]
        content = b"".join(path.read_bytes() for path in files)
        wait_for(out, 1)
    assert b"recorded" in content
    assert b"hidden" not in content


@pytest.mark.parametrize(
    ("body", "kind", "sent", "item"),
    [
        ("form", "application/x-www-form-urlencoded", b"a=1&b=%C3%BC+&a=", {"a": ["1", ""], "b": ["ü "]}),
        ("text", "text/plain; charset=UTF-8", "größe".encode(), "größe"),
        ("bytes", "image/png", b"\xff\0", b"\xff\0"),
        ("json", "application/json", b'{"a": 1}', {"a": 1}),
    ],
)
@pytest.mark.parametrize("what", ["body", "request"])
def test_bodies(body: Any, kind: str, sent: bytes, item: object, what: Any) -> None:
    out = ms.testing.collect()
    with listening(out, body=body, item=what) as running:
        assert running.post(sent, Content_Type=kind) == 200
        if body != "bytes":
            assert running.post(sent, Content_Type="image/png") == 415
            assert running.post(b"\xff", Content_Type=kind) == 400
        if body == "text":
            assert running.post(sent, Content_Type="text/plain; charset=latin-1") == 415
        if body == "form":
            assert running.post(b"a=%ff", Content_Type=kind) == 400
        [found] = wait_for(out, 1)
    assert (found.body if what == "request" else found) == item


def test_a_decoder_of_requests_is_called_at_the_door() -> None:
    def order(request: ms.http.Request) -> Any:
        return request.headers["x-event"], request.body["id"]

    out = ms.testing.collect()
    letters = ms.testing.collect()
    with listening(out, item="request", decode=order) as running:
        assert running.post(b'{"id": 1}', X_Event="paid") == 200
        assert running.post(b'{"id": 1}') == 400
        assert wait_for(out, 1) == [("paid", 1)]
    letters_of = {"on_error": ms.dead_letter(letters)}
    with listening(out, item="request", decode=order, **letters_of) as running:
        assert running.post(b'{"id": 2}', "/?x=1") == 200
        [letter] = wait_for(letters, 1)
    request = ms.http.Request.of_item(letter.item)
    assert (request.query, request.body) == ({"x": ["1"]}, b'{"id": 2}')


def test_packed_bodies_are_unpacked_up_to_the_limit(tmp_path: Path) -> None:
    out = ms.testing.collect()
    body = json.dumps(["x" * 1000]).encode()
    with listening(out, max_body=2000, state=tmp_path) as running:
        assert running.post(gzip.compress(body), Content_Encoding="gzip") == 200
        assert running.post(gzip.compress(b"[") + gzip.compress(b"1]"), Content_Encoding="X-GZIP") == 200
        assert running.post(gzip.compress(b" " * 2001), Content_Encoding="gzip") == 413
        assert running.post(gzip.compress(body)[:-9], Content_Encoding="gzip") == 400
        assert running.post(body, Content_Encoding="gzip") == 400
        assert running.post(b"", Content_Encoding="gzip") == 400
        assert running.post(zlib.compress(body), Content_Encoding="deflate") == 415
        assert running.post(gzip.compress(gzip.compress(body)), Content_Encoding="gzip, gzip") == 415
        assert wait_for(out, 2) == ["x" * 1000, 1]


def test_a_bomb_is_answered_with_413_and_takes_no_memory() -> None:
    # 256 MiB of zeros in 256 KiB.
    pack = zlib.compressobj(9, zlib.DEFLATED, 31)
    bomb = b"".join(pack.compress(bytes(1 << 20)) for _ in range(1 << 8)) + pack.flush()
    out = ms.testing.collect()
    with listening(out, body="bytes", max_body=2 << 20) as running:
        before = peak_kib()
        assert running.post(bomb, Content_Encoding="gzip") == 413
        assert peak_kib() - before < 64 << 10
        assert running.post(b"after") == 200
        assert wait_for(out, 1) == [b"after"]


def peak_kib() -> int:
    """The largest memory that this process has had."""
    status = Path("/proc/self/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")))


def sha256(signed: bytes, secret: str = SECRET) -> str:
    return hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()


def github(body: bytes, now: int) -> dict[str, str]:
    return {"X-Hub-Signature-256": f"sha256={sha256(body)}"}


def stripe(body: bytes, now: int) -> dict[str, str]:
    return {"Stripe-Signature": f"t={now},v1={'0' * 64},v1={sha256(b'%d.' % now + body)}"}


def slack(body: bytes, now: int) -> dict[str, str]:
    signature = sha256(b"v0:%d:" % now + body)
    return {"X-Slack-Signature": f"v0={signature}", "X-Slack-Request-Timestamp": str(now)}


def shopify(body: bytes, now: int) -> dict[str, str]:
    digest = hmac.new(SECRET.encode(), body, hashlib.sha256).digest()
    return {"X-Shopify-Hmac-Sha256": b64encode(digest).decode()}


SIGNED = [
    (ms.http.Signature.github(SECRET), github),
    (ms.http.Signature.github(["new", SECRET]), github),
    (ms.http.Signature.meta(SECRET, "verify"), github),
    (ms.http.Signature.stripe(SECRET), stripe),
    (ms.http.Signature.slack(SECRET), slack),
    (ms.http.Signature.hmac("X-Shopify-Hmac-Sha256", SECRET, base64=True), shopify),
]


@pytest.mark.parametrize(("signature", "sign"), SIGNED)
def test_a_request_without_a_right_signature_is_refused_and_counted(
    tmp_path: Path, signature: ms.http.Signature, sign: Any
) -> None:
    out = ms.testing.collect()
    body = b'{"id": "recorded"}'
    now = int(time.time())
    with listening(out, signature=signature, state=tmp_path) as running:
        good = sign(body, now)
        [*others, name] = sorted(good)
        wrong = good[name][:-3] + ("AA=" if good[name].endswith("=") else "xyz")
        refused = [
            {},
            {name: ""},
            good | {name: wrong},
            sign(body + b" ", now),
            *[{name: good[name]} for _ in others],
        ]
        for headers in refused:
            answer = running.client.post("/", content=body, headers=headers)
            assert answer.status_code == 401, headers
            assert SECRET not in answer.text
            assert "WWW-Authenticate" not in answer.headers
        if sign in (stripe, slack):
            for late in (now - 400, now + 400):
                answer = running.client.post("/", content=body, headers=sign(body, late))
                assert (answer.status_code, "300 s from the clock" in answer.text) == (401, True)
                refused.append({})
        recorded = b"".join(path.read_bytes() for path in (tmp_path / "http").rglob("*") if path.is_file())
        assert b"recorded" not in recorded
        assert running.client.post("/", content=body, headers=good).status_code == 200
        wait_for(out, 1)
        running.flow.stop()
        assert running.flow.wait(PATIENCE).step("in")["faults"] == len(refused)
    assert out == [{"id": "recorded"}]
    assert SECRET not in repr(signature)


def test_the_signature_is_that_of_the_packed_body() -> None:
    out = ms.testing.collect()
    packed = gzip.compress(b"1")
    with listening(out, signature=ms.http.Signature.github(SECRET)) as running:
        signed = github(packed, 0) | {"Content-Encoding": "gzip"}
        assert running.client.post("/", content=packed, headers=signed).status_code == 200
        signed = github(b"1", 0) | {"Content-Encoding": "gzip"}
        assert running.client.post("/", content=packed, headers=signed).status_code == 401
        assert wait_for(out, 1) == [1]


def test_slack_confirms_an_address(tmp_path: Path) -> None:
    out = ms.testing.collect()
    now = int(time.time())
    asks = b'{"token": "x", "challenge": "3eZbrw1a", "type": "url_verification"}'
    with listening(out, signature=ms.http.Signature.slack(SECRET), state=tmp_path) as running:
        assert running.post(asks) == 401
        answer = running.client.post("/", content=asks, headers=slack(asks, now))
        assert (answer.status_code, answer.text) == (200, "3eZbrw1a")
        assert answer.headers["Content-Type"].startswith("text/plain")
        event = b'{"type": "event_callback", "challenge": "3eZbrw1a"}'
        assert running.client.post("/", content=event, headers=slack(event, now)).status_code == 200
        assert wait_for(out, 1) == [json.loads(event)]


def test_meta_confirms_an_address() -> None:
    out = ms.testing.collect()
    with listening(out, signature=ms.http.Signature.meta(SECRET, "verify")) as running:
        asks = {"hub.mode": "subscribe", "hub.verify_token": "verify", "hub.challenge": "<115>"}
        answer = running.client.get("/", params=asks)
        assert (answer.status_code, answer.text) == (200, "<115>")
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        for wrong in ({"hub.verify_token": "other"}, {"hub.mode": "other"}, {"hub.verify_token": ""}):
            assert running.client.get("/", params=asks | wrong).status_code == 403
        assert running.client.get("/other", params=asks).status_code == 404
    assert out == []


def test_health_checks_need_no_token_and_are_no_items(tmp_path: Path) -> None:
    out = ms.testing.collect()
    with listening(out, health="/health", token="token", state=tmp_path) as running:
        assert running.client.get("/health").text == "ok\n"
        assert running.client.head("/health").status_code == 200
        assert running.client.post("/health", content=b"1").status_code == 401
        assert running.client.get("/").status_code == 401
    assert out == []


def test_requests_of_another_item_are_named_and_wait(tmp_path: Path) -> None:
    out = ms.testing.collect()

    class Broken(Exception):
        pass

    def fail(_: object) -> None:
        raise Broken

    def listen_once(item: Any, then: Any) -> None:
        bound: list[str] = []
        ready = threading.Event()
        flow = ms.Flow("hooks")
        source = ms.http.listen(
            "127.0.0.1:0", item=item, on_bound=lambda address: (bound.append(address), ready.set())
        )
        flow.source("in", source).map(then).sink("out", out)
        running = flow.start(state=tmp_path)
        assert ready.wait(PATIENCE)
        if then is fail:
            assert httpx.post(f"http://{bound[0]}/", json={"a": 1}, timeout=PATIENCE).status_code == 200
        running.wait(PATIENCE)

    with pytest.raises(ms.FlowError):
        listen_once("body", fail)
    with pytest.raises(ms.FlowError, match="another item="):
        listen_once("request", lambda item: item)
    with listening(out, state=tmp_path):
        assert wait_for(out, 1) == [{"a": 1}]


@pytest.mark.parametrize(
    ("mistake", "says"),
    [
        (lambda: ms.http.listen("127.0.0.1:0", methods="POST"), "methods is a list"),
        (lambda: ms.http.listen("127.0.0.1:0", signature="secret"), "Signature"),  # type: ignore[call-overload]
        (lambda: ms.http.listen("127.0.0.1:0", item="request", decode=dict), "a function of a request"),
        (lambda: ms.http.Signature.github(""), "not empty"),
        (lambda: ms.http.Signature.slack([]), "not empty"),
        (lambda: ms.http.Signature.meta("a", ""), "verify token"),
        (lambda: ms.http.Signature.hmac("a", "b", hash="md5"), "md5"),  # type: ignore[arg-type]
        (lambda: ms.http.Signature.stripe("a", -1), "tolerance"),
    ],
)
def test_a_wrong_option_is_an_error(mistake: Any, says: str) -> None:
    with pytest.raises(ms.FlowUsageError, match=says):
        mistake()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"methods": ["GET"]}, "may have no body"),
        ({"methods": ["TRACE"]}, 'not "TRACE"'),
        ({"methods": []}, "a path and a method"),
        ({"path": []}, "a path and a method"),
        ({"path": ["/a", "b"]}, "begins with /"),
        ({"health": "b"}, "begins with /"),
        ({"item": "request", "body": "lines"}, 'needs item="body"'),
    ],
)
def test_a_source_that_no_request_can_match_is_refused(options: Any, says: str) -> None:
    with pytest.raises(ms.FlowUsageError, match=says):
        ms.http.listen("127.0.0.1:0", **options)
