"""Protobuf: items are messages of a class that ``protoc`` has made.

After the id of the schema a value has the path to its message in the file: the number of steps and the
indexes, as zigzag varints; a lone zero stands for the first message. The schema of a class is its file, as a
descriptor in base64, and refers to the files that it imports, each of which is a subject of its path.
"""

from __future__ import annotations

from .._errors.flow import FlowUsageError, show
from .client import Reference, RegistryClient, Schema
from .errors import SchemaRegistryError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any


BUILT_IN = ("google/protobuf/", "google/type/", "confluent/")
"""The files that each registry has."""


class Protobuf:
    """Messages of a class.

    Args:
        message: the class.
        latest: whether the newest version of the subject is used.
    """

    kind = "PROTOBUF"

    def __init__(self, message: Any, latest: bool = False) -> None:
        descriptor = getattr(message, "DESCRIPTOR", None)
        if not isinstance(message, type) or not hasattr(descriptor, "full_name"):
            raise FlowUsageError(f"message is a class that protoc has made, not {show(message)}")
        self.message: Any = message
        self.descriptor: Any = descriptor
        self.latest = latest

    def own(self, client: RegistryClient, register: bool) -> Schema | None:
        return None if self.latest else schema_of(self.descriptor.file, client, register)

    def record_name(self) -> str:
        return str(self.descriptor.full_name)

    def reader(self, client: RegistryClient, schema: Schema) -> Callable[[bytes], Any]:
        types = types_of(schema)
        from_string = self.message.FromString
        expected = self.descriptor.full_name

        def decode(body: bytes) -> Any:
            path, start = read_path(body)
            if types is not None and types.get(path) != expected:
                found = types.get(path, f"at {list(path)}, which is not in its schema")
                raise SchemaRegistryError(f"the value is a message {found}, not {expected}")
            return from_string(body[start:])

        return decode

    def writer(self, client: RegistryClient, schema: Schema) -> Callable[[Any], bytes]:
        path = own_path(self.descriptor)
        types = types_of(schema)
        if types is not None and types.get(path) != self.descriptor.full_name:
            # The newest version may have its messages in another order.
            found = [each for each, name in types.items() if name == self.descriptor.full_name]
            if not found:
                raise FlowUsageError(
                    f"the schema with the id {schema.id} has no message {self.descriptor.full_name}"
                )
            path = found[0]
        head = written_path(path)
        message = self.message

        def encode(item: Any) -> bytes:
            if not isinstance(item, message):
                raise SchemaRegistryError(f"the item is no {message.DESCRIPTOR.full_name}: {show(item)}")
            try:
                return head + bytes(item.SerializeToString())
            except Exception as error:
                # EncodeError is a class of the library: a field that is required is not set.
                raise SchemaRegistryError(f"the item does not match the schema: {error}") from None

        return encode


def schema_of(file: Any, client: RegistryClient, register: bool) -> Schema:
    """The schema of a file; those that it imports are registered or looked up."""
    from base64 import b64encode

    references = []
    for other in file.dependencies:
        if other.name.startswith(BUILT_IN):
            continue
        schema = schema_of(other, client, register)
        if register:
            client.register(other.name, schema)
        references.append(Reference(other.name, other.name, client.registered(other.name, schema).version))
    return Schema(b64encode(file.serialized_pb).decode("ascii"), Protobuf.kind, tuple(references))


def types_of(schema: Schema) -> dict[tuple[int, ...], str] | None:
    """The full names of the messages of a file by their paths; None if the schema is source text.

    A registry that does not know ``format=serialized`` answers with that: then only the class says what a
    message is.
    """
    from base64 import b64decode

    from google.protobuf.descriptor_pb2 import FileDescriptorProto  # type: ignore[import-untyped]
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    try:
        file = FileDescriptorProto.FromString(b64decode(schema.text, validate=True))
    except (ValueError, DecodeError):
        return None
    found: dict[tuple[int, ...], str] = {}

    def add(messages: Sequence[Any], outer: tuple[int, ...], scope: str) -> None:
        for index, message in enumerate(messages):
            path = (*outer, index)
            name = f"{scope}.{message.name}" if scope else message.name
            found[path] = name
            add(message.nested_type, path, name)

    add(file.message_type, (), file.package)
    return found


def own_path(descriptor: Any) -> tuple[int, ...]:
    """The path to a message in its file."""
    path: list[int] = []
    while descriptor is not None:
        outer = descriptor.containing_type
        names = outer.nested_types if outer is not None else descriptor.file.message_types_by_name.values()
        path.insert(0, [each.full_name for each in names].index(descriptor.full_name))
        descriptor = outer
    return tuple(path)


def written_path(path: tuple[int, ...]) -> bytes:
    """A path as a value has it.

    >>> written_path((0,)), written_path((1, 0)), written_path((100,))
    (b'\\x00', b'\\x04\\x02\\x00', b'\\x02\\xc8\\x01')
    """
    if path == (0,):
        return b"\0"
    out = bytearray()
    for number in (len(path), *path):
        number <<= 1
        while number >= 0x80:
            out.append(number & 0x7F | 0x80)
            number >>= 7
        out.append(number)
    return bytes(out)


def read_path(body: bytes) -> tuple[tuple[int, ...], int]:
    """The path at the beginning of a value, and where it ends.

    >>> read_path(b"\\x00body"), read_path(b"\\x04\\x02\\x00body")
    (((0,), 1), ((1, 0), 3))
    """
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

    steps = varint()
    if steps < 0:
        raise SchemaRegistryError(f"the path to the message has {steps} steps")
    path = tuple(varint() for _ in range(steps))
    return path or (0,), position
