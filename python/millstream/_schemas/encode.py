"""Encoders of keys and values that name their schema in a schema registry.

An encoder asks the registry once, for the id of its schema. It registers schemas only where the program says
so.
"""

from __future__ import annotations

from copy import copy
from typing import Any, Generic

from .._errors.flow import FlowUsageError
from .._values.checked import checked
from .._values.types import T_contra
from .client import RegistryClient
from .errors import SchemaRegistryError
from .formats import Avro, JsonSchema
from .protobuf import Protobuf

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Literal, TypeAlias

    from .formats import Format


Naming: TypeAlias = 'Literal["topic", "record", "topic_record"]'


class SchemaEncoder(Generic[T_contra]):
    """Makes of an item the bytes that begin with the id of their schema. It is an argument for ``encode=``
    and ``key=`` of :func:`write`.

    Example:
        >>> import millstream as ms
        >>> encode = ms.kafka.encode_avro("http://localhost:8081", {"type": "string"})
        >>> ms.kafka.write("localhost:9092", "names", encode=encode)
        <sink kafka names at localhost:9092>
    """

    def __init__(
        self,
        client: RegistryClient,
        format: Format,
        *,
        subject: str | None,
        naming: str,
        register: bool,
        of: Callable[[Any], Any] | None,
    ) -> None:
        if subject is not None and (not isinstance(subject, str) or not subject):
            raise FlowUsageError(f'subject is a name such as "orders-value", not {subject!r}')
        if subject is None and naming != "topic" and format.record_name() is None:
            raise FlowUsageError(
                f'naming="{naming}" needs a schema with a name, or a title in JSON Schema: pass subject='
            )
        self._client = client
        self._format = format
        self._subject = subject
        self._naming = naming
        self._register = register
        self._of = of
        self._encode: tuple[bytes, Callable[[Any], bytes]] | None = None

    def __call__(self, item: T_contra) -> bytes | None:
        """Encodes an item.

        Args:
            item: the item.

        Returns:
            The bytes; None, which is a tombstone or no key, for None.

        Raises:
            SchemaRegistryError: the item does not match the schema.
            SchemaRegistryUnavailable: the registry does not answer.
            FlowUsageError: the registry refuses the schema or the request.

        Example:
            >>> import millstream as ms
            >>> ms.kafka.encode_avro("http://localhost:8081", '"string"')(None)
        """
        value: Any = item if self._of is None else self._of(item)
        if value is None:
            return None
        # Several workers may ask for the same schema; none waits for another one.
        if self._encode is None:
            self._encode = self._prepared()
        head, encode = self._encode
        return head + encode(value)

    def _prepared(self) -> tuple[bytes, Callable[[Any], bytes]]:
        """The bytes before an encoded item, and what encodes it."""
        subject = self._subject_name()
        client = self._client
        format = self._format
        schema = format.own(client, self._register)
        try:
            if schema is None:
                schema = client.latest(subject, format.kind)
                encode = format.writer(client, schema)
                number = schema.id
            else:
                # What is no schema is not registered.
                encode = format.writer(client, schema)
                if self._register:
                    number = client.register(subject, schema)
                else:
                    number = client.registered(subject, schema).id
        except SchemaRegistryError as error:
            # No item can be encoded: it is not the fault of one.
            raise FlowUsageError(f'subject "{subject}": {error}') from None
        return b"\0" + number.to_bytes(4, "big"), encode

    def _subject_name(self) -> str:
        if self._subject is None:
            if self._naming == "record":
                return str(self._format.record_name())
            raise FlowUsageError(
                "the name of the subject depends on a topic: pass the encoder itself to encode= or key= of "
                "ms.kafka.write, or pass subject= to it"
            )
        return self._subject

    def _for_topic(self, topic: str, part: str) -> SchemaEncoder[T_contra]:
        """The encoder for the keys or values of a topic."""
        if self._subject is not None or self._naming == "record":
            return self
        made = copy(self)
        # A copy with a subject of its own: one encoder may serve several topics.
        made._subject = f"{topic}-{part if self._naming == 'topic' else self._format.record_name()}"
        made._encode = None
        return made


def for_topic(encode: Any, topic: str, part: Literal["key", "value"]) -> Any:
    """An argument of ``write``, which is an encoder of keys or values of a topic, or anything else."""
    return encode._for_topic(topic, part) if isinstance(encode, SchemaEncoder) else encode


def check_source(latest: bool, register: bool) -> None:
    """Refuses to register the newest version, which is there."""
    if latest and register:
        raise FlowUsageError("register=True needs a schema of the program: the newest version is registered")


@checked
def encode_avro(
    registry: str,
    schema: str | dict[str, Any] | list[Any] | None = None,
    *,
    references: Sequence[tuple[str, str, int]] = (),
    register: bool = False,
    subject: str | None = None,
    naming: Naming = "topic",
    of: Callable[[Any], Any] | None = None,
    headers: Mapping[str, str] | None = None,
) -> SchemaEncoder[Any]:
    """Encodes keys or values in Avro, for ``encode=`` and ``key=`` of :func:`write`. It needs ``fastavro``.

    An item matches a record if it has each field without a default, no other fields, and values of their
    types: an ``int`` has 32 bits, and neither True nor 1.5 is one.

    Args:
        registry: the address of the schema registry.
        schema: the schema, as text or as ``json.loads`` returns it. None: the newest version of the subject.
        references: the schemas that ``schema`` refers to: the name of a type, a subject, and a version of it.
        register: whether the schema is registered if the subject does not have it. False: it must be there.
        subject: the name of the subject. None: by ``naming``.
        naming: ``"topic"``: ``TOPIC-value`` or ``TOPIC-key``. ``"record"``: the full name of the type.
            ``"topic_record"``: ``TOPIC-`` and that name.
        of: returns what is encoded of an item, for instance its key. None: the item.
        headers: headers of requests, for instance ``Authorization``.

    Returns:
        The encoder.

    Raises:
        ImportError: ``fastavro`` is not installed.
        FlowUsageError: an argument has a wrong value.

    Example:
        >>> import millstream as ms
        >>> order = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "string"}]}
        >>> encode = ms.kafka.encode_avro("http://localhost:8081", order, register=True)
        >>> key = ms.kafka.encode_avro("http://localhost:8081", '"string"', of=lambda order: order["id"])
        >>> ms.kafka.write("localhost:9092", "orders", key=key, encode=encode)
        <sink kafka orders at localhost:9092>
    """
    check_source(schema is None, register)
    client = RegistryClient(registry, headers)
    format = Avro(schema, references)
    return SchemaEncoder(client, format, subject=subject, naming=naming, register=register, of=of)


@checked
def encode_json_schema(
    registry: str,
    schema: str | dict[str, Any] | None = None,
    *,
    references: Sequence[tuple[str, str, int]] = (),
    register: bool = False,
    subject: str | None = None,
    naming: Naming = "topic",
    of: Callable[[Any], Any] | None = None,
    headers: Mapping[str, str] | None = None,
) -> SchemaEncoder[Any]:
    """Encodes keys or values in JSON that match a JSON Schema. It needs ``jsonschema``.

    Args:
        registry: the address of the schema registry.
        schema: the schema, as text or as ``json.loads`` returns it. None: the newest version of the subject.
        references: the schemas that ``schema`` refers to: a URI, a subject, and a version of it.
        register: as in :func:`encode_avro`.
        subject: as in :func:`encode_avro`.
        naming: as in :func:`encode_avro`; the name is the ``title`` of the schema.
        of: as in :func:`encode_avro`.
        headers: headers of requests.

    Returns:
        The encoder.

    Raises:
        ImportError: ``jsonschema`` is not installed.
        FlowUsageError: an argument has a wrong value.

    Example:
        >>> import millstream as ms
        >>> schema = {"type": "object", "required": ["id"]}
        >>> encode = ms.kafka.encode_json_schema("http://localhost:8081", schema, register=True)
        >>> ms.kafka.write("localhost:9092", "orders", encode=encode)
        <sink kafka orders at localhost:9092>
    """
    check_source(schema is None, register)
    client = RegistryClient(registry, headers)
    format = JsonSchema(schema, references)
    return SchemaEncoder(client, format, subject=subject, naming=naming, register=register, of=of)


@checked
def encode_protobuf(
    registry: str,
    message: type,
    *,
    latest: bool = False,
    register: bool = False,
    subject: str | None = None,
    naming: Naming = "topic",
    of: Callable[[Any], Any] | None = None,
    headers: Mapping[str, str] | None = None,
) -> SchemaEncoder[Any]:
    """Encodes keys or values in Protobuf. Items are objects of a class that ``protoc`` has made.

    The schema is the file of the class. The files that it imports are subjects of their paths, which are
    registered with it; those of Google's own types are not.

    Args:
        registry: the address of the schema registry.
        message: the class.
        latest: whether values name the newest version of the subject, whatever the class is.
        register: as in :func:`encode_avro`.
        subject: as in :func:`encode_avro`.
        naming: as in :func:`encode_avro`; the name is that of the message, with its package.
        of: as in :func:`encode_avro`.
        headers: headers of requests.

    Returns:
        The encoder.

    Raises:
        FlowUsageError: an argument has a wrong value, or ``latest`` and ``register`` are both set.

    Example:
        >>> import millstream as ms
        >>> from google.protobuf.wrappers_pb2 import StringValue  # as protoc makes it
        >>> encode = ms.kafka.encode_protobuf("http://localhost:8081", StringValue, register=True)
        >>> ms.kafka.write("localhost:9092", "names", encode=encode)
        <sink kafka names at localhost:9092>
    """
    check_source(latest, register)
    client = RegistryClient(registry, headers)
    format = Protobuf(message, latest)
    return SchemaEncoder(client, format, subject=subject, naming=naming, register=register, of=of)
