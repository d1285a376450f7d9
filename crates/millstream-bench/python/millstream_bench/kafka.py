"""Kafka: what a flow reads and writes in a second, beside a raw client that does the same.

    python -m millstream_bench.kafka [MESSAGES]

One broker, one partition, one worker, messages of 100 bytes. Each figure is the median of several runs; the
ways take turns, so that slow phases of the machine meet all. The broker is that of the tests.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter

import millstream as ms

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

__all__ = ["main"]

MESSAGES = 1_000_000
BYTES = 100
KEYS = 1000
REPEATS = 3
HOPS = 20_000
RATE = 10_000
TUNED = {"fetch.queue.backoff.ms": 5, "queued.min.messages": 100_000, "fetch.wait.max.ms": 100}


class Bench:
    """A broker and a topic of messages."""

    def __init__(self, broker: Any, messages: int) -> None:
        self.broker, self.messages = broker, messages
        self.made = 0
        self.topic = self.new_topic()
        self.fill()

    def new_topic(self) -> str:
        self.made += 1
        return str(self.broker.create(f"bench-{self.made}"))

    def fill(self) -> None:
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self.broker.servers, "linger.ms": 20})
        for number in range(self.messages):
            while True:
                try:
                    producer.produce(self.topic, b"x" * BYTES, key=b"%d" % (number % KEYS))
                    break
                except BufferError:
                    producer.poll(0.1)
            if number % 1000 == 0:
                producer.poll(0)
        producer.flush()

    def raw(self) -> float:
        """Batches of a tuned librdkafka client."""
        from confluent_kafka import Consumer, TopicPartition

        settings = {"bootstrap.servers": self.broker.servers, "group.id": "raw", **TUNED}
        consumer = Consumer(settings)
        consumer.assign([TopicPartition(self.topic, 0, 0)])
        began, got = perf_counter(), 0
        while got < self.messages:
            got += len(consumer.consume(10_000, timeout=1))
        rate = got / (perf_counter() - began)
        consumer.close()
        return rate

    def read(self, **options: Any) -> float:
        """A flow that reads to nothing."""
        flow = ms.Flow("read")
        source = ms.kafka.read(self.broker.servers, self.topic, end="latest", **options)
        flow.source("in", source).sink("out", ms.testing.discard())
        return self.rate(flow)

    def counts(self, exactly_once: bool) -> float:
        """A count by key, from topic to topic."""
        flow = ms.Flow("counts")
        messages = flow.source("in", ms.kafka.read(self.broker.servers, self.topic, end="latest"))
        counts = messages.key_by(lambda message: message.key or b"").count("each").items()
        sink: Any = ms.kafka.write(
            self.broker.servers,
            self.new_topic(),
            key=lambda pair: pair[0],
            encode=lambda pair: str(pair[1]),
            exactly_once=exactly_once,
        )
        counts.sink("out", sink)
        with tempfile.TemporaryDirectory() as state:
            return self.rate(flow, state=state)

    def rate(self, flow: ms.Flow, **options: Any) -> float:
        began = perf_counter()
        ms.run(flow, **options)
        return self.messages / (perf_counter() - began)

    def hop(self, through_flow: bool) -> float:
        """The median time from a producer to a consumer, in milliseconds, at a fixed rate."""
        from confluent_kafka import Consumer, Producer, TopicPartition

        source = self.new_topic()
        target = self.new_topic() if through_flow else source
        running = None
        if through_flow:
            flow = ms.Flow("hop")
            messages = flow.source("in", ms.kafka.read(self.broker.servers, source, values=True))
            sink = ms.kafka.write(self.broker.servers, target, exactly_once=False, settings={"linger.ms": 0})
            messages.sink("out", sink)
            running = flow.start()
        settings = {"bootstrap.servers": self.broker.servers, "linger.ms": 0}
        producer = Producer(settings)
        consumer = Consumer({"bootstrap.servers": self.broker.servers, "group.id": "hop", **TUNED})
        consumer.assign([TopicPartition(target, 0, 0)])
        # The first message waits for connections, and is not counted.
        producer.produce(source, repr(perf_counter()).encode())
        producer.flush()
        while not consumer.consume(1, timeout=1):
            pass
        times: list[float] = []
        began, sent = perf_counter(), 0
        while len(times) < HOPS:
            while sent < HOPS and sent < (perf_counter() - began) * RATE:
                producer.produce(source, repr(perf_counter()).encode())
                sent += 1
            producer.poll(0)
            for message in consumer.consume(100, timeout=0.0002):
                times.append(perf_counter() - float(message.value() or b"nan"))
        consumer.close()
        if running is not None:
            running.stop()
        return median(times) * 1000


def main(messages: int = MESSAGES) -> None:
    """Measures and prints a table."""
    sys.path.insert(0, str(Path(__file__).parents[4] / "tests" / "kafka"))
    # A module of the tests, which are not on the path of type checkers.
    from importlib import import_module

    Broker = import_module("broker").Broker

    with tempfile.TemporaryDirectory() as folder:
        broker = Broker(Path(folder)).start()
        try:
            bench = Bench(broker, messages)
            ways: dict[str, Callable[[], float]] = {
                "raw librdkafka, batches, messages/s": bench.raw,
                "Kafka to nothing, Python values, messages/s": lambda: bench.read(values=True),
                "Kafka to nothing, Python messages, messages/s": bench.read,
                "keyed count, at least once, messages/s": lambda: bench.counts(exactly_once=False),
                "keyed count, exactly once, messages/s": lambda: bench.counts(exactly_once=True),
                "hop, producer to consumer, ms (p50)": lambda: bench.hop(through_flow=False),
                "hop through a flow, ms (p50)": lambda: bench.hop(through_flow=True),
            }
            figures: dict[str, list[float]] = {name: [] for name in ways}
            for _ in range(REPEATS):
                for name, measure in ways.items():
                    figures[name].append(measure())
            for name, measured in figures.items():
                print(f"{name:48} {median(measured):12,.2f}")
        finally:
            broker.kill()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
