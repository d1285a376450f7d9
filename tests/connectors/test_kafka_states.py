"""Kafka in the states of ``conformance.py``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from broker import USER, Broker
from clients import Judge, put
from conformance import (
    Connector,
    Continues,
    Ends,
    SinkConnector,
    SourceConnector,
    test_ctrl_c_ends_it,
    test_it_is_killed,
    test_it_recovers,
)
from proxy import BrokerLink

__all__ = ["test_ctrl_c_ends_it", "test_it_is_killed", "test_it_recovers"]

SHORT: dict[str, object] = {"socket.timeout.ms": 1500, "reconnect.backoff.max.ms": 200}


class KafkaTopic(Connector):
    """A topic, through the proxy; the wrong password goes to the listener that asks for one."""

    def prepare(self, servers: Callable[[str], Any]) -> None:
        self.broker: Broker = servers("broker")
        self.thing = self.broker.create(self.unique)
        self.link = BrokerLink(self.broker)
        self.judging = Judge(self.broker, self.thing)

    def close(self) -> None:
        super().close()
        self.judging.close()

    @property
    def address(self) -> str:
        return str(self.broker.scram if self.state == "login" else self.broker.proxied)

    def settings(self) -> dict[str, object]:
        if self.state != "login":
            return SHORT
        return SHORT | {
            "security.protocol": "sasl_ssl",
            "ssl.ca.location": str(self.broker.authority.certificate),
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": USER,
            "sasl.password": "wrong",
        }

    def enter(self, state: str) -> None:
        super().enter(state)
        if state == "unknown":
            self.known = self.thing
            self.thing = "absent-" + self.thing

    def leave(self) -> None:
        if self.state == "unknown":
            self.thing = self.known
        super().leave()


class KafkaRead(SourceConnector, KafkaTopic):
    title = "ms.kafka.read"
    states = {
        "absent": Continues("{address}"),
        "away": Continues("{address}"),
        "login": Ends("{address}", "uthentication"),
        "unknown": Ends("{address}", "{thing}"),
        "slow": Continues("{address}"),
        "rubbish": Continues("{address}"),
    }

    def flow(self) -> str:
        settings = self.settings()
        self.source = f"ms.kafka.read({self.address!r}, {self.thing!r}, decode=str, settings={settings!r})"
        return super().flow()

    def feed(self, numbers: range) -> None:
        put(self.broker, self.judging.topic, numbers)


class KafkaWrite(SinkConnector, KafkaTopic):
    title = "ms.kafka.write"
    steps = ".map(str)"
    states = {
        "absent": Continues("{address}", "{thing}"),
        "away": Continues("{address}", "{thing}"),
        "login": Ends("{address}", "uthentication"),
        "unknown": Ends("{address}", "{thing}"),
        "slow": Continues("{address}", "{thing}"),
        "rubbish": Continues("{address}", "{thing}"),
    }

    def flow(self) -> str:
        self.sink = f"ms.kafka.write({self.address!r}, {self.thing!r}, settings={self.settings()!r})"
        return super().flow()

    def delivered(self) -> list[int]:
        return [int(value) for value in self.judging.values()]


CONNECTORS: list[type[Connector]] = [KafkaRead, KafkaWrite]
