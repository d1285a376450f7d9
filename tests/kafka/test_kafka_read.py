"""Topics as sources of flows, against a real broker."""

import time
from collections import Counter
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import millstream as ms
import pytest
from broker import PASSWORD, USER, Broker
from clients import put, transaction, until
from confluent_kafka import Consumer, TopicPartition

# A source that cannot be opened is an error of the system for Python.
FAILURE = (ms.FlowError, OSError)


class Into(ms.Sink[Any]):
    """Appends to a list and knows nothing of commits, so that each run begins with an empty one."""

    def __init__(self) -> None:
        self.items: list[Any] = []

    def open(self, worker: int) -> Any:
        return self

    def write_batch(self, items: list[Any]) -> None:
        self.items += items

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass


def collect(source: Any, state: Path | None = None, workers: int = 1) -> list[Any]:
    """What a bounded source reads."""
    flow = ms.Flow("collect")
    out = Into()
    flow.source("in", source).sink("out", out)
    ms.run(flow, state=state, workers=workers)
    return out.items


def read(broker: Broker, *topics: str, **options: Any) -> Any:
    options = {"end": "latest", **options}
    return ms.kafka.read(broker.servers, topics, **options)


def delete_before(broker: Broker, topic: str, offset: int) -> None:
    """Removes the messages below this offset, as expiry does."""
    admin = broker.admin()
    (removed,) = admin.delete_records([TopicPartition(topic, 0, offset)]).values()
    assert removed.result(30).low_watermark == offset


def test_messages_have_all_their_parts(broker: Broker) -> None:
    topic = broker.create("parts")
    headers = [("a", b"1"), ("a", None), ("b", b"")]
    put(broker, topic, [b"value"], key=b"key", timestamp=1_700_000_000_123, headers=headers)
    put(broker, topic, [None], key=b"gone")
    put(broker, topic, [b""])
    first, tombstone, empty = collect(read(broker, topic))
    assert isinstance(first, ms.kafka.Message)
    assert (first.key, first.value, first.topic) == (b"key", b"value", topic)
    assert (first.partition, first.offset, first.time) == (0, 0, 1_700_000_000.123)
    assert first.headers == headers
    assert (tombstone.key, tombstone.value, tombstone.headers) == (b"gone", None, [])
    assert (empty.key, empty.value, empty.offset) == (None, b"", 2)


def test_values_and_decoders(broker: Broker) -> None:
    topic = broker.create("values")
    put(broker, topic, [b"1", None, b"23"])
    assert collect(read(broker, topic, values=True)) == [b"1", None, b"23"]
    assert collect(read(broker, topic, decode=int)) == [1, None, 23]
    assert collect(read(broker, topic, decode=str)) == ["1", None, "23"]


def test_a_value_that_cannot_be_decoded_is_a_poison_message(broker: Broker) -> None:
    topic = broker.create("poison")
    put(broker, topic, [b"1", b"one", b"2"])
    with pytest.raises(ms.StepError, match="invalid literal"):
        collect(read(broker, topic, decode=int))
    flow = ms.Flow("skip")
    out = ms.testing.collect()
    flow.source("in", read(broker, topic, decode=int), on_error="skip").sink("out", out)
    ms.run(flow)
    assert list(out) == [1, 2]


def test_starts(broker: Broker) -> None:
    topic = broker.create("starts")
    for value in range(5):
        put(broker, topic, [value], timestamp=1_000_000 + value * 1000)
    assert collect(read(broker, topic, values=True, start=1002.0)) == [b"2", b"3", b"4"]
    at = datetime.fromtimestamp(1003.5, timezone.utc)
    assert collect(read(broker, topic, values=True, start=at)) == [b"4"]
    assert collect(read(broker, topic, values=True, end=1002.0)) == [b"0", b"1"]
    assert collect(read(broker, topic, values=True, start={topic: {0: 3}})) == [b"3", b"4"]
    assert collect(read(broker, topic, values=True, start="latest")) == []


def test_latest_waits_for_what_comes(broker: Broker) -> None:
    topic = broker.create("latest")
    put(broker, topic, [b"before"])
    flow = ms.Flow("latest")
    out = ms.testing.collect()
    flow.source("in", read(broker, topic, values=True, start="latest", end=None)).sink("out", out)
    running = flow.start()
    try:
        time.sleep(1)
        put(broker, topic, [b"after"])
        until(lambda: list(out) == [b"after"])
    finally:
        running.stop()


def test_the_end_is_that_of_committed_transactions(broker: Broker, tmp_path: Path) -> None:
    """Control records and aborted messages leave gaps, also at the end; an open transaction is the end."""
    topic = broker.create("transactions")
    with transaction(broker, "first") as producer:
        producer.produce(topic, b"1")
    with transaction(broker, "second", commit=False) as producer:
        producer.produce(topic, b"aborted")
    assert collect(read(broker, topic, values=True)) == [b"1"]
    state = tmp_path / "state"
    assert collect(read(broker, topic, values=True), state) == [b"1"]
    with transaction(broker, "third") as producer:
        producer.produce(topic, b"2")
        producer.flush()
        put(broker, topic, [b"3"])
        assert collect(read(broker, topic, values=True), state) == []
    assert collect(read(broker, topic, values=True), state) == [b"2", b"3"]
    uncommitted = {"isolation.level": "read_uncommitted"}
    everything = collect(read(broker, topic, values=True, settings=uncommitted))
    assert everything == [b"1", b"aborted", b"2", b"3"]


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_many_partitions_on_several_workers(broker: Broker, workers: int) -> None:
    topic = broker.create(f"many-{workers}", partitions=16)
    for partition in range(16):
        put(broker, topic, [f"{partition}:{number}" for number in range(100)], partition)
    values = collect(read(broker, topic, decode=str), workers=workers)
    assert len(values) == 1600
    for partition in range(16):
        own = [value for value in values if value.startswith(f"{partition}:")]
        assert own == [f"{partition}:{number}" for number in range(100)]


def test_several_topics(broker: Broker) -> None:
    one = broker.create("several.one")
    two = broker.create("several.two", partitions=2)
    put(broker, one, [b"a"])
    put(broker, two, [b"b"], 1)
    assert sorted(collect(read(broker, one, two, values=True))) == [b"a", b"b"]


def test_a_flow_resumes_at_its_offsets_with_another_number_of_workers(broker: Broker, tmp_path: Path) -> None:
    topic = broker.create("resumes", partitions=3)
    state = tmp_path / "state"
    seen = []
    for workers, number in ((1, 0), (3, 1), (2, 2)):
        for partition in range(3):
            put(broker, topic, [f"{number}/{partition}"], partition)
        values = collect(read(broker, topic, decode=str), state, workers)
        assert sorted(values) == [f"{number}/{partition}" for partition in range(3)]
        seen += values
    assert Counter(seen) == Counter({f"{n}/{p}": 1 for n in range(3) for p in range(3)})


def test_a_new_partition_begins_with_its_oldest_message(broker: Broker, tmp_path: Path) -> None:
    from confluent_kafka.admin import NewPartitions

    topic = broker.create("grows")
    state = tmp_path / "state"
    assert collect(read(broker, topic, values=True, start="latest"), state) == []
    admin = broker.admin()
    admin.create_partitions([NewPartitions(topic, 2)])[topic].result(timeout=30)
    until(lambda: len(broker.admin().list_topics(topic, timeout=10).topics[topic].partitions) == 2)
    put(broker, topic, [b"new"], 1)
    assert collect(read(broker, topic, values=True, start="latest"), state) == [b"new"]


def test_lost_messages_are_an_error(broker: Broker, tmp_path: Path) -> None:
    topic = broker.create("lost")
    state = tmp_path / "state"
    put(broker, topic, range(3))
    assert len(collect(read(broker, topic), state)) == 3
    put(broker, topic, range(3))
    delete_before(broker, topic, 5)
    with pytest.raises(FAILURE, match=r"continues at offset 3, and the oldest message is at 5.*drop_state="):
        collect(read(broker, topic), state)
    with pytest.raises(FAILURE, match="oldest message is at 5"):
        collect(read(broker, topic, start={topic: {0: 4}}))


def test_expired_messages_that_were_read_are_not_lost(broker: Broker, tmp_path: Path) -> None:
    """The last record of a transaction is none of a message: a position before it is no loss."""
    topic = broker.create("expired")
    state = tmp_path / "state"
    with transaction(broker, "expired") as producer:
        producer.produce(topic, b"1")
    flow = ms.Flow("collect")
    out = Into()
    flow.source("in", read(broker, topic, values=True, end=None)).sink("out", out)
    running = flow.start(state=state, epoch=0.2)
    until(lambda: out.items == [b"1"])
    time.sleep(4)
    running.stop()
    delete_before(broker, topic, 2)
    assert collect(read(broker, topic, values=True), state) == []


def test_a_topic_that_was_created_anew_is_an_error(broker: Broker, tmp_path: Path) -> None:
    topic = broker.create("anew", partitions=2)
    state = tmp_path / "state"
    put(broker, topic, range(3))
    assert len(collect(read(broker, topic), state)) == 3
    broker.delete(topic)
    until(lambda: broker.create(topic, partitions=2))
    with pytest.raises(FAILURE, match="was created anew: its identity is .*drop_state="):
        collect(read(broker, topic), state)
    broker.delete(topic)
    until(lambda: broker.create(topic))
    with pytest.raises(FAILURE, match="has 1 partitions, and the flow has read partition 1"):
        collect(read(broker, topic), state)


def test_a_topic_that_is_deleted_ends_the_flow(broker: Broker) -> None:
    topic = broker.create("deleted")
    put(broker, topic, [b"1"])
    flow = ms.Flow("deleted")
    out = ms.testing.collect()
    flow.source("in", read(broker, topic, values=True, end=None)).sink("out", out)
    running = flow.start()
    until(lambda: list(out) == [b"1"])
    broker.delete(topic)
    with pytest.raises(ms.FlowError, match=topic):
        running.wait()


def test_groups(broker: Broker, tmp_path: Path) -> None:
    topic = broker.create("groups")

    def committed(group: str) -> int:
        consumer = Consumer({"bootstrap.servers": broker.servers, "group.id": group})
        (found,) = consumer.committed([TopicPartition(topic, 0)], timeout=30)
        consumer.close()
        return int(found.offset)

    put(broker, topic, range(5))
    assert len(collect(read(broker, topic, group="by-epochs"), tmp_path / "state")) == 5
    until(lambda: committed("by-epochs") == 5)
    assert len(collect(read(broker, topic, group="without"))) == 5
    until(lambda: committed("without") == 5)
    put(broker, topic, range(5, 7))
    values = collect(read(broker, topic, values=True, group="by-epochs", start="group"))
    assert values == [b"5", b"6"]
    assert len(collect(read(broker, topic, group="unknown", start="group"))) == 7


def test_tls_and_passwords(broker: Broker) -> None:
    topic = broker.create("secured")
    put(broker, topic, [b"1"])
    tls = {"security.protocol": "ssl", "ssl.ca.location": str(broker.authority.certificate)}
    source = ms.kafka.read(broker.tls, topic, end="latest", values=True, settings=tls)
    assert collect(source) == [b"1"]
    login = {**tls, "security.protocol": "sasl_ssl", "sasl.mechanism": "SCRAM-SHA-256"}
    login = {**login, "sasl.username": USER, "sasl.password": PASSWORD}
    source = ms.kafka.read(broker.scram, topic, end="latest", values=True, settings=login)
    assert collect(source) == [b"1"]
    login["sasl.password"] = "wrong"
    with pytest.raises(ms.FlowError, match="refuses: .*uthentication"):
        collect(ms.kafka.read(broker.scram, topic, settings=login))
    with pytest.raises(ms.FlowError, match="refuses: .*certificate"):
        collect(ms.kafka.read(broker.tls, topic, settings={"security.protocol": "ssl"}))


def test_bad_sources(broker: Broker) -> None:
    with pytest.raises(ms.FlowError, match='there is no topic "absent"; create it first'):
        collect(read(broker, "absent"))
    with pytest.raises(ms.FlowError, match='setting "no.such": No such configuration'):
        collect(read(broker, "absent", settings={"no.such": 1}))
    with pytest.raises(ms.FlowError, match='"auto.offset.reset": the connector needs'):
        collect(read(broker, "absent", settings={"auto.offset.reset": "latest"}))
    with pytest.raises(ms.FlowUsageError, match="start is"):
        read(broker, "a", start="first")
    with pytest.raises(ms.FlowUsageError, match="end is"):
        read(broker, "a", end="last")
    with pytest.raises(ms.FlowUsageError, match="needs the name of a group"):
        read(broker, "a", start="group")
    with pytest.raises(ms.FlowUsageError, match="name of a topic"):
        read(broker)
