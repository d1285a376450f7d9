"""Kafka: what a flow reads and writes in a second, beside a raw client that does the same.

    python -m millstream_bench.kafka [MESSAGES] [REPEATS] [--only TEXT] [--bytewax PYTHON] [--rust PROGRAM]

One broker, one partition, one worker, messages of 100 bytes. Each figure is the median of several runs;
the ways take turns, so that slow phases of the machine meet all. Each run checks how many messages it has
read and written. The broker is that of the tests.

`--only` runs the ways whose names contain the text. `--bytewax` is the Python of an environment with
`bytewax` and `confluent-kafka`. `--rust` is `target/release/examples/count_messages`, which
`cargo build --release -p millstream-kafka --example count_messages` makes.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from multiprocessing import get_context
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
IDLE_SECONDS = 10
RATE = 10_000
# One request at a time: the messages of the meantime go in the next. More would queue at the broker.
PROMPT = {"linger.ms": 0, "max.in.flight.requests.per.connection": 1}
TUNED = {"fetch.queue.backoff.ms": 5, "queued.min.messages": 100_000, "fetch.wait.max.ms": 100}


class Bench:
    """A broker and a topic of messages."""

    def __init__(self, broker: Any, messages: int) -> None:
        self.broker = broker
        self.messages = messages
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
        began = perf_counter()
        got = 0
        while got < self.messages:
            got += len(consumer.consume(10_000, timeout=1))
        rate = got / (perf_counter() - began)
        consumer.close()
        check("raw", got, self.messages)
        return rate

    def read(self, **options: Any) -> float:
        """A flow that reads to nothing."""
        flow = ms.Flow("read")
        source = ms.kafka.read(self.broker.servers, self.topic, end="latest", **options)
        flow.source("in", source).sink("out", ms.testing.discard())
        return self.rate(flow)

    def rust(self, program: str, with_flow: bool) -> float:
        """The same in Rust, or a consumer of librdkafka in Rust."""
        messages = [] if with_flow else [str(self.messages)]
        return self.other("Rust", [program, self.broker.servers, self.topic, *messages])

    def bytewax(self, python: str, what: str) -> float:
        """A flow of Bytewax, at least once: to ``nothing``, ``copy``, or ``count`` by key."""
        program = str(Path(__file__).with_name("kafka_bytewax.py"))
        # Isolated: `http` here is not that of the standard library.
        command = [python, "-I", program, self.broker.servers, self.topic]
        if what == "nothing":
            return self.other("Bytewax", command)
        target = self.new_topic()
        rate = self.other("Bytewax", [*command, what, target])
        check("Bytewax, written", self.written(target), self.messages)
        return rate

    def other(self, name: str, command: list[str]) -> float:
        """Runs a program that prints how many messages it has read, and the rate."""
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        count, rate = done.stdout.split()[-2:]
        check(name, int(count), self.messages)
        return float(rate)

    def written(self, topic: str) -> int:
        """How many messages of committed transactions a topic has."""
        from confluent_kafka import Consumer, KafkaError, TopicPartition

        settings = {"bootstrap.servers": self.broker.servers, "group.id": "written", **TUNED}
        consumer = Consumer({**settings, "enable.partition.eof": True, "isolation.level": "read_committed"})
        consumer.assign([TopicPartition(topic, 0, 0)])
        count = 0
        while True:
            for message in consumer.consume(10_000, timeout=1):
                error = message.error()
                if error is None:
                    count += 1
                elif error.code() == KafkaError._PARTITION_EOF:
                    consumer.close()
                    return count

    def copies(self, exactly_once: bool) -> float:
        """A copy from topic to topic."""
        flow = ms.Flow("copies")
        messages = flow.source("in", ms.kafka.read(self.broker.servers, self.topic, end="latest"))
        target = self.new_topic()
        messages.sink("out", ms.kafka.write(self.broker.servers, target, exactly_once=exactly_once))
        with tempfile.TemporaryDirectory() as state:
            rate = self.rate(flow, state=state)
        check("copied", self.written(target), self.messages)
        return rate

    def raw_copies(self) -> float:
        """The same by a loop of a consumer and a producer."""
        return self.loop(lambda message: message.value())

    def counts(self, exactly_once: bool) -> float:
        """A count by key, from topic to topic."""
        flow = ms.Flow("counts")
        messages = flow.source("in", ms.kafka.read(self.broker.servers, self.topic, end="latest"))
        counts = messages.key_by(lambda message: message.key or b"").count("each").items()
        target = self.new_topic()
        sink: Any = ms.kafka.write(
            self.broker.servers,
            target,
            key=lambda pair: pair[0],
            encode=lambda pair: str(pair[1]),
            exactly_once=exactly_once,
        )
        counts.sink("out", sink)
        with tempfile.TemporaryDirectory() as state:
            rate = self.rate(flow, state=state)
        check("written", self.written(target), self.messages)
        return rate

    def raw_counts(self) -> float:
        """The same by a loop of a consumer and a producer, without state that survives."""
        totals: dict[bytes, int] = {}

        def count(message: Any) -> bytes:
            key = message.key() or b""
            totals[key] = total = totals.get(key, 0) + 1
            return str(total).encode()

        return self.loop(count)

    def loop(self, value: Callable[[Any], bytes]) -> float:
        """A loop of a consumer and a producer, which writes what ``value`` makes of each message."""
        from confluent_kafka import Consumer, Producer, TopicPartition

        target = self.new_topic()
        began = perf_counter()
        got = 0
        producer = Producer({"bootstrap.servers": self.broker.servers, "acks": "all"})
        consumer = Consumer({"bootstrap.servers": self.broker.servers, "group.id": "raw", **TUNED})
        consumer.assign([TopicPartition(self.topic, 0, 0)])
        while got < self.messages:
            for message in consumer.consume(10_000, timeout=1):
                made = value(message)
                while True:
                    try:
                        producer.produce(target, made, key=message.key())
                        break
                    except BufferError:
                        producer.poll(0.1)
                got += 1
            producer.poll(0)
        producer.flush()
        rate = got / (perf_counter() - began)
        consumer.close()
        check("raw, written", self.written(target), self.messages)
        return rate

    def rate(self, flow: ms.Flow, **options: Any) -> float:
        began = perf_counter()
        report = ms.run(flow, **options)
        rate = self.messages / (perf_counter() - began)
        check("read", report.step("in")["items_out"], self.messages)
        return rate

    def idle(self) -> float:
        """The share of a core that a flow uses that waits for messages, in percent."""
        flow = ms.Flow("idle")
        source = ms.kafka.read(self.broker.servers, self.new_topic())
        flow.source("in", source).sink("out", ms.testing.discard())
        running = flow.start()
        time.sleep(2)
        used = time.process_time()
        time.sleep(IDLE_SECONDS)
        used = time.process_time() - used
        running.stop()
        return used / IDLE_SECONDS * 100

    def hop(self, through: Callable[[str, str, str], None] | None) -> float:
        """The median time from a producer to a consumer, in milliseconds, at a fixed rate.

        `through` copies messages from one topic to another, in a process of its own.
        """
        from confluent_kafka import Consumer, Producer, TopicPartition

        source = self.new_topic()
        target = source if through is None else self.new_topic()
        copying = None
        if through is not None:
            arguments = (self.broker.servers, source, target)
            copying = get_context("spawn").Process(target=through, args=arguments, daemon=True)
            copying.start()
        settings: dict[str, Any] = {"bootstrap.servers": self.broker.servers, **PROMPT}
        producer = Producer(settings)
        consumer = Consumer({"bootstrap.servers": self.broker.servers, "group.id": "hop", **TUNED})
        consumer.assign([TopicPartition(target, 0, 0)])
        # The first message waits for connections, and is not counted.
        producer.produce(source, repr(perf_counter()).encode())
        producer.flush()
        while not consumer.consume(1, timeout=1):
            pass
        times: list[float] = []
        began = perf_counter()
        sent = 0
        while len(times) < HOPS:
            while sent < HOPS and sent < (perf_counter() - began) * RATE:
                producer.produce(source, repr(perf_counter()).encode())
                sent += 1
            producer.poll(0)
            for message in consumer.consume(100, timeout=0.0002):
                times.append(perf_counter() - float(message.value() or b"nan"))
        producer.flush()
        consumer.close()
        if copying is not None:
            copying.terminate()
            copying.join()
        return median(times) * 1000


def copy_by_flow(servers: str, source: str, target: str) -> None:
    """Copies messages by a flow, until the process is ended."""
    flow = ms.Flow("hop")
    messages = flow.source("in", ms.kafka.read(servers, source, values=True))
    messages.sink("out", ms.kafka.write(servers, target, exactly_once=False, settings=PROMPT))
    ms.run(flow)


def copy_exactly_once(servers: str, source: str, target: str) -> None:
    """Copies messages by a flow in transactions, with epochs of 0.1 s, until the process is ended."""
    flow = ms.Flow("hop")
    messages = flow.source("in", ms.kafka.read(servers, source, values=True))
    messages.sink("out", ms.kafka.write(servers, target))
    with tempfile.TemporaryDirectory() as state:
        ms.run(flow, state=state, epoch=0.1)


def copy_by_client(servers: str, source: str, target: str) -> None:
    """Copies messages by a consumer and a producer, until the process is ended."""
    from confluent_kafka import Consumer, Producer, TopicPartition

    producer = Producer({"bootstrap.servers": servers, **PROMPT, "acks": "all"})
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "copy", **TUNED})
    consumer.assign([TopicPartition(source, 0, 0)])
    while True:
        for message in consumer.consume(100, timeout=0.0002):
            producer.produce(target, message.value())
        producer.poll(0)


def check(what: str, found: int, expected: int) -> None:
    """Raises if a run has not processed all messages."""
    if found != expected:
        raise AssertionError(f"{what}: {found} messages, and there are {expected}")


def measure(
    broker: Any,
    messages: int = MESSAGES,
    repeats: int = REPEATS,
    only: str = "",
    bytewax: str | None = None,
    rust: str | None = None,
) -> dict[str, float]:
    """Measures and returns the median of each way."""
    bench = Bench(broker, messages)
    ways: dict[str, Callable[[], float]] = {
        "raw librdkafka, Python, messages/s": bench.raw,
        "Kafka to nothing, Python values, messages/s": lambda: bench.read(values=True),
        "Kafka to nothing, Python messages, messages/s": bench.read,
        "copy by a consumer and a producer, messages/s": bench.raw_copies,
        "copy, at least once, messages/s": lambda: bench.copies(exactly_once=False),
        "copy, exactly once, messages/s": lambda: bench.copies(exactly_once=True),
        "keyed count by a consumer and a producer, messages/s": bench.raw_counts,
        "keyed count, at least once, messages/s": lambda: bench.counts(exactly_once=False),
        "keyed count, exactly once, messages/s": lambda: bench.counts(exactly_once=True),
        "hop, producer to consumer, ms (p50)": lambda: bench.hop(None),
        "hop through a consumer and a producer, ms (p50)": lambda: bench.hop(copy_by_client),
        "hop through a flow, ms (p50)": lambda: bench.hop(copy_by_flow),
        "hop through a flow, exactly once, ms (p50)": lambda: bench.hop(copy_exactly_once),
        "idle flow, percent of a core": bench.idle,
    }
    if rust is not None:
        ways["raw librdkafka, Rust, messages/s"] = lambda: bench.rust(rust, with_flow=False)
        ways["Kafka to nothing, Rust, messages/s"] = lambda: bench.rust(rust, with_flow=True)
    if bytewax is not None:
        ways["Bytewax, Kafka to nothing, messages/s"] = lambda: bench.bytewax(bytewax, "nothing")
        ways["Bytewax, copy, at least once, messages/s"] = lambda: bench.bytewax(bytewax, "copy")
        ways["Bytewax, keyed count, at least once, messages/s"] = lambda: bench.bytewax(bytewax, "count")
    ways = {name: way for name, way in ways.items() if only in name}
    figures: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(repeats):
        for name, way in ways.items():
            figures[name].append(way())
    return {name: median(measured) for name, measured in figures.items()}


def main() -> None:
    """Measures and prints a table."""
    options = argparse.ArgumentParser(prog="python -m millstream_bench.kafka")
    options.add_argument("messages", nargs="?", type=int, default=MESSAGES)
    options.add_argument("repeats", nargs="?", type=int, default=REPEATS)
    options.add_argument("--only", default="", metavar="TEXT", help="the ways whose names contain this")
    options.add_argument("--bytewax", metavar="PYTHON", help="the Python of an environment with bytewax")
    options.add_argument("--rust", metavar="PROGRAM", help="the program of the Rust row")
    given = options.parse_args()
    # A module of the tests, which are not on the path of type checkers, and what it imports.
    tests = Path(__file__).parents[4] / "tests"
    sys.path[:0] = [str(tests / "kafka"), str(tests / "process")]
    from importlib import import_module

    with tempfile.TemporaryDirectory() as folder:
        broker = import_module("broker").Broker(Path(folder)).start()
        try:
            found = measure(broker, given.messages, given.repeats, given.only, given.bytewax, given.rust)
        finally:
            broker.kill()
    for name, figure in found.items():
        print(f"{name:48} {figure:12,.2f}")


if __name__ == "__main__":
    main()
