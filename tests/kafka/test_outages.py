"""Brokers and links that go away: nothing is lost and nothing is written twice."""

import threading
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import millstream as ms
import pytest
from broker import Broker
from clients import Judge, put, until
from proxy import Proxy

# Ends attempts soon, so that a test sees several of them.
SHORT = {"socket.timeout.ms": 3000}


def counting(servers: str, topic: str, **settings: Any) -> ms.Flow:
    flow = ms.Flow("count")
    numbers = flow.source("in", ms.generate(count, rate=500, batch_size=10))
    numbers.map(str).sink("out", ms.kafka.write(servers, topic, settings={**SHORT, **settings}))
    return flow


def is_gapless(values: list[bytes]) -> bool:
    return values == [str(number).encode() for number in range(len(values))]


@pytest.mark.parametrize("how", ["cut", "stall"])
def test_a_link_that_breaks_while_writing(broker: Broker, tmp_path: Path, how: str) -> None:
    topic = broker.create(f"writing-{how}")
    judge = Judge(broker, topic)
    with Proxy(broker) as proxy:
        running = counting(broker.proxied, topic).start(state=tmp_path / "state", epoch=0.05)
        for _ in range(3):
            before = len(judge.values())
            until(lambda before=before: len(judge.values()) > before + 50)
            getattr(proxy, how)()
            time.sleep(1.5)
            proxy.heal()
        before = len(judge.values())
        until(lambda: len(judge.values()) > before + 50)
        running.stop()
    assert is_gapless(judge.values())


@pytest.mark.parametrize("timeout_ms", [2000, 60_000])
def test_an_outage_longer_or_shorter_than_the_transaction_timeout(
    broker: Broker, tmp_path: Path, timeout_ms: int
) -> None:
    topic = broker.create(f"timeout-{timeout_ms}")
    judge = Judge(broker, topic)
    with Proxy(broker) as proxy:
        settings = {"transaction.timeout.ms": timeout_ms, "socket.timeout.ms": 1500}
        flow = counting(broker.proxied, topic, **settings)
        running = flow.start(state=tmp_path / "state", epoch=0.05)
        for _ in range(2):
            before = len(judge.values())
            until(lambda before=before: len(judge.values()) > before + 50)
            proxy.stall()
            time.sleep(5)
            proxy.heal()
        before = len(judge.values())
        until(lambda: len(judge.values()) > before + 50)
        running.stop()
    assert is_gapless(judge.values())


@pytest.mark.parametrize("how", ["cut", "stall"])
def test_a_link_that_breaks_while_reading(broker: Broker, how: str) -> None:
    topic = broker.create(f"reading-{how}")
    with Proxy(broker) as proxy:
        flow, out = ms.Flow("read"), ms.testing.collect()
        source = ms.kafka.read(broker.proxied, topic, decode=int, settings={"socket.timeout.ms": 2000})
        flow.source("in", source).sink("out", out)
        running = flow.start()
        for number in range(3):
            put(broker, topic, range(number * 10, number * 10 + 5))
            until(lambda number=number: len(out) == number * 10 + 5)
            getattr(proxy, how)()
            put(broker, topic, range(number * 10 + 5, number * 10 + 10))
            time.sleep(1)
            proxy.heal()
            until(lambda number=number: len(out) == number * 10 + 10)
        running.stop()
    assert list(out) == list(range(30))


def test_a_broker_that_is_killed_again_and_again(own_broker: Callable[..., Broker], tmp_path: Path) -> None:
    """A flow copies from topic to topic while the broker is killed under it."""
    broker = own_broker()
    source, target = broker.create("from", partitions=2), broker.create("to")
    flow = ms.Flow("copy")
    numbers = flow.source("in", ms.kafka.read(broker.servers, source, decode=str, settings=SHORT))
    numbers.sink("out", ms.kafka.write(broker.servers, target, settings=SHORT))
    running = flow.start(state=tmp_path / "state", epoch=0.05)
    expected: set[bytes] = set()
    for kill in range(3):
        values = [f"{kill}:{number}".encode() for number in range(2000)]
        put(broker, source, values[:1000], 0)
        put(broker, source, values[1000:], 1)
        expected.update(values)
        broker.kill()
        time.sleep(0.5)
        broker.start()
    judge = Judge(broker, target)
    values = judge.wait_for(len(expected))
    running.stop()
    assert len(values) == len(set(values)) == len(expected)
    assert set(values) == expected


def test_a_flow_stops_while_the_broker_is_away(own_broker: Callable[..., Broker], tmp_path: Path) -> None:
    """It does not wait for the broker; what it has not delivered is delivered by the next start."""
    broker = own_broker()
    topic = broker.create("away")
    judge = Judge(broker, topic)
    running = counting(broker.servers, topic).start(state=tmp_path / "state", epoch=0.05)
    until(lambda: len(judge.values()) > 50)
    broker.kill()
    time.sleep(1)
    stopper = threading.Thread(target=running.stop)
    stopper.start()
    stopper.join(timeout=30)
    assert not stopper.is_alive()
    broker.start()
    judge = Judge(broker, topic)
    before = len(judge.values())
    running = counting(broker.servers, topic).start(state=tmp_path / "state", epoch=0.05)
    until(lambda: len(judge.values()) > before + 500)
    running.stop()
    assert is_gapless(judge.values())
