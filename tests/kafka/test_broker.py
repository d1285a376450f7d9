"""The broker of the tests itself: what it is asked for is what clients see."""

import socket
from collections.abc import Callable
from typing import Any

import pytest
from broker import PASSWORD, USER, VERSIONS, Broker
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition


def produce(settings: dict[str, Any], topic: str, values: list[bytes]) -> None:
    producer = Producer(settings)
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(30) == 0


def consume(settings: dict[str, Any], topic: str, count: int) -> list[bytes]:
    consumer = Consumer({"group.id": "judge", "enable.auto.commit": False, **settings})
    consumer.assign([TopicPartition(topic, 0, 0)])
    got: list[bytes] = []
    while len(got) < count:
        message = consumer.poll(30)
        assert message is not None and message.error() is None, message
        got.append(message.value())
    consumer.close()
    return got


@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_acknowledged_survives_a_kill(own_broker: Callable[..., Broker], version: str) -> None:
    broker = own_broker(version)
    topic = broker.create("kept")
    plain = {"bootstrap.servers": broker.servers}
    produce(plain, topic, [b"a", b"b"])
    broker.kill()
    assert not broker.is_running
    with pytest.raises(OSError):
        socket.create_connection(broker.servers.split(":"), timeout=1)
    broker.start()
    assert consume(plain, topic, 2) == [b"a", b"b"]


def test_listeners_with_tls_and_passwords(broker: Broker) -> None:
    topic = broker.create("listeners")
    trust = {"security.protocol": "ssl", "ssl.ca.location": str(broker.authority.certificate)}
    login = {**trust, "security.protocol": "sasl_ssl", "sasl.mechanism": "SCRAM-SHA-256"}
    login = {**login, "sasl.username": USER, "sasl.password": PASSWORD}
    produce({"bootstrap.servers": broker.tls, **trust}, topic, [b"by tls"])
    produce({"bootstrap.servers": broker.scram, **login}, topic, [b"by scram"])
    assert consume({"bootstrap.servers": broker.servers}, topic, 2) == [b"by tls", b"by scram"]


def test_a_wrong_password_and_an_unknown_authority_are_refused(broker: Broker) -> None:
    trust = {"ssl.ca.location": str(broker.authority.certificate)}
    wrong = {"security.protocol": "sasl_ssl", "sasl.mechanism": "SCRAM-SHA-256", "sasl.username": USER}
    assert refusal({"bootstrap.servers": broker.scram, **trust, **wrong, "sasl.password": "hatter"}) == (
        KafkaError._AUTHENTICATION
    )
    assert refusal({"bootstrap.servers": broker.tls, "security.protocol": "ssl"}) == KafkaError._SSL


def refusal(settings: dict[str, Any]) -> int:
    """The first error of a client with these settings."""
    errors: list[KafkaError] = []
    producer = Producer({**settings, "error_cb": errors.append})
    for _ in range(100):
        producer.poll(0.1)
        if errors:
            return int(errors[0].code())
    raise AssertionError("no error in 10 seconds")


def test_two_brokers_run_side_by_side(own_broker: Callable[..., Broker], broker: Broker) -> None:
    other = own_broker()
    other.create("only-here")
    assert "only-here" not in broker.admin().list_topics(timeout=10).topics
