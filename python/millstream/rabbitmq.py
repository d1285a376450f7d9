"""Queues of RabbitMQ as sources and sinks of flows. It needs ``pip install 'millstream[rabbitmq]'``."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ._connectors.adapter.deliveries import Delivered, delivered_by
from ._connectors.outbox import destination, with_outbox
from ._connectors.servers import TLS, Login, Server, context_of, library, message_of, named, parts_of
from ._errors.delivery import Refusals
from ._errors.flow import FlowUsageError
from ._values.checked import checked

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Unpack

    from ._connectors.adapter import SourceFunction
    from ._connectors.outbox import OutboxIdentity, OutboxOptions, OutboxSink
    from ._values.backoff import Backoff

__all__ = ["Message", "read", "write"]

BATCH = 500
IDLE = 10
TIMEOUT = 20.0
"""Messages of a batch; the interval of heartbeats, and how long an answer is waited for, in seconds."""
QUIET = logging.NullHandler()
REMEMBERED = 10_000
"""The number of ids that are kept: the broker does not confirm an acknowledgement."""


@dataclass(frozen=True)
class Message:
    """A message that was read, or one for :func:`write`.

    Args:
        body: the body.
        routing_key: the routing key. None: that of the sink.
        id: the ``message_id``, or None.
        headers: the headers.
        content_type: the content type, or None.
        redelivered: whether the broker may have delivered it before.

    Example:
        >>> import millstream as ms
        >>> ms.rabbitmq.Message(b"3", headers={"unit": "kg"}).headers["unit"]
        'kg'
    """

    body: bytes
    routing_key: str | None = None
    id: str | None = None
    headers: Mapping[str, Any] = field(default_factory=dict)
    content_type: str | None = None
    redelivered: bool = False


@checked
def read(
    url: str,
    queue: str,
    *,
    unique_ids: bool = False,
    pending: int = 2000,
    login: Login | None = None,
    retry: Backoff | None = None,
) -> SourceFunction[..., Message]:
    """Reads a queue, which must exist.

    In a run with a state directory a message is acknowledged when its epoch is committed, and no message is
    lost. The broker delivers those again whose acknowledgement did not arrive: each message has its effect at
    least once, and once with ``unique_ids``.

    Args:
        url: the address of the broker, ``amqp://HOST:PORT/VHOST`` or ``amqps://``; the ports are 5672 and
            5671 by default, the virtual host is ``/``.
        queue: the name of the queue.
        unique_ids: whether publishers set a ``message_id`` that no other message has: one that is delivered
            again is dropped by it.
        pending: how many messages the broker delivers without an acknowledgement, and so in an epoch.
        login: user and password, certificates. Without a user it is ``guest``, with the password ``guest``.
        retry: the delays between attempts to connect. None: ``Backoff()``, 0.1 s, doubled up to 30 s, without
            end.

    Returns:
        A source of :class:`Message`, with one partition.

    Raises:
        FlowUsageError: an option has a wrong value, a certificate cannot be read, or aio-pika
            is missing.

    Example:
        >>> import millstream as ms
        >>> ms.rabbitmq.read("amqp://localhost", "orders", unique_ids=True)
        <source rabbitmq orders>
    """
    named(queue=queue)
    if not 1 <= pending <= 65535:
        raise FlowUsageError(f"pending is a number of messages from 1 to 65535, not {pending!r}")
    link = _Link(url, login, "ms.rabbitmq.read")
    remembered = REMEMBERED + pending if unique_ids else 0
    return delivered_by(
        f"rabbitmq {queue}",
        lambda: _Consumer(link, queue, unique_ids, pending),
        retry,
        remembered=remembered,
    )


@with_outbox()
def write(
    url: str,
    routing_key: str | Callable[[Any], str],
    *,
    exchange: str = "",
    encode: Callable[[Any], Message | bytes | str] | None = None,
    login: Login | None = None,
    **outbox: Unpack[OutboxOptions],
) -> OutboxSink[Any]:
    """Publishes items as persistent messages, each at least once in a run with a state directory.

    The broker confirms each message. A message that is published again has the ``message_id`` that it had
    before, unless it is a :class:`Message` with an id of its own: consumers can drop it by that.

    Args:
        url: as for :func:`read`.
        routing_key: the routing key, or a function that returns that of an item. In the default exchange it
            is the name of a queue.
        exchange: the exchange, which must exist. ``""``: the default exchange.
        encode: makes a :class:`Message`, bytes or text of an item. None: items are that already.
        login: as for :func:`read`.

    Returns:
        The sink.

    Raises:
        FlowUsageError: an option has a wrong value, a certificate cannot be read, or aio-pika
            is missing.

    Example:
        >>> import millstream as ms
        >>> ms.rabbitmq.write("amqp://localhost", "invoices", encode=str)
        <sink rabbitmq invoices>
    """
    named(routing_key=routing_key)
    link = _Link(url, login, "ms.rabbitmq.write")
    to = exchange or routing_key
    name = f"rabbitmq {'by item' if callable(to) else to}"
    return destination(name, _Publisher, **outbox)(link, exchange, routing_key, encode)


class _Link:
    """The broker, and how to connect to it."""

    def __init__(self, url: str, login: Login | None, name: str) -> None:
        library("aio_pika", "aio-pika", "rabbitmq")
        for logger in ("aiormq", "aio_pika"):
            # The flow reports a lost connection: what they log of it is for programs with a handler.
            logging.getLogger(logger).addHandler(QUIET)
        self.server = Server.at(url, login, "amqp", "amqps")
        self.login = parts_of(self.server.login, name, "user", "password", *TLS)
        self.context = context_of(self.server.login)
        if self.context is not None and not url.startswith("amqps:"):
            raise FlowUsageError(f"{name}: a login with certificates needs an address amqps://")

    async def open(self) -> Any:
        import aio_pika
        from yarl import URL

        url = URL(self.server.url).extend_query(heartbeat=IDLE)
        url = url.with_user(self.login.get("user", "guest")).with_password(
            self.login.get("password", "guest")
        )
        return await self.answer(aio_pika.connect(url, ssl_context=self.context, timeout=TIMEOUT))

    async def answer(self, call: Any, place: str = "") -> Any:
        """The result of a call; FlowError for what a person must change, ConnectionError for an outage."""
        from aiormq import exceptions as kinds

        try:
            return await asyncio.wait_for(call, TIMEOUT)
        except Exception as error:
            refused = (kinds.ChannelAccessRefused, kinds.ChannelNotFoundEntity, kinds.ConnectionNotAllowed)
            logins = (kinds.AuthenticationError, kinds.ProbableAuthenticationError)
            is_closed = isinstance(error, RuntimeError) or not str(error)
            text = "the connection is lost" if is_closed else str(error)
            raise self.server.error(f"{place}{text}", isinstance(error, refused + logins)) from None


class _Consumer:
    """A reader of messages; see ``delivered_by``."""

    def __init__(self, link: _Link, queue: str, unique_ids: bool, pending: int) -> None:
        self.link = link
        self.queue = queue
        self.unique_ids = unique_ids
        self.pending = pending
        self.arrived: asyncio.Queue[Any] = asyncio.Queue()
        self.connection: Any = None

    async def open(self, delivered: Delivered[str], again: bool) -> None:
        link = self.link
        place = f'queue "{self.queue}": '
        self.connection = await link.open()
        self.connection.close_callbacks.add(self.closed)
        self.channel = await link.answer(self.connection.channel())
        self.channel.close_callbacks.add(self.closed)
        await link.answer(self.channel.set_qos(prefetch_count=self.pending))
        queue = await link.answer(self.channel.get_queue(self.queue), place)
        await link.answer(queue.consume(self.arrived.put), place)

    def closed(self, _: Any, error: BaseException | None) -> None:
        cause = error if error is None else error.__cause__ or error
        self.arrived.put_nowait(ConnectionError("it was closed") if cause is None else cause)

    async def receive(self) -> list[tuple[str | None, Message, Any]]:
        found: list[tuple[str | None, Message, Any]] = []
        while not found or (self.arrived.qsize() and len(found) < BATCH):
            try:
                message = await asyncio.wait_for(self.arrived.get(), IDLE)
            except asyncio.TimeoutError:
                await self.check()
                continue
            if isinstance(message, BaseException):
                raise self.link.server.error(f'queue "{self.queue}": the connection is lost: {message}')
            id = message.message_id if self.unique_ids else None
            item = Message(
                message.body, message.routing_key, message.message_id, dict(message.headers),
                message.content_type, bool(message.redelivered),
            )  # fmt: skip
            found.append((id, item, message))
        return found

    async def check(self) -> None:
        """A broker that removes a queue ends its consumers, and not the connection."""
        place = f'queue "{self.queue}": '
        queue = await self.link.answer(self.channel.get_queue(self.queue), place)
        if queue.declaration_result.consumer_count == 0:
            raise self.link.server.error(f"{place}the broker has ended the consumer")

    async def acknowledge(self, messages: list[Any]) -> None:
        await self.link.answer(messages[-1].ack(multiple=True))

    def is_open(self) -> bool:
        return not self.channel.is_closed

    def waiting(self) -> int:
        return 0

    async def close(self) -> None:
        if self.connection is not None:
            await self.connection.close()


class _Publisher:
    """The destination of ``write``: messages of a batch are published, and then their confirms awaited."""

    def __init__(self, link: _Link, exchange: str, routing_key: Any, encode: Any) -> None:
        self.link = link
        self.encode = encode
        self.name = exchange
        self.routing_key = routing_key
        self.connection: Any = None

    async def connect(self, outbox: OutboxIdentity) -> None:
        place = f'{self.link.server.address}, exchange "{self.name}"'
        self.id, self.refusals = outbox.id, Refusals(outbox, place)
        self.connection = await self.link.open()
        await self.open()

    async def open(self) -> None:
        """Opens a channel: the broker closes that of a message which it does not accept."""
        answer = self.link.answer
        self.channel = await answer(self.connection.channel(on_return_raises=True))
        self.exchange = self.channel.default_exchange
        if self.name:
            self.exchange = await answer(self.channel.get_exchange(self.name), f'exchange "{self.name}": ')
        elif not callable(self.routing_key):
            await answer(self.channel.get_queue(self.routing_key), f'queue "{self.routing_key}": ')

    def message(self, item: Any) -> tuple[str, Any]:
        from aio_pika import DeliveryMode, Message as Outgoing

        made = message_of(item, self.encode, Message, "body")
        to = self.routing_key(item) if callable(self.routing_key) else made.routing_key or self.routing_key
        if len(to.encode()) > 255:
            raise ValueError("a routing key has at most 255 bytes")
        return to, Outgoing(
            bytes(made.body), headers=dict(made.headers), message_id=made.id,
            content_type=made.content_type, delivery_mode=DeliveryMode.PERSISTENT,
        )  # fmt: skip

    async def write(self, batch: list[Any], first: int, last: int) -> None:
        made = self.refusals.made(self.message, batch, first)
        for number, _, (_, message) in made:
            message.message_id = message.message_id or f"{self.id}-{number}"
        await self.publish(made)

    async def publish(self, made: list[tuple[int, Any, Any]]) -> None:
        from aiormq.exceptions import AMQPError, ChannelPreconditionFailed, PublishError

        outages = (AMQPError, OSError, RuntimeError, asyncio.TimeoutError)
        sent = [self.exchange.publish(message, to, timeout=TIMEOUT) for _, _, (to, message) in made]
        answers = await asyncio.gather(*sent, return_exceptions=True)
        if any(isinstance(answer, ChannelPreconditionFailed) for answer in answers):
            return await self.publish_parts(made, answers)
        for (number, item, (to, _)), answer in zip(made, answers, strict=True):
            if isinstance(answer, PublishError):
                self.refusals.refuse(number, item, f"no queue has a binding for {to}")
            elif isinstance(answer, outages):
                await self.link.answer(_raised(answer), f'exchange "{self.name}": ')
            elif isinstance(answer, BaseException):
                self.refusals.refuse(number, item, f"{type(answer).__name__}: {answer}")

    async def publish_parts(self, made: list[tuple[int, Any, Any]], answers: list[Any]) -> None:
        """Publishes halves of a batch of which some message closes the channel."""
        await self.open()
        if len(made) == 1:
            return self.refusals.refuse(*made[0][:2], answers[0])
        middle = len(made) // 2
        await self.publish(made[:middle])
        await self.publish(made[middle:])

    async def close(self) -> None:
        if self.connection is not None:
            await self.connection.close()


async def _raised(error: BaseException) -> None:
    raise error
