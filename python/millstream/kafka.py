"""Topics of Kafka as sources and sinks of flows. With a state directory both are exact.

A release of Millstream has Kafka. A build from source has it with the feature ``kafka``: ``maturin develop
--features kafka``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import overload

from . import _millstream
from ._errors.flow import FlowUsageError
from ._schemas.decode import SchemaDecoder, avro, json_schema, protobuf
from ._schemas.encode import SchemaEncoder, encode_avro, encode_json_schema, encode_protobuf, for_topic
from ._schemas.errors import SchemaRegistryError, SchemaRegistryUnavailable
from ._values.checked import checked
from ._values.durations import seconds_or_none

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime
    from typing import Any, Literal, TypeAlias

    from ._values.durations import Seconds
    from ._values.types import Decoder, Frame, U, W

Start: TypeAlias = (
    'Literal["earliest", "latest", "group"] | datetime | float | Mapping[str, Mapping[int, int]]'
)
End: TypeAlias = 'Literal["latest"] | datetime | float | None'
Settings: TypeAlias = "Mapping[str, str | int | float | bool]"

try:
    from ._millstream import KafkaMessage as Message, kafka_message_time as message_time
except ImportError:  # a build without the feature
    pass

__all__ = [
    "Message",
    "SchemaDecoder",
    "SchemaEncoder",
    "SchemaRegistryError",
    "SchemaRegistryUnavailable",
    "Token",
    "avro",
    "encode_avro",
    "encode_json_schema",
    "encode_protobuf",
    "json_schema",
    "message_time",
    "protobuf",
    "read",
    "write",
]


@checked
@dataclass(frozen=True)
class Token:
    """A token with which a client logs in by SASL/OAUTHBEARER. Its representation has no secret.

    Args:
        value: the token, for most services a JSON Web Token.
        ends: when it ends, in seconds since 1970. The client asks for the next one after four fifths of the
            time until then.
        principal: the name of the user. Most brokers take it from the token.

    Example:
        >>> import millstream as ms
        >>> ms.kafka.Token("eyJhbGciOi...", ends=1_900_000_000.0)
        Token(ends=1900000000.0, principal='')

        Tokens of a service with OpenID Connect, by the client credentials grant:

        >>> import json
        >>> import time
        >>> from urllib.parse import urlencode
        >>> from urllib.request import urlopen
        >>> def token() -> ms.kafka.Token:
        ...     form = {"grant_type": "client_credentials", "client_id": "flow", "client_secret": "..."}
        ...     with urlopen("https://example.com/token", urlencode(form).encode(), timeout=9) as answer:
        ...         made = json.load(answer)
        ...     return ms.kafka.Token(made["access_token"], time.time() + made["expires_in"])
        >>> settings = {"security.protocol": "sasl_ssl"}
        >>> ms.kafka.read("kafka1:9093", "orders", settings=settings, token=token)
        <source kafka orders from kafka1:9093>
    """

    value: str = field(repr=False)
    ends: float
    principal: str = ""


def _function(name: str) -> Any:
    function = getattr(_millstream, name, None)
    if function is None:
        raise FlowUsageError("this build of Millstream has no Kafka: build it with --features kafka")
    return function


def _settings(settings: Settings | None) -> list[tuple[str, str]]:
    """Settings as librdkafka reads them.

    >>> _settings({"check.crcs": True, "linger.ms": 5})
    [('check.crcs', 'true'), ('linger.ms', '5')]
    """
    pairs = dict(settings or {}).items()
    return [(name, str(value).lower() if isinstance(value, bool) else str(value)) for name, value in pairs]


def _milliseconds(name: str, time: object) -> int | None:
    """The milliseconds since 1970 of a datetime or a number of seconds; None for anything else.

    >>> from datetime import datetime, timezone
    >>> _milliseconds("start", datetime(1970, 1, 1, 0, 0, 1, tzinfo=timezone.utc))
    1000
    >>> _milliseconds("start", 1.5)
    1500
    """
    from datetime import datetime

    if isinstance(time, datetime):
        if time.tzinfo is None:
            raise FlowUsageError(f"{name} is a datetime without a time zone")
        return round(time.timestamp() * 1000)
    if isinstance(time, int | float) and not isinstance(time, bool):
        return round(time * 1000)
    return None


def _servers(servers: str | Sequence[str]) -> str:
    return servers if isinstance(servers, str) else ",".join(servers)


@overload
def read(
    servers: str | Sequence[str],
    topics: str | Sequence[str],
    start: Start = "earliest",
    end: End = None,
    group: str | None = None,
    values: Literal[False] = False,
    decode: None = None,
    settings: Settings | None = None,
    token: Callable[[], Token] | None = None,
) -> _millstream.ByteSource[Message]: ...
@overload
def read(
    servers: str | Sequence[str],
    topics: str | Sequence[str],
    start: Start = "earliest",
    end: End = None,
    group: str | None = None,
    *,
    values: Literal[True],
    decode: None = None,
    settings: Settings | None = None,
    token: Callable[[], Token] | None = None,
) -> _millstream.ByteSource[bytes | None]: ...
@overload
def read(
    servers: str | Sequence[str],
    topics: str | Sequence[str],
    start: Start = "earliest",
    end: End = None,
    group: str | None = None,
    values: bool = False,
    *,
    decode: Decoder[U],
    settings: Settings | None = None,
    token: Callable[[], Token] | None = None,
) -> _millstream.ByteSource[U]: ...
@overload
def read(
    servers: str | Sequence[str],
    topics: str | Sequence[str],
    start: Start = "earliest",
    end: End = None,
    group: str | None = None,
    values: bool = False,
    *,
    decode: Decoder[U],
    settings: Settings | None = None,
    token: Callable[[], Token] | None = None,
    decode_key: Decoder[W],
) -> _millstream.ByteSource[tuple[W | None, U | None]]: ...
@checked
def read(
    servers: str | Sequence[str],
    topics: str | Sequence[str],
    start: Start = "earliest",
    end: End = None,
    group: str | None = None,
    values: bool = False,
    decode: type | Callable[[bytes], Any] | None = None,
    settings: Settings | None = None,
    token: Callable[[], Token] | None = None,
    decode_key: type | Callable[[bytes], Any] | None = None,
) -> _millstream.ByteSource[Any]:
    """Reads topics; each partition of a topic is a partition of the source.

    With a state directory the offsets are part of the flow's state, and each message has its effect once,
    after a crash too. Without one, reading begins at ``start`` in each run. There is no rebalance: the flow
    assigns partitions to its workers itself. Messages of aborted transactions are not read.

    Args:
        servers: addresses of some brokers, as a list or separated by commas.
        topics: the name of a topic, or several. They must exist.
        start: where a partition begins that the flow has not read before: ``"earliest"``, ``"latest"``,
            ``"group"`` for the offset that ``group`` has committed (the oldest message if there is none), a
            time as a datetime or in seconds since 1970, or offsets as ``{topic: {partition: offset}}``
            (the oldest message for all other partitions).
        end: where reading ends: ``"latest"`` for the first message that is not there, or not committed, when
            the flow begins, or a time for the first message of that time. None: the source waits for
            messages, without end.
        group: the consumer group for which the offsets of processed messages are committed, so that tools
            show the lag: after each epoch, or about every second without a state directory.
        values: whether items are the values only, as bytes; a tombstone is None. This is faster.
        decode: makes an item of a value: ``str``, ``bytes``, a subclass of :class:`millstream.Record`, or a
            function. Items are what it returns then; a tombstone is None.
        settings: settings of the client by librdkafka's names, for instance for TLS and passwords. Unless
            they are given: ``fetch.queue.backoff.ms=5``, ``queued.min.messages=100000``,
            ``fetch.wait.max.ms=100``, ``check.crcs=true``, ``reconnect.backoff.max.ms=1000``,
            ``isolation.level=read_committed``; ``queued.max.messages.kbytes``, the memory of the queues,
            65536 divided by the partitions of a worker, at least 1024; ``statistics.interval.ms=1000``, by
            which the gaps of transactions are found; ``topic.metadata.refresh.interval.ms=60000``, how often
            new partitions and topics created anew are looked for, -1: never.
        token: returns a :class:`Token` for a login by OAUTHBEARER. It is called when a client connects, on a
            thread of its own, and again before each token ends; an error is logged, and it is called again.
        decode_key: makes an object of a key, as ``decode`` does of a value. Items are pairs of both then; the
            key of a message without one is None.

    Returns:
        A source of :class:`Message`, of bytes, or of what ``decode`` makes of them.

    Raises:
        FlowUsageError: there is no topic, ``start`` or ``end`` is none of those, ``"group"`` has no group, or
            ``decode_key`` is without ``decode``.

    Example:
        >>> import millstream as ms
        >>> ms.kafka.read("localhost:9092", "orders", end="latest", values=True)
        <source kafka orders from localhost:9092>
    """
    names = [topics] if isinstance(topics, str) else list(topics)
    if not names:
        raise FlowUsageError(f"topics is the name of a topic, or several, not {topics!r}")
    start_ms = _milliseconds("start", start)
    end_ms = _milliseconds("end", end)
    offsets = None
    if start_ms is None and not isinstance(start, str):
        offsets = _offsets(start)
    if start == "group" and group is None:
        raise FlowUsageError('start="group" needs the name of a group')
    if decode_key is not None and decode is None:
        raise FlowUsageError(
            "decode_key needs decode: items are pairs of what the two make; bytes is a decoder"
        )
    source: _millstream.ByteSource[Any] = _function("kafka_read")(
        _servers(servers),
        names,
        start=start if isinstance(start, str) else None,
        start_ms=start_ms,
        offsets=offsets,
        end=end if isinstance(end, str) else None,
        end_ms=end_ms,
        group=group,
        settings=_settings(settings),
        token=token,
        values=values,
        decode=decode,
        decode_key=decode_key,
    )
    return source


def _offsets(start: Any) -> list[tuple[str, int, int]]:
    return [
        (topic, partition, offset)
        for topic, partitions in start.items()
        for partition, offset in partitions.items()
    ]


@overload
def write(
    servers: str | Sequence[str],
    topic: str,
    key: None = None,
    encode: None = None,
    exactly_once: bool = True,
    settings: Settings | None = None,
    max_bytes: int | None = None,
    max_age: Seconds | None = None,
    token: Callable[[], Token] | None = None,
) -> _millstream.ByteSink[Message | Frame | None]: ...
@overload
def write(
    servers: str | Sequence[str],
    topic: str,
    key: Callable[[U], Frame | None] | None = None,
    encode: Callable[[U], Message | Frame | None] | None = None,
    exactly_once: bool = True,
    settings: Settings | None = None,
    max_bytes: int | None = None,
    max_age: Seconds | None = None,
    token: Callable[[], Token] | None = None,
) -> _millstream.ByteSink[U]: ...
@checked
def write(
    servers: str | Sequence[str],
    topic: str,
    key: Callable[[Any], Any] | None = None,
    encode: Callable[[Any], Any] | None = None,
    exactly_once: bool = True,
    settings: Settings | None = None,
    max_bytes: int | None = None,
    max_age: Seconds | None = None,
    token: Callable[[], Token] | None = None,
) -> _millstream.ByteSink[Any]:
    """Writes each item as a message to a topic.

    With a state directory each message is written once, after a crash too: the flow appends it to an outbox
    in the state directory, and committed messages are written in transactions. Readers need the setting
    ``isolation.level=read_committed``, which is not the default of Java's clients. Without a state directory,
    and with ``exactly_once=False``, a message may be written again after a crash.

    An item that is a :class:`Message` is written with its key, value, time and headers: to its own topic and
    partition if the program has made it with these, otherwise to ``topic``. A message that was read goes to
    ``topic``. Any other item is a value.

    Args:
        servers: addresses of some brokers, as a list or separated by commas.
        topic: the name of the topic. It must exist.
        key: returns the key of an item: bytes, ``str`` or None. The key decides on the partition, as with
            Java's clients.
        encode: returns the value of an item: bytes, ``str``, a record, or None for a tombstone; or a
            :class:`Message`. None: items are that already.
        exactly_once: whether messages are written in transactions. False: they are sent at once and
            acknowledged before their epoch is committed.
        settings: settings of the client by librdkafka's names. Unless they are given: ``linger.ms=1``,
            ``reconnect.backoff.max.ms=1000``, and ``partitioner=murmur2_random``, so that equal keys are in
            the same partition as with Java's clients.
        max_bytes: sources pause while more bytes wait in the outbox. None: 1 GiB.
        max_age: sources pause while an older message waits in the outbox. None: no limit.
        token: returns a :class:`Token` for a login by OAUTHBEARER, as for :func:`read`.

    Returns:
        A sink of messages, bytes, ``str``, records or None, or of items for ``encode``.

    Example:
        >>> import millstream as ms
        >>> ms.kafka.write("localhost:9092", "copies", key=lambda item: item[0], encode=lambda item: item[1])
        <sink kafka copies at localhost:9092>
    """
    sink: _millstream.ByteSink[Any] = _function("kafka_write")(
        _servers(servers),
        topic,
        key=for_topic(key, topic, "key"),
        encode=for_topic(encode, topic, "value"),
        exactly_once=exactly_once,
        settings=_settings(settings),
        token=token,
        max_bytes=max_bytes,
        max_age=seconds_or_none("max_age", max_age, 0),
    )
    return sink
