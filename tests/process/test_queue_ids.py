"""Producers repeat each set with its id until it is answered, and sometimes after that, while the server is
killed with SIGKILL. A consumer opens and confirms items in batches meanwhile. Each item was put once: its
number in the queue is the same at each delivery.
"""

import os
import random
import threading
import time
from collections import defaultdict

import pytest
from queue_server import Line, QueueServer, Serve

KILLS = int(os.environ.get("MILLSTREAM_KILLS", 8))
SEED = int(os.environ.get("MILLSTREAM_SEED", random.SystemRandom().randrange(1 << 32)))
PRODUCERS = 3
CONFIG = '[queue.orders]\ndedupe = "10min"\ndedupe_ids = 1_000_000\n'


def items(line: Line, request: str) -> list[tuple[bytes, int]]:
    """The items in an answer to `gets`, with their numbers."""
    found = []
    line.send(request.encode() + b"\r\n")
    while (head := line.read()) not in (b"END", b"NOT_FOUND"):
        if not head:
            raise ConnectionError
        _, _, _, length, number = head.split()
        found.append((line.file.read(int(length) + 2)[:-2], int(number)))
    return found


class Shop:
    """One server, its producers and its consumer."""

    def __init__(self, server: QueueServer) -> None:
        self.server = server
        self.is_over = False
        self.acknowledged: list[list[str]] = [[] for _ in range(PRODUCERS)]
        self.numbers: defaultdict[bytes, set[int]] = defaultdict(set)

    def connected(self) -> Line:
        while True:
            try:
                return self.server.connect()
            except OSError:
                time.sleep(0.01)

    def put(self, line: Line, order: str) -> Line:
        while True:
            try:
                if line.set(f"orders/id={order}", order.encode()) == b"STORED":
                    return line
            except (OSError, AssertionError):
                pass
            line = self.connected()

    def produce(self, number: int) -> None:
        chance = random.Random(f"{SEED} {number}")
        line = self.connected()
        own = self.acknowledged[number]
        while not self.is_over:
            order = f"{number}:{len(own)}"
            line = self.put(line, order)
            own.append(order)
            if chance.random() < 0.3:
                line = self.put(line, chance.choice(own))

    def consume(self) -> None:
        line = self.connected()
        request = "gets orders/open/max=20/t=100"
        while not self.is_over:
            try:
                found = items(line, request)
            except (OSError, AssertionError, ValueError):
                line = self.connected()
                request = "gets orders/open/max=20/t=100"
                continue
            request = "gets orders/close/open/max=20/t=100"
            for order, number in found:
                self.numbers[order].add(number)


@pytest.mark.parametrize("sync", ["always", "never"])
def test_a_repeated_set_adds_nothing_while_the_server_is_killed(sync: str, serve: Serve) -> None:
    print(f"MILLSTREAM_SEED={SEED} repeats the pauses")
    chance = random.Random(SEED)
    server = serve(f"--sync={sync}", config=CONFIG)
    with server.connect() as line:
        assert line.get("orders+audit") is None
    shop = Shop(server)
    threads = [threading.Thread(target=shop.produce, args=[number]) for number in range(PRODUCERS)]
    threads.append(threading.Thread(target=shop.consume))
    for thread in threads:
        thread.start()
    try:
        for _ in range(KILLS):
            time.sleep(0.05 + 0.2 * chance.random())
            server.kill()
            server.start()
    finally:
        shop.is_over = True
        for thread in threads:
            thread.join()
    orders = [order for own in shop.acknowledged for order in own]
    with server.connect() as line:
        for order in chance.sample(orders, min(len(orders), 200)):
            assert line.set(f"orders/id={order}", order.encode()) == b"STORED"
        while found := items(line, "gets orders/max=50"):
            for body, number in found:
                shop.numbers[body].add(number)
        audit = []
        while found := items(line, "gets orders+audit/max=50"):
            audit += [body.decode() for body, _ in found]
    # A set that was not acknowledged when all ended may be there too.
    assert set(orders) <= {body.decode() for body in shop.numbers}
    assert {body: numbers for body, numbers in shop.numbers.items() if len(numbers) > 1} == {}
    assert len(audit) == len(set(audit)) and set(orders) <= set(audit)
    for number in range(PRODUCERS):
        own = [order for order in audit if order.startswith(f"{number}:")]
        assert own == [f"{number}:{at}" for at in range(len(own))]
