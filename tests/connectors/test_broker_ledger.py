"""Each message of a broker is counted: flows are killed with -9, and brokers too, while messages arrive.

A ledger has what was published; the output is compared with it number by number. Two flows run: one reads
from the broker into a file, exactly once as far as the broker's promise goes; one writes to the broker.
"""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
import servers
from brokers import Broker, ClickHouse, Mqtt, Nats, RabbitMq, Redis, wait

COUNT = 1500
KILLS = 2
READ = """
import millstream as ms

flow = ms.Flow("ledger")
numbers = flow.source("in", {source}).map(lambda message: int({body}))
numbers.key_by(lambda n: n % 7).count(emit="each").values().sink("counts", ms.files.write({counts!r}))
numbers.sink("out", ms.files.write({out!r}))
"""
WRITE = """
import time
import millstream as ms


@ms.source(resume=True)
def numbers(resume=None):
    for number in range(resume or 0, {count}):
        yield ms.At(number + 1, number)
        if number % 20 == 0:
            time.sleep(0.01)


flow = ms.Flow("ledger")
flow.source("in", numbers).sink("out", {sink})
"""
SOON = ", retry=ms.Backoff(first=0.05, most=0.3)"
LATER = ", wait_at_end=60"


class Server:
    """A broker's process at one port, which is killed and started again with its data."""

    def __init__(self, command: list[str], folder: Path, how: signal.Signals) -> None:
        self.log = folder / "server.log"
        self.how = how
        self.process, self.port = servers.start(command, folder)
        self.command = [part.format(port=self.port) for part in command]

    def restart(self) -> None:
        self.kill()
        self.start()

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log, cwd=self.log.parent)
        wait(lambda: servers.listens(self.port), lambda: self.log.read_text(errors="replace")[-2000:])

    def kill(self) -> None:
        self.process.send_signal(self.how)
        self.process.wait()


def redis(folder: Path) -> list[str]:
    return servers.redis("--appendonly", "yes", "--appendfsync", "always", "--dir", str(folder))


CASES: dict[str, tuple[type[Broker], Callable[[Path], list[str]]]] = {
    "nats": (Nats, lambda folder: [*servers.nats(folder)]),
    "redis": (Redis, redis),
    "rabbitmq": (RabbitMq, servers.rabbitmq),
    "mqtt": (Mqtt, servers.mosquitto),
    "clickhouse": (ClickHouse, servers.clickhouse),
}
FEW = {"nats": ", pending=20", "redis": ""}
"""Servers that confirm acknowledgements. Few at a time: the first are acknowledged when the last come."""
READ_ONCE = {"nats", "redis", "rabbitmq"}
WRITTEN_ONCE = {"nats", "redis", "clickhouse"}


class Flow:
    """A flow in a process, which is killed and started again."""

    def __init__(self, text: str, folder: Path) -> None:
        self.path = folder / "flow.py"
        self.errors = folder / "errors"
        self.path.write_text(text)
        self.command = [sys.executable, "-m", "millstream", "run", str(self.path), "--epoch", "50ms"]
        self.command += ["--state", str(folder / "state"), "--sync", "never"]
        self.start()

    def start(self) -> None:
        with self.errors.open("ab") as errors:
            self.process = subprocess.Popen(self.command, stderr=errors)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def report(self) -> str:
        return self.errors.read_text(errors="replace")[-3000:]

    def check(self) -> None:
        assert self.process.poll() is None, self.report()


@pytest.fixture
def case(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, Server, Broker]]:
    made, command = CASES[request.param]
    folder = tmp_path / "server"
    folder.mkdir()
    # Mosquitto confirms messages before they are on disk: it is stopped.
    how = signal.SIGTERM if request.param == "mqtt" else signal.SIGKILL
    server = Server(command(folder), folder, how)
    broker = made(server.port, "ledger")
    yield request.param, server, broker
    broker.close()
    server.kill()


def numbers_in(path: Path) -> list[int]:
    return [int(line) for line in path.read_text().split("\n")[:-1]] if path.exists() else []


def publish(broker: Broker, numbers: range, failed: list[BaseException]) -> None:
    """Publishes numbers, in parts, so that some are read while others arrive."""
    try:
        for at in range(numbers.start, numbers.stop, 50):
            broker.publish([b"%d" % number for number in range(at, min(at + 50, numbers.stop))])
            time.sleep(0.01)
    except BaseException as error:
        failed.append(error)
        raise


def read_under_kills(flow: Flow, out: Path, broker: Broker, numbers: range, chance: random.Random) -> None:
    """Publishes numbers, and kills the flow while it reads them."""
    failed: list[BaseException] = []
    publisher = threading.Thread(target=publish, args=(broker, numbers, failed), daemon=True)
    publisher.start()
    for kill in range(1, KILLS // 2 + 1):
        goal = numbers.start + len(numbers) * kill // (KILLS // 2 + 2)
        wait(partial(reached, flow, out, goal), flow.report)
        flow.kill()
        time.sleep(chance.random() / 10)
        flow.start()
    publisher.join()
    assert not failed


def reached(flow: Flow, out: Path, goal: int) -> bool:
    flow.check()
    return len(set(numbers_in(out))) >= goal


@pytest.mark.parametrize("case", [name for name in CASES if name != "clickhouse"], indirect=True)
def test_each_message_is_read(case: tuple[str, Server, Broker], tmp_path: Path) -> None:
    """The flow is killed while messages arrive, and the broker while the flow reads."""
    name, server, broker = case
    chance = random.Random(1)
    out = tmp_path / "out"
    counts = tmp_path / "counts"
    source = broker.read(server.port, "None", SOON)
    flow = Flow(READ.format(source=source, body=broker.body, out=str(out), counts=str(counts)), tmp_path)
    try:
        read_under_kills(flow, out, broker, range(COUNT // 2), chance)
        broker.close()
        server.restart()
        broker.open()
        read_under_kills(flow, out, broker, range(COUNT // 2, COUNT), chance)
        wait(partial(reached, flow, out, COUNT), flow.report)
        # What is not acknowledged would come now.
        wait(lambda: not broker.is_counted or not broker.unacknowledged(), flow.report)
    finally:
        flow.kill()
    judge(numbers_in(out), name in READ_ONCE)
    if name in READ_ONCE:
        # The state has the effect of each once, too: of each key the counts are 1, 2, 3, ...
        sizes = Counter(number % 7 for number in range(COUNT))
        expected = Counter(count for size in sizes.values() for count in range(1, size + 1))
        assert Counter(numbers_in(counts)) == expected


@pytest.mark.parametrize("case", FEW, indirect=True)
def test_what_a_server_delivers_again_after_it_lost_acknowledgements(
    case: tuple[str, Server, Broker], tmp_path: Path
) -> None:
    """The server begins again with its files of the time before they were acknowledged."""
    name, server, broker = case
    out = tmp_path / "out"
    files = server.log.parent
    copy = tmp_path / "copy"
    source = broker.read(server.port, "None", SOON + FEW[name])
    counts = str(tmp_path / "counts")
    flow = Flow(READ.format(source=source, body=broker.body, out=str(out), counts=counts), tmp_path)

    def read_all(count: int) -> None:
        wait(partial(reached, flow, out, count), flow.report)
        wait(lambda: not broker.unacknowledged(), flow.report)

    def begin_with(folder: Path, place: Path) -> None:
        flow.kill()
        broker.close()
        server.kill()
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(folder, place)
        server.start()
        broker.open()

    try:
        broker.publish([b"%d" % number for number in range(20)])
        read_all(20)
        flow.kill()
        broker.publish([b"%d" % number for number in range(20, 300)])
        begin_with(files, copy)
        flow.start()
        read_all(300)
        begin_with(copy, files)
        assert broker.unacknowledged() == 280
        flow.start()
        wait(lambda: not broker.unacknowledged(), flow.report)
    finally:
        flow.kill()
    assert sorted(numbers_in(out)) == list(range(300))


@pytest.mark.parametrize("case", CASES, indirect=True)
def test_each_message_is_written(case: tuple[str, Server, Broker], tmp_path: Path) -> None:
    """The flow is killed while it writes, and the broker too."""
    name, server, broker = case
    broker.published()
    flow = Flow(WRITE.format(sink=broker.write(server.port, "None", SOON + LATER), count=COUNT), tmp_path)
    try:
        for kill in range(KILLS):
            time.sleep(0.7)
            if flow.process.poll() is None:
                flow.kill()
            if kill == KILLS // 2:
                broker.close()
                server.restart()
                broker.open()
            flow.start()
        wait(lambda: flow.process.poll() is not None, flow.report)
        assert flow.process.returncode == 0, flow.report()
        wait(lambda: len(set(broker.published())) >= COUNT, flow.report)
    finally:
        flow.kill()
    judge([int(body) for body in broker.published()], name in WRITTEN_ONCE)


def judge(found: list[int], is_once: bool) -> None:
    ledger = set(range(COUNT))
    assert set(found) == ledger, {"lost": sorted(ledger - set(found))[:10]}
    twice = [number for number, count in Counter(found).items() if count > 1]
    assert not is_once or not twice, {"twice": len(twice), "first": sorted(twice)[:10]}
