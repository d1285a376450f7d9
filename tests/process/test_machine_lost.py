"""The guide "When a machine is lost", run verbatim, and repeatedly with random faults.

Both machines are directories, with a proxy between them that can be closed. In each round, under load, the
leading machine is killed, stopped (and resumed when another one leads) or disconnected, the follower is
killed too, and the other machine takes over. Each record that a follower has acknowledged exists unchanged at
the end; each entry has its effect once. ``MILLSTREAM_TAKEOVERS`` says how many rounds (default 4). A
failure prints the seed.
"""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import millstream as ms
import pytest
from documents import GUIDE, blocks
from service_ledger import LEDGER, TIMEOUT, calls, differences, expected_calls

ROUNDS = int(os.environ.get("MILLSTREAM_TAKEOVERS", "4"))
SEED = int(os.environ.get("MILLSTREAM_SEED", "0")) or random.randrange(1 << 31)
DOCUMENT = GUIDE / "when-a-machine-is-lost.md"
SET = ("entries", "balances")

# Books entries until it is stopped or refused, and writes down what a follower has acknowledged, of the input
# and of the output. One line for each record: journal, number, checksum.
PUBLISHER = """
import random, sys, zlib
from typing import Protocol
import millstream as ms

class Entries(Protocol):
    def book(self, account: str, amount: int) -> None: ...

entries = ms.publisher(Entries, "entries")
chance = random.Random(int(sys.argv[2]))
journals = {name: ms.Journal(name) for name in ("entries", "balances")}
told = {name: journal.next for name, journal in journals.items()}
with open(sys.argv[1], "a") as acknowledged:
    try:
        while True:
            for _ in range(chance.randrange(1, 20)):
                entries.book(f"ACCT-{chance.randrange(20)}", chance.randrange(-100, 100))
            for name, journal in journals.items():
                end = journal.next
                if end > told[name]:
                    journal.wait_follower(end - 1, timeout=None)
                    for record in journal.read(told[name], end):
                        print(name, record.sequence, zlib.crc32(record.body), file=acknowledged, flush=True)
                    told[name] = end
    except ms.JournalSupersededError as error:
        sys.exit(f"refused: {error}")
"""


def run_to_end(folder: Path, *command: object, code: int = 0) -> str:
    program = [sys.executable, "-m", "millstream", *map(str, command)]
    done = subprocess.run(program, cwd=folder, capture_output=True, text=True, timeout=TIMEOUT)
    assert done.returncode == code, f"seed {SEED}: {command}: {done.stdout}{done.stderr}"
    return done.stdout + done.stderr


class Proxy:
    """Passes connections on to a port, unless it is closed: then it ends them and takes none."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self.to = 0
        self.is_open = True
        self.connections: list[socket.socket] = []
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self) -> None:
        while True:
            near, _ = self.listener.accept()
            if not self.is_open:
                near.close()
                continue
            try:
                far = socket.create_connection(("127.0.0.1", self.to))
            except OSError:
                near.close()
                continue
            self.connections += [near, far]
            for ends in ((near, far), (far, near)):
                threading.Thread(target=self.carry, args=ends, daemon=True).start()

    @staticmethod
    def carry(source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(1 << 16):
                sink.sendall(data)
        except OSError:
            pass
        for end in (source, sink):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def close(self) -> None:
        self.is_open = False
        for connection in self.connections:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        self.connections.clear()


class Machine:
    """A directory, the processes that run there, and the link by which others reach its leader."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder, self.port, self.link = folder, port, Proxy()
        self.link.to = port
        self.running: dict[str, subprocess.Popen[str]] = {}
        folder.mkdir()
        (folder / "ledger.py").write_text(f"QUIET = 1\n{LEDGER}")
        (folder / "publisher.py").write_text(PUBLISHER)

    def start(self, role: str, *command: object) -> None:
        log = (self.folder / f"{role}.log").open("a")
        program = [sys.executable, *map(str, command)]
        self.running[role] = subprocess.Popen(program, cwd=self.folder, stdout=log, stderr=log, text=True)
        log.close()

    def serve(self, *more: object) -> None:
        listen = f"127.0.0.1:{self.port}"
        serve = ("-m", "millstream", "journal", "serve", "--listen", listen, "--heartbeat", "200ms")
        self.start("serve", *serve, *more, *SET)

    def follow(self, leader: Machine) -> None:
        follow = ("-m", "millstream", "journal", "follow", leader.link.address, ".", "--retry-max", "200ms")
        self.start("follow", *follow, "--set", ",".join(SET))

    def lead(self, seed: int, acknowledged: Path) -> None:
        """What a leader runs beside `serve`."""
        self.start("publisher", "publisher.py", acknowledged, seed)
        run = ("service", "run", "ledger.py:Ledger", "--in", "entries", "--out", "balances")
        wait_for(lambda: (self.folder / "entries" / "control").exists(), "entries")
        self.start("service", "-m", "millstream", *run, "--rebuild", "snapshot", "--snapshot-every", "300")

    def signal(self, how: signal.Signals, *roles: str) -> None:
        for role in roles or tuple(self.running):
            self.running[role].send_signal(how)

    def kill(self, *roles: str) -> None:
        for role in roles or tuple(self.running):
            process = self.running.pop(role)
            process.kill()
            process.wait(TIMEOUT)

    def ended(self, role: str) -> str:
        """Wait until a process has ended by itself, and give its log."""
        assert self.running.pop(role).wait(TIMEOUT) != 0, f"seed {SEED}: {role} did not fail"
        return self.log(role)

    def log(self, role: str) -> str:
        return (self.folder / f"{role}.log").read_text()


def wait_for(holds: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + TIMEOUT
    while not holds():
        assert time.monotonic() < end, f"seed {SEED}: {what} has not come true"
        time.sleep(0.02)


def lines_of(path: Path) -> list[str]:
    """The lines that were written to their end."""
    return path.read_text().splitlines()[:-1] if path.exists() else []


def take_over(old: Machine, new: Machine, chance: random.Random, acknowledged: Path) -> str:
    """Lose the old machine in some way, let the new one lead, and bring the old one back as its follower."""
    fault = chance.choice(["killed", "zombie", "cut off"])
    if fault == "killed":
        old.kill()
    elif fault == "zombie":
        old.signal(signal.SIGSTOP)
    else:
        old.link.close()
    if chance.random() < 0.5:
        new.kill("follow")
        new.follow(old)
        time.sleep(chance.random() / 2)
    new.kill("follow")
    run_to_end(new.folder, "journal", "promote", *SET)
    if fault == "killed":
        old.serve()
    new.serve("--tell", old.link.address)
    new.lead(chance.randrange(1 << 30), acknowledged)
    if fault == "zombie":
        old.signal(signal.SIGCONT)
    elif fault == "cut off":
        # Its writers go on for a while, for nothing.
        time.sleep(chance.random())
        old.link.is_open = True
    wait_for(lambda: "superseded" in old.log("serve"), "the news")
    for role in ("publisher", "service"):
        if role in old.running:
            # Those that neither append nor wait do not notice, and do no harm.
            assert role == "service" or "superseded by term" in old.ended(role)
    old.kill()
    leader = new.link.address
    run_to_end(old.folder, "journal", "rejoin", ".", "--set", ",".join(SET), "--leader", leader, "--yes")
    (old.folder / "serve.log").unlink()
    old.follow(new)
    return fault


@pytest.fixture
def machines(free_port: Callable[[], int], tmp_path: Path) -> Iterator[list[Machine]]:
    both = [Machine(tmp_path / name, free_port()) for name in ("a", "b")]
    yield both
    for machine in both:
        machine.signal(signal.SIGCONT)
        machine.kill()


def assert_all_there(leader: Machine, acknowledged: Path) -> int:
    """Each acknowledged record is in the leader's journal, and none was acknowledged in two ways."""
    told: dict[tuple[str, int], int] = {}
    for line in lines_of(acknowledged):
        name, number, crc = line.split()
        assert told.setdefault((name, int(number)), int(crc)) == int(crc), f"seed {SEED}: {line}"
    for name in SET:
        with ms.Journal(leader.folder / name, "r") as journal:
            found = {record.sequence: zlib.crc32(record.body) for record in journal}
        missing = [key for key, crc in told.items() if key[0] == name and found.get(key[1]) != crc]
        assert missing == [], f"seed {SEED}"
    return len(told)


def test_machines_take_over_from_each_other_again_and_again(machines: list[Machine], tmp_path: Path) -> None:
    print(f"seed {SEED}")
    chance = random.Random(SEED)
    acknowledged = tmp_path / "acknowledged"
    leader, other = machines
    leader.serve()
    other.follow(leader)
    leader.lead(chance.randrange(1 << 30), acknowledged)
    # Before the other machine has a copy of each journal there is nothing to promote.
    wait_for(
        lambda: any(line.startswith("balances") for line in lines_of(acknowledged)), "a copy of the output"
    )
    faults: list[str] = []
    for _ in range(ROUNDS):
        before = len(lines_of(acknowledged))
        wait_for(lambda before=before: len(lines_of(acknowledged)) > before + 100, "acknowledgements")
        time.sleep(chance.random() / 2)
        faults.append(take_over(leader, other, chance, acknowledged))
        leader, other = other, leader
        assert_all_there(leader, acknowledged)
    before = len(lines_of(acknowledged))
    wait_for(lambda: len(lines_of(acknowledged)) > before + 100, "acknowledgements at the end")
    leader.kill("publisher", "service")
    run = ("service", "run", "ledger.py:Ledger", "--in", "entries", "--out", "balances")
    run_to_end(leader.folder, *run, "--rebuild", "snapshot", "--snapshot-every", "300", "--drain")
    told = assert_all_there(leader, acknowledged)
    expected = expected_calls(leader.folder, leader.folder / "entries")
    wrong = differences(calls(leader.folder / "balances"), expected)
    figures = {
        "promise": 24,
        "takeovers": {fault: faults.count(fault) for fault in sorted(set(faults))},
        "acknowledged": told,
        "calls": len(expected),
        "failures": wrong,
        "first_seed": SEED,
    }
    print(json.dumps(figures))
    assert told > 100 * ROUNDS
    assert wrong == 0, f"seed {SEED}"


def test_the_guide_runs_as_written(free_port: Callable[[], int], tmp_path: Path) -> None:
    desk, place = blocks(DOCUMENT, "python")
    (tmp_path / "desk.py").write_text(desk)
    (tmp_path / "place.py").write_text(place)
    script = "set -e\ntrap 'kill -9 $(jobs -p) 2> /dev/null || :' EXIT\n" + "".join(blocks(DOCUMENT, "sh"))
    script = script.replace("7600", str(free_port())).replace("7601", str(free_port()))
    log = tmp_path / "log"
    with log.open("w") as output:
        shell = subprocess.Popen(
            ["bash", "-c", script],
            cwd=tmp_path,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        try:
            code = shell.wait(2 * TIMEOUT)
        except subprocess.TimeoutExpired:
            os.killpg(shell.pid, signal.SIGKILL)
            code = shell.wait()
    told = log.read_text()
    assert code == 0, told
    assert "the journal's term 0 is superseded by term 1" in told
    assert "leads in term 1 from record 11 on; it was a copy in term 0" in told
    replies = [calls(tmp_path / name / "replies") for name in ("a", "b")]
    assert replies[0] == replies[1]
    orders = [f"{who}-{n}" for who in ("first", "second") for n in range(10)]
    assert len(replies[0]) == len(orders)
    for number, (id, call) in enumerate(zip(orders, replies[0], strict=True), 1):
        assert id in call and str(10 * number) in call
