"""A lost machine: its process is started from the copy that a follower has, on another one.

``make kills`` takes over more often (``MILLSTREAM_TAKEOVERS``, default 2). A failure prints the seed.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from authorities import certificates, of_process
from shapes import TIMEOUT, Shape, command
from supervised import Supervised, children, wait_for

TAKEOVERS = int(os.environ.get("MILLSTREAM_TAKEOVERS", "2"))
SEED = int(os.environ.get("MILLSTREAM_SEED", "0")) or random.randrange(1 << 31)


def state(*arguments: object) -> list[str]:
    """A verb of ``millstream state``."""
    return [sys.executable, "-m", "millstream", "state", *map(str, arguments)]


class Machine:
    """A process of a flow with its state directory, and the follower of that on another machine.

    Args:
        folder: where the directories of all machines are.
        command: runs the flow here, without its state directory.
        environment: of that command.
        port: where it serves its state.
        proof: options with which the follower is recognised.
    """

    def __init__(
        self,
        folder: Path,
        command: list[str],
        environment: dict[str, str],
        port: int,
        proof: Sequence[object] = (),
    ) -> None:
        self.folder = folder
        self.proof = proof
        self.command = [*command, "--replica", f"127.0.0.1:{port}"]
        self.environment = environment
        self.port = port
        self.number = 0
        folder.mkdir()
        self.follow()
        self.start()

    @property
    def dir(self) -> Path:
        return self.folder / str(self.number)

    @property
    def copy(self) -> Path:
        return self.folder / str(self.number + 1)

    def start(self) -> None:
        self.process = Supervised([*self.command, "--state", str(self.dir)], self.environment)

    def follow(self) -> None:
        verb = state("follow", f"127.0.0.1:{self.port}", self.copy, "--as", "standby", "--retry-max", "100ms")
        self.follower = Supervised([*verb, *map(str, self.proof)])

    def stop_following(self) -> None:
        self.follower.process.send_signal(signal.SIGTERM)
        self.follower.end(0)

    def kill(self) -> None:
        """Kills the process and its supervisor, at the same moment."""
        for pid in [self.process.process.pid, *children(self.process.process.pid)]:
            self.process.kill(pid)
        self.process.process.wait(TIMEOUT)

    def has_committed(self, machines: list[Machine]) -> bool:
        """Waits until the copy has another commit; false if a process has ended."""
        before = committed(self.copy)
        wait_for(lambda: committed(self.copy) > before or ended(machines), "a commit in the copy")
        return not ended(machines)

    def lose(self) -> None:
        """Loses the machine with its disk, and starts the process from the copy."""
        self.kill()
        shutil.rmtree(self.dir)
        self.stop_following()
        self.number += 1
        subprocess.run(state("promote", self.dir), check=True, timeout=TIMEOUT)
        self.follow()
        self.start()


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[list[Machine]]:
    all_machines: list[Machine] = []
    yield all_machines
    for machine in all_machines:
        for one in (machine.process, machine.follower):
            for pid in [*children(one.process.pid), one.process.pid]:
                one.kill(pid)


def committed(dir: Path) -> int:
    """The last epoch that a state directory has, 0 without one."""
    done = subprocess.run(state("info", dir, "--json"), capture_output=True, text=True, timeout=TIMEOUT)
    return int(json.loads(done.stdout)["epoch"]) if done.returncode == 0 else 0


def test_lost_machines_lose_and_repeat_nothing(
    machines: list[Machine], tmp_path: Path, free_port: Callable[[], int]
) -> None:
    print(f"seed {SEED}")
    chance = random.Random(SEED)
    lines = 1000 * TAKEOVERS
    shape = Shape("words", tmp_path, SEED, lines)
    out = tmp_path / "out" / "out.txt"
    # It must not end before all machines were lost.
    environment = shape.environment(out, seconds=0.3 * lines)
    hosts = f"127.0.0.1:{free_port()},127.0.0.1:{free_port()}"
    options = ["--hosts", hosts, "--epoch", "20ms", "--sync", "never", "--commit-on-replica"]
    options += ["--restarts", "10000/10m"]
    for number in range(2):
        run = command(shape.flow, "--process", number, *options)
        machines.append(Machine(tmp_path / f"m{number}", run, environment, free_port()))
    lost = 0
    while lost < TAKEOVERS:
        victim = machines[(lost + 1) % 2]
        assert victim.has_committed(machines), victim.process.text
        time.sleep(chance.random() * 0.3)
        if chance.random() < 0.5 and children(victim.process.process.pid):
            # The process alone: the follower meets it again, and truncates what it has truncated.
            victim.process.kill(children(victim.process.process.pid)[0])
            continue
        victim.lose()
        lost += 1
    for machine in machines:
        machine.has_committed(machines)
    finish(machines, shape, out)
    print(json.dumps({"promise": 30, "takeovers": lost, "first_seed": SEED}))


def test_a_machine_is_lost_whose_connections_certificates_authenticate(
    machines: list[Machine], tmp_path: Path, free_port: Callable[[], int]
) -> None:
    ours = tmp_path / "ours"
    theirs = tmp_path / "theirs"
    certificates(ours)
    certificates(theirs)
    shape = Shape("words", tmp_path, 1, 1000)
    out = tmp_path / "out" / "out.txt"
    environment = shape.environment(out, seconds=60.0)
    hosts = f"127.0.0.1:{free_port()},127.0.0.1:{free_port()}"
    options = ["--hosts", hosts, "--epoch", "20ms", "--sync", "never", "--commit-on-replica"]
    options += ["--restarts", "10000/10m"]
    for number in range(2):
        run = command(shape.flow, "--process", number, *options, *of_process(ours, number))
        folder = tmp_path / f"m{number}"
        proof = of_process(ours, 1 - number)
        machines.append(Machine(folder, run, environment, free_port(), proof))
    victim = machines[1]
    assert victim.has_committed(machines), victim.process.text
    for proof, reason in [(of_process(theirs, 0), "certificate"), ([], "TLS")]:
        verb = state("follow", f"127.0.0.1:{victim.port}", tmp_path / "no", "--once", *proof)
        refused = subprocess.run(verb, capture_output=True, text=True, timeout=TIMEOUT)
        assert refused.returncode != 0 and reason in refused.stderr, refused
    victim.lose()
    assert victim.has_committed(machines), victim.process.text
    finish(machines, shape, out)


def finish(machines: list[Machine], shape: Shape, out: Path) -> None:
    """Stops the processes, and runs the flow to its end."""
    for machine in machines:
        machine.process.process.terminate()
    for machine in machines:
        machine.process.end(0)
        machine.environment = shape.environment(out)
        machine.start()
    for machine in machines:
        machine.process.end(0)
    shape.check(out)


def ended(machines: list[Machine]) -> bool:
    return any(machine.process.process.poll() is not None for machine in machines)


FLOW = """
import os, time
import millstream as ms

flow = ms.Flow("numbers")


PATH = os.environ["OUT"]


@ms.sink(retry=ms.Backoff(first=0.001, most=0.01))
class Table:
    def write(self, batch, first, last):
        with open(PATH, "a") as file:
            for number, item in enumerate(batch, first):
                print(number, *item, file=file)

    def position(self):
        try:
            lines = open(PATH).read().splitlines()
        except FileNotFoundError:
            return None
        return int(lines[-1].split()[0]) if lines else None


flow.source("lines", ms.files.lines(os.environ["IN"])).map(
    lambda line: (time.sleep(0.0005), line)[1], name="pace"
).key_by(lambda line: line[-1]).count("each", name="count").items().sink("table", Table())
"""


def test_a_flow_of_one_process_is_taken_over_with_its_outbox(
    machines: list[Machine], tmp_path: Path, free_port: Callable[[], int]
) -> None:
    (tmp_path / "flow.py").write_text(FLOW)
    lines = 4000 * TAKEOVERS
    (tmp_path / "in").write_text("".join(f"{number}\n" for number in range(lines)))
    out = tmp_path / "out"
    environment = os.environ | {"IN": str(tmp_path / "in"), "OUT": str(out)}
    run = command(tmp_path / "flow.py", "--epoch", "20ms", "--sync", "never", "--commit-on-replica")
    machine = Machine(tmp_path / "m", run, environment, free_port())
    machines.append(machine)
    for _ in range(TAKEOVERS):
        assert machine.has_committed([machine]), machine.process.text
        machine.lose()
    machine.process.end(0)
    rows = [line.split() for line in out.read_text().splitlines()]
    assert [int(row[0]) for row in rows] == list(range(lines)), "each row once, in order"
    counts = {row[1]: int(row[2]) for row in rows}
    assert counts == {str(digit): lines // 10 for digit in range(10)}


def test_commits_wait_for_a_follower_that_is_away(
    machines: list[Machine], tmp_path: Path, free_port: Callable[[], int]
) -> None:
    shape = Shape("words", tmp_path, 1, 1000)
    out = tmp_path / "out" / "out.txt"
    run = command(shape.flow, "--epoch", "10ms", "--commit-on-replica")
    machine = Machine(tmp_path / "m", run, shape.environment(out, seconds=2.0), free_port())
    machines.append(machine)
    wait_for(lambda: committed(machine.dir) > 2, "a commit")
    machine.follower.process.kill()
    machine.process.said("waits for a follower")
    before = committed(machine.dir)
    # A commit is appended here and not followed; no later one is.
    time.sleep(0.3)
    assert committed(machine.dir) == before and machine.process.process.poll() is None
    machine.follow()
    machine.process.said("a follower has epoch")
    machine.process.end(0)
    shape.check(out)
    machine.stop_following()
    assert committed(machine.copy) == committed(machine.dir)


def test_a_copy_that_lacks_commits_is_named_an_older_one(
    machines: list[Machine], tmp_path: Path, free_port: Callable[[], int]
) -> None:
    shape = Shape("words", tmp_path, 1, 1000)
    environment = shape.environment(tmp_path / "out" / "out.txt", seconds=20.0)
    hosts = f"127.0.0.1:{free_port()},127.0.0.1:{free_port()}"
    for number in range(2):
        run = command(shape.flow, "--process", number, "--hosts", hosts, "--epoch", "20ms")
        machines.append(Machine(tmp_path / f"m{number}", run, environment, free_port()))
    lost = machines[1]
    wait_for(lambda: committed(lost.copy) > 0, "a commit in the copy")
    lost.stop_following()
    behind = committed(lost.copy)
    wait_for(lambda: committed(lost.dir) > behind + 5, "later commits")
    lost.kill()
    text = Supervised([*lost.command, "--state", str(lost.copy)], environment).end(1)
    assert "it is a copy of the state of a flow on another machine" in text
    assert f"millstream state promote {lost.copy / 'p1'}" in text
    machines[0].process.end(75)
    subprocess.run(state("promote", lost.copy), check=True, timeout=TIMEOUT)
    machines[0].start()
    text = Supervised([*lost.command, "--state", str(lost.copy)], environment).end(1)
    assert "older copy" in text, text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--replica", "127.0.0.1:7750"], "--replica needs --state"),
        (["--commit-on-replica"], "--commit-on-replica needs --state"),
        (["--state", "s", "--commit-on-replica"], "--commit-on-replica needs --replica"),
        (["--state", "s", "--replica", "here"], "the address of a replica is HOST:PORT, not 'here'"),
        (["--state", "s", "--replica", "0.0.0.0:7750"], "reached from other machines"),
        (["--state", "s", "--replica", "127.0.0.1:0", "--processes", "2"], "process I serves at port 0 + I"),
    ],
)
def test_wrong_options_of_a_replica_are_named(options: list[str], message: str, tmp_path: Path) -> None:
    (tmp_path / "flow.py").write_text(
        "import millstream as ms\n"
        "flow = ms.Flow('none')\n"
        "flow.source('in', ms.files.lines('flow.py')).sink('out', ms.stdout())\n"
    )
    done = subprocess.run(
        command(tmp_path / "flow.py", *options), cwd=tmp_path, capture_output=True, text=True, timeout=TIMEOUT
    )
    assert done.returncode != 0 and message in done.stderr, done.stderr


def test_only_a_copy_is_promoted(tmp_path: Path) -> None:
    for expected in ("it is not the state directory of a flow", "it is no copy, or was promoted already"):
        done = subprocess.run(state("promote", tmp_path), capture_output=True, text=True, timeout=TIMEOUT)
        assert done.returncode == 1 and expected in done.stderr, done.stderr
        (tmp_path / "flow.py").write_text(
            "import millstream as ms\n"
            "flow = ms.Flow('none')\n"
            "flow.source('in', ms.files.lines('flow.py')).sink('out', ms.files.write('out'))\n"
        )
        run = command(tmp_path / "flow.py", "--state", tmp_path)
        subprocess.run(run, cwd=tmp_path, check=True, timeout=TIMEOUT)
