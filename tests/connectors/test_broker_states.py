"""The connectors of message brokers in the states of ``conformance.py``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from brokers import LOGIN, WRONG, Broker, ClickHouse, Mqtt, Nats, RabbitMq, Redis
from conformance import (
    Connector,
    Continues,
    Ends,
    Missing,
    SinkConnector,
    SourceConnector,
    test_ctrl_c_ends_it,
    test_it_is_killed,
    test_it_recovers,
)
from tcp_link import Link

__all__ = ["test_ctrl_c_ends_it", "test_it_is_killed", "test_it_recovers"]

SOON = ", retry=ms.Backoff(first=0.05, most=0.2)"
NAMED = "{address}"


class OfBroker(Connector):
    """A connector of a broker, which is there for all tests; its queue or stream is the test's own."""

    broker: ClassVar[type[Broker]]
    fixture: ClassVar[str]

    def prepare(self, servers: Callable[[str], Any]) -> None:
        self.at = self.broker(servers(self.fixture), self.unique.replace("_", ""))
        self.thing = self.at.name
        self.link = Link(self.at.port)
        self.unpublished = range(0)

    def enter(self, state: str) -> None:
        super().enter(state)
        if state == "unknown":
            self.at.remove()

    def leave(self) -> None:
        if self.state == "unknown":
            self.at.create()
        super().leave()

    @property
    def login(self) -> str:
        return WRONG if self.state == "login" else LOGIN

    def close(self) -> None:
        super().close()
        self.at.close()


class Reader(OfBroker, SourceConnector):
    def flow(self) -> str:
        assert self.link is not None
        self.source = self.at.read(self.link.port, self.login, SOON)
        body = f"lambda message: int({self.at.body})"
        return super().flow().replace('.sink("out"', f'.map({body}).sink("out"')

    def feed(self, numbers: range) -> None:
        if self.state == "unknown":
            self.unpublished = numbers
        else:
            self.at.publish([b"%d" % number for number in numbers])

    def leave(self) -> None:
        super().leave()
        numbers = self.unpublished
        self.unpublished = range(0)
        self.feed(numbers)


class Writer(OfBroker, SinkConnector):
    def flow(self) -> str:
        assert self.link is not None
        self.sink = self.at.write(self.link.port, self.login, SOON)
        return super().flow()

    def delivered(self) -> list[int]:
        return [] if self.state == "unknown" else [int(body) for body in self.at.published()]


class NatsRead(Reader):
    title = "ms.nats.read"
    broker = Nats
    fixture = "nats_port"
    states = {
        "absent": Continues(NAMED),
        "away": Continues(NAMED),
        "login": Ends(NAMED, "uthorization"),
        "unknown": Ends(NAMED, "stream not found"),
        "slow": Continues(),
        "rubbish": Continues(NAMED),
    }


class NatsWrite(Writer):
    title = "ms.nats.write"
    broker = Nats
    fixture = "nats_port"
    states = {
        "absent": Continues(NAMED),
        "away": Continues(NAMED),
        "login": Ends(NAMED, "uthorization"),
        "unknown": Ends(NAMED, "no stream has the subject {thing}"),
        "slow": Continues(NAMED),
        "rubbish": Continues(NAMED),
    }


class RedisRead(Reader):
    title = "ms.redis.read"
    broker = Redis
    fixture = "redis_port"
    states = {
        "absent": Continues(NAMED),
        "away": Continues(NAMED),
        "login": Ends(NAMED, "invalid username-password"),
        "unknown": Missing("the source creates the stream"),
        "slow": Continues(),
        "rubbish": Continues(NAMED),
    }


class RedisWrite(Writer):
    title = "ms.redis.write"
    broker = Redis
    fixture = "redis_port"
    states = {
        "absent": Continues(NAMED),
        "away": Continues(NAMED),
        "login": Ends(NAMED, "invalid username-password"),
        "unknown": Ends(NAMED, "{thing}", "WRONGTYPE"),
        "slow": Continues(NAMED),
        "rubbish": Continues(NAMED),
    }

    def enter(self, state: str) -> None:
        super().enter(state)
        if state == "unknown":
            self.at.client.set(self.thing, "no stream")  # type: ignore[attr-defined]

    def leave(self) -> None:
        if self.state == "unknown":
            self.at.client.delete(self.thing)  # type: ignore[attr-defined]
        super().leave()


class RabbitMqRead(Reader):
    title = "ms.rabbitmq.read"
    broker = RabbitMq
    fixture = "rabbitmq_port"
    states = {
        "absent": Continues(NAMED),
        "away": Continues(NAMED),
        "login": Ends(NAMED, "ACCESS_REFUSED"),
        "unknown": Ends(NAMED, "NOT_FOUND", "{thing}"),
        "slow": Continues(),
        "rubbish": Continues(NAMED),
    }


class RabbitMqWrite(Writer):
    title = "ms.rabbitmq.write"
    broker = RabbitMq
    fixture = "rabbitmq_port"
    is_once = False
    states = {
        "absent": Continues(NAMED),
        "away": Continues(NAMED),
        "login": Ends(NAMED, "ACCESS_REFUSED"),
        "unknown": Ends(NAMED, "NOT_FOUND", "{thing}"),
        "slow": Continues(NAMED),
        "rubbish": Continues(NAMED),
    }


class MqttRead(Reader):
    title = "ms.mqtt.read"
    broker = Mqtt
    fixture = "mosquitto_port"
    is_once = False
    states = {
        "absent": Continues(NAMED),
        "away": Continues(NAMED),
        "login": Ends(NAMED, "Not authorized"),
        "unknown": Missing("a topic is there when a client names it"),
        "slow": Continues(),
        "rubbish": Continues(NAMED),
    }


class MqttWrite(Writer):
    title = "ms.mqtt.write"
    broker = Mqtt
    fixture = "mosquitto_port"
    is_once = False
    states = {
        "absent": Continues(NAMED),
        "away": Continues(NAMED),
        "login": Ends(NAMED, "Not authorized"),
        "unknown": Missing("a topic is there when a client names it"),
        "slow": Continues(NAMED),
        "rubbish": Continues(NAMED),
    }


class ClickHouseWrite(Writer):
    """With its table and ``FINAL`` each row is there once."""

    title = "ms.clickhouse.write"
    broker = ClickHouse
    fixture = "clickhouse_port"
    states = {
        "absent": Continues(NAMED),
        "away": Continues(NAMED),
        "login": Ends(NAMED, "Wrong password"),
        "unknown": Ends(NAMED, "{thing}", "doesn't exist"),
        "slow": Continues(NAMED),
        "rubbish": Continues(NAMED),
    }


CONNECTORS: list[type[Connector]] = [
    NatsRead,
    NatsWrite,
    RedisRead,
    RedisWrite,
    RabbitMqRead,
    RabbitMqWrite,
    MqttRead,
    MqttWrite,
    ClickHouseWrite,
]
