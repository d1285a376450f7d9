"""Queues on two machines, which take over from each other again and again while clients put and take.

Both machines are directories; a proxy stands between them, and another one before the clients, as a virtual
address would. In each round the serving machine is killed, stopped (and resumed when the other one serves),
disconnected, or only restarted, and the other machine takes over. By the ledger of the clients each item
whose set was answered is given to a consumer, unchanged; none comes again whose confirmation was answered.
``MILLSTREAM_TAKEOVERS`` says how many rounds (default 6). A failure prints the seed.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import millstream as ms
import pytest
from documents import GUIDE, blocks
from queue_ledger import TIMEOUT, Clients, drain, until
from queue_server import QueueServer
from servers import pause
from small_disk import small_disk
from tcp_link import Link

ROUNDS = int(os.environ.get("MILLSTREAM_TAKEOVERS", "6"))
SEED = int(os.environ.get("MILLSTREAM_SEED", "0")) or random.randrange(1 << 31)
DOCUMENTS = (GUIDE / "queues-on-two-machines.md", GUIDE / "queue-take-over.md")


class Machine:
    """A directory of queues, and what runs there: a server with followers, or a follower."""

    def __init__(self, program: Path, folder: Path, name: str) -> None:
        self.program = program
        self.folder = folder / name
        self.name = name
        self.link = Link(0)
        self.follower: subprocess.Popen[bytes] | None = None
        self.server: QueueServer | None = None
        self.log = folder / f"{name}.follow.log"

    def serve(
        self, *options: str, waits: bool = True, config: str | None = None, log: Path | None = None
    ) -> QueueServer:
        """With answers that wait for a follower, or without."""
        replica = ["--replica", "127.0.0.1:0", *["--commit-on-replica"] * waits, *options]
        self.server = QueueServer(self.program, self.folder, *replica, config=config)
        if log is not None:
            self.server.log_path = log
            log.write_text("")
        self.server.start()
        self.link.target = int(self.server.wait_for(r"followers are served at 127\.0\.0\.1:(\d+)")[1])
        return self.server

    def follow(self, leader: Machine, *options: str) -> None:
        command = [self.program, "queue", "follow", leader.link.address, self.folder, "--as", self.name]
        with self.log.open("ab") as log:
            self.follower = subprocess.Popen(
                [*command, "--retry-max", "200ms", *options], stderr=log, stdout=log
            )

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


def take_over(old: Machine, new: Machine, front: Link, chance: random.Random) -> str:
    """Loses the old machine in some way, lets the new one serve, and makes the old one its follower."""
    assert old.server is not None
    fault = chance.choice(["killed", "stopped", "cut off"])
    if fault == "killed":
        old.server.kill()
    elif fault == "stopped":
        assert old.server.process is not None
        pause(old.server.process)
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
        print(
            machine.name,
            machine.server and machine.server.log(),
            machine.log.read_text() if machine.log.exists() else "",
        )


def test_machines_take_over_from_each_other(machines: tuple[Machine, Machine]) -> None:
    old, new = machines
    chance = random.Random(SEED)
    old.serve()
    new.follow(old)
    assert old.server is not None
    with Link(old.server.port) as front:
        clients = Clients(front.port, SEED)
        for _ in range(ROUNDS):
            clients.wait_for_more()
            if chance.random() < 0.4:
                # Only a restart: the same server goes on, whether or not its last change was written.
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
        clients.judge()
        # The copy has what the server has: it serves the same items.
        with old.server.connect() as line:
            for n in range(5):
                assert line.set("rest", b"%d" % n) == b"STORED"
        new.end_follower(signal.SIGTERM)
        old.server.kill()
        new.run("promote")
        with new.serve(waits=False).connect() as line:
            assert [line.get("rest") for _ in range(6)] == [b"%d" % n for n in range(5)] + [None]
            assert line.get("jobs") is None and line.get("mail") is None


def test_the_guide_runs_as_written(
    millstream_bin: Path, free_port: Callable[[], int], tmp_path: Path
) -> None:
    commands = [block for document in DOCUMENTS for block in blocks(document, "sh")]
    script = "set -e\ntrap 'kill -9 $(jobs -p) 2> /dev/null || :' EXIT\n" + "".join(commands)
    for port in ("22133", "22134", "22135", "22136", "7760", "7761", "7762", "7763"):
        script = script.replace(port, str(free_port()))
    path = f"{millstream_bin.parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PATH": path}
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=TIMEOUT
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "first"
    assert "b: the queues, in term 1; before, a copy in term 0" in lines
    assert lines[lines.index("b: the queues, in term 1; before, a copy in term 0") + 1] == "second"
    assert re.search(r"^b/.changes: a at \d+, 0 behind, connected, counts$", done.stdout, re.MULTILINE)
    assert re.search(r"^jobs +1 ", done.stdout, re.MULTILINE), done.stdout


def refused(program: Path, *command: object) -> str:
    """What a command says that is refused."""
    line = [program, "queue", *command]
    done = subprocess.run(list(map(str, line)), capture_output=True, text=True, timeout=TIMEOUT)
    assert done.returncode == 1 and "panicked" not in done.stderr, done.stderr
    return done.stderr


def test_what_would_break_a_copy_is_refused(machines: tuple[Machine, Machine]) -> None:
    old, new = machines
    program = old.program
    message = refused(program, "promote", old.folder)
    assert "no second machine has followed these queues" in message
    old.serve()
    assert old.server is not None
    follow = ("follow", old.link.address, new.folder, "--as", "two", "--once")
    with old.server.connect() as line:
        line.send(b"set jobs 0 0 1\r\n1\r\n")
        # There is no follower: nothing is answered, and then nothing is done.
        old.server.wait_for("not all followers that count have acknowledged for a second")
        with old.server.connect() as other:
            other.send(b"get jobs\r\n")
            subprocess.run([str(part) for part in (program, "queue", *follow)], check=True, timeout=TIMEOUT)
            assert line.read() == b"STORED"
        assert "another process serves these queues" in refused(program, "promote", old.folder)
        # The copy is not served before it is promoted, and its queues are not opened.
        serve = ("serve", "--listen", "127.0.0.1:0", "--dir", new.folder)
        assert "a copy, which a follower keeps: `millstream queue promote`" in refused(program, *serve)
        message = refused(program, *serve, "--replica", "127.0.0.1:0")
        assert "these queues are a copy, which a follower keeps: `millstream queue promote`" in message
        with pytest.raises(OSError, match="these queues are a copy"):
            ms.Queues(new.folder)
    old.server.kill()
    salvage = refused(program, "salvage", "jobs", "--dir", old.folder)
    assert "a second machine follows these queues" in salvage
    alone_message = refused(program, *serve[:-1], old.folder)
    assert "or delete .changes there to do without it" in alone_message
    for verb in (("prune", old.folder / ".changes", "--bytes", "1M"), ("append", old.folder / ".changes")):
        done = subprocess.run(
            [str(part) for part in (program, "journal", *verb)],
            input=b"x",
            capture_output=True,
            timeout=TIMEOUT,
        )
        assert done.returncode == 2 and b"pruned by `millstream queue serve`" in done.stderr
    # As the message says: without the second machine.
    shutil.rmtree(old.folder / ".changes")
    alone = QueueServer(program, old.folder)
    alone.start()
    alone.kill()
    # A copy does not replace queues that were not its own.
    other = old.folder.with_name("own")
    own = QueueServer(program, other)
    own.start()
    with own.connect() as line:
        assert line.set("mine", b"1") == b"STORED"
    own.kill()
    message = refused(program, "follow", old.link.address, other, "--once")
    assert 'it has queues of its own ("mine")' in message
    new.run("promote")
    new.run("promote")


def test_a_follower_that_comes_late_or_begins_anew_gets_all(machines: tuple[Machine, Machine]) -> None:
    """More than what a snapshot takes is written, so that older changes are gone."""
    server, follower = machines
    server.folder.mkdir()
    alone = QueueServer(server.program, server.folder, "--sync=never")
    alone.start()
    with alone.connect() as line:
        for n in range(50):
            assert line.set(f"before{n % 7}", b"%d" % n) == b"STORED"
    assert alone.stop() == 0
    serving = server.serve("--sync=never", waits=False)
    body = bytes(500_000)
    with serving.connect() as line:
        for _ in range(300):
            assert line.set("large", body) == b"STORED"
            assert line.get("large") == body
        assert line.set("large", b"last") == b"STORED"
        assert line.set("gone", b"x") == b"STORED" and line.ask(b"delete gone") == b"DELETED"
    changes = server.folder / ".changes"

    def first() -> int:
        with ms.Journal(changes, "r") as journal:
            return journal.first

    until(lambda: first() > 50, "old changes are removed")
    follower.follow(server)
    until(lambda: "the copy is complete" in follower.log.read_text(), "the copy")
    assert serving.stop() == 0, "it waits until the follower has the last changes"
    follower.end_follower(signal.SIGTERM)
    follower.run("promote")
    with follower.serve("--sync=never", waits=False).connect() as line:
        assert line.get("large") == b"last" and line.get("large") is None
        for queue in range(7):
            items = [line.get(f"before{queue}") for _ in range(9)]
            expected: list[bytes | None] = [b"%d" % n for n in range(queue, 50, 7)]
            assert items == (expected + [None] * 9)[:9]
        assert "queue_gone_items" not in line.stats()


@pytest.mark.parametrize("full", ["server", "follower"])
def test_a_full_disk_of_either_machine_is_emptied(full: str, millstream_bin: Path, tmp_path: Path) -> None:
    """Fill, take all, fill again: with a follower, whose copy has the same at the end."""
    with small_disk("tmpfs", 64, tmp_path / "small") as disk:
        folders = (disk.path, tmp_path) if full == "server" else (tmp_path, disk.path)
        server = Machine(millstream_bin, folders[0], "one")
        follower = Machine(millstream_bin, folders[1], "two")
        follower.log = tmp_path / "two.log"
        try:
            serving = server.serve("--sync=never", waits=False, log=tmp_path / "one.log")
            follower.follow(server)
            with serving.connect() as line:
                assert line.set("jobs", b"first") == b"STORED" and line.get("jobs") == b"first"
                for _ in range(2):
                    answers = [line.set("jobs", bytes(10_000)) for _ in range(7_500)]
                    stored = answers.count(b"STORED")
                    refused = set(answers) - {b"STORED"}
                    assert stored > 500 and all(b"No space left on device" in answer for answer in refused)
                    assert bool(refused) == (full == "server")
                    if full == "follower":
                        until(lambda: "No space left" in follower.log.read_text(), "a full disk")
                    for _ in range(stored):
                        assert line.get("jobs") == bytes(10_000)
                    assert line.get("jobs") is None
                assert line.set("jobs", b"last") == b"STORED"
                if full == "follower":
                    # What it cannot copy yet is kept for it, and it goes on when there is room.
                    subprocess.run(["mount", "-o", "remount,size=600m", disk.path], check=True)
            assert follower.follower is not None
            until(lambda: is_followed(server), "the follower")
            follower.end_follower(signal.SIGTERM)
            serving.kill()
            follower.run("promote")
            again = follower.serve("--sync=never", waits=False, log=tmp_path / "again.log")
            with again.connect() as line:
                assert line.get("jobs") == b"last" and line.get("jobs") is None
        finally:
            for machine in (server, follower):
                machine.kill()
                machine.link.close()
            print(follower.log.read_text(), server.server and server.server.log())


def test_a_full_disk_on_which_nothing_can_be_answered_is_no_end(
    machines: tuple[Machine, Machine], tmp_path: Path
) -> None:
    """Not even the change that a follower must acknowledge has room; when there is room, all goes on."""
    _, follower = machines
    with small_disk("tmpfs", 24, tmp_path / "small") as disk:
        server = Machine(follower.program, disk.path, "small")
        try:
            serving = server.serve("--sync=never", log=tmp_path / "small.log")
            follower.follow(server, "--sync=never")
            with serving.connect(timeout=3) as line:
                assert line.set("jobs", b"first") == b"STORED"
                filler = disk.path / "filler"
                with pytest.raises(OSError, match="No space left"), filler.open("wb", buffering=0) as file:
                    while True:
                        file.write(bytes(4096))
                stored = 1
                with pytest.raises(TimeoutError):
                    while stored < 20_000:
                        stored += line.set("jobs", b"x" * 100) == b"STORED"
                assert stored < 20_000
                filler.unlink()
            with serving.connect() as line:
                assert line.set("jobs", b"last") == b"STORED"
                found = [line.get("jobs") for _ in range(stored)]
                assert found[0] == b"first" and None not in found
        finally:
            server.kill()
            server.link.close()


def followers_of(machine: Machine) -> str:
    changes = machine.folder / ".changes"
    listed = subprocess.run(
        [machine.program, "journal", "followers", changes], capture_output=True, text=True, check=True
    )
    return listed.stdout


def is_followed(machine: Machine) -> bool:
    return ", 0 behind, connected, counts" in followers_of(machine)


def test_requests_of_disconnected_clients_are_not_executed(machines: tuple[Machine, Machine]) -> None:
    old, new = machines
    old.serve()
    new.follow(old)
    assert old.server is not None
    with old.server.connect() as line:
        for n in range(40):
            assert line.set("jobs", b"%d" % n) == b"STORED"
        new.end_follower(signal.SIGKILL)
        line.send(b"set other 0 0 1\r\nx\r\n")
        old.server.wait_for("nothing is answered until they have")
        # The thread of the clients learns of it a moment later.
        time.sleep(1)
        stays = old.server.connect()
        stays.send(b"get jobs\r\n")
        for _ in range(20):
            gone = old.server.connect()
            gone.send(b"get jobs\r\nget jobs\r\n")
            gone.close()
        time.sleep(0.3)
        new.follow(old)
        assert line.read() == b"STORED"
        assert stays.value(stays.read()) == b"0" and line.get("jobs") == b"1"
        stays.close()


def test_an_answer_is_on_each_follower_that_counts(machines: tuple[Machine, Machine]) -> None:
    """The slower one is promoted, and has all."""
    old, slow = machines
    old.serve()
    slow.follow(old)
    until(lambda: is_followed(old), "the first follower")
    third = Machine(old.program, old.folder.parent, "three")
    try:
        third.link.target = old.link.target
        third.follow(old)
        until(lambda: f"{third.name} at" in followers_of(old), "the second follower")
        until(lambda: followers_of(old).count(", counts") == 2, "both count")
        assert old.server is not None
        with old.server.connect() as line:
            assert line.set("jobs", b"1") == b"STORED"
            assert slow.follower is not None
            pause(slow.follower)
            line.send(b"set jobs 0 0 1\r\n2\r\n")
            old.server.wait_for("nothing is answered until they have")
            slow.follower.send_signal(signal.SIGCONT)
            assert line.read() == b"STORED"
        old.server.kill()
        slow.end_follower(signal.SIGKILL)
        slow.run("promote")
        with slow.serve(waits=False).connect() as line:
            assert [line.get("jobs") for _ in range(3)] == [b"1", b"2", None]
    finally:
        third.kill()
        third.link.close()


def test_a_fan_out_queue_that_was_mentioned_gets_copies_after_a_promotion(
    machines: tuple[Machine, Machine],
) -> None:
    first, second = machines
    with first.serve().connect() as line:
        second.follow(first)
        assert line.set("p", b"before") == b"STORED"
        assert line.get("p+a") is None
        first.kill()
    second.end_follower(signal.SIGTERM)
    second.run("promote")
    with second.serve(waits=False).connect() as line:
        assert line.set("p", b"after") == b"STORED"
        assert line.get("p+a") == b"after"
        assert [line.get("p"), line.get("p")] == [b"before", b"after"]


def test_a_copy_has_items_of_any_length(machines: tuple[Machine, Machine]) -> None:
    old, new = machines
    config = "[limits]\nitem_bytes = 20000000\n"
    serving = old.serve(waits=False, config=config)
    new.follow(old)
    large = bytes(19_000_000)
    with serving.connect() as line:
        assert line.set("q", b"small") == b"STORED" and line.set("q", large) == b"STORED"
    assert serving.stop() == 0
    new.end_follower(signal.SIGTERM)
    new.run("promote")
    with new.serve(waits=False, config=config).connect() as line:
        assert line.get("q") == b"small" and line.get("q") == large
