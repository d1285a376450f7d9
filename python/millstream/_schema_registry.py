"""Decoders of values that name their schema in a schema registry.

Such a value begins with a zero byte and the id of its schema, 4 bytes. A registry answers
``GET /schemas/ids/ID`` with the schema; each schema is asked for once. The answer for an id never changes, so
that a decoder keeps it for as long as it lives.

The wire format: https://docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop/
"""

from __future__ import annotations

import threading
from typing import Generic

from ._errors import FlowUsageError, RetryLater
from ._types import T_co

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

__all__ = [
    "SchemaDecoder",
    "SchemaRegistryError",
    "SchemaRegistryUnavailable",
    "avro",
    "json_schema",
    "protobuf",
]

TIMEOUT_SECONDS = 10.0


class SchemaRegistryError(ValueError):
    """A value does not name a schema, or the registry does not have it.

    Example:
        >>> import millstream as ms
        >>> ms.kafka.json_schema("http://localhost:8081")(b"{}")
        Traceback (most recent call last):
        millstream._schema_registry.SchemaRegistryError: the value does not begin...
    """


class SchemaRegistryUnavailable(RetryLater, OSError):
    """The registry does not answer, or not now. A source waits, and tries again; ``on_error`` does not apply.

    Example:
        >>> import millstream as ms
        >>> issubclass(ms.kafka.SchemaRegistryUnavailable, ms.RetryLater)
        True
    """


class SchemaDecoder(Generic[T_co]):
    """Makes an item of a value that begins with the id of its schema. It is an argument for ``decode=``.

    Example:
        >>> import millstream as ms
        >>> decode = ms.kafka.json_schema("http://localhost:8081")
        >>> ms.kafka.read("localhost:9092", "orders", decode=decode)
        <source kafka orders from localhost:9092>
    """

    def __init__(
        self,
        registry: str,
        compile: Callable[[dict[str, Any]], Callable[[bytes], T_co]],
        headers: Mapping[str, str] | None,
    ) -> None:
        self._registry = registry.rstrip("/")
        self._compile = compile
        self._headers = dict(headers or {})
        self._decoders: dict[int, Callable[[bytes], T_co]] = {}
        self._lock = threading.Lock()

    def __call__(self, value: bytes) -> T_co:
        """Decodes a value.

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
            millstream._schema_registry.SchemaRegistryError: the value does not begin...
        """
        if len(value) < 5 or value[0] != 0:
            raise SchemaRegistryError(f"the value does not begin with the id of a schema: {value[:20]!r}")
        number = int.from_bytes(value[1:5], "big")
        decode = self._decoders.get(number)
        if decode is None:
            # Several workers may ask for the same schema; none waits for another one.
            decode = self._compile(self._fetch(number))
            with self._lock:
                self._decoders[number] = decode
        return decode(value[5:])

    def _fetch(self, number: int) -> dict[str, Any]:
        import json
        from http.client import HTTPException
        from ssl import SSLCertVerificationError
        from urllib.error import HTTPError, URLError
        from urllib.request import Request, urlopen

        url = f"{self._registry}/schemas/ids/{number}"
        try:
            with urlopen(Request(url, headers=self._headers), timeout=TIMEOUT_SECONDS) as answer:
                found: dict[str, Any] = json.load(answer)
                return found
        except HTTPError as error:
            if error.code == 404:
                raise SchemaRegistryError(f"{self._registry} has no schema with the id {number}") from None
            reason = f"the schema registry {self._registry} answers {error.code} {error.reason}"
            from ._delivery_errors import of_status

            if of_status(error.code) == "retry":
                raise SchemaRegistryUnavailable(reason) from None
            # No value can be decoded: it is not the fault of one.
            raise FlowUsageError(f"{reason}: check its address, and the rights of headers=") from None
        except (OSError, HTTPException, ValueError) as error:
            cause = error.reason if isinstance(error, URLError) else error
            reason = f"the schema registry {self._registry} does not answer: {cause}"
            if isinstance(cause, SSLCertVerificationError):
                raise FlowUsageError(reason) from None
            raise SchemaRegistryUnavailable(reason) from None


def avro(registry: str, headers: Mapping[str, str] | None = None) -> SchemaDecoder[Any]:
    """Decodes values in Avro. It needs the package ``fastavro``.

    Args:
        registry: the address of the schema registry.
        headers: headers of requests, for instance ``Authorization``.

    Returns:
        A decoder for ``decode=``; items are dicts, or what the schema says.

    Raises:
        ImportError: ``fastavro`` is not installed.

    Example:
        >>> import millstream as ms
        >>> decode = ms.kafka.avro("http://localhost:8081")
        >>> ms.kafka.read("localhost:9092", "orders", decode=decode)
        <source kafka orders from localhost:9092>
    """
    import json
    from io import BytesIO

    try:
        from fastavro import parse_schema, schemaless_reader
    except ImportError:
        raise ImportError("Avro needs the package fastavro: pip install fastavro") from None

    def compile(answer: dict[str, Any]) -> Callable[[bytes], Any]:
        if answer.get("references"):
            raise SchemaRegistryError("the schema refers to other schemas, which is not supported")
        schema = parse_schema(json.loads(answer["schema"]))
        return lambda body: schemaless_reader(BytesIO(body), schema, None)

    return SchemaDecoder(registry, compile, headers)


def json_schema(registry: str, headers: Mapping[str, str] | None = None) -> SchemaDecoder[Any]:
    """Decodes values in JSON that name a JSON Schema. The value is not validated: only its id
    is looked up.

    Args:
        registry: the address of the schema registry.
        headers: headers of requests.

    Returns:
        A decoder for ``decode=``.

    Example:
        >>> import millstream as ms
        >>> decode = ms.kafka.json_schema("http://localhost:8081")
        >>> ms.kafka.read("localhost:9092", "orders", decode=decode)
        <source kafka orders from localhost:9092>
    """
    import json

    return SchemaDecoder(registry, lambda _: json.loads, headers)


def protobuf(registry: str, message: type, headers: Mapping[str, str] | None = None) -> SchemaDecoder[Any]:
    """Decodes values in Protobuf with a class that ``protoc`` has made. The id is checked with the registry.

    Args:
        registry: the address of the schema registry.
        message: the class, which has a method ``FromString``.
        headers: headers of requests.

    Returns:
        A decoder for ``decode=``; items are objects of the class.

    Example:
        >>> import millstream as ms
        >>> class Order:  # as protoc makes it
        ...     @staticmethod
        ...     def FromString(data): ...
        >>> decode = ms.kafka.protobuf("http://localhost:8081", Order)
        >>> ms.kafka.read("localhost:9092", "orders", decode=decode)
        <source kafka orders from localhost:9092>
    """
    from_string: Callable[[bytes], Any] = message.FromString  # type: ignore[attr-defined]
    return SchemaDecoder(registry, lambda _: lambda body: from_string(body[_indexes_end(body) :]), headers)


def _indexes_end(body: bytes) -> int:
    """The length of the path to the message in its file, which precedes a message: number and indexes.

    >>> _indexes_end(b"\\x00body"), _indexes_end(b"\\x04\\x02\\x00body")
    (1, 3)
    """
    # Both are zigzag varints; a lone zero stands for the first message of the file.
    position = 0

    def varint() -> int:
        nonlocal position
        value = shift = 0
        while True:
            if position >= len(body):
                raise SchemaRegistryError("the value is too short for the path to its message")
            byte = body[position]
            position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1)
            shift += 7

    for _ in range(varint()):
        varint()
    return position
