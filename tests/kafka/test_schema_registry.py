"""Decoders with a schema registry, which a small server stands in for."""

import json
import struct
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from io import BytesIO
from typing import Any

import fastavro
import millstream as ms
import pytest
from broker import Broker
from clients import put, until

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "symbol", "type": "string"}, {"name": "quantity", "type": "int"}],
}


class Registry(HTTPServer):
    """Answers `GET /schemas/ids/ID`, and counts the questions."""

    def __init__(self, schemas: dict[int, Any]) -> None:
        self.schemas = schemas
        self.asked: list[str] = []
        self.statuses: list[int] = []
        super().__init__(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Registry

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        if self.server.statuses:
            self.send_error(self.server.statuses.pop(0))
            return
        schema = self.server.schemas.get(int(self.path.rsplit("/", 1)[1]))
        if schema is None:
            self.send_error(404)
            return
        body = json.dumps({"schema": json.dumps(schema)}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def registry() -> Iterator[Registry]:
    server = Registry({7: ORDER})
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def framed(schema: int, body: bytes) -> bytes:
    return struct.pack(">bI", 0, schema) + body


def avro(order: dict[str, Any]) -> bytes:
    out = BytesIO()
    fastavro.schemaless_writer(out, ORDER, order)
    return out.getvalue()


def test_avro_from_a_topic(broker: Broker, registry: Registry) -> None:
    topic = broker.create("avro")
    orders = [{"symbol": "ABC", "quantity": number} for number in range(3)]
    put(broker, topic, [framed(7, avro(order)) for order in orders] + [None, framed(8, b"x"), b"raw"])
    flow, out, bad = ms.Flow("avro"), ms.testing.collect(), ms.testing.collect()
    source = ms.kafka.read(broker.servers, topic, end="latest", decode=ms.kafka.avro(registry.url))
    flow.source("in", source, on_error=ms.dead_letter(bad)).sink("out", out)
    ms.run(flow)
    assert list(out) == [*orders, None]
    assert registry.asked == ["/schemas/ids/7", "/schemas/ids/8"]
    errors = [str(letter.error) for letter in bad]
    assert len(errors) == 2
    assert "has no schema with the id 8" in errors[0]
    assert "does not begin with the id of a schema" in errors[1]


def test_json_schema(registry: Registry) -> None:
    decode = ms.kafka.json_schema(registry.url)
    assert decode(framed(7, b'{"a": 1}')) == {"a": 1}
    with pytest.raises(ms.kafka.SchemaRegistryError, match="no schema with the id 9"):
        decode(framed(9, b"{}"))


def test_protobuf(registry: Registry) -> None:
    class Order:
        def __init__(self, data: bytes) -> None:
            self.data = data

        FromString = classmethod(lambda cls, data: cls(data))

    decode = ms.kafka.protobuf(registry.url, Order)
    assert decode(framed(7, b"\x00first")).data == b"first"
    assert decode(framed(7, b"\x04\x02\x00nested")).data == b"nested"
    with pytest.raises(ms.kafka.SchemaRegistryError, match="too short"):
        decode(framed(7, b"\x04"))


def test_a_registry_that_does_not_answer_is_an_error() -> None:
    with pytest.raises(OSError, match="refused"):
        ms.kafka.json_schema("http://127.0.0.1:1")(framed(1, b"{}"))


@pytest.mark.parametrize("policy", ["skip", "fail"])
def test_an_outage_of_the_registry_is_retried_and_no_policy(
    broker: Broker, registry: Registry, policy: Any
) -> None:
    topic = broker.create(f"registry-outage-{policy}")
    orders = [{"symbol": "ABC", "quantity": number} for number in range(3)]
    put(broker, topic, [framed(7, avro(order)) for order in orders])
    registry.statuses = [503, 500, 429]
    flow, out = ms.Flow("outage"), ms.testing.collect()
    source = ms.kafka.read(broker.servers, topic, end="latest", decode=ms.kafka.avro(registry.url))
    flow.source("in", source, on_error=policy).sink("out", out)
    ms.run(flow)
    assert list(out) == orders
    assert len(registry.asked) == 4


@pytest.mark.parametrize("status", [401, 403, 302])
def test_a_registry_that_refuses_fails_the_flow_whatever_the_policy(
    broker: Broker, registry: Registry, status: int
) -> None:
    topic = broker.create(f"registry-refuses-{status}")
    put(broker, topic, [framed(7, b"x")])
    registry.statuses = [status] * 20
    flow = ms.Flow("refused")
    source = ms.kafka.read(broker.servers, topic, end="latest", decode=ms.kafka.avro(registry.url))
    flow.source("in", source, on_error="skip").sink("out", ms.testing.discard())
    with pytest.raises(ms.FlowError, match=f"answers {status}"):
        ms.run(flow)


def test_a_run_that_waits_for_the_registry_can_be_stopped(broker: Broker, registry: Registry) -> None:
    topic = broker.create("registry-stopped")
    put(broker, topic, [framed(7, b"x")])
    registry.statuses = [503] * 1000
    flow = ms.Flow("stopped")
    source = ms.kafka.read(broker.servers, topic, decode=ms.kafka.avro(registry.url))
    flow.source("in", source, on_error="skip").sink("out", ms.testing.discard())
    running = flow.start()
    until(lambda: registry.asked)
    running.stop()
    with pytest.raises(ms.FlowError, match="answers 503"):
        running.wait()
