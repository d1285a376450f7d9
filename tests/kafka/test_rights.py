"""Clusters that ask for rights: the error of a flow names the one that is missing."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import millstream as ms
import pytest
from broker import AUTHORIZER, PASSWORD, USER, Broker
from clients import Judge, put
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

Right = tuple[ResourceType, str, AclOperation]
TOPIC = ResourceType.TOPIC
GROUP = ResourceType.GROUP
ID = ResourceType.TRANSACTIONAL_ID
READ = AclOperation.READ
WRITE = AclOperation.WRITE
DESCRIBE = AclOperation.DESCRIBE
# What the guide lists for each mode; the identity of the outbox follows the prefix of group and id.
PREFIX = "millstream.rights.out."
SOURCE: list[Right] = [(TOPIC, "rights", READ)]
SINK: list[Right] = [(ID, PREFIX, WRITE), (GROUP, PREFIX, READ)]
SINK += [(TOPIC, "rights", WRITE), (TOPIC, "rights", READ)]


class Rights:
    """A broker with an authorizer, and the rights of its user."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.topic = broker.create("rights")
        self.settings: dict[str, str | int] = {
            "security.protocol": "sasl_ssl",
            "ssl.ca.location": str(broker.authority.certificate),
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": USER,
            "sasl.password": PASSWORD,
            "socket.timeout.ms": 5000,
        }

    def set(self, rights: list[Right]) -> None:
        """Gives the user these rights and no others."""
        admin = self.broker.admin()
        everything = AclBindingFilter(
            ResourceType.ANY,
            None,
            ResourcePatternType.ANY,
            None,
            None,
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        for future in admin.delete_acls([everything]).values():
            future.result(timeout=30)
        kinds = {TOPIC: ResourcePatternType.LITERAL}
        bindings = [
            AclBinding(
                kind,
                name,
                kinds.get(kind, ResourcePatternType.PREFIXED),
                f"User:{USER}",
                "*",
                operation,
                AclPermissionType.ALLOW,
            )
            for kind, name, operation in rights
        ]
        if bindings:
            for future in admin.create_acls(bindings).values():
                future.result(timeout=30)

    def read(self, **options: Any) -> None:
        flow = ms.Flow("rights")
        options = {"end": "latest", "settings": self.settings, **options}
        source = ms.kafka.read(self.broker.scram, self.topic, decode=str, **options)
        flow.source("in", source).sink("out", ms.testing.discard())
        ms.run(flow)

    def write(self, state: Path, **options: Any) -> None:
        flow = ms.Flow("rights")
        sink = ms.kafka.write(self.broker.scram, self.topic, settings=self.settings, **options)
        flow.source("in", ms.testing.items(["1"])).sink("out", sink)
        ms.run(flow, state=state)


@pytest.fixture
def rights(own_broker: Callable[..., Broker]) -> Iterator[Rights]:
    yield Rights(own_broker(**AUTHORIZER))


def fails(call: Callable[[], None], *parts: str) -> None:
    with pytest.raises((ms.FlowError, OSError)) as failed:
        call()
    for part in ("the user lacks a right", *parts):
        assert part in str(failed.value), failed.value


def test_reading(rights: Rights) -> None:
    put(rights.broker, rights.topic, ["a"])
    on_topic = f'READ and DESCRIBE on the topic "{rights.topic}"'
    rights.set([])
    fails(rights.read, on_topic)
    rights.set([(TOPIC, "rights", DESCRIBE)])
    fails(rights.read, on_topic)
    rights.set(SOURCE)
    rights.read()
    fails(lambda: rights.read(group="tools", start="group"), 'READ on the group "tools"')
    rights.set([*SOURCE, (GROUP, "tools", READ)])
    rights.read(group="tools", start="group")


def test_writing_in_transactions(rights: Rights, tmp_path: Path) -> None:
    missing = {
        TOPIC: f'WRITE and DESCRIBE on the topic "{rights.topic}"',
        ID: f'WRITE and DESCRIBE on the transactional id "{PREFIX}',
        GROUP: f'READ on the group "{PREFIX}',
    }
    for number, (kind, said) in enumerate(missing.items()):
        rights.set([right for right in SINK if right[0] != kind])
        fails(lambda number=number: rights.write(tmp_path / f"state-{number}"), said)  # type: ignore[misc]
    rights.set([right for right in SINK if right != (TOPIC, "rights", WRITE)])
    fails(lambda: rights.write(tmp_path / "state-read"), missing[TOPIC])
    rights.set([right for right in SINK if right != (TOPIC, "rights", READ)])
    fails(lambda: rights.write(tmp_path / "state-write"), f'READ and DESCRIBE on the topic "{rights.topic}"')
    rights.set(SINK)
    # The messages stay in the outbox, and are delivered once the right is there.
    for number in range(3):
        rights.write(tmp_path / f"state-{number}")
    assert Judge(rights.broker, rights.topic).wait_for(3) == [b"1"] * 3


def test_writing_at_least_once(rights: Rights, tmp_path: Path) -> None:
    rights.set([])
    fails(lambda: rights.write(tmp_path / "state", exactly_once=False), "WRITE")
    rights.set([(TOPIC, "rights", DESCRIBE)])
    fails(lambda: rights.write(tmp_path / "state", exactly_once=False), "WRITE")
    rights.set([(TOPIC, "rights", WRITE)])
    rights.write(tmp_path / "state", exactly_once=False)
    assert set(Judge(rights.broker, rights.topic).values()) == {b"1"}
