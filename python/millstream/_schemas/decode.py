"""Decoders of keys and values that name their schema in a schema registry."""

from __future__ import annotations

import threading
from typing import Generic

from .._values.checked import checked
from .._values.types import T_co
from .client import RegistryClient
from .errors import SchemaRegistryError
from .formats import Avro, JsonSchema
from .protobuf import Protobuf

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from .formats import Format


class SchemaDecoder(Generic[T_co]):
    """Makes an item of bytes that begin with the id of their schema. It is an argument for ``decode=`` and
    ``decode_key=``.

    Example:
        >>> import millstream as ms
        >>> decode = ms.kafka.json_schema("http://localhost:8081")
        >>> ms.kafka.read("localhost:9092", "orders", decode=decode)
        <source kafka orders from localhost:9092>
    """

    def __init__(self, client: RegistryClient, format: Format) -> None:
        self._client = client
        self._format = format
        self._decoders: dict[int, Callable[[bytes], Any]] = {}
        self._lock = threading.Lock()

    def __call__(self, value: bytes) -> T_co:
        """Decodes a value or a key.

        Args:
            value: the value of a message.

        Returns:
            The item.

        Raises:
            SchemaRegistryError: the value does not name a schema, or the registry does not have it.
            SchemaRegistryUnavailable: the registry does not answer.
            FlowUsageError: the registry refuses the request: a missing right, a wrong address or certificate.

        Example:
            >>> import millstream as ms
            >>> ms.kafka.json_schema("http://localhost:8081")(b"1")
            Traceback (most recent call last):
            millstream.kafka.SchemaRegistryError: the value does not begin...
        """
        if len(value) < 5 or value[0] != 0:
            raise SchemaRegistryError(f"the value does not begin with the id of a schema: {value[:20]!r}")
        number = int.from_bytes(value[1:5], "big")
        decode = self._decoders.get(number)
        if decode is None:
            # Several workers may ask for the same schema; none waits for another one.
            schema = self._client.by_id(number, self._format.kind)
            decode = self._format.reader(self._client, schema)
            with self._lock:
                self._decoders[number] = decode
        item: T_co = decode(value[5:])
        return item


@checked
def avro(registry: str, headers: Mapping[str, str] | None = None) -> SchemaDecoder[Any]:
    """Decodes values in Avro. It needs the package ``fastavro``.

    Args:
        registry: the address of the schema registry.
        headers: headers of requests, for instance ``Authorization``.

    Returns:
        A decoder for ``decode=``; items are dicts, or what the schema says.

    Raises:
        ImportError: ``fastavro`` is not installed.
        FlowUsageError: the address is none.

    Example:
        >>> import millstream as ms
        >>> decode = ms.kafka.avro("http://localhost:8081")
        >>> ms.kafka.read("localhost:9092", "orders", decode=decode)
        <source kafka orders from localhost:9092>
    """
    return SchemaDecoder(RegistryClient(registry, headers), Avro())


@checked
def json_schema(
    registry: str, headers: Mapping[str, str] | None = None, *, validate: bool = False
) -> SchemaDecoder[Any]:
    """Decodes values in JSON that name a JSON Schema.

    Args:
        registry: the address of the schema registry.
        headers: headers of requests.
        validate: whether a value that does not match its schema is one that cannot be decoded; it needs the
            package ``jsonschema``. False: only the id is looked up.

    Returns:
        A decoder for ``decode=``.

    Raises:
        ImportError: ``jsonschema`` is not installed, and ``validate`` is set.
        FlowUsageError: the address is none.

    Example:
        >>> import millstream as ms
        >>> decode = ms.kafka.json_schema("http://localhost:8081")
        >>> ms.kafka.read("localhost:9092", "orders", decode=decode)
        <source kafka orders from localhost:9092>
    """
    return SchemaDecoder(RegistryClient(registry, headers), JsonSchema(validate=validate))


@checked
def protobuf(registry: str, message: type, headers: Mapping[str, str] | None = None) -> SchemaDecoder[Any]:
    """Decodes values in Protobuf with a class that ``protoc`` has made.

    A value of another message is one that cannot be decoded, if the registry says the schema as a descriptor
    (``format=serialized``).

    Args:
        registry: the address of the schema registry.
        message: the class.
        headers: headers of requests.

    Returns:
        A decoder for ``decode=``; items are objects of the class.

    Raises:
        FlowUsageError: the address is none, or ``message`` is no such class.

    Example:
        >>> import millstream as ms
        >>> from google.protobuf.wrappers_pb2 import StringValue  # as protoc makes it
        >>> decode = ms.kafka.protobuf("http://localhost:8081", StringValue)
        >>> ms.kafka.read("localhost:9092", "orders", decode=decode)
        <source kafka orders from localhost:9092>
    """
    return SchemaDecoder(RegistryClient(registry, headers), Protobuf(message))
