"""The end of a run of several processes: one that is killed while the others end, or after that, comes to an
end, and so does one that meets no other."""

from __future__ import annotations

import os
import sqlite3
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from shapes import command
from supervised import Supervised, children, is_alive, wait_for

# Process 1 delivers its outbox, or exits, only when its file is there.
FLOW = """
import atexit
import os
import sqlite3
import sys
import time

import millstream as ms

FOLDER = os.environ["FOLDER"]
process = sys.argv[sys.argv.index("--process") + 1]


def wait_for(name):
    if process == "1" and name in os.environ["WAITS"]:
        open(f"{FOLDER}/waits", "w").close()
        while not os.path.exists(f"{FOLDER}/go"):
            time.sleep(0.01)


@ms.sink
class Table:
    def connect(self, outbox):
        self.rows = sqlite3.connect(f"{FOLDER}/table.{process}.db", isolation_level=None)
        self.rows.execute("PRAGMA synchronous = OFF")
        self.rows.execute("CREATE TABLE IF NOT EXISTS rows (number INTEGER PRIMARY KEY, item TEXT)")

    def write(self, batch, first, last):
        wait_for("delivery")
        self.rows.executemany("REPLACE INTO rows VALUES (?, ?)", list(enumerate(batch, first)))

    def position(self):
        return self.rows.execute("SELECT max(number) FROM rows").fetchone()[0]


atexit.register(wait_for, "exit")
flow = ms.Flow("ends")
lines = flow.source("lines", ms.files.lines([f"{FOLDER}/{name}.txt" for name in "abcd"]))
lines.key_by(str).count("end", name="counts").items().map(str).sink("out", Table())
"""
LINES = {name: [f"{name}{n}" for n in range(50)] for name in "abcd"}


@pytest.fixture
def flow(tmp_path: Path) -> Path:
    for name, lines in LINES.items():
        (tmp_path / f"{name}.txt").write_text("".join(f"{line}\n" for line in lines))
    path = tmp_path / "flow.py"
    path.write_text(FLOW)
    return path


def check(folder: Path) -> None:
    """All output is there once."""
    found: Counter[str] = Counter()
    for process in range(2):
        with sqlite3.connect(folder / f"table.{process}.db") as table:
            found.update(item for (item,) in table.execute("SELECT item FROM rows"))
    assert found == Counter(str((line, 1)) for lines in LINES.values() for line in lines)


def machine(
    flow: Path, process: int, hosts: str, waits: str = "", more: tuple[str, ...] = ("--restarts", "3/10m")
) -> Supervised:
    options = ["--process", process, "--hosts", hosts, "--state", flow.parent / "state", *more]
    return Supervised(command(flow, *options), os.environ | {"FOLDER": str(flow.parent), "WAITS": waits})


def addresses(free_port: Callable[[], int]) -> str:
    return f"127.0.0.1:{free_port()},127.0.0.1:{free_port()}"


def test_one_that_dies_while_it_delivers_has_the_others_yet(flow: Path, free_port: Callable[[], int]) -> None:
    hosts = addresses(free_port)
    zero, one = (machine(flow, process, hosts, "delivery") for process in range(2))
    wait_for((flow.parent / "waits").exists, "the delivery of process 1")
    zero.said("it has ended here, and waits for the end of the other processes")
    [child] = one.members(1)
    one.kill(child)
    (flow.parent / "go").touch()
    assert "all are started again" in zero.end(0)
    one.end(0)
    check(flow.parent)


def test_a_signal_ends_one_that_waits_for_the_others(flow: Path, free_port: Callable[[], int]) -> None:
    hosts = addresses(free_port)
    zero, one = (machine(flow, process, hosts, "delivery", ()) for process in range(2))
    wait_for((flow.parent / "waits").exists, "the delivery of process 1")
    zero.said("it has ended here, and waits for the end of the other processes")
    zero.process.terminate()
    zero.end(0)
    # It was asked to stop, too, and its delivery is not waited for.
    one.end(0)
    (flow.parent / "go").touch()
    for started in [machine(flow, process, hosts) for process in range(2)]:
        started.end(0)
    check(flow.parent)


def test_one_that_dies_after_all_have_ended_ends_alone(flow: Path, free_port: Callable[[], int]) -> None:
    hosts = addresses(free_port)
    more = ("--restarts", "3/10m", "--meet-within", "1s")
    zero = machine(flow, 0, hosts, more=("--restarts", "3/10m"))
    one = machine(flow, 1, hosts, "exit", ("--restarts", "3/10m"))
    wait_for((flow.parent / "waits").exists, "the exit of process 1")
    zero.end(0)
    [child] = one.members(1)
    one.process.kill()  # its process ends with it
    wait_for(lambda: not is_alive(child), "the end of process 1")
    (flow.parent / "go").touch()
    text = machine(flow, 1, hosts, more=more).end(0)
    assert "not all processes have come within 1s: waiting for process 0" in text
    assert "the flow had ended and nothing is left to do" in text
    # Process 0 likewise, and a start of both reads new input.
    assert "nothing is left to do" in machine(flow, 0, hosts, more=more).end(0)
    with (flow.parent / "a.txt").open("a") as file:
        file.write("new\n")
    for started in [machine(flow, process, hosts) for process in range(2)]:
        started.end(0)


def test_a_supervisor_of_all_starts_them_again(flow: Path) -> None:
    environment = os.environ | {"FOLDER": str(flow.parent), "WAITS": "exit"}
    both = Supervised(command(flow, "--processes", 2, "--state", flow.parent / "state"), environment)
    wait_for((flow.parent / "waits").exists, "the exit of process 1")
    wait_for(lambda: len(children(both.process.pid)) == 1, "the end of process 0")
    [child] = both.members(1)
    both.kill(child)
    (flow.parent / "go").touch()
    assert "process 1 died first: killed by SIGKILL" in both.end(0)
    check(flow.parent)


@pytest.mark.parametrize("process", [0, 1])
def test_one_whose_flow_has_not_ended_says_whom_it_misses(
    flow: Path, process: int, free_port: Callable[[], int]
) -> None:
    hosts = addresses(free_port)
    text = machine(flow, process, hosts, more=("--meet-within", "200ms")).end(75)
    missed = hosts.split(",")[1 - process]
    assert "not all processes have come within 200ms" in text and missed in text, text
