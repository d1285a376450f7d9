"""Independent clients, on confluent-kafka: they make the input of flows and judge their output."""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from broker import QUIET, Broker
from confluent_kafka import Consumer, Producer, TopicPartition

# Longer than a broker keeps the transaction of a client that has gone.
PATIENCE = 150.0


def until(true: Callable[[], Any], seconds: float = PATIENCE) -> Any:
    """Waits until ``true()`` is, and returns it."""
    deadline = time.monotonic() + seconds
    while not (found := true()):
        assert time.monotonic() < deadline, f"nothing after {seconds} seconds"
        time.sleep(0.02)
    return found


def put(
    broker: Broker, topic: str, values: Iterable[Any], partition: int = 0, acks: str = "all", **more: Any
) -> None:
    """Writes values to a partition."""
    producer = Producer({"bootstrap.servers": broker.servers, "acks": acks, "linger.ms": 1, "logger": QUIET})
    for value in values:
        value = value if value is None or isinstance(value, bytes) else str(value).encode()
        while True:
            try:
                producer.produce(topic, value, partition=partition, **more)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    assert producer.flush(PATIENCE) == 0


@contextmanager
def transaction(broker: Broker, name: str, commit: bool = True) -> Iterator[Producer]:
    """A transaction, which is committed or aborted at the end."""
    producer = Producer({"bootstrap.servers": broker.servers, "transactional.id": name, "logger": QUIET})
    producer.init_transactions(PATIENCE)
    producer.begin_transaction()
    yield producer
    producer.flush(PATIENCE)
    if commit:
        producer.commit_transaction(PATIENCE)
    else:
        producer.abort_transaction(PATIENCE)


class Judge:
    """Reads a topic as far as its transactions are committed."""

    def __init__(self, broker: Broker, topic: str, isolation: str = "read_committed") -> None:
        settings = {
            "bootstrap.servers": broker.servers,
            "group.id": f"judge-{topic}",
            "enable.auto.commit": False,
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "logger": QUIET,
        }
        self.consumer = Consumer(settings)
        found = self.consumer.list_topics(topic, timeout=PATIENCE).topics[topic].partitions
        self.partitions = sorted(found)
        self.topic = topic
        self.messages: list[Any] = []

    def read(self) -> list[Any]:
        """All messages of the topic, partition by partition, up to the end as it is now."""
        partitions = [TopicPartition(self.topic, number, 0) for number in self.partitions]
        # A topic that is written to has no moment at which the client reports its end.
        ends = {each.partition: self.consumer.get_watermark_offsets(each, PATIENCE)[1] for each in partitions}
        self.consumer.assign(partitions)
        messages = []
        ended = {number for number, end in ends.items() if end == 0}
        deadline = time.monotonic() + PATIENCE
        while len(ended) < len(self.partitions):
            assert time.monotonic() < deadline, "the judge does not reach the end"
            for message in self.consumer.consume(1000, timeout=0.2):
                if message.error() is None and message.offset() >= ends[message.partition()]:
                    ended.add(message.partition())
                elif message.error() is None:
                    messages.append(message)
                elif message.error().code() == -191:  # the end of a partition
                    ended.add(message.partition())
        return sorted(messages, key=lambda message: (message.partition(), message.offset()))

    def values(self) -> list[bytes]:
        return [message.value() for message in self.read()]

    def wait_for(self, count: int) -> list[bytes]:
        """The values, when there are so many of them."""
        values: list[bytes] = []

        def enough() -> bool:
            values[:] = self.values()
            return len(values) >= count

        until(enough)
        return values

    def close(self) -> None:
        self.consumer.close()
