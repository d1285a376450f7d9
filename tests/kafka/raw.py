"""Messages that clients cannot make: a produce request byte by byte.

A name of a header is bytes for a broker. The clients take text only.
"""

from __future__ import annotations

import socket
import struct
from functools import cache

from broker import Broker

PATIENCE = 60.0
Headers = list[tuple[bytes, "bytes | None"]]


@cache
def _table() -> list[int]:
    table = []
    for number in range(256):
        for _ in range(8):
            number = number >> 1 ^ (0x82F63B78 if number & 1 else 0)
        table.append(number)
    return table


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _table()[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def varint(number: int) -> bytes:
    number = number << 1 ^ number >> 63
    number &= (1 << 64) - 1
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def part(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def record(key: bytes | None, value: bytes | None, headers: Headers) -> bytes:
    body = b"\0" + varint(0) + varint(0) + part(key) + part(value) + varint(len(headers))
    body += b"".join(part(name) + part(content) for name, content in headers)
    return varint(len(body)) + body


def batch(key: bytes | None, value: bytes | None, headers: Headers, time_ms: int) -> bytes:
    """A batch of one message, version 2."""
    times = struct.pack(">qq", time_ms, time_ms)
    counted = struct.pack(">hi", 0, 0) + times + struct.pack(">qhii", -1, -1, -1, 1)
    counted += record(key, value, headers)
    content = struct.pack(">iBI", -1, 2, crc32c(counted)) + counted
    return struct.pack(">qi", 0, len(content)) + content


def text(name: str) -> bytes:
    return struct.pack(">h", len(name)) + name.encode()


def produce(
    broker: Broker,
    topic: str,
    value: bytes | None,
    key: bytes | None = None,
    headers: Headers | None = None,
    partition: int = 0,
    time_ms: int = 1_700_000_000_000,
) -> None:
    """Writes one message to a partition, as it is."""
    records = batch(key, value, headers or [], time_ms)
    body = struct.pack(">hhi", -1, -1, 30_000) + struct.pack(">i", 1) + text(topic)
    body += struct.pack(">iii", 1, partition, len(records)) + records
    request = struct.pack(">hhi", 0, 3, 1) + text("raw") + body
    host, _, port = broker.servers.rpartition(":")
    with socket.create_connection((host, int(port)), PATIENCE) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        stream = connection.makefile("rb")
        answer = stream.read(struct.unpack(">i", stream.read(4))[0])
    # Correlation, the number of topics, the topic, the number of partitions, the partition.
    at = 4 + 4 + 2 + len(topic.encode()) + 4 + 4
    (error,) = struct.unpack_from(">h", answer, at)
    assert error == 0, f"the broker answers with error {error}"
