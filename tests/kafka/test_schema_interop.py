"""Encoders and decoders of Millstream against Confluent's own, byte for byte and in both directions."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import millstream as ms
import pytest
from confluent_kafka.schema_registry import (
    Schema,
    SchemaReference,
    SchemaRegistryClient,
    record_subject_name_strategy,
    topic_record_subject_name_strategy,
    topic_subject_name_strategy,
)
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from messages import CLASSES
from registry_server import registry_server

CUSTOMER = {
    "type": "record",
    "name": "Customer",
    "namespace": "shop",
    "fields": [{"name": "name", "type": "string"}],
}
ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "quantity", "type": "int"},
        {"name": "price", "type": ["null", "double"], "default": None},
        {"name": "first", "type": "shop.Customer"},
        {"name": "second", "type": "shop.Customer"},
    ],
}
ITEM = {"quantity": -7, "price": 2.5, "first": {"name": "Zoë"}, "second": {"name": ""}}
STRATEGIES = {
    "topic": topic_subject_name_strategy,
    "record": record_subject_name_strategy,
    "topic_record": topic_record_subject_name_strategy,
}


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    if given := os.environ.get("MILLSTREAM_SCHEMA_REGISTRY"):
        yield given
        return
    with registry_server() as server:
        yield server.url


@pytest.fixture
def theirs(address: str) -> SchemaRegistryClient:
    return SchemaRegistryClient({"url": address})


@pytest.fixture
def topic() -> str:
    return f"orders-{uuid4().hex}"


def field(topic: str, part: str) -> SerializationContext:
    return SerializationContext(topic, MessageField.KEY if part == "key" else MessageField.VALUE)


def bound(encode: Any, topic: str, part: str) -> Any:
    """The encoder as ``ms.kafka.write`` binds it to its topic."""
    from millstream._schemas.encode import for_topic

    return for_topic(encode, topic, part)


@pytest.mark.parametrize("part", ["key", "value"])
@pytest.mark.parametrize("naming", STRATEGIES)
@pytest.mark.parametrize("first", ["ours", "theirs"])
def test_avro(address: str, theirs: Any, topic: str, first: str, naming: Any, part: str) -> None:
    schema = ORDER | {"name": f"Order{uuid4().hex}"}
    schema |= {"fields": ORDER["fields"][:2]}
    item = {"quantity": 2**31 - 1, "price": None}
    conf = {"auto.register.schemas": first == "theirs", "subject.name.strategy": STRATEGIES[naming]}
    serialize = AvroSerializer(theirs, json.dumps(schema), conf=conf)
    register = first == "ours"
    encode = bound(ms.kafka.encode_avro(address, schema, register=register, naming=naming), topic, part)
    context = field(topic, part)
    # The second one finds what the first one has registered.
    ours = encode(item) if register else None
    other = serialize(item, context)
    assert encode(item) == other
    assert ours in (None, other)
    assert AvroDeserializer(theirs)(encode(item), context) == item
    assert ms.kafka.avro(address)(other) == item


@pytest.mark.parametrize(
    "schema", ['"string"', '{"type": "bytes"}', '"long"', {"type": "array", "items": "int"}]
)
def test_avro_that_is_no_record(address: str, theirs: Any, topic: str, schema: Any) -> None:
    text = schema if isinstance(schema, str) else json.dumps(schema)
    item: Any = {'"string"': "Zoë", '"long"': -(2**62), '{"type": "bytes"}': b"\0raw"}.get(text, [1, -1])
    ours = bound(ms.kafka.encode_avro(address, schema, register=True), topic, "key")(item)
    context = field(topic, "key")
    assert AvroSerializer(theirs, text)(item, context) == ours
    assert AvroDeserializer(theirs)(ours, context) == item
    assert ms.kafka.avro(address)(ours) == item


def test_avro_with_references(address: str, theirs: Any, topic: str) -> None:
    """A type that two fields refer to, which the schema itself does not define."""
    subject = f"customer-{topic}"
    theirs.register_schema(subject, Schema(json.dumps(CUSTOMER), "AVRO"))
    refers = [SchemaReference("shop.Customer", subject, 1)]
    serialize = AvroSerializer(theirs, Schema(json.dumps(ORDER), "AVRO", refers))
    encode = ms.kafka.encode_avro(address, ORDER, references=[("shop.Customer", subject, 1)], register=True)
    ours = bound(encode, topic, "value")(ITEM)
    context = field(topic, "value")
    assert serialize(ITEM, context) == ours
    assert AvroDeserializer(theirs)(ours, context) == ITEM
    assert ms.kafka.avro(address)(ours) == ITEM


def test_avro_union_of_references(address: str, theirs: Any, topic: str) -> None:
    """Several types in one topic: the schema is a list of names, one of which refers to another."""
    theirs.register_schema(f"customer-{topic}", Schema(json.dumps(CUSTOMER), "AVRO"))
    refers = [SchemaReference("shop.Customer", f"customer-{topic}", 1)]
    theirs.register_schema(f"order-{topic}", Schema(json.dumps(ORDER), "AVRO", refers))
    references = [("shop.Order", f"order-{topic}", 1), ("shop.Customer", f"customer-{topic}", 1)]
    encode = ms.kafka.encode_avro(
        address, ["shop.Order", "shop.Customer"], references=references, register=True
    )
    encode = bound(encode, topic, "value")
    decode = ms.kafka.avro(address)
    for item in (ITEM, {"name": "Zoë"}):
        assert decode(encode(item)) == item
        assert AvroDeserializer(theirs)(encode(item), field(topic, "value")) == item


ADDRESS_SCHEMA = {"$schema": "http://json-schema.org/draft-07/schema#", "type": "string", "minLength": 2}
PERSON = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "Person",
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "number"}},
    "required": ["name"],
}


@pytest.mark.parametrize("naming", STRATEGIES)
def test_json_schema(address: str, theirs: Any, topic: str, naming: Any) -> None:
    schema = PERSON | {"title": f"Person{uuid4().hex}"}
    item = {"name": "Zoë \n \u2028", "age": 1e100, "tags": [None, True, {"a": 0}]}
    conf = {"subject.name.strategy": STRATEGIES[naming]}
    encode = bound(ms.kafka.encode_json_schema(address, schema, register=True, naming=naming), topic, "value")
    context = field(topic, "value")
    ours = encode(item)
    assert JSONSerializer(json.dumps(schema), theirs, conf=conf)(item, context) == ours
    assert JSONDeserializer(json.dumps(schema))(ours, context) == item
    assert ms.kafka.json_schema(address, validate=True)(ours) == item


def test_json_schema_with_references(address: str, theirs: Any, topic: str) -> None:
    subject = f"address-{topic}"
    theirs.register_schema(subject, Schema(json.dumps(ADDRESS_SCHEMA), "JSON"))
    schema = PERSON | {"properties": {"address": {"$ref": "address.json"}}, "required": ["address"]}
    refers = [SchemaReference("address.json", subject, 1)]
    encode = ms.kafka.encode_json_schema(
        address, schema, references=[("address.json", subject, 1)], register=True
    )
    encode = bound(encode, topic, "value")
    item = {"address": "ab"}
    context = field(topic, "value")
    ours = encode(item)
    assert JSONSerializer(Schema(json.dumps(schema), "JSON", refers), theirs)(item, context) == ours
    decode = ms.kafka.json_schema(address, validate=True)
    assert decode(ours) == item
    with pytest.raises(ms.kafka.SchemaRegistryError, match=r"the item does not match.*\$\.address"):
        encode({"address": "a"})
    with pytest.raises(ms.kafka.SchemaRegistryError, match=r"the value does not match.*\$\.address"):
        decode(ours[:5] + b'{"address":"a"}')
    assert ms.kafka.json_schema(address)(ours[:5] + b'{"address":"a"}') == {"address": "a"}


def order() -> Any:
    made = CLASSES["shop.Order"](quantity=3, customer={"name": "Zoë"})
    made.placed.FromSeconds(1)
    return made


MESSAGES = {
    "shop.First": lambda: CLASSES["shop.First"](symbol="ABC"),
    "shop.Order": order,
    "shop.Order.Line": lambda: CLASSES["shop.Order.Line"](item="tea"),
    "shop.Customer": lambda: CLASSES["shop.Customer"](name=""),
}


@pytest.mark.parametrize("naming", STRATEGIES)
@pytest.mark.parametrize("name", MESSAGES)
def test_protobuf(address: str, theirs: Any, topic: str, name: str, naming: Any) -> None:
    """The path to the message, and the file that another one imports."""
    kind = CLASSES[name]
    item = MESSAGES[name]()
    context = field(topic, "value")
    encode = bound(ms.kafka.encode_protobuf(address, kind, register=True, naming=naming), topic, "value")
    conf = {"subject.name.strategy": STRATEGIES[naming]}
    ours = encode(item)
    assert ProtobufSerializer(kind, theirs, conf)(item, context) == ours
    assert ProtobufSerializer(kind, theirs, conf | {"auto.register.schemas": False})(item, context) == ours
    assert ProtobufDeserializer(kind, schema_registry_client=theirs)(ours, context) == item
    assert ms.kafka.protobuf(address, kind)(ours) == item
    again = bound(ms.kafka.encode_protobuf(address, kind, naming=naming), topic, "value")
    assert again(item) == ours
    newest = bound(ms.kafka.encode_protobuf(address, kind, latest=True, naming=naming), topic, "value")
    assert newest(item) == ours


def test_the_newest_version(address: str, theirs: Any, topic: str) -> None:
    """What ``use.latest.version`` does: the schema is that of the registry."""
    schema = ORDER | {"fields": ORDER["fields"][:2]}
    theirs.register_schema(f"{topic}-value", Schema(json.dumps(schema), "AVRO"))
    conf = {"auto.register.schemas": False, "use.latest.version": True}
    serialize = AvroSerializer(theirs, None, conf=conf)
    encode = bound(ms.kafka.encode_avro(address), topic, "value")
    item = {"quantity": 1, "price": 0.5}
    assert serialize(item, field(topic, "value")) == encode(item)
    theirs.register_schema(f"{topic}-json", Schema(json.dumps(PERSON), "JSON"))
    encode = ms.kafka.encode_json_schema(address, subject=f"{topic}-json")
    assert encode({"name": "a"})[5:] == b'{"name":"a"}'
    with pytest.raises(ms.FlowUsageError, match="is JSON, not AVRO"):
        ms.kafka.encode_avro(address, subject=f"{topic}-json")(1)


def test_a_schema_that_is_incompatible(address: str, theirs: Any, topic: str) -> None:
    """409, with the words of the registry."""
    theirs.register_schema(f"{topic}-value", Schema('{"type":"string"}', "AVRO"))
    theirs.set_compatibility(f"{topic}-value", level="BACKWARD")
    encode = bound(ms.kafka.encode_avro(address, '"int"', register=True), topic, "value")
    with pytest.raises(ms.FlowUsageError, match="answers 409.*[Ii]ncompatible"):
        encode(1)
