"""Queues on two machines, which take over from each other again and again while clients put and take.

Both machines are directories; a proxy stands between them, and another one before the clients, as a virtual address would. In each round the serving machine is
killed, stopped (and resumed when the other one serves) or cut off, or only restarted, and the other machine takes over. By the ledger
of the clients each item whose set was answered is given to a consumer, unchanged, and none comes again whose
confirmation was answered. ``MILLSTREAM_TAKEOVERS`` says how many rounds (default 6). A failure prints the seed.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from queue_server import Line, QueueServer
from queue_traffic import FAILED, Connection, check, item
from tcp_link import Link

ROUNDS = int(os.environ.get("MILLSTREAM_TAKEOVERS", "6"))
SEED = int(os.environ.get("MILLSTREAM_SEED", "0")) or random.randrange(1 << 31)
TIMEOUT = 60.0


def until(holds: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + TIMEOUT
    while not holds():
        assert time.monotonic() < end, f"seed {SEED}: {what} has not come true"
        time.sleep(0.01)


class Machine:
    """A directory of queues, and what runs there: a server with followers, or a follower."""

    def __init__(self, program: Path, folder: Path, name: str) -> None:
        self.program, self.folder, self.name = program, folder / name, name
        self.link = Link(0)
        self.follower: subprocess.Popen[bytes] | None = None
        self.server: QueueServer | None = None
        self.log = folder / f"{name}.follow.log"

    def serve(self, *options: str) -> None:
        """With answers that wait for a follower."""
        replica = ("--replica", "127.0.0.1:0", "--commit-on-replica", *options)
        self.server = QueueServer(self.program, self.folder, *replica)
        self.server.start()
        self.link.target = int(self.server.wait_for(r"followers are served at 127\.0\.0\.1:(\d+)")[1])

    def follow(self, leader: Machine, *options: str) -> None:
        command = [self.program, "queue", "follow", leader.link.address, self.folder, "--as", self.name]
        with self.log.open("ab") as log:
            self.follower = subprocess.Popen([*command, "--retry-max", "200ms", *options], stderr=log, stdout=log)

    def end_follower(self, how: signal.Signals) -> None:
        assert self.follower is not None
        self.follower.send_signal(how)
        code = self.follower.wait(TIMEOUT)
        # A signal may come before there is a handler.
        assert code in (0, -how), f"seed {SEED}: {self.log.read_text()}"
        self.follower = None

    def run(self, verb: str, *options: object) -> str:
        command = [self.program, "queue", verb, self.folder, *options]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=TIMEOUT)
        assert done.returncode == 0, f"seed {SEED}: {command}: {done.stderr}"
        return done.stdout

    def kill(self) -> None:
        if self.server is not None and self.server.process is not None:
            self.server.kill()
        if self.follower is not None:
            self.end_follower(signal.SIGKILL)


class Clients:
    """Producers and consumers behind one address. What they note is true whatever happens to the servers."""

    def __init__(self, port: int) -> None:
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
        queue, open_item = ("jobs", "mail", "jobs")[int(name[1:])], ""
        while not self.stops.is_set():
            connection.socket.sendall(f"get {queue}/close/open/t=50\r\n".encode())
            line = connection.line()
            confirmed, open_item = open_item, ""
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
        stored, confirmed = len(self.stored), len(self.confirmed)
        until(
            lambda: bool(self.faults)
            or (len(self.stored) > stored + 50 and len(self.confirmed) > confirmed + 20),
            "sets and gets are answered",
        )
        assert not self.faults, f"seed {SEED}: {self.faults}"

    def end(self) -> None:
        self.stops.set()
        for thread in self.threads:
            thread.join(TIMEOUT)
        assert not self.faults, f"seed {SEED}: {self.faults}"


def drain(port: int, clients: Clients) -> None:
    """Takes what is left."""
    with Line(port) as line:
        time.sleep(0.05)
        for queue in ("jobs", "mail"):
            while (body := line.get(queue)) is not None:
                name = check(body)
                assert name not in clients.confirmed, f"seed {SEED}: {name} came again"
                clients.given.add(name)


def take_over(old: Machine, new: Machine, front: Link, chance: random.Random) -> str:
    """Loses the old machine in some way, lets the new one serve, and brings the old one back as its follower."""
    assert old.server is not None
    fault = chance.choice(["killed", "stopped", "cut off"])
    if fault == "killed":
        old.server.kill()
    elif fault == "stopped":
        old.server.signal(signal.SIGSTOP)
    else:
        old.link.refuses = True
        old.link.cut()
        time.sleep(chance.random() * 1.5)
    if chance.random() < 0.5:
        new.end_follower(signal.SIGKILL)
        new.follow(old)
    new.end_follower(chance.choice([signal.SIGKILL, signal.SIGTERM]))
    new.run("promote")
    if chance.random() < 0.3:
        new.run("promote")
    new.serve("--tell", old.link.address, *chance.choice([(), ("--sync=never",)]))
    assert new.server is not None
    # Clients that are connected to the old server stay until that ends.
    front.target = new.server.port
    if fault == "stopped":
        old.server.signal(signal.SIGCONT)
    elif fault == "cut off":
        old.link.refuses = False
    if fault != "killed":
        assert old.server.wait(TIMEOUT) == 1
        assert "was promoted" in old.server.log(), f"seed {SEED}"
    front.cut()
    old.run("rejoin", "--leader", new.link.address, "--yes")
    old.follow(new, *chance.choice([(), ("--sync=never",)]))
    return fault


@pytest.fixture
def machines(millstream_bin: Path, tmp_path: Path) -> object:
    both = Machine(millstream_bin, tmp_path, "one"), Machine(millstream_bin, tmp_path, "two")
    yield both
    for machine in both:
        machine.kill()
        machine.link.close()
        print(machine.name, machine.server and machine.server.log(), machine.log.read_text() if machine.log.exists() else "")


def test_machines_take_over_from_each_other(machines: tuple[Machine, Machine]) -> None:
    old, new = machines
    chance = random.Random(SEED)
    old.serve()
    new.follow(old)
    assert old.server is not None
    with Link(old.server.port) as front:
        clients = Clients(front.port)
        for _ in range(ROUNDS):
            clients.wait_for_more()
            if chance.random() < 0.4:
                # Only a restart: the same server goes on, whatever was told of its last change.
                assert old.server is not None
                target = old.link.target
                old.server.kill() if chance.random() < 0.7 else old.server.stop()
                old.serve()
                assert old.link.target != target
                front.target = old.server.port
                clients.wait_for_more()
            take_over(old, new, front, chance)
            old, new = new, old
        clients.wait_for_more()
        clients.end()
        assert old.server is not None
        drain(old.server.port, clients)
        lost = clients.stored - clients.given
        assert not lost, f"seed {SEED}: {len(lost)} of {len(clients.stored)} are lost: {sorted(lost)[:5]}"
        # The copy has what the server has: it serves the same items.
        with old.server.connect() as line:
            for n in range(5):
                assert line.set("rest", b"%d" % n) == b"STORED"
        new.end_follower(signal.SIGTERM)
        old.server.kill()
        new.run("promote")
        new.server = QueueServer(new.program, new.folder, "--replica", "127.0.0.1:0")
        new.server.start()
        with new.server.connect() as line:
            assert [line.get("rest") for _ in range(6)] == [b"%d" % n for n in range(5)] + [None]
            assert line.get("jobs") is None and line.get("mail") is None
