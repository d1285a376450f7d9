"""Decoders of values and keys that name their schema, in flows."""

import struct
from collections.abc import Iterator
from io import BytesIO
from typing import Any

import fastavro
import millstream as ms
import pytest
from broker import Broker
from clients import put, until
from messages import CLASSES
from registry_server import Registry, registry_server

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "symbol", "type": "string"}, {"name": "quantity", "type": "int"}],
}


@pytest.fixture
def registry() -> Iterator[Registry]:
    with registry_server() as server:
        server.add("orders-value", ORDER, number=7)
        yield server


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
    flow = ms.Flow("avro")
    out = ms.testing.collect()
    bad = ms.testing.collect()
    source = ms.kafka.read(broker.servers, topic, end="latest", decode=ms.kafka.avro(registry.url))
    flow.source("in", source, on_error=ms.dead_letter(bad)).sink("out", out)
    ms.run(flow)
    assert list(out) == [*orders, None]
    assert registry.asked == ["GET /schemas/ids/7", "GET /schemas/ids/8"]
    errors = [str(letter.error) for letter in bad]
    assert len(errors) == 2
    assert "has no schema with the id 8" in errors[0]
    assert "does not begin with the id of a schema" in errors[1]


def test_json_schema(registry: Registry) -> None:
    registry.add("orders-json", {"type": "object"}, "JSON", number=8)
    decode = ms.kafka.json_schema(registry.url)
    assert decode(framed(8, b'{"a": 1}')) == {"a": 1}
    with pytest.raises(ValueError, match="NaN is no JSON"):
        decode(framed(8, b'{"a": NaN}'))
    with pytest.raises(ms.kafka.SchemaRegistryError, match="no schema with the id 9"):
        decode(framed(9, b"{}"))
    with pytest.raises(ms.kafka.SchemaRegistryError, match="id 7 is AVRO, not JSON"):
        decode(framed(7, b"{}"))


def test_protobuf_of_another_message(registry: Registry) -> None:
    """Protobuf reads the bytes of any message as those of any other: the path says which it is."""
    first = CLASSES["shop.First"]
    order = CLASSES["shop.Order"]
    value = ms.kafka.encode_protobuf(registry.url, first, register=True, subject="orders")(first(symbol="A"))
    assert value is not None
    assert ms.kafka.protobuf(registry.url, first)(value) == first(symbol="A")
    decode = ms.kafka.protobuf(registry.url, order)
    with pytest.raises(ms.kafka.SchemaRegistryError, match=r"is a message shop.First, not shop.Order"):
        decode(value)
    with pytest.raises(ms.kafka.SchemaRegistryError, match=r"at \[5\], which is not in its schema"):
        decode(value[:5] + b"\x02\x0a")
    with pytest.raises(ms.kafka.SchemaRegistryError, match="too short"):
        decode(value[:5] + b"\x04")


def test_keys_and_values_of_a_topic(broker: Broker, registry: Registry) -> None:
    """Also those of tombstones, and of messages without a key."""
    registry.add("keyed-key", '{"type":"string"}', number=9)
    topic = broker.create("keyed")
    order = {"symbol": "ABC", "quantity": 1}
    key = framed(9, b"\x04id")
    put(broker, topic, [framed(7, avro(order)), None], key=key)
    put(broker, topic, [framed(7, avro(order))])
    put(broker, topic, [framed(7, avro(order))], key=b"raw")
    decode = ms.kafka.avro(registry.url)
    bad = ms.testing.collect()
    for decode_key, expected in ((decode, ["id", "id", None]), (bytes, [key, key, None, b"raw"])):
        flow = ms.Flow("keyed")
        out = ms.testing.collect()
        source = ms.kafka.read(broker.servers, topic, end="latest", decode=decode, decode_key=decode_key)
        flow.source("in", source, on_error=ms.dead_letter(bad)).sink("out", out)
        ms.run(flow)
        assert list(out) == list(zip(expected, [order, None, order, order], strict=False))
    assert [(letter.item.key, letter.position) for letter in bad] == [
        (b"raw", f'topic "{topic}", partition 0, offset 3')
    ]
    with pytest.raises(ms.FlowUsageError, match="decode_key needs decode"):
        ms.kafka.read(broker.servers, topic, decode_key=str)  # type: ignore[call-overload]


def test_avro_with_references(registry: Registry) -> None:
    """Each schema is asked for once, also one that two others refer to."""
    registry.add("id", {"type": "fixed", "name": "Id", "size": 1})
    registry.add("customer", record("Customer", "Id"), references=[refers("Id", "id")])
    registry.add("item", record("Item", "Id"), references=[refers("Id", "id")])
    names = [refers("Customer", "customer"), refers("Item", "item")]
    number = registry.add("pair", record("Pair", "Customer", "Item"), references=names)
    decode = ms.kafka.avro(registry.url)
    expected = {"customer": {"id": b"1"}, "item": {"id": b"2"}}
    assert [decode(framed(number, b"12")) for _ in range(2)] == [expected, expected]
    asked = [f"GET /schemas/ids/{number}"]
    asked += [f"GET /subjects/{name}/versions/1" for name in ("customer", "id", "item")]
    assert sorted(registry.asked) == sorted(asked)
    missing = registry.add("missing", record("Missing", "Other"), references=[refers("Other", "other")])
    with pytest.raises(ms.FlowUsageError, match='version 1 of the subject "other".*register it first'):
        decode(framed(missing, b"1"))


def record(name: str, *types: str) -> dict[str, Any]:
    return {
        "type": "record",
        "name": name,
        "fields": [{"name": each.lower(), "type": each} for each in types],
    }


def refers(name: str, subject: str) -> dict[str, Any]:
    return {"name": name, "subject": subject, "version": 1}


@pytest.mark.parametrize(
    "address", ["localhost:8081", "ftp://localhost", "http://", "http://user:secret@localhost"]
)
def test_addresses_that_are_none(address: str) -> None:
    with pytest.raises(ms.FlowUsageError, match="the address of a schema registry") as failed:
        ms.kafka.avro(address)
    assert "secret" not in str(failed.value)


def test_an_address_with_another_path_is_no_unknown_schema(registry: Registry) -> None:
    """404 of a server that is no registry, or has it at another path."""
    decode = ms.kafka.json_schema(f"{registry.url}/api")
    with pytest.raises(ms.FlowUsageError, match="answers 404.*check its address"):
        decode(framed(7, b"{}"))


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
    flow = ms.Flow("outage")
    out = ms.testing.collect()
    source = ms.kafka.read(broker.servers, topic, end="latest", decode=ms.kafka.avro(registry.url))
    flow.source("in", source, on_error=policy).sink("out", out)
    ms.run(flow)
    assert list(out) == orders
    assert len(registry.asked) == 4


@pytest.mark.parametrize("status", [401, 403, 404, 302])
def test_a_registry_that_refuses_fails_the_flow_whatever_the_policy(
    broker: Broker, registry: Registry, status: int
) -> None:
    topic = broker.create(f"registry-refuses-{status}")
    put(broker, topic, [framed(7, b"x")])
    registry.statuses = [status] * 20
    flow = ms.Flow("refused")
    source = ms.kafka.read(broker.servers, topic, end="latest", decode=ms.kafka.avro(registry.url))
    flow.source("in", source, on_error="skip").sink("out", ms.testing.discard())
    with pytest.raises(ms.FlowError, match=f"answers {status} .*rights of headers="):
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
