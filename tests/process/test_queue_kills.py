"""Servers and clients of queues are killed with SIGKILL at random moments under load; then the books are
compared.

No item that was acknowledged is lost, none is delivered before one that came earlier, and one is delivered
again only where the kill left open whether its delivery was confirmed: directly after itself.

`MILLSTREAM_KILLS` says how many kills each sync mode gets (`make kills` gives many), `MILLSTREAM_SEED`
repeats a run. Each run prints one line of JSON.
"""

import json
import os
import random
import re
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

import pytest
from queue_ledger import until
from queue_server import QueueServer, Serve
from queue_traffic import check

KILLS = int(os.environ.get("MILLSTREAM_KILLS", 8))
SEED = int(os.environ.get("MILLSTREAM_SEED", random.SystemRandom().randrange(1 << 32)))
TRAFFIC = Path(__file__).with_name("queue_traffic.py")
# What is sent to `work` goes to `work+audit` as well.
PRODUCED = ("work", "work", "alone")
CONSUMED = ("work", "work+audit", "alone")


@dataclass
class Books:
    """What clients know for certain about one queue."""

    acknowledged: list[str]
    delivered: list[str]
    lost: list[str] = field(default_factory=list)
    reordered: list[str] = field(default_factory=list)
    repeats: int = 0

    def judge(self) -> None:
        once = [item for item, _ in groupby(self.delivered)]
        self.repeats = len(self.delivered) - len(once)
        self.lost = sorted(set(self.acknowledged) - set(once))
        seen: set[str] = set()
        last: defaultdict[str, int] = defaultdict(int)
        for item in once:
            name, number = item.split(":")
            if item in seen or int(number) <= last[name]:
                self.reordered.append(item)
            seen.add(item)
            last[name] = int(number)


def test_the_judge_sees_what_is_wrong() -> None:
    def faults(acknowledged: str, delivered: str) -> tuple[list[str], list[str], int]:
        books = Books(acknowledged.split(), delivered.split())
        books.judge()
        return books.lost, books.reordered, books.repeats

    assert faults("a:1 b:1 a:2", "b:1 a:1 a:2 a:3") == ([], [], 0)
    assert faults("a:1 a:2", "a:1 a:1 a:2") == ([], [], 1)
    assert faults("a:1 a:2 a:3", "a:1 a:3") == (["a:2"], [], 0)
    assert faults("a:1 a:2", "a:2 a:1") == ([], ["a:1"], 0)
    assert faults("a:1 b:1", "a:1 b:1 a:1") == ([], ["a:1"], 0)


class Client:
    """A process of traffic, which can be killed and restarted under another name."""

    def __init__(self, role: str, queue: str, server: QueueServer, logs: Path, number: int) -> None:
        self.role = role
        self.queue = queue
        self.server = server
        self.number = number
        self.logs = logs
        self.lives = 0
        self.begin()

    def begin(self) -> None:
        self.lives += 1
        name = f"{self.role[0]}{self.number}.{self.lives}"
        log = self.logs / f"{self.role}-{self.queue}"
        command = [TRAFFIC, self.role, self.server.port, self.queue, log, name]
        self.process = subprocess.Popen([sys.executable, "-I", *map(str, command)], stderr=subprocess.PIPE)

    def kill(self) -> None:
        died = self.process.poll()
        self.process.kill()
        _, said = self.process.communicate()
        assert died is None, said.decode()


def wait_until_nothing_is_open(server: QueueServer, *queues: str) -> None:
    """The server has noticed that its dead clients are gone; before that it may skip the items
    that they had opened."""
    with server.connect() as line:
        while any(line.stats().get(f"queue_{queue}_open_transactions", "0") != "0" for queue in queues):
            time.sleep(0.002)


def load_and_kill(server: QueueServer, rng: random.Random, logs: Path) -> dict[str, int]:
    clients = [Client("produce", queue, server, logs, n) for n, queue in enumerate(PRODUCED)]
    clients += [Client("consume", queue, server, logs, n) for n, queue in enumerate(CONSUMED)]
    kills = {"server": 0, "produce": 0, "consume": 0}
    try:
        for _ in range(KILLS):
            time.sleep(rng.uniform(0.05, 0.3))
            if rng.random() < 0.5:
                server.kill()
                server.start()
                kills["server"] += 1
                continue
            victim = rng.choice(clients)
            victim.kill()
            if victim.role == "consume":
                wait_until_nothing_is_open(server, victim.queue)
            victim.begin()
            kills[victim.role] += 1
        # A client that is killed soon after each start has stored nothing.
        until(
            lambda: all(noted(logs, "produce", [queue]) for queue in PRODUCED),
            "an item of each queue is stored",
        )
    finally:
        for client in clients:
            client.kill()
    return kills


def drained(server: QueueServer, queue: str) -> Iterable[str]:
    with server.connect() as line:
        while (item := line.get(f"{queue}/close/open")) is not None:
            yield check(item)


def noted(logs: Path, role: str, queues: Iterable[str]) -> list[str]:
    paths = [logs / f"{role}-{queue}" for queue in queues]
    return [line for path in paths if path.exists() for line in path.read_text().splitlines()]


@pytest.mark.parametrize("sync", ["always", "never", "10ms"])
def test_no_kill_loses_or_reorders_an_item(sync: str, serve: Serve, tmp_path: Path) -> None:
    rng = random.Random(f"{SEED} {sync}")
    print(f"MILLSTREAM_SEED={SEED} MILLSTREAM_KILLS={KILLS}")
    server = serve(f"--sync={sync}", "--verbose")
    with server.connect() as line:
        assert line.get("work+audit") is None  # the fan-out queue exists from here on
    logs = tmp_path / "logs"
    logs.mkdir()
    kills = load_and_kill(server, rng, logs)
    wait_until_nothing_is_open(server, *CONSUMED)
    # Once more, so that what was restored is what is drained.
    server.kill()
    server.start()
    all_books = {}
    for queue in CONSUMED:
        source = queue.split("+")[0]
        books = Books(noted(logs, "produce", [source]), noted(logs, "consume", [queue]))
        books.delivered += drained(server, queue)
        books.judge()
        all_books[queue] = books
    assert server.stop() == 0
    report(sync, kills, list(all_books.values()))
    for queue, books in all_books.items():
        assert not books.lost and not books.reordered, (queue, books.lost[:9], books.reordered[:9])
        assert books.acknowledged, queue
    assert not re.search(r"ERROR|panicked", server.log()), server.log()


def report(sync: str, kills: dict[str, int], books: list[Books]) -> None:
    lost = sum(len(book.lost) for book in books)
    reordered = sum(len(book.reordered) for book in books)
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=TRAFFIC.parent
    )
    figures = {
        "promise": 8,
        "runs": sum(kills.values()),
        "failures": lost + reordered,
        "first_seed": SEED,
        "commit": commit.stdout.strip(),
        "sync": sync,
        "kills": kills,
        "acknowledged": sum(len(book.acknowledged) for book in books),
        "lost": lost,
        "reordered": reordered,
        "repeats": sum(book.repeats for book in books),
    }
    print(json.dumps(figures))
