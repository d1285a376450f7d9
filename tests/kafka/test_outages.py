"""Brokers and links that go away: nothing is lost and nothing is written twice."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import millstream as ms
import pytest
from broker import Broker
from clients import Judge, put, until
from proxy import Proxy
from servers import free_port

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
        flow = ms.Flow("read")
        out = ms.testing.collect()
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
    source = broker.create("from", partitions=2)
    target = broker.create("to")
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
    # A broker that was killed takes its time before it gives a transaction to a producer.
    flow = counting(broker.servers, topic, **{"socket.timeout.ms": 30_000})
    running = flow.start(state=tmp_path / "state", epoch=0.05)
    until(lambda: len(judge.values()) > before + 500)
    running.stop()
    assert is_gapless(judge.values())


WAITING = """
import os
import millstream as ms

flow = ms.Flow("waiting")
source = ms.kafka.read(os.environ["SERVERS"], "waiting", decode=str, settings={"socket.timeout.ms": 2000})
flow.source("in", source).sink("out", ms.files.write(os.environ["OUT"]))
"""


class Started:
    """A flow as a process, with a page."""

    def __init__(self, folder: Path, broker: Broker, processes: int) -> None:
        self.out, self.log, self.port = folder / "out", folder / f"log-{time.monotonic_ns()}", free_port()
        program = folder / "flow.py"
        program.write_text(WAITING)
        command = [sys.executable, "-m", "millstream", "run", str(program), "--state", str(folder / "state")]
        command += ["--epoch", "50ms", "--http", f"127.0.0.1:{self.port}"]
        command += ["--processes", str(processes)] if processes > 1 else []
        environment = os.environ | {"SERVERS": broker.servers, "OUT": str(self.out)}
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(command, env=environment, stderr=log)

    def written(self) -> list[int]:
        found = self.out.parent.glob("out*")
        return sorted(int(line) for path in found for line in path.read_text().splitlines())

    def waits_for(self) -> str:
        """What the page says the start waits for."""
        assert self.process.poll() is None, self.log.read_text()
        try:
            with urllib.request.urlopen(
                f"http://127.0.0.1:{self.port}/api/snapshot.json", timeout=10
            ) as answer:
                return str(json.load(answer).get("waiting") or "")
        except OSError:
            return ""

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)
        assert self.process.wait(60) == 0, self.log.read_text()

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


@pytest.mark.parametrize("processes", [1, 2])
def test_a_restart_waits_for_the_broker(
    own_broker: Callable[..., Broker], tmp_path: Path, processes: int
) -> None:
    """The log and the page say for what; a request to stop ends the wait."""
    broker = own_broker()
    broker.create("waiting", partitions=2)
    put(broker, "waiting", range(5))
    started: list[Started] = []

    def start() -> Started:
        started.append(Started(tmp_path, broker, processes))
        return started[-1]

    try:
        first = start()
        until(lambda: first.written() == list(range(5)))
        first.interrupt()
        broker.kill()
        stopped = start()
        until(lambda: broker.servers in stopped.waits_for())
        said = f"kafka {broker.servers}: no broker answers"
        assert said in stopped.waits_for() and said in stopped.log.read_text()
        stopped.interrupt()
        again = start()
        until(lambda: said in again.log.read_text())
        broker.start()
        put(broker, "waiting", range(5, 10), partition=1)
        until(lambda: again.written() == list(range(10)))
        again.interrupt()
    finally:
        for each in started:
            each.kill()
