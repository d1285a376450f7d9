"""Topics as sinks of flows, against a real broker; an independent consumer is the judge."""

import shutil
from itertools import count
from pathlib import Path
from typing import Any

import millstream as ms
import pytest
from broker import Broker
from clients import Judge, until
from confluent_kafka import Consumer, Producer, TopicPartition


def send(items: list[Any], sink: Any, state: Path | None = None, workers: int = 1) -> None:
    flow = ms.Flow("send")
    flow.source("in", ms.testing.items(items)).sink("out", sink)
    ms.run(flow, state=state, workers=workers, epoch=0.1)


@pytest.mark.parametrize("way", ["exactly once", "at least once", "no state"])
def test_messages_are_written_with_all_their_parts(broker: Broker, tmp_path: Path, way: str) -> None:
    topic = broker.create(f"written-{way.replace(' ', '-')}", partitions=2)
    other = broker.create(f"{topic}-other", partitions=2)
    state = None if way == "no state" else tmp_path / "state"
    sink = ms.kafka.write(broker.servers, topic, exactly_once=way != "at least once")
    headers = [("a", b"1"), ("a", None)]
    chosen = ms.kafka.Message("chosen", key=b"k", partition=1, time=1_700_000_000.5, headers=headers)
    items = [
        chosen,
        ms.kafka.Message(None, key="gone", partition=0),
        ms.kafka.Message("x", topic=other, partition=1),
    ]
    send([*items, b"bytes", "text", None, b""], sink, state)
    judge = Judge(broker, topic)
    # A broker answers a commit before its markers are in the partitions.
    judge.wait_for(6)
    messages = judge.read()
    (first,) = [message for message in messages if message.value() == b"chosen"]
    assert (first.key(), first.partition(), first.timestamp()[1]) == (b"k", 1, 1_700_000_000_500)
    assert first.headers() == headers
    values = sorted((message.value() or b"", message.key() or b"") for message in messages)
    assert values == [
        (b"", b""),
        (b"", b""),
        (b"", b"gone"),
        (b"bytes", b""),
        (b"chosen", b"k"),
        (b"text", b""),
    ]
    judge = Judge(broker, other)
    judge.wait_for(1)
    (there,) = judge.read()
    assert (there.value(), there.partition()) == (b"x", 1)


def test_the_key_decides_on_the_partition_as_with_java(broker: Broker) -> None:
    topic = broker.create("murmur", partitions=16)
    keys = [f"key-{number}" for number in range(200)]
    send(keys, ms.kafka.write(broker.servers, topic, key=str))
    found = {message.key(): message.partition() for message in Judge(broker, topic).read()}
    assert found == {key.encode(): java_partition(key.encode(), 16) for key in keys}


def java_partition(key: bytes, partitions: int) -> int:
    """Kafka's default partitioner: murmur2 of the key, the sign bit cleared."""
    mask = 0xFFFFFFFF
    mixer = 0x5BD1E995
    value = (0x9747B28C ^ len(key)) & mask
    whole = len(key) // 4 * 4
    for start in range(0, whole, 4):
        k = int.from_bytes(key[start : start + 4], "little") * mixer & mask
        k = (k ^ k >> 24) * mixer & mask
        value = (value * mixer & mask) ^ k
    if rest := key[whole:]:
        value = (value ^ int.from_bytes(rest, "little")) * mixer & mask
    value = (value ^ value >> 13) * mixer & mask
    return ((value ^ value >> 15) & 0x7FFFFFFF) % partitions


def test_a_message_that_was_read_is_written_to_the_topic_of_the_sink(broker: Broker, tmp_path: Path) -> None:
    source = broker.create("copied.from", partitions=3)
    target = broker.create("copied.to")
    send(["a", "b"], ms.kafka.write(broker.servers, source, key=str))
    flow = ms.Flow("copy")
    messages = flow.source("in", ms.kafka.read(broker.servers, source, end="latest"))
    messages.sink("out", ms.kafka.write(broker.servers, target))
    ms.run(flow, state=tmp_path / "state")
    copies = Judge(broker, target).read()
    assert sorted((copy.key(), copy.value()) for copy in copies) == [(b"a", b"a"), (b"b", b"b")]
    assert len(Judge(broker, source).read()) == 2


def test_the_progress_is_stored_with_the_messages(broker: Broker, tmp_path: Path) -> None:
    topic = broker.create("progress")
    state = tmp_path / "state"
    send(list("abc"), ms.kafka.write(broker.servers, topic), state)
    assert stored(broker, group_of(broker, topic), topic) == 3


def group_of(broker: Broker, topic: str) -> str:
    """The group under which the progress of the sink to this topic is stored: also the transactional id."""
    found = broker.admin_groups()
    (group,) = [name for name in found if stored(broker, name, topic) >= 0]
    return group


def stored(broker: Broker, group: str, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": broker.servers, "group.id": group})
    (found,) = consumer.committed([TopicPartition(topic, 0)], timeout=30)
    consumer.close()
    return int(found.offset)


@pytest.mark.parametrize("exactly_once", [True, False])
def test_a_message_that_is_too_large_fails_the_flow_when_it_is_made(
    broker: Broker, tmp_path: Path, exactly_once: bool
) -> None:
    topic = broker.create(f"large-{exactly_once}".lower())
    sink = ms.kafka.write(broker.servers, topic, exactly_once=exactly_once)
    with pytest.raises(ms.FlowError, match=r"a record of 10000\d\d bytes is too large for kafka"):
        send([b"x" * 1_000_001], sink, tmp_path / "state")


def test_what_the_broker_refuses_fails_the_flow(broker: Broker, tmp_path: Path) -> None:
    topic = broker.create("small", max_message_bytes="1000")
    sink = ms.kafka.write(broker.servers, topic, key=lambda item: "k")
    with pytest.raises(ms.FlowError, match=r'"small": a message of 5001 bytes with key "k" is refused'):
        send([b"x" * 5000], sink, tmp_path / "state")
    assert Judge(broker, topic).values() == []
    with pytest.raises(ms.FlowError, match='there is no topic "absent"'):
        send([b"x"], ms.kafka.write(broker.servers, "absent"), tmp_path / "other")


def counting(broker: Broker, topic: str, **options: Any) -> ms.Flow:
    flow = ms.Flow("count")
    numbers = flow.source("in", ms.generate(count, rate=500, batch_size=10))
    numbers.map(str).sink("out", ms.kafka.write(broker.servers, topic, **options))
    return flow


def test_a_copy_of_the_state_is_shut_out(broker: Broker, tmp_path: Path) -> None:
    """The younger of two takes over; the older one fails, and nothing is there twice."""
    topic = broker.create("zombie")
    state = tmp_path / "state"
    copy = tmp_path / "copy"
    first = counting(broker, topic)
    running = first.start(state=state, epoch=0.05)
    judge = Judge(broker, topic)
    until(lambda: len(judge.values()) > 20)
    running.stop()
    running.wait()
    shutil.copytree(state, copy)
    older = counting(broker, topic).start(state=state, epoch=0.05)
    before = len(judge.values())
    until(lambda: len(judge.values()) > before)
    younger = counting(broker, topic).start(state=copy, epoch=0.05)
    failures = []
    for each in (older, younger):
        try:
            each.wait(timeout=30)
        except TimeoutError:
            each.stop()
        except ms.FlowError as error:
            failures.append(str(error))
    assert failures
    for failure in failures:
        assert "another" in failure and "state directory" in failure, failure
    values = judge.values()
    assert values == [str(number).encode() for number in range(len(values))]


def test_expired_progress_falls_back_to_the_outbox(broker: Broker, tmp_path: Path) -> None:
    topic = broker.create("expiry")
    state = tmp_path / "state"
    judge = Judge(broker, topic)
    running = counting(broker, topic).start(state=state, epoch=0.05)
    until(lambda: len(judge.values()) > 20)
    running.stop()
    group = group_of(broker, topic)
    admin = broker.admin()
    until(lambda: deleted(admin, group))
    before = len(judge.values())
    running = counting(broker, topic).start(state=state, epoch=0.05)
    until(lambda: len(judge.values()) > before + 20)
    running.stop()
    values = judge.values()
    assert values == [str(number).encode() for number in range(len(values))]


def deleted(admin: Any, group: str) -> bool:
    from confluent_kafka import KafkaException

    try:
        admin.delete_consumer_groups([group])[group].result(30)
        return True
    except KafkaException:
        return False


def test_an_open_transaction_of_a_killed_producer_is_ended(broker: Broker, tmp_path: Path) -> None:
    """A producer that died inside a transaction does not hold up readers: the next start ends it."""
    topic = broker.create("hanging")
    state = tmp_path / "state"
    judge = Judge(broker, topic)
    running = counting(broker, topic).start(state=state, epoch=0.05)
    until(lambda: len(judge.values()) > 20)
    running.stop()
    dead = Producer({"bootstrap.servers": broker.servers, "transactional.id": group_of(broker, topic)})
    dead.init_transactions(30)
    dead.begin_transaction()
    dead.produce(topic, b"never committed")
    dead.flush()
    before = len(judge.values())
    running = counting(broker, topic).start(state=state, epoch=0.05)
    until(lambda: len(judge.values()) > before + 20)
    running.stop()
    values = judge.values()
    assert values == [str(number).encode() for number in range(len(values))]


def test_at_least_once_waits_for_all_acknowledgements(broker: Broker, tmp_path: Path) -> None:
    topic = broker.create("plain", partitions=3)
    sink = ms.kafka.write(broker.servers, topic, exactly_once=False)
    send([str(number) for number in range(10_000)], sink, tmp_path / "state", workers=2)
    assert sorted(map(int, Judge(broker, topic).values())) == list(range(10_000))


def test_bad_sinks(broker: Broker, tmp_path: Path) -> None:
    with pytest.raises(ms.FlowError, match="the value of a message is bytes, str or None, not 1"):
        send([1], ms.kafka.write(broker.servers, "a"), tmp_path / "a")
    with pytest.raises(ms.FlowError, match='setting "no.such": No such configuration'):
        send(["a"], ms.kafka.write(broker.servers, "a", settings={"no.such": 1}), tmp_path / "b")
    with pytest.raises(ms.FlowError, match='"acks": the connector needs the value all'):
        send(["a"], ms.kafka.write(broker.servers, "a", settings={"acks": 1}), tmp_path / "c")


def test_messages_are_values() -> None:
    import pickle

    message = ms.kafka.Message("v", key="k", topic="t", partition=2, time=1.5, headers=[("h", "x")])
    assert pickle.loads(pickle.dumps(message)) == message
    assert hash(message) == hash(pickle.loads(pickle.dumps(message)))
    assert message != ms.kafka.Message("v", key="k")
    assert repr(message) == "Message(b'v', key=b'k', topic=\"t\", partition=2)"
    assert (message.topic, message.partition, message.time, message.offset) == ("t", 2, 1.5, None)
    with pytest.raises(TypeError, match="the value is bytes, str or None, not 1"):
        ms.kafka.Message(1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="from 0"):
        ms.kafka.Message("v", partition=-1)
