"""What tests of message brokers share: each as a door of a flow, with a client of its own that judges.

A broker is asked by the library's client and never by Millstream: what it has published, which messages it
keeps, and how many are not acknowledged.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import paho.mqtt.client as paho
from event_loop import EventLoop
from servers import PASSWORD, USER

PATIENCE = 60.0
"""Seconds after which something that does not happen has failed."""

LOGIN = f"ms.Login(user={USER!r}, password={PASSWORD!r})"
WRONG = f"ms.Login(user={USER!r}, password='no sesame')"


class Broker:
    """A broker at a port, and a topic, queue or stream of a name of its own.

    Args:
        port: its port on 127.0.0.1.
        name: the name.
    """

    scheme = ""

    def __init__(self, port: int, name: str) -> None:
        self.port = port
        self.name = name
        self.open()
        self.create()

    def url(self, port: int | None = None) -> str:
        return f"{self.scheme}://127.0.0.1:{port or self.port}"

    def open(self) -> None:
        """Connects the client; also after the broker was restarted."""
        raise NotImplementedError

    def create(self) -> None:
        """Makes the stream or queue of the name."""

    def remove(self) -> None:
        """Removes it."""

    def read(self, port: int, login: str, more: str = "") -> str:
        """The expression of a source, whose items are the numbers as bytes."""
        raise NotImplementedError

    def write(self, port: int, login: str, more: str = "") -> str:
        """The expression of a sink of numbers."""
        raise NotImplementedError

    body = "message.data"
    """The body of a message, in a flow."""

    def publish(self, bodies: list[bytes]) -> None:
        """Publishes them; returns when the broker has them."""
        raise NotImplementedError

    def published(self) -> list[bytes]:
        """All bodies that the broker has, or had for this client."""
        raise NotImplementedError

    is_counted = False
    """Whether the broker tells how many messages of a consumer are not acknowledged."""

    def unacknowledged(self) -> int:
        """How many messages the flow has not acknowledged."""
        raise NotImplementedError

    def close(self) -> None:
        pass


class Nats(Broker):
    scheme = "nats"
    is_counted = True

    def open(self) -> None:
        import nats

        self.loop = EventLoop().__enter__()
        self.client: Any = self.loop.result(nats.connect(self.url()))
        self.streams = self.client.jetstream()

    def create(self) -> None:
        self.loop.result(self.streams.add_stream(name=self.name, subjects=[self.name]))

    def remove(self) -> None:
        self.loop.result(self.streams.delete_stream(self.name))

    def read(self, port: int, login: str, more: str = "") -> str:
        return f"ms.nats.read({self.url(port)!r}, {self.name!r}, 'flow', ack_wait=2, login={login}{more})"

    def write(self, port: int, login: str, more: str = "") -> str:
        return f"ms.nats.write({self.url(port)!r}, {self.name!r}, encode=str, login={login}{more})"

    def publish(self, bodies: list[bytes]) -> None:
        for body in bodies:
            self.loop.result(self.streams.publish(self.name, body))

    def published(self) -> list[bytes]:
        info = self.loop.result(self.streams.stream_info(self.name))
        found = [
            self.loop.result(self.streams.get_msg(self.name, seq))
            for seq in range(1, info.state.last_seq + 1)
        ]
        return [message.data for message in found]

    def unacknowledged(self) -> int:
        info = self.loop.result(self.streams.consumer_info(self.name, "flow"))
        return int(info.num_ack_pending + info.num_pending)

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self.loop.result(self.client.close())
        self.loop.__exit__()


class Redis(Broker):
    scheme = "redis"
    is_counted = True
    body = "message.fields['n']"

    def open(self) -> None:
        import redis

        self.client = redis.Redis(port=self.port)

    def read(self, port: int, login: str, more: str = "") -> str:
        return f"ms.redis.read({self.url(port)!r}, {self.name!r}, 'flow', login={login}{more})"

    def write(self, port: int, login: str, more: str = "") -> str:
        encode = "lambda n: {'n': n}"
        return f"ms.redis.write({self.url(port)!r}, {self.name!r}, encode={encode}, login={login}{more})"

    def publish(self, bodies: list[bytes]) -> None:
        for body in bodies:
            self.client.xadd(self.name, {"n": body})

    def published(self) -> list[bytes]:
        found: Any = self.client.xrange(self.name)
        return [fields[b"n"] for _, fields in found]

    def unacknowledged(self) -> int:
        pending: Any = self.client.xpending(self.name, "flow")
        [group] = self.client.xinfo_groups(self.name)  # type: ignore[misc]
        # After a start the server may not know the lag.
        behind: Any = self.client.xrange(self.name, min=f"({group['last-delivered-id'].decode()}")
        return int(pending["pending"]) + len(behind)

    def close(self) -> None:
        self.client.close()


class RabbitMq(Broker):
    scheme = "amqp"
    body = "message.body"

    def url(self, port: int | None = None) -> str:
        return super().url(port) + "/"

    def open(self) -> None:
        import aio_pika

        self.loop = EventLoop().__enter__()
        self.client: Any = self.loop.result(aio_pika.connect(self.url()))
        self.channel: Any = self.loop.result(self.new_channel())

    async def new_channel(self) -> Any:
        return await self.client.channel()

    def create(self) -> None:
        self.loop.result(self.channel.declare_queue(self.name, durable=True))

    def remove(self) -> None:
        self.loop.result(self.channel.queue_delete(self.name))

    def read(self, port: int, login: str, more: str = "") -> str:
        login = login.replace(f"user={USER!r}, password={PASSWORD!r}", "user='guest', password='guest'")
        return f"ms.rabbitmq.read({self.url(port)!r}, {self.name!r}, unique_ids=True, login={login}{more})"

    def write(self, port: int, login: str, more: str = "") -> str:
        login = login.replace(f"user={USER!r}, password={PASSWORD!r}", "user='guest', password='guest'")
        return f"ms.rabbitmq.write({self.url(port)!r}, {self.name!r}, encode=str, login={login}{more})"

    def publish(self, bodies: list[bytes]) -> None:
        import aio_pika

        for body in bodies:
            message = aio_pika.Message(body, message_id=str(uuid4()), delivery_mode=2)
            self.loop.result(self.channel.default_exchange.publish(message, self.name))

    def published(self) -> list[bytes]:
        """Reads the queue to its end, and leaves the messages there."""
        return self.loop.result(self.peek())

    async def peek(self) -> list[bytes]:
        channel = await self.client.channel()
        queue = await channel.get_queue(self.name)
        found = []
        while (message := await queue.get(fail=False)) is not None:
            found.append(message.body)
        await channel.close()
        return found

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self.loop.result(self.client.close())
        self.loop.__exit__()


class Mqtt(Broker):
    scheme = "mqtt"
    body = "message.payload"

    def open(self) -> None:
        self.found: list[bytes] = getattr(self, "found", [])
        self.judge: paho.Client | None = None
        self.client = self.connected()

    def create(self) -> None:
        # A broker keeps messages for a session from its first connection on.
        for session in (f"{self.name} flow", f"{self.name} judge"):
            self.subscribed(session).disconnect()

    def connected(self, session: str = "") -> paho.Client:
        client = paho.Client(paho.CallbackAPIVersion.VERSION2, session, protocol=paho.MQTTv5)
        properties = paho.Properties(paho.PacketTypes.CONNECT)
        properties.SessionExpiryInterval = 0xFFFFFFFF if session else 0
        client.connect("127.0.0.1", self.port, clean_start=not session, properties=properties)
        client.on_message = lambda _, __, message: self.found.append(message.payload)
        client.loop_start()
        return client

    def subscribed(self, session: str) -> paho.Client:
        there = threading.Event()
        client = self.connected(session)
        client.on_subscribe = lambda *_: there.set()
        client.subscribe(self.name, qos=1)
        assert there.wait(PATIENCE)
        return client

    def read(self, port: int, login: str, more: str = "") -> str:
        return f"ms.mqtt.read({self.url(port)!r}, {self.name!r}, '{self.name} flow', login={login}{more})"

    def write(self, port: int, login: str, more: str = "") -> str:
        return f"ms.mqtt.write({self.url(port)!r}, {self.name!r}, encode=str, login={login}{more})"

    def publish(self, bodies: list[bytes]) -> None:
        for body in bodies:
            self.client.publish(self.name, body, qos=1).wait_for_publish(PATIENCE)

    def published(self) -> list[bytes]:
        if self.judge is None:
            self.judge = self.subscribed(f"{self.name} judge")
        return list(self.found)

    def close(self) -> None:
        for client in (self.client, self.judge):
            if client is not None:
                client.disconnect()
                client.loop_stop()


class ClickHouse(Broker):
    """A table, which is written."""

    scheme = "http"

    def open(self) -> None:
        pass

    def ask(self, query: str, body: bytes = b"") -> bytes:
        import httpx

        answer = httpx.post(self.url(), params={"query": query}, content=body, timeout=PATIENCE)
        assert answer.status_code == 200, answer.text
        return answer.content

    def create(self) -> None:
        columns = "n UInt64, id String"
        self.ask(f"CREATE TABLE `{self.name}` ({columns}) ENGINE = ReplacingMergeTree ORDER BY id")

    def remove(self) -> None:
        self.ask(f"DROP TABLE `{self.name}`")

    def write(self, port: int, login: str, more: str = "") -> str:
        encode = "lambda n: {'n': n}"
        options = f"encode={encode}, id_column='id', timeout=2, login={login}{more}"
        return f"ms.clickhouse.write({self.url(port)!r}, {self.name!r}, {options})"

    def published(self) -> list[bytes]:
        return self.ask(f"SELECT n FROM `{self.name}` FINAL ORDER BY n").split()


def wait(condition: Callable[[], object], report: Callable[[], str]) -> None:
    until = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < until, report()
        time.sleep(0.02)


def with_password(url: str) -> str:
    """The URL with the login in it."""
    return url.replace("://", f"://{USER}:{quote(PASSWORD, safe='')}@")
