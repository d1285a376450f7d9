"""A ledger of clients that put into queues and take from them while servers fail."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable

from queue_server import Line
from queue_traffic import FAILED, Connection, check, item

TIMEOUT = 90.0


def until(holds: Callable[[], object], what: str) -> None:
    end = time.monotonic() + TIMEOUT
    while not holds():
        assert time.monotonic() < end, f"{what} has not come true"
        time.sleep(0.01)


class Clients:
    """Producers and consumers at one address. What they note is true whatever happens to the servers."""

    def __init__(self, port: int, seed: int) -> None:
        self.seed = seed
        self.port, self.stops, self.lock = port, threading.Event(), threading.Lock()
        self.stored: set[str] = set()
        self.given: set[str] = set()
        self.confirmed: set[str] = set()
        self.faults: list[str] = []
        workers = [(self.produce, f"p{n}") for n in range(3)] + [(self.consume, f"c{n}") for n in range(3)]
        self.threads = [threading.Thread(target=self.work, args=each, daemon=True) for each in workers]
        for thread in self.threads:
            thread.start()

    def work(self, act: Callable[[Connection, str], None], name: str) -> None:
        while not self.stops.is_set() and not self.faults:
            try:
                connection = Connection(self.port)
                connection.socket.settimeout(5)
                act(connection, name)
            except FAILED:
                time.sleep(0.01)
            except AssertionError as error:
                self.faults.append(f"{name}: {error}")

    def produce(self, connection: Connection, name: str) -> None:
        chance = random.Random()
        while not self.stops.is_set():
            number = time.monotonic_ns()
            body = item(name, number)
            queue = chance.choice(("jobs", "mail"))
            delay = chance.choice(("", "", "/delay=20"))
            request = b"set %s%s 0 0 %d\r\n%s\r\n" % (queue.encode(), delay.encode(), len(body), body)
            connection.socket.sendall(request)
            answer = connection.line()
            assert answer == b"STORED", answer
            with self.lock:
                self.stored.add(f"{name}:{number}")

    def consume(self, connection: Connection, name: str) -> None:
        queue = ("jobs", "mail", "jobs")[int(name[1:])]
        open_item = ""
        while not self.stops.is_set():
            connection.socket.sendall(f"get {queue}/close/open/t=50\r\n".encode())
            line = connection.line()
            confirmed = open_item
            open_item = ""
            if line != b"END":
                open_item = check(connection.block(int(line.split()[3])))
                assert connection.line() == b"END"
            with self.lock:
                if confirmed:
                    self.confirmed.add(confirmed)
                assert open_item not in self.confirmed, f"{open_item} came again"
                self.given |= {open_item} - {""}

    def wait_for_more(self) -> None:
        """Until some more was put and taken."""
        stored = len(self.stored)
        confirmed = len(self.confirmed)
        until(
            lambda: (
                bool(self.faults) or (len(self.stored) > stored + 50 and len(self.confirmed) > confirmed + 20)
            ),
            "sets and gets are answered",
        )
        assert not self.faults, f"seed {self.seed}: {self.faults}"

    def end(self) -> None:
        self.stops.set()
        for thread in self.threads:
            thread.join(TIMEOUT)
        assert not self.faults, f"seed {self.seed}: {self.faults}"

    def judge(self) -> None:
        """Nothing that was stored is missing, when all was taken."""
        lost = self.stored - self.given
        print(f"{len(self.stored)} stored, {len(self.confirmed)} confirmed, {len(lost)} lost")
        assert not lost, f"seed {self.seed}: {len(lost)} of {len(self.stored)} are lost: {sorted(lost)[:5]}"


def drain(port: int, clients: Clients) -> None:
    """Takes what is left."""
    with Line(port) as line:
        time.sleep(0.05)
        for queue in ("jobs", "mail"):
            while (body := line.get(queue)) is not None:
                name = check(body)
                assert name not in clients.confirmed, f"seed {clients.seed}: {name} came again"
                clients.given.add(name)
