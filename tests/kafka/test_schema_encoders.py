"""Encoders of keys and values that name their schema, in flows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import millstream as ms
import pytest
from broker import Broker
from clients import Judge, until
from messages import CLASSES
from registry_server import Registry, registry_server

ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "quantity", "type": "int"},
        {"name": "note", "type": "string", "default": ""},
    ],
}
ORDERS = [{"id": f"{number}", "quantity": number, "note": "n"} for number in range(3)]


@pytest.fixture
def registry() -> Iterator[Registry]:
    with registry_server() as server:
        yield server


def written(broker: Broker, topic: str) -> list[tuple[bytes | None, bytes | None]]:
    judge = Judge(broker, topic)
    try:
        return [(message.key(), message.value()) for message in judge.read()]
    finally:
        judge.close()


@pytest.mark.parametrize("exactly_once", [True, False])
def test_keys_and_values_to_a_topic_and_back(broker: Broker, registry: Registry, exactly_once: bool) -> None:
    topic = broker.create(f"encoded-{exactly_once}")
    key = ms.kafka.encode_avro(registry.url, '"string"', register=True, of=lambda order: order["id"])
    encode = ms.kafka.encode_avro(
        registry.url, ORDER, register=True, of=lambda order: order if order["quantity"] else None
    )
    flow = ms.Flow("encoded")
    sink = ms.kafka.write(broker.servers, topic, key=key, encode=encode, exactly_once=exactly_once)
    flow.source("in", ms.testing.items(ORDERS)).sink("out", sink)
    ms.run(flow)
    assert sorted(registry.asked) == [f"POST /subjects/{topic}-{part}/versions" for part in ("key", "value")]
    flow = ms.Flow("decoded")
    out = ms.testing.collect()
    decode = ms.kafka.avro(registry.url)
    source = ms.kafka.read(broker.servers, topic, end="latest", decode=decode, decode_key=decode)
    flow.source("in", source).sink("out", out)
    ms.run(flow)
    assert list(out) == [("0", None), ("1", ORDERS[1]), ("2", ORDERS[2])]


BAD = [
    ({"quantity": 1}, "id"),
    ({"id": 1, "quantity": 1}, "id"),
    ({"id": "a", "quantity": 2**31}, "quantity"),
    ({"id": "a", "quantity": 1.5}, "quantity"),
    ({"id": "a", "quantity": True}, "quantity"),
    ({"id": "a", "quantity": 1, "other": 2}, "other"),
    ([1], "list"),
    ("text", "text"),
]


def test_items_that_do_not_match_are_dead_letters(broker: Broker, registry: Registry) -> None:
    topic = broker.create("mismatched")
    encode = ms.kafka.encode_avro(registry.url, ORDER, register=True)
    flow = ms.Flow("mismatched")
    bad = ms.testing.collect()
    items = [ORDERS[0], *(item for item, _ in BAD), {"id": "z", "quantity": 9}]
    sink = ms.kafka.write(broker.servers, topic, encode=encode)
    flow.source("in", ms.testing.items(items)).sink("out", sink, on_error=ms.dead_letter(bad))
    ms.run(flow)
    assert [letter.item for letter in bad] == [item for item, _ in BAD]
    for letter, (_, names) in zip(bad, BAD, strict=True):
        assert isinstance(letter.error, ms.kafka.SchemaRegistryError)
        assert "the item does not match the schema" in str(letter.error)
        assert names in str(letter.error)
    values = [value for _, value in written(broker, topic)]
    decode = ms.kafka.avro(registry.url)
    assert [decode(value) for value in values if value is not None] == [
        ORDERS[0],
        {"id": "z", "quantity": 9, "note": ""},
    ]


def test_other_formats_refuse_items(registry: Registry) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "additionalProperties": False}
    encode: Any = ms.kafka.encode_json_schema(registry.url, schema, register=True, subject="json")
    assert encode({"n": 1})[5:] == b'{"n":1}'
    for item in ({"n": "1"}, {"m": 1}, 5):
        with pytest.raises(ms.kafka.SchemaRegistryError, match="does not match the schema"):
            encode(item)
    free: Any = ms.kafka.encode_json_schema(registry.url, {}, register=True, subject="free")
    for item in (float("nan"), object()):
        with pytest.raises((ValueError, TypeError)):
            free(item)
    first = CLASSES["shop.First"]
    encode = ms.kafka.encode_protobuf(registry.url, first, register=True, subject="proto")
    with pytest.raises(ms.kafka.SchemaRegistryError, match="the item is no shop.First"):
        encode(CLASSES["shop.Customer"]())


@pytest.mark.parametrize("policy", ["skip", "fail", None])
def test_an_outage_is_waited_for_and_is_no_policy(broker: Broker, registry: Registry, policy: Any) -> None:
    topic = broker.create(f"encoder-outage-{policy}")
    registry.add(f"{topic}-value", json.dumps(ORDER))
    registry.statuses = [503, 500, 429]
    flow = ms.Flow("outage")
    sink = ms.kafka.write(broker.servers, topic, encode=ms.kafka.encode_avro(registry.url, ORDER))
    options = {} if policy is None else {"on_error": policy}
    flow.source("in", ms.testing.items(ORDERS)).sink("out", sink, **options)
    ms.run(flow)
    assert len(written(broker, topic)) == len(ORDERS)
    assert len(registry.asked) == 4


def test_an_outage_of_files_by_key(tmp_path: Any) -> None:
    """Any encoder may wait: the key of the file is not appended twice."""
    outcomes = iter([ms.RetryLater("later"), ms.RetryLater("later"), None])

    def encode(item: str) -> str:
        if (outage := next(outcomes, None)) is not None:
            raise outage
        return item

    flow = ms.Flow("files")
    items = flow.source("in", ms.testing.items(["a", "b"])).key_by(lambda item: item).items()
    items.sink("out", ms.files.write_by_key(tmp_path / "out", encode=encode))
    ms.run(flow)
    assert [(tmp_path / "out" / name).read_text() for name in "ab"] == ["a\n", "b\n"]


@pytest.mark.parametrize("policy", ["skip", None])
def test_a_run_that_waits_for_the_registry_can_be_stopped(
    broker: Broker, registry: Registry, policy: Any
) -> None:
    topic = broker.create(f"encoder-stopped-{policy}")
    registry.statuses = [503] * 1000
    flow = ms.Flow("stopped")
    sink = ms.kafka.write(broker.servers, topic, encode=ms.kafka.encode_avro(registry.url, ORDER))
    options = {} if policy is None else {"on_error": policy}
    flow.source("in", ms.testing.items(ORDERS)).sink("out", sink, **options)
    running = flow.start()
    until(lambda: registry.asked)
    running.stop()
    with pytest.raises(ms.FlowError, match="answers 503"):
        running.wait()


REFUSALS = {
    401: "answers 401 .*rights of headers=",
    403: "answers 403 .*rights of headers=",
    404: "answers 404 .*check its address",
}


@pytest.mark.parametrize("status", REFUSALS)
def test_a_refusal_of_the_registry_fails_the_flow_whatever_the_policy(
    broker: Broker, registry: Registry, status: int
) -> None:
    topic = broker.create(f"encoder-refused-{status}")
    registry.statuses = [status] * 20
    with pytest.raises(ms.FlowError, match=REFUSALS[status]):
        run_one(
            broker, topic, ms.kafka.encode_avro(registry.url, ORDER, headers={"Authorization": "Basic x"})
        )
    assert {sent["Authorization"] for sent in registry.sent} == {"Basic x"}
    assert written(broker, topic) == []


def run_one(broker: Broker, topic: str, encode: Any) -> None:
    flow = ms.Flow("one")
    sink = ms.kafka.write(broker.servers, topic, encode=encode)
    flow.source("in", ms.testing.items(ORDERS)).sink("out", sink, on_error="skip")
    ms.run(flow)


def test_what_is_missing_or_incompatible_fails_the_flow(broker: Broker, registry: Registry) -> None:
    topic = broker.create("encoder-missing")
    subject = f"{topic}-value"
    encode_avro = ms.kafka.encode_avro
    with pytest.raises(ms.FlowError, match=f'for the subject "{subject}".*register=True'):
        run_one(broker, topic, encode_avro(registry.url, ORDER))
    with pytest.raises(ms.FlowError, match=f'no subject "{subject}"'):
        run_one(broker, topic, encode_avro(registry.url))
    registry.add(subject, {"type": "string"})
    registry.levels[subject] = "BACKWARD"
    with pytest.raises(
        ms.FlowError, match="answers 409 Schema being registered is incompatible.*change the schema"
    ):
        run_one(broker, topic, encode_avro(registry.url, ORDER, register=True))
    with pytest.raises(ms.FlowError, match="is no schema of Avro"):
        run_one(broker, topic, encode_avro(registry.url, {"type": "recrod"}, register=True))
    with pytest.raises(ms.FlowError, match='refers to a type "shop.Customer"'):
        run_one(
            broker,
            topic,
            encode_avro(registry.url, {"type": "array", "items": "shop.Customer"}, register=True),
        )
    assert registry.subjects == {subject: [1]}


def test_one_encoder_serves_several_topics(broker: Broker, registry: Registry) -> None:
    encode = ms.kafka.encode_avro(registry.url, '"string"', register=True)
    flow = ms.Flow("several")
    names = flow.source("in", ms.testing.items(["a"]))
    topics = [broker.create("several-1"), broker.create("several-2")]
    for topic in topics:
        names.sink(topic, ms.kafka.write(broker.servers, topic, key=encode, encode=encode))
    ms.run(flow)
    assert sorted(registry.subjects) == [f"{topic}-{part}" for topic in topics for part in ("key", "value")]
    with pytest.raises(ms.FlowUsageError, match="depends on a topic.*subject="):
        encode("a")


def test_protobuf_in_another_order_of_the_registry(registry: Registry) -> None:
    """The newest version has its messages in another order: the path is that of the registry's file."""
    from base64 import b64encode

    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    order = CLASSES["shop.Order"]
    file = FileDescriptorProto.FromString(order.DESCRIPTOR.file.serialized_pb)
    messages = [file.message_type[1], file.message_type[0]]
    del file.message_type[:]
    file.message_type.extend(messages)
    registry.add("orders", b64encode(file.SerializeToString()).decode(), "PROTOBUF", number=300)
    encode = ms.kafka.encode_protobuf(registry.url, order, latest=True, subject="orders")
    value = encode(order(quantity=1))
    assert value == b"\0\0\0\x01\x2c" + b"\0" + order(quantity=1).SerializeToString()
    assert ms.kafka.protobuf(registry.url, order)(value) == order(quantity=1)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"naming": "topics"}, "naming is"),
        ({"subject": ""}, "subject is"),
        ({"of": 1}, "of is"),
        ({"schema": None, "register": True}, "register=True needs a schema"),
        ({"schema": None, "naming": "record"}, "needs a schema with a name"),
        ({"schema": ["int", "string"], "naming": "record"}, "needs a schema with a name"),
        ({"schema": "{"}, "schema is no JSON"),
        ({"schema": 5}, "schema is a text, a mapping"),
        ({"references": [("a", "b")]}, "references is a list of tuples of texts, texts, whole numbers"),
        ({"references": [("a", "b", "1")]}, "references is a list of tuples of texts, texts, whole numbers"),
        ({"schema": None, "references": [("a", "b", 1)]}, "references are those of schema="),
    ],
)
def test_wrong_arguments(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ms.FlowUsageError, match=says):
        ms.kafka.encode_avro("http://localhost:8081", **({"schema": ORDER} | options))
    with pytest.raises(ms.FlowUsageError, match="message is a class"):
        ms.kafka.encode_protobuf("http://localhost:8081", dict)
    with pytest.raises(ms.FlowUsageError, match="it registers none|register=True needs"):
        ms.kafka.encode_protobuf("http://localhost:8081", CLASSES["shop.First"], latest=True, register=True)
