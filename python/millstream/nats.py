"""NATS JetStream as a source and a sink of flows. It needs ``pip install 'millstream[nats]'``."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from functools import partial

from ._connectors.adapter.deliveries import REMEMBERED, Delivered, delivered_by
from ._connectors.outbox import destination, with_outbox
from ._connectors.servers import TLS, Login, Server, context_of, library, message_of, named, parts_of
from ._errors.delivery import Refusals
from ._errors.flow import FlowError, FlowUsageError
from ._values.checked import checked
from ._values.durations import seconds

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, Literal

    from typing_extensions import Unpack

    from ._connectors.adapter import SourceFunction
    from ._connectors.outbox import OutboxIdentity, OutboxOptions, OutboxSink
    from ._values.backoff import Backoff
    from ._values.durations import Seconds

__all__ = ["Message", "read", "write"]

BATCH = 500
IDLE = 5.0
TIMEOUT = 10.0
"""Messages of a request; after how many seconds an idle server says so, and a silent one is left."""


@dataclass(frozen=True)
class Message:
    """A message that was read, or one for :func:`write`.

    Args:
        data: the body.
        subject: the subject. None: that of the sink.
        headers: the headers. In values that are read, bytes that are not UTF-8 are U+FFFD.
        sequence: the number in the stream, from 1.
        time: when the stream stored it, in seconds since 1970.

    Example:
        >>> import millstream as ms
        >>> ms.nats.Message(b"3", "orders.eu").subject
        'orders.eu'
    """

    data: bytes
    subject: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    sequence: int = 0
    time: float = 0.0


@checked
def read(
    url: str,
    stream: str,
    consumer: str,
    *,
    subject: str | None = None,
    start: Literal["earliest", "latest"] = "earliest",
    pending: int = 10_000,
    ack_wait: Seconds = 30.0,
    login: Login | None = None,
    retry: Backoff | None = None,
) -> SourceFunction[..., Message]:
    """Reads a stream by a durable pull consumer, which is created if it is missing.

    In a run with a state directory each message has its effect once: it is acknowledged when its epoch is
    committed, and one that is delivered again is dropped by its number.

    Args:
        url: the address of the server: ``nats://HOST:PORT``, ``tls://``, ``ws://`` or ``wss://``; the port
            of the first two is 4222 by default.
        stream: the name of the stream. It must exist.
        consumer: the name of the consumer. Each flow has its own.
        subject: the subjects that a new consumer reads, such as ``"orders.*"``. None: all of the stream.
        start: where a new consumer begins: ``"earliest"`` or ``"latest"``.
        pending: how many messages a new consumer delivers without an acknowledgement, and so in an epoch.
        ack_wait: after how many seconds a new consumer delivers a message again that is not acknowledged, as
            those that a killed flow had.
        login: user and password, token, credentials, certificates. None: there is none.
        retry: the delays between attempts to connect. None: ``Backoff()``, 0.1 s, doubled up to 30 s, without
            end.

    Returns:
        A source of :class:`Message`, with one partition.

    Raises:
        FlowUsageError: an option has a wrong value, a certificate cannot be read, or nats-py
            is missing.

    Example:
        >>> import millstream as ms
        >>> ms.nats.read("nats://localhost:4222", "ORDERS", "billing")
        <source nats ORDERS>
    """
    named(stream=stream, consumer=consumer)
    if pending < 1:
        raise FlowUsageError(f"pending is a number of messages, from 1, not {pending!r}")
    policy = "all" if start == "earliest" else "new"
    wanted: dict[str, Any] = {"filter_subject": subject, "max_ack_pending": pending, "deliver_policy": policy}
    wanted["ack_wait"] = seconds("ack_wait", ack_wait)
    link = _Link(url, login, "ms.nats.read")
    reader = partial(_Consumer, link, stream, consumer, wanted)
    return delivered_by(f"nats {stream}", reader, retry, remembered=REMEMBERED)


@with_outbox()
def write(
    url: str,
    subject: str | Callable[[Any], str],
    *,
    encode: Callable[[Any], Message | bytes | str] | None = None,
    login: Login | None = None,
    **outbox: Unpack[OutboxOptions],
) -> OutboxSink[Any]:
    """Publishes items to the stream of a subject, which must exist.

    In a run with a state directory each item is stored once: the stream drops a message that is sent again,
    by its header ``Nats-Msg-Id``. It does so within its ``duplicate_window``, 2 minutes by default: after a
    longer outage or stop, the items of the last deliveries may be stored again.

    Args:
        url: as for :func:`read`.
        subject: the subject, or a function that returns that of an item.
        encode: makes a :class:`Message`, bytes or text of an item. None: items are that already. Of the
            headers of a message those of JetStream (``Nats-``) are not written.
        login: as for :func:`read`.

    Returns:
        The sink.

    Raises:
        FlowUsageError: an option has a wrong value, a certificate cannot be read, or nats-py
            is missing.

    Example:
        >>> import millstream as ms
        >>> ms.nats.write("nats://localhost:4222", "invoices", encode=str)
        <sink nats invoices>
        >>> ms.nats.write("nats://localhost:4222", lambda item: f"orders.{item['country']}", encode=str)
        <sink nats by item>
    """
    named(subject=subject)
    link = _Link(url, login, "ms.nats.write")
    to = "by item" if callable(subject) else subject
    return destination(f"nats {to}", _Publisher, **outbox)(link, subject, encode)


class _Link:
    """The server, and how to connect to it."""

    def __init__(self, url: str, login: Login | None, name: str) -> None:
        library("nats", "nats-py", "nats")
        self.server = Server.at(url, login, "nats", "tls", "ws", "wss")
        login = self.server.login
        given = parts_of(login, name, "user", "password", "token", "credentials", *TLS)
        parts = ("user", "password", "token")
        self.options: dict[str, Any] = {part: given[part] for part in parts if part in given}
        if login.user is not None and login.password is None:
            self.options = {"token": login.user}
        self.options |= {"user_credentials": login.credentials, "tls": context_of(login)}
        self.refused: str | None = None

    async def open(self, at_end: Callable[[], object]) -> Any:
        """Returns a client. ``at_end`` is called when its connection has ended."""
        import nats

        self.refused = None

        async def heard(error: Exception) -> None:
            if "permissions violation" in str(error).lower():
                self.refused = str(error)

        async def closed() -> None:
            at_end()

        calls = {"error_cb": heard, "closed_cb": closed, "allow_reconnect": False}
        waits = {"connect_timeout": TIMEOUT, "ping_interval": IDLE, "max_reconnect_attempts": 1}
        return await self.answer(nats.connect(self.server.url, **calls, **waits, **self.options))

    async def answer(self, call: Any) -> Any:
        """The result of a call, or an error that names the server."""
        from nats.errors import AuthorizationError
        from nats.js.errors import BadRequestError, NotFoundError

        try:
            return await call
        except Exception as error:
            is_final = isinstance(error, (AuthorizationError, BadRequestError, NotFoundError))
            is_final |= self.refused is not None or "authorization violation" in str(error).lower()
            raise self.server.error(self.refused or error, is_final) from None


class _Consumer:
    """A reader of messages, which are pulled in batches; see ``delivered_by``."""

    def __init__(self, link: _Link, stream: str, consumer: str, wanted: dict[str, Any]) -> None:
        self.link = link
        self.stream = stream
        self.consumer = consumer
        self.wanted = wanted
        self.arrived: asyncio.Queue[Any] = asyncio.Queue()
        self.client: Any = None
        self.due = 0

    async def open(self, delivered: Delivered[tuple[int, float]], again: bool) -> None:
        link = self.link
        stream = self.stream
        name = self.consumer
        self.client = await link.open(lambda: self.arrived.put_nowait(None))
        streams = self.client.jetstream(timeout=TIMEOUT)
        await link.answer(streams.stream_info(stream))
        try:
            info = await link.answer(streams.consumer_info(stream, name))
        except FlowError:
            if again:
                raise link.server.lost(f'the consumer "{name}" of the stream "{stream}"') from None
            wanted = self.wanted | {"durable_name": name, "ack_policy": "explicit"}
            info = await link.answer(streams.add_consumer(stream, **wanted))
        if info.config.ack_policy != "explicit" or info.config.deliver_subject:
            raise link.server.error(f'"{name}" is no pull consumer with explicit acknowledgements', True)
        floor = info.ack_floor.stream_seq
        delivered.keep(lambda id: id[0] > floor)
        self.pull = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{name}"
        self.inbox = self.client.new_inbox()
        self.subscription = await link.answer(self.client.subscribe(self.inbox, cb=self.arrived.put))

    async def receive(self) -> list[tuple[tuple[int, float], Message, Any]]:
        found: list[tuple[tuple[int, float], Message, Any]] = []
        while not found or (self.arrived.qsize() and len(found) < BATCH):
            if self.due <= 0:
                await self.request()
            try:
                message = await asyncio.wait_for(self.arrived.get(), TIMEOUT)
            except asyncio.TimeoutError:
                message = None
            if message is None:
                raise self.link.server.error(self.link.refused or "the connection is lost", self.link.refused)
            if message.reply:
                self.due -= 1
                about = message.metadata
                id = about.sequence.stream, about.timestamp.timestamp()
                item = Message(bytes(message.data), message.subject, dict(message.headers or {}), *id)
                found.append((id, item, message))
            else:
                self.heed(message.headers or {})
        return found

    async def request(self) -> None:
        nanos = {"expires": int(6 * IDLE * 1e9), "idle_heartbeat": int(IDLE * 1e9)}
        request = json.dumps({"batch": BATCH} | nanos).encode()
        await self.link.answer(self.client.publish(self.pull, request, self.inbox))
        self.due = BATCH

    def heed(self, headers: Mapping[str, str]) -> None:
        """A message of the server: 100 is a heartbeat, 404 and 408 the end of a request."""
        status = headers.get("Status")
        if status in ("404", "408"):
            self.due = 0
        elif status != "100":
            raise self.link.server.error(headers.get("Description") or f"status {status}")

    async def acknowledge(self, messages: list[Any]) -> None:
        for message in messages[:-1]:
            await message.ack()
        await self.link.answer(messages[-1].ack_sync(TIMEOUT))

    def is_open(self) -> bool:
        return bool(self.client.is_connected)

    def waiting(self) -> int:
        return self.arrived.qsize() + int(self.subscription.pending_msgs)

    async def close(self) -> None:
        if self.client is not None:
            await self.client.close()


class _Publisher:
    """The destination of ``write``: the messages of a batch are published, and then their answers awaited."""

    def __init__(self, link: _Link, subject: Any, encode: Any) -> None:
        self.link = link
        self.subject = subject
        self.encode = encode
        self.client: Any = None
        self.answers: dict[str, Any] = {}
        self.changed = asyncio.Event()

    async def connect(self, outbox: OutboxIdentity) -> None:
        self.client = await self.link.open(self.changed.set)
        self.streams = self.client.jetstream(timeout=TIMEOUT)
        self.refusals = Refusals(outbox, self.link.server.address)
        self.id, self.inbox = outbox.id, self.client.new_inbox()
        await self.link.answer(self.client.subscribe(f"{self.inbox}.*", cb=self.answered))
        if not callable(self.subject):
            await self.stream_of(self.subject)

    async def stream_of(self, subject: str) -> None:
        """Raises FlowError if no stream has the subject."""
        try:
            await self.link.answer(self.streams.find_stream_name_by_subject(subject))
        except FlowError as error:
            raise FlowError(f"{error}: no stream has the subject {subject}") from None

    async def answered(self, message: Any) -> None:
        self.answers[message.subject] = message
        self.changed.set()

    def message(self, item: Any) -> tuple[str, bytes, dict[str, str]]:
        made = message_of(item, self.encode, Message, "data")
        to = self.subject(item) if callable(self.subject) else made.subject or self.subject
        kept = {name: value for name, value in made.headers.items() if not name.lower().startswith("nats-")}
        return to, bytes(made.data), kept

    async def write(self, batch: list[Any], first: int, last: int) -> None:
        from nats.errors import BadHeaderError, BadSubjectError, MaxPayloadError

        self.answers = {}
        sent = []
        for number, item, (to, data, headers) in self.refusals.made(self.message, batch, first):
            reply, headers["Nats-Msg-Id"] = f"{self.inbox}.{number}", f"{self.id}-{number}"
            try:
                await self.client.publish(to, data, reply, headers)
            except (BadHeaderError, BadSubjectError, MaxPayloadError) as error:
                self.refusals.refuse(number, item, error)
            except Exception as error:
                raise self.link.server.error(error) from None
            else:
                sent.append((number, item, to, reply))
        while len(self.answers) < len(sent):
            self.changed.clear()
            try:
                await asyncio.wait_for(self.changed.wait() if self.client.is_connected else _gone(), TIMEOUT)
            except asyncio.TimeoutError:
                raise self.link.server.error(self.link.refused or "no answer", self.link.refused) from None
        for number, item, to, reply in sent:
            await self.judge(number, item, to, self.answers[reply])

    async def judge(self, number: int, item: Any, to: str, answer: Any) -> None:
        """Raises ConnectionError unless the stream has stored the item, or refuses it."""
        if (answer.headers or {}).get("Status") == "503":
            if callable(self.subject):
                try:
                    await self.stream_of(to)
                except FlowError as error:
                    return self.refusals.refuse(number, item, error)
            raise self.link.server.error(f"no stream answers for {to}")
        refusal = json.loads(answer.data).get("error")
        if refusal is not None and refusal["code"] != 400:
            raise self.link.server.error(refusal["description"])
        if refusal is not None:
            self.refusals.refuse(number, item, refusal["description"])

    async def close(self) -> None:
        if self.client is not None:
            await self.client.close()


async def _gone() -> None:
    raise asyncio.TimeoutError
