"""What a connector of a broker does with one odd message, with logins, and without its client library."""

from __future__ import annotations

import json
import logging
import re
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import millstream as ms
import pytest
from brokers import PATIENCE, Broker, ClickHouse, Mqtt, Nats, RabbitMq, Redis, with_password
from servers import PASSWORD

BROKERS: dict[str, tuple[type[Broker], str]] = {
    "nats": (Nats, "nats_port"),
    "redis": (Redis, "redis_port"),
    "rabbitmq": (RabbitMq, "rabbitmq_port"),
    "mqtt": (Mqtt, "mosquitto_port"),
}
WRITTEN = BROKERS | {"clickhouse": (ClickHouse, "clickhouse_port")}
EachRead = pytest.mark.parametrize("broker", BROKERS, indirect=True)
EachWritten = pytest.mark.parametrize("broker", WRITTEN, indirect=True)
BODIES = [
    b'{"n": 1}',
    b"\xff\x00 no text",
    b'{"n": ' + b"9" * 5000 + b"}",
    b"",
    b"[" * 100_000,
    b'"\\ud800"',
    b"2",
]
"""Bodies of which some are no JSON, or none that Python loads."""


@pytest.fixture
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    made, fixture = WRITTEN[request.param]
    name = "policies" + "".join(filter(str.isalnum, request.node.name)) + str(time.time_ns())
    broker = made(request.getfixturevalue(fixture), name)
    yield broker
    broker.close()


def source(broker: Broker) -> Any:
    return eval(broker.read(broker.port, "None"), {"ms": ms})


def sink(broker: Broker, more: str) -> Any:
    text = (
        broker.write(broker.port, "None", more)
        .replace("encode=str, ", "")
        .replace("encode=lambda n: {'n': n}, ", "")
    )
    return eval(text, {"ms": ms})


def body_of(broker: Broker, message: Any) -> bytes:
    return bytes(eval(broker.body, {"message": message}))


def run_until(flow: ms.Flow, is_done: Callable[[], bool], state: Path) -> None:
    """Runs a flow without an end."""
    with flow.start(state=state, epoch=0.05, sync=False) as running:
        until = time.monotonic() + PATIENCE
        while not is_done():
            assert time.monotonic() < until
            try:
                running.wait(timeout=0.02)
            except TimeoutError:
                continue
            raise AssertionError("the flow has ended")


@EachRead
def test_a_message_that_is_no_json_is_a_dead_letter_byte_for_byte(broker: Broker, tmp_path: Path) -> None:
    flow = ms.Flow("odd")
    good = ms.testing.collect()
    bad = ms.testing.collect()
    messages = flow.source("in", source(broker))
    loaded = messages.map(
        lambda message: repr(json.loads(body_of(broker, message))), name="json", on_error=ms.dead_letter(bad)
    )
    loaded.sink("good", good)
    broker.publish([])
    started = False

    def is_done() -> bool:
        nonlocal started
        if not started:
            broker.publish(BODIES)
            started = True
        return len(good) + len(bad) == len(BODIES)

    run_until(flow, is_done, tmp_path / "state")
    loads: list[bytes] = []
    for body in BODIES:
        try:
            json.loads(body)
        except (ValueError, RecursionError):
            continue
        loads.append(body)
    assert len(good) == len(loads)
    assert [body_of(broker, letter.item) for letter in bad] == [body for body in BODIES if body not in loads]


def odd_items(broker: Broker) -> tuple[list[Any], list[int]]:
    """Items, and the numbers of those that are refused."""
    if isinstance(broker, Redis):
        return [{"n": b"0"}, 7, {"n": b"2"}, {}, {"n": None}, {"n": b"5"}], [1, 3, 4]
    if isinstance(broker, ClickHouse):
        return [{"n": 0}, 7, {"n": 2}, {"n": float("nan")}, {"n": "x"}, {"n": 5}], [1, 3, 4]
    odd: list[Any] = [b"0", 7, b"2"]
    if isinstance(broker, Nats):
        odd += [b"x" * (1 << 21), ms.nats.Message(b"4", "no such.subject"), b"5"]
    if isinstance(broker, RabbitMq):
        odd += [
            ms.rabbitmq.Message(b"3", "no such queue"),
            ms.rabbitmq.Message(b"4", headers={"a": object()}),
            b"5",
        ]
    if isinstance(broker, Mqtt):
        odd += [ms.mqtt.Message(b"3", "a/#"), ms.mqtt.Message(b"4", "\ud800"), b"5"]
    return odd, [1, 3, 4]


@EachWritten
def test_the_sink_skips_what_is_refused_and_nothing_else(
    broker: Broker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broker.published()
    items, refused = odd_items(broker)
    flow = ms.Flow("odd")
    flow.source("in", ms.testing.items(items)).sink("out", sink(broker, ""), on_error="skip")
    with caplog.at_level(logging.WARNING, "millstream"):
        report = ms.run(flow, state=tmp_path / "state", sync=False)
    assert report.outboxes[0]["delivered_records"] == len(items) - len(refused)
    assert report.outboxes[0]["refused_records"] == len(refused)
    expected = [b"%d" % number for number in range(len(items)) if number not in refused]
    until = time.monotonic() + PATIENCE
    while broker.published() != expected:
        assert time.monotonic() < until, broker.published()
    warnings = [
        record.getMessage() for record in caplog.records if "refused and skipped" in record.getMessage()
    ]
    assert len(warnings) == len(refused)
    for number in refused:
        assert any(f"record {number} is refused" in warning for warning in warnings), warnings
    assert all(str(broker.port) in warning for warning in warnings)


@EachWritten
@pytest.mark.parametrize("durable", [True, False])
def test_what_the_server_refuses_is_a_dead_letter(broker: Broker, tmp_path: Path, durable: bool) -> None:
    items, refused = odd_items(broker)
    flow = ms.Flow("odd")
    letters = list[ms.DeadLetter]()
    numbers = flow.source("in", ms.testing.items(items))
    numbers.sink("out", sink(broker, ""), on_error=ms.dead_letter(letters))
    ms.run(flow, state=tmp_path / "state" if durable else None)
    # The server is asked after the client.
    letters.sort(key=lambda letter: str(letter.position))
    assert [letter.position for letter in letters] == [f"record {number}" for number in refused]
    # Items that have no equality of their own are compared as text, without addresses.
    shown = [re.sub("0x[0-9a-f]+", "", repr(items[number])) for number in refused]
    assert [re.sub("0x[0-9a-f]+", "", repr(letter.item)) for letter in letters] == shown
    assert all(isinstance(letter.error, ms.Refused) for letter in letters)


@EachWritten
def test_the_sink_fails_at_what_is_refused(broker: Broker, tmp_path: Path) -> None:
    items, _ = odd_items(broker)
    flow = ms.Flow("odd")
    flow.source("in", ms.testing.items(items)).sink("out", sink(broker, ""))
    with pytest.raises(ms.FlowError, match="record 1 is refused: .*The item is 7"):
        ms.run(flow, state=tmp_path / "state", sync=False)


@EachWritten
def test_no_message_has_a_password(broker: Broker, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Neither that of the URL nor that of the login."""
    url = with_password(broker.url()).replace("%3A", "%3a") + "?x=sesame"
    login = ms.Login(user="nobody", password="swordfish")
    caplog.set_level(logging.DEBUG)
    for made in [sink] if isinstance(broker, ClickHouse) else [source, sink]:
        text = (broker.read if made is source else broker.write)(broker.port, "login", "")
        text = text.replace(repr(broker.url(broker.port)), "url").replace(", unique_ids=True", "")
        flow = ms.Flow("secrets")
        found = eval(text, {"ms": ms, "url": url.partition("?")[0], "login": login})
        if made is source:
            flow.source("in", found).sink("out", ms.testing.discard())
        else:
            flow.source("in", ms.testing.items([1])).sink("out", found)
        with pytest.raises(ms.FlowError) as raised:
            ms.run(flow, state=tmp_path / made.__name__, sync=False)
        shown = f"{found!r} {login!r} {raised.value} {raised.value.__cause__} {caplog.text} {flow.describe()}"
        assert f"127.0.0.1:{broker.port}" in shown
        for secret in (PASSWORD, "swordfish", "op%3a"):
            assert secret not in shown


@EachWritten
def test_the_password_may_be_in_the_url(broker: Broker, tmp_path: Path) -> None:
    if isinstance(broker, RabbitMq):
        url = broker.url().replace("://", "://guest:guest@")
    else:
        url = with_password(broker.url())
    broker.published()
    flow = ms.Flow("login")
    text = broker.write(broker.port, "None").replace(repr(broker.url(broker.port)), "url")
    flow.source("in", ms.testing.items([0])).sink("out", eval(text, {"ms": ms, "url": url}))
    ms.run(flow, state=tmp_path / "state", sync=False)
    until = time.monotonic() + PATIENCE
    while broker.published() != [b"0"]:
        assert time.monotonic() < until


@pytest.mark.parametrize(
    ("name", "module", "package", "make"),
    [
        ("nats", "nats", "nats-py", lambda: ms.nats.read("nats://localhost", "s", "c")),
        ("redis", "redis", "redis", lambda: ms.redis.write("redis://localhost", "s")),
        ("rabbitmq", "aio_pika", "aio-pika", lambda: ms.rabbitmq.read("amqp://localhost", "q")),
        ("mqtt", "paho.mqtt.client", "paho-mqtt", lambda: ms.mqtt.write("mqtt://localhost", "t")),
    ],
)
def test_a_missing_library_is_named(
    name: str, module: str, package: str, make: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(
        ms.FlowUsageError, match=f"ms.{name} needs {package} .*pip install 'millstream\\[{name}\\]'"
    ):
        make()


WRONG: list[tuple[Callable[[], object], str]] = [
    (lambda: ms.nats.read("localhost:4222", "s", "c"), "a URL that begins with nats://"),
    (lambda: ms.nats.read("nats://localhost", "", "c"), "stream is a name, not ''"),
    (lambda: ms.nats.read("nats://localhost", "s", "c", start="now"), 'start is "earliest" or "latest"'),  # type: ignore[arg-type]
    (lambda: ms.nats.read("nats://localhost", "s", "c", pending=0), "pending is a number of messages"),
    (lambda: ms.redis.read("redis://localhost", "s", "g", login=ms.Login(token="t")), "and no token"),
    (
        lambda: ms.redis.write("redis://localhost", "s", login=ms.Login(ca="ca.pem")),
        "needs an address rediss://",
    ),
    (lambda: ms.mqtt.read("mqtt://localhost:x", "t", "s"), "has no such port"),
    (lambda: ms.nats.read("nats://localhost:x", "s", "c"), "nats://localhost:x has no such port"),
    (lambda: ms.rabbitmq.read("amqp://localhost:99999/", "q"), "has no such port"),
    (lambda: ms.redis.read("redis://me:a@localhost:x/1", "s", "g"), "redis://localhost:x/1 has no such port"),
    (lambda: ms.mqtt.read("mqtt://localhost", [], "s"), "topics has filters"),
    (
        lambda: ms.redis.write("rediss://localhost", "s", login=ms.Login(ca="no.pem")),
        "cannot be read .no.pem",
    ),
    (
        lambda: ms.mqtt.read("mqtts://localhost", "t", "s", login=ms.Login(ca="no.pem")),
        "cannot be read .no.pem",
    ),
    (lambda: ms.rabbitmq.read("amqp://localhost", "q", pending=70_000), "from 1 to 65535"),
    (lambda: ms.clickhouse.write("localhost:8123", "t"), "a URL that begins with http://"),
    (lambda: ms.clickhouse.write("http://localhost", "t", login=ms.Login(password="ü")), "printable ASCII"),
    (lambda: ms.clickhouse.write("http://localhost", "t", id_column=""), "id_column is a name, not ''"),
    (lambda: ms.rabbitmq.write("amqp://localhost", "q", max_bytes="much"), "max_bytes is a number of bytes"),
]


@pytest.mark.parametrize(("make", "text"), WRONG)
def test_a_wrong_option_is_named(make: Callable[[], object], text: str) -> None:
    with pytest.raises(ms.FlowUsageError, match=text):
        make()
