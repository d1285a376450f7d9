"""Machines that take over queues by themselves, while clients put and take and all that they rely on fails.

In each round the machine that serves is killed, paused for longer than its lease, stopped by SIGTERM, or cut
from its follower (in both directions, or in one) or from the arbiter; or its follower is. By the ledger of
the clients each item whose set was answered is given to a consumer, and none comes again whose confirmation
was answered. ``MILLSTREAM_TAKEOVERS`` says how many rounds (default 6). A failure prints the seed.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from documents import GUIDE, blocks
from queue_group import Arbiter, Front, Member
from queue_ledger import TIMEOUT, Clients, drain, until
from queue_server import Line, QueueServer

ROUNDS = int(os.environ.get("MILLSTREAM_TAKEOVERS", "6"))
SEED = int(os.environ.get("MILLSTREAM_SEED", "0")) or random.randrange(1 << 31)
Pair = tuple[Member, Member]


@pytest.fixture
def arbiter(tmp_path: Path) -> Arbiter:
    return Arbiter(tmp_path / "arbiter")


@pytest.fixture
def pair(millstream_bin: Path, tmp_path: Path, arbiter: Arbiter) -> Iterator[Pair]:
    one, two = (Member(millstream_bin, tmp_path, name, arbiter) for name in ("one", "two"))
    yield one, two
    for member in (one, two):
        member.close()
        print(member.name, member.log())


def begin(members: Sequence[Member]) -> Sequence[Member]:
    """The first one serves, and all others have what it answers."""
    first, *others = members
    first.start()
    until(first.answers, "the first machine serves")
    for member in others:
        member.start()
    first.arbiter.wait_for(*(member.name for member in members))
    return members


def fail(leader: Member, other: Member, fault: str) -> Callable[[], None]:
    """Lets something fail; returns what mends it."""
    if fault == "killed":
        leader.end()
        return leader.start
    if fault == "stopped":
        assert leader.end(signal.SIGTERM) == 0, leader.log()
        return leader.start
    if fault == "paused":
        leader.pause()
        return lambda: leader.send(signal.SIGCONT)
    if fault == "cut from the arbiter":
        leader.reach_arbiter(False)
        return lambda: leader.reach_arbiter(True)
    if fault == "the other is killed":
        other.end(random.choice([signal.SIGKILL, signal.SIGTERM]))
        return other.start
    if fault == "the other is paused":
        other.pause()
        return lambda: other.send(signal.SIGCONT)
    if fault == "cut from the other":
        leader.link.refuses = True
        leader.link.cut()
        return lambda: setattr(leader.link, "refuses", False)
    leader.link.stall(to_target="acknowledgements" in fault, to_client="records" in fault)

    def mend() -> None:
        leader.link.resume()
        leader.link.cut()

    return mend


FAULTS = {
    "killed": True,
    "stopped": True,
    "paused": True,
    "cut from the arbiter": True,
    "the other is killed": False,
    "the other is paused": False,
    "cut from the other": False,
    "no acknowledgements": False,
    "no records": False,
}
"""What fails, and whether the other machine takes over then."""


def test_machines_take_over_by_themselves(pair: Pair, arbiter: Arbiter) -> None:
    print(f"seed {SEED}")
    chance = random.Random(SEED)
    leader, other = pair
    leader.start()
    until(leader.answers, "the first machine serves")
    other.start()
    faults = list(FAULTS)
    chance.shuffle(faults)
    with Front(list(pair)) as front:
        until(lambda: front.target, "a machine answers")
        clients = Clients(front.port, SEED)
        for number in range(ROUNDS):
            names = {member.name: member for member in pair}
            leader = names[arbiter.holder()]
            other = next(member for member in pair if member is not leader)
            is_in_sync = chance.random() < 0.8
            if is_in_sync:
                arbiter.wait_for("one", "two")
            clients.wait_for_more()
            fault = faults[number % len(faults)]
            print(f"round {number}: {leader.name} {fault}")
            mend = fail(leader, other, fault)
            if is_in_sync and FAULTS[fault]:
                # Unless it was slow just before, and the record did not name it when the other one failed.
                until(
                    lambda other=other: arbiter.holder() == other.name or not arbiter.names(other.name),
                    "a take-over",
                )
                is_in_sync = arbiter.holder() == other.name
            if not is_in_sync:
                mend()
            clients.wait_for_more()
            if is_in_sync:
                mend()
            clients.wait_for_more()
        arbiter.wait_for("one", "two")
        clients.end()
        holder = names[arbiter.holder()]
        until(holder.answers, "the machine serves")
        drain(holder.port, clients)
        clients.judge()


def test_clients_have_one_address_by_the_proxy_of_the_guide(
    pair: Pair, arbiter: Arbiter, free_port: Callable[[], int], tmp_path: Path
) -> None:
    one, two = begin(pair)
    (config,) = blocks(GUIDE / "queue-take-over.md", "haproxy")
    port = free_port()
    config = config.replace("bind :22133", f"bind 127.0.0.1:{port}")
    config = config.replace("first.example:22133", f"127.0.0.1:{one.port}")
    config = config.replace("second.example:22133", f"127.0.0.1:{two.port}")
    (tmp_path / "haproxy.cfg").write_text(config)
    with (tmp_path / "haproxy.log").open("wb") as log:
        proxy = subprocess.Popen(["haproxy", "-db", "-f", tmp_path / "haproxy.cfg"], stderr=log, stdout=log)

    def ask(act: Callable[[Line], object]) -> object:
        """By a new connection each time, as clients do whose connection has ended."""
        try:
            with Line(port, timeout=5) as line:
                return act(line)
        except (OSError, AssertionError):
            return None

    try:
        until(lambda: ask(lambda line: line.set("jobs", b"1") == b"STORED"), "a set by the proxy")
        one.end()
        # The proxy may give a request to the machine, and not its answer to the client.
        until(lambda: ask(lambda line: line.get("jobs/open")) == b"1", "a get by the proxy")
    finally:
        proxy.kill()
        proxy.wait()
        print((tmp_path / "haproxy.log").read_text())


def test_one_that_was_paused_answers_nothing_of_what_it_was_asked_meanwhile(
    pair: Pair, arbiter: Arbiter
) -> None:
    old, new = begin(pair)
    with Line(old.port) as line, Line(old.port) as other:
        assert line.set("jobs", b"1") == b"STORED"
        old.pause()
        # These wait in the socket of the paused machine.
        line.send(b"get jobs/peek\r\n")
        other.send(b"get nothing\r\n")
        until(new.answers, "the second machine serves")
        with Line(new.port) as now:
            assert now.get("jobs") == b"1"
            assert now.set("nothing", b"2") == b"STORED"
        old.send(signal.SIGCONT)
        # What was true before the pause is not answered any more.
        for waiting in (line, other):
            with contextlib.suppress(ConnectionResetError):
                assert waiting.read() == b""
    old.wait_for("answers nothing any more")
    # It follows by itself, and takes over when its turn comes.
    arbiter.wait_for("one", "two")
    new.end()
    until(old.answers, "the first machine serves again")
    with Line(old.port) as line:
        assert line.get("jobs") is None and line.get("nothing") == b"2"


def test_one_that_lacks_something_does_not_take_over(pair: Pair, arbiter: Arbiter) -> None:
    one, two = begin(pair)
    two.end()
    with Line(one.port) as line:
        # As soon as the arbiter knows that it is alone, it answers.
        assert line.set("jobs", b"only here") == b"STORED"
    arbiter.wait_for("one")
    one.end()
    two.start()
    two.wait_for("this copy may lack some of it, so that it does not take over: start one")
    assert not two.answers()
    two.end()
    refused = two.run("promote", *two.by_arbiter)
    assert refused.returncode == 1 and "one had all that was answered" in refused.stderr
    two.start()
    one.start()
    until(one.answers, "the first machine serves again")
    arbiter.wait_for("one", "two")
    with Line(one.port) as line:
        assert line.get("jobs") == b"only here"
    # Once more, and the first one does not come back: an operator decides.
    two.end()
    with Line(one.port) as line:
        assert line.set("jobs", b"lost with one") == b"STORED"
    one.end()
    taken = two.run("promote", *two.by_arbiter, "--yes")
    assert taken.returncode == 0 and "the arbiter names two from now on" in taken.stdout, taken.stderr
    two.start()
    until(two.answers, "the second machine serves")
    with Line(two.port) as line:
        assert line.get("jobs") is None and line.set("jobs", b"new") == b"STORED"
    one.start()
    one.wait_for("changes of this machine that the others do not have are set aside in")
    arbiter.wait_for("one", "two")


def test_queues_of_a_group_are_served_by_its_arbiter_only(
    pair: Pair, arbiter: Arbiter, tmp_path: Path
) -> None:
    one, _ = pair
    one.start()
    until(one.answers, "the first machine serves")
    one.end()
    # By a path that means nothing elsewhere.
    relative = ["--arbiter", f"file:{one.way.name}", "--as", one.name]
    promote = [one.program, "queue", "promote", one.folder, *relative]
    subprocess.run(list(map(str, promote)), cwd=tmp_path, check=True, timeout=TIMEOUT)
    serve = [one.program, "queue", "serve", "--dir", one.folder, "--listen", "127.0.0.1:0"]
    for options in ([], ["--replica", "127.0.0.1:0"]):
        done = subprocess.run([*serve, *options], capture_output=True, text=True, timeout=TIMEOUT)
        assert done.returncode == 1 and f"start with --arbiter file:{one.way}" in done.stderr, done.stderr
    # An arbiter that has lost its record, or is another one.
    other = Arbiter(tmp_path / "other")
    one.way.unlink()
    one.way.symlink_to(other.folder)
    one.start()
    one.wait_for("has no record: it is another one, or has lost it")
    assert not one.answers()
    # As the message says.
    taken = one.run("promote", *one.by_arbiter)
    assert taken.returncode == 0, taken.stderr
    until(one.answers, "the first machine serves")
    # The other messages lead to a server without other machines, which has the same items.
    with Line(one.port) as line:
        assert line.set("jobs", b"1") == b"STORED"
    one.end()
    (one.folder / ".group").unlink()
    done = subprocess.run(serve, capture_output=True, text=True, timeout=TIMEOUT)
    assert done.returncode == 1 and "delete .changes there to do without it" in done.stderr, done.stderr
    shutil.rmtree(one.folder / ".changes")
    alone = QueueServer(one.program, one.folder)
    alone.start()
    with alone.connect() as line:
        assert line.get("jobs") == b"1"
    alone.kill()


def restore(member: Member, copy: Path) -> None:
    shutil.rmtree(member.folder)
    shutil.copytree(copy, member.folder)


def test_a_directory_that_was_restored_does_not_take_over(
    pair: Pair, arbiter: Arbiter, tmp_path: Path
) -> None:
    one, two = begin(pair)
    with Line(one.port) as line:
        assert line.set("jobs", b"before") == b"STORED"
        before = arbiter.record()["beat"]
        until(lambda: arbiter.record()["beat"] > before + 1, "the lease is renewed")
        for member in pair:
            shutil.copytree(member.folder, tmp_path / f"copy of {member.name}")
        before = arbiter.record()["beat"]
        until(lambda: arbiter.record()["beat"] > before + 2, "the lease is renewed")
        # All that the record says of the copies holds for those before this, too.
        assert line.set("jobs", b"after") == b"STORED"
    for member in pair:
        member.end()
    for old in pair:
        newest = tmp_path / "newest"
        shutil.copytree(old.folder, newest)
        restore(old, tmp_path / f"copy of {old.name}")
        refused = old.run("promote", *old.by_arbiter)
        assert refused.returncode == 1 and "was restored" in refused.stderr, refused.stderr
        old.start()
        old.wait_for("this copy was restored, or has lost its last changes")
        assert not old.answers()
        old.end()
        restore(old, newest)
        shutil.rmtree(newest)
    restore(one, tmp_path / "copy of one")
    one.start()
    two.start()
    until(two.answers, "the machine serves that has all")
    with Line(two.port) as line:
        assert [line.get("jobs") for _ in range(2)] == [b"before", b"after"]


@pytest.mark.parametrize("pause", [0.0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4])
def test_machines_that_are_stopped_one_after_the_other_end(
    pair: Pair, arbiter: Arbiter, pause: float
) -> None:
    """The second one may be taking over when its signal comes."""
    one, two = begin(pair)
    assert one.end(signal.SIGTERM) == 0
    time.sleep(pause)
    assert two.end(signal.SIGTERM) == 0, two.log()
    assert arbiter.record()["lease_ms"] == 0


def test_the_machine_that_serves_reads_its_files_again(pair: Pair, arbiter: Arbiter) -> None:
    """At SIGHUP, also the one that took over."""
    one, two = begin(pair)
    for serves in (one, two):
        serves.wait_for("listening on")
        for count in (1, 2):
            serves.send(signal.SIGHUP)
            serves.wait_for("configuration read", count)
        assert serves.end(signal.SIGTERM) == 0, serves.log()


def test_an_operator_decides_while_no_machine_serves(pair: Pair, arbiter: Arbiter, tmp_path: Path) -> None:
    three = Member(pair[0].program, tmp_path, "three", arbiter)
    try:
        one, two, _ = begin([*pair, three])
        for member in (two, three):
            member.end()
        with Line(one.port) as line:
            assert line.set("jobs", b"only here") == b"STORED"
        arbiter.wait_for("one")
        alive = three.run("promote", *three.by_arbiter, "--yes")
        assert alive.returncode == 1 and "one has changed the record meanwhile, and is alive" in alive.stderr
        one.end()
        two.start()
        two.wait_for("one led last, and does not any more")
        running = two.run("promote", *two.by_arbiter, "--yes")
        assert running.returncode == 1 and "another process" in running.stderr, running.stderr
        taken = three.run("promote", *three.by_arbiter, "--yes")
        assert taken.returncode == 0, taken.stderr
        # The one that runs waits for the one that was promoted, and follows it.
        two.wait_for("three was promoted, and does not serve yet")
        three.start()
        until(three.answers, "the machine serves that was promoted")
        arbiter.wait_for("two", "three")
    finally:
        three.close()
        print(three.log())


def test_a_machine_that_cannot_serve_gives_the_lease_back(pair: Pair, arbiter: Arbiter) -> None:
    one, two = begin(pair)
    with socket.create_server(("127.0.0.1", two.port)) as taken:
        with Line(one.port) as line:
            assert line.set("jobs", b"1") == b"STORED"
        one.end()
        two.wait_for("two cannot serve, and gives the lease back: cannot listen on")
        taken.close()
        until(two.answers, "it tries again")
    with Line(two.port) as line:
        assert line.get("jobs") == b"1"


def test_an_arbiter_without_its_record(
    millstream_bin: Path, arbiter: Arbiter, free_port: Callable[[], int], tmp_path: Path
) -> None:
    page = free_port()
    one = Member(millstream_bin, tmp_path, "one", arbiter, "--http", f"127.0.0.1:{page}")
    two = Member(millstream_bin, tmp_path, "two", arbiter)

    def ready() -> str:
        with contextlib.suppress(urllib.error.HTTPError):
            return str(urllib.request.urlopen(f"http://127.0.0.1:{page}/readyz", timeout=TIMEOUT).status)
        return "503"

    try:
        begin([one, two])
        until(lambda: ready() == "200", "it is ready")
        # No client is there: the page knows all the same that none would be answered.
        for member in (one, two):
            member.reach_arbiter(False)
        one.wait_for("the lease is over: nothing is answered")
        until(lambda: ready() == "503", "it is not ready")
        for member in (one, two):
            member.reach_arbiter(True)
        until(lambda: ready() == "200", "it is ready again")
        arbiter.wait_for("one", "two")

        def all_know_it_is_lost() -> bool:
            # One that has looked just before makes the next version all the same.
            for record in arbiter.folder.iterdir():
                record.unlink(missing_ok=True)
            return all(lost in member.log() for member in (one, two))

        lost = "has no record: it is another one, or has lost it"
        until(all_know_it_is_lost, "both machines know it")
        one.wait_for("the arbiter has no record any more|one: these queues belong to group")
        one.end()
        taken = one.run("promote", *one.by_arbiter)
        assert taken.returncode == 0, taken.stderr
        one.start()
        until(one.answers, "the first machine serves again")
        # The other one runs still.
        arbiter.wait_for("one", "two")
    finally:
        for member in (one, two):
            member.close()
            print(member.name, member.log())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--replica", "0.0.0.0:7760", "--secret-file", "secret"], "--advertise HOST:PORT"),
        (["--replica", "127.0.0.1:7760", "--lease", "100ms"], "a lease has at least 500ms"),
        (["--replica", "127.0.0.1:7760", "--lease", "5s", "--lease-margin", "3s"], "less than half of it"),
        ([], "--replica"),
    ],
)
def test_options_that_cannot_work_are_refused(
    millstream_bin: Path, tmp_path: Path, options: list[str], message: str
) -> None:
    (tmp_path / "secret").write_text("a secret of some length, for a test")
    (tmp_path / "secret").chmod(0o600)
    command = [str(millstream_bin), "queue", "serve", "--arbiter", f"file:{tmp_path}", *options]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=TIMEOUT)
    assert done.returncode == 2 and message in done.stderr, done.stderr
