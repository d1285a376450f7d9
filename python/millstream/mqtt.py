"""Topics of MQTT 5 as sources and sinks of flows. It needs ``pip install 'millstream[mqtt]'``."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass
from typing import Any

from ._connectors.adapter.deliveries import Delivered, delivered_by
from ._connectors.outbox import destination, with_outbox
from ._connectors.servers import TLS, Login, Server, context_of, library, message_of, named, parts_of
from ._errors.delivery import Refusals
from ._errors.flow import FlowUsageError
from ._values.checked import checked

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from typing_extensions import Unpack

    from ._connectors.adapter import SourceFunction
    from ._connectors.outbox import OutboxIdentity, OutboxOptions, OutboxSink
    from ._values.backoff import Backoff

__all__ = ["Message", "read", "write"]

BATCH = 500
KEEPALIVE = 10
TIMEOUT = 20.0
"""Messages of a batch; the interval of pings, and how long an answer is waited for, in seconds."""
FOREVER = 0xFFFFFFFF
"""The expiry of a session that has none."""
PASSING = (0x80, 0x83, 0x88, 0x89, 0x8B, 0x97, 0x9C, 0x9D, 0x9F)
"""Reasons after which another attempt may pass: the broker is busy, not available, or has no quota left."""


@dataclass(frozen=True)
class Message:
    """A message that was read, or one for :func:`write`.

    Args:
        payload: the payload.
        topic: the topic. None: that of the sink.
        retained: whether the broker keeps it, or had kept it, for new subscribers.
        content_type: the content type, or None.
        properties: the user properties, in their order.

    Example:
        >>> import millstream as ms
        >>> ms.mqtt.Message(b"21.5", "sensors/hall").topic
        'sensors/hall'
    """

    payload: bytes
    topic: str | None = None
    retained: bool = False
    content_type: str | None = None
    properties: tuple[tuple[str, str], ...] = ()


@checked
def read(
    url: str,
    topics: str | Sequence[str],
    session: str,
    *,
    login: Login | None = None,
    retry: Backoff | None = None,
) -> SourceFunction[..., Message]:
    """Reads messages with QoS 1 that match topics.

    The broker keeps messages for the session, from its first connection on, while the flow does not run. A
    message is acknowledged when it is recorded in the state directory, since brokers deliver few messages
    without an acknowledgement (mosquitto: 20). No message is lost that was published with QoS 1 or 2. Each
    has its effect at least once: nothing tells one that is delivered again from a new one.

    Args:
        url: the address of the broker, ``mqtt://HOST:PORT`` or ``mqtts://``; the ports are 1883 and 8883 by
            default.
        topics: a topic filter, such as ``"sensors/#"``, or several.
        session: the id of the client, which names its session at the broker. Each flow has its own.
        login: user and password, certificates. None: there is none.
        retry: the delays between attempts to connect. None: ``Backoff()``, 0.1 s, doubled up to 30 s, without
            end.

    Returns:
        A durable source of :class:`Message`, with one partition.

    Raises:
        FlowUsageError: an option has a wrong value, a certificate cannot be read, or paho-mqtt
            is missing.

    Example:
        >>> import millstream as ms
        >>> ms.mqtt.read("mqtt://localhost", "sensors/#", "heating")
        <durable <source mqtt sensors/#>>
    """
    names = [topics] if isinstance(topics, str) else list(topics)
    if not names or not all(names):
        raise FlowUsageError(f"topics has filters, at least one, not {topics!r}")
    named(session=session)
    link = _Link(url, login, "ms.mqtt.read")
    title = f"mqtt {', '.join(names)}"
    return delivered_by(title, lambda: _Subscriber(link, names, session), retry, durable=True)


@with_outbox()
def write(
    url: str,
    topic: str | Callable[[Any], str],
    *,
    encode: Callable[[Any], Message | bytes | str] | None = None,
    login: Login | None = None,
    **outbox: Unpack[OutboxOptions],
) -> OutboxSink[Any]:
    """Publishes items with QoS 1, each at least once in a run with a state directory.

    Args:
        url: as for :func:`read`.
        topic: the topic, or a function that returns that of an item.
        encode: makes a :class:`Message`, bytes or text of an item. None: items are that already.
        login: as for :func:`read`.

    Returns:
        The sink.

    Raises:
        FlowUsageError: an option has a wrong value, a certificate cannot be read, or paho-mqtt
            is missing.

    Example:
        >>> import millstream as ms
        >>> ms.mqtt.write("mqtt://localhost", "heating/hall", encode=str)
        <sink mqtt heating/hall>
    """
    named(topic=topic)
    link = _Link(url, login, "ms.mqtt.write")
    to = "by item" if callable(topic) else topic
    return destination(f"mqtt {to}", _Publisher, **outbox)(link, topic, encode)


class _Link:
    """The broker, and how to connect to it."""

    def __init__(self, url: str, login: Login | None, name: str) -> None:
        from urllib.parse import urlsplit

        library("paho.mqtt.client", "paho-mqtt", "mqtt")
        self.server = Server.at(url, login, "mqtt", "mqtts")
        given = parts_of(self.server.login, name, "user", "password", *TLS)
        parts = urlsplit(self.server.url)
        self.port = parts.port or (8883 if parts.scheme == "mqtts" else 1883)
        self.host = parts.hostname or "localhost"
        self.user, self.password = given.get("user"), given.get("password")
        self.is_secure, self.context = parts.scheme == "mqtts", context_of(self.server.login)
        if self.context is not None and not self.is_secure:
            raise FlowUsageError(f"{name}: a login with certificates needs an address mqtts://")

    def open(self, session: str | None, prepare: Callable[[Any], None]) -> tuple[Any, Any, Any]:
        """Connects; returns a client whose loop runs, and the flags and properties of the broker.
        ``prepare`` receives the client before it connects. A session of its own remains at the broker."""
        from paho.mqtt import client as paho
        from paho.mqtt.enums import CallbackAPIVersion

        client = paho.Client(
            CallbackAPIVersion.VERSION2, session or "", protocol=paho.MQTTv5, manual_ack=True,
            reconnect_on_failure=False,
        )  # fmt: skip
        client.connect_timeout = TIMEOUT
        if self.user is not None:
            client.username_pw_set(self.user, self.password)
        if self.is_secure:
            client.tls_set_context(self.context)
        answered = threading.Event()
        answers = []

        def on_connect(_: Any, __: Any, *answer: Any) -> None:
            answers.append(answer)
            answered.set()

        client.on_connect = on_connect
        prepare(client)
        then: Any = client.on_disconnect

        def on_disconnect(*about: Any) -> None:
            # A broker that refuses a certificate, or TLS, ends the connection without an answer.
            answered.set()
            then(*about)

        client.on_disconnect = on_disconnect
        properties = _properties("CONNECT")
        properties.SessionExpiryInterval = 0 if session is None else FOREVER
        try:
            client.connect(
                self.host, self.port, KEEPALIVE, clean_start=session is None, properties=properties
            )
            client.loop_start()
            if not answered.wait(TIMEOUT):
                raise TimeoutError("no answer")
            if not answers:
                raise ConnectionError("the broker has ended the connection without an answer")
        except (OSError, ValueError) as error:
            client.loop_stop()
            raise self.server.error(error) from None
        flags, reason, given = answers[0]
        if reason.is_failure:
            client.loop_stop()
            raise self.server.error(f"the login is refused: {reason}", reason.value not in PASSING)
        return client, flags, given


def _properties(packet: str) -> Any:
    from paho.mqtt import packettypes, properties

    make: Any = properties.Properties
    return make(getattr(packettypes.PacketTypes, packet))


class _Subscriber:
    """A reader of messages; see ``delivered_by``."""

    def __init__(self, link: _Link, topics: list[str], session: str) -> None:
        self.link = link
        self.topics = topics
        self.session = session
        self.arrived: asyncio.Queue[Any] = asyncio.Queue()
        self.loop = asyncio.get_running_loop()
        self.client: Any = None

    async def open(self, delivered: Delivered[str], again: bool) -> None:
        from paho.mqtt.subscribeoptions import SubscribeOptions

        subscribed: asyncio.Future[Any] = self.loop.create_future()

        def put(message: Any) -> None:
            self.loop.call_soon_threadsafe(self.arrived.put_nowait, message)

        def prepare(client: Any) -> None:
            client.on_message = lambda _, __, message: put(message)
            client.on_disconnect = lambda *_: put(None)
            client.on_subscribe = lambda _, __, ___, reasons, ____: self.loop.call_soon_threadsafe(
                subscribed.set_result, reasons
            )

        self.client, flags, _ = await asyncio.to_thread(self.link.open, self.session, prepare)
        if again and not flags.session_present:
            import logging

            logging.getLogger("millstream.flow.source").warning(
                '%s: the broker has lost the session "%s": messages of the time in between are lost',
                self.link.server.address, self.session,
            )  # fmt: skip
        self.client.subscribe([(topic, SubscribeOptions(qos=1)) for topic in self.topics])
        try:
            reasons = await asyncio.wait_for(subscribed, TIMEOUT)
        except asyncio.TimeoutError:
            raise self.link.server.error("no answer to a subscription") from None
        for topic, reason in zip(self.topics, reasons, strict=True):
            if reason.is_failure:
                text = f"the subscription to {topic} is refused: {reason}"
                raise self.link.server.error(text, reason.value not in PASSING)

    async def receive(self) -> list[tuple[None, Message, Any]]:
        found: list[tuple[None, Message, Any]] = []
        while not found or (self.arrived.qsize() and len(found) < BATCH):
            message = await self.arrived.get()
            if message is None:
                raise self.link.server.error("the connection is lost")
            about = message.properties
            item = Message(
                bytes(message.payload), message.topic, bool(message.retain),
                getattr(about, "ContentType", None), tuple(getattr(about, "UserProperty", ())),
            )  # fmt: skip
            found.append((None, item, message))
        return found

    async def acknowledge(self, messages: list[Any]) -> None:
        for message in messages:
            self.client.ack(message.mid, message.qos)

    def is_open(self) -> bool:
        return bool(self.client.is_connected())

    def waiting(self) -> int:
        return 0

    async def close(self) -> None:
        if self.client is not None:
            self.client.disconnect()
            await asyncio.to_thread(self.client.loop_stop)


class _Publisher:
    """The destination of ``write``."""

    def __init__(self, link: _Link, topic: Any, encode: Any) -> None:
        self.link = link
        self.topic = topic
        self.encode = encode
        self.answers: dict[int, Any] = {}
        self.changed = threading.Condition()
        self.lost = False
        self.client: Any = None

    def connect(self, outbox: OutboxIdentity) -> None:
        self.refusals = Refusals(outbox, self.link.server.address)
        self.client, _, given = self.link.open(None, self.prepare)
        self.max_bytes = getattr(given, "MaximumPacketSize", FOREVER)

    def prepare(self, client: Any) -> None:
        client.on_publish = lambda _, __, mid, reason, ___: self.answered(mid, reason)
        client.on_disconnect = lambda *_: self.answered(0, None)

    def answered(self, mid: int, reason: Any) -> None:
        """The broker has answered, or has gone away."""
        with self.changed:
            if reason is None:
                self.lost = True
            else:
                self.answers[mid] = reason
            self.changed.notify()

    def message(self, item: Any) -> tuple[str, Message, Any]:
        made = message_of(item, self.encode, Message, "payload")
        to = self.topic(item) if callable(self.topic) else made.topic or self.topic
        properties = _properties("PUBLISH")
        if made.content_type is not None:
            properties.ContentType = made.content_type
        if made.properties:
            properties.UserProperty = list(made.properties)
        # The fixed header, the identifier and the length of the topic.
        size = 9 + len(to.encode()) + len(properties.pack()) + len(made.payload)
        if size > self.max_bytes:
            raise ValueError(f"the packet has {size} bytes, and the broker takes {self.max_bytes}")
        return to, made, properties

    def write(self, batch: list[Any], first: int, last: int) -> None:
        made = self.refusals.made(self.message, batch, first)
        # The number of a message on its way has 16 bits.
        for at in range(0, len(made), 10_000):
            self.publish(made[at : at + 10_000])

    def publish(self, made: list[tuple[int, Any, Any]]) -> None:
        self.answers.clear()
        sent = []
        for number, item, (to, message, properties) in made:
            try:
                info = self.client.publish(to, bytes(message.payload), 1, message.retained, properties)
            except ValueError as error:
                self.refusals.refuse(number, item, error)
            else:
                sent.append((number, item, info.mid))
        with self.changed:
            while not self.lost and len(self.answers) < len(sent):
                self.lost = not self.changed.wait(TIMEOUT)
            if self.lost:
                raise self.link.server.error("the connection is lost")
        for number, item, mid in sent:
            reason = self.answers[mid]
            if reason.is_failure and reason.value in PASSING:
                raise self.link.server.error(reason)
            if reason.is_failure:
                self.refusals.refuse(number, item, reason)

    def close(self) -> None:
        if self.client is not None:
            self.client.disconnect()
            self.client.loop_stop()
