"""Files that each machine has for itself: with one name and other contents they are refused. With local=True
each process reads those of its machine, through deaths and other numbers of processes."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import millstream as ms
import pytest
from shapes import TIMEOUT, command, output
from supervised import Supervised, wait_for

LINES = 120
SOURCES = {
    "lines": 'ms.files.lines(["log/0.log", "log/1.log", "log/2.log"]{local})',
    "directory": 'ms.files.directory("log", partitions=2{local})',
    "csv": 'ms.files.csv(["log/0.log", "log/1.log", "log/2.log"], header=False{local}).map(first)',
    "journal": 'ms.journals.read("journal", decode=str{local})',
    "csv_directory": 'ms.files.csv_directory("log", "*.log", header=False, partitions=3{local}).map(first)',
}
OF_FILES = [kind for kind in SOURCES if kind != "journal"]
FLOW = """
import os
import time
import millstream as ms

PAUSE = float(os.environ.get("PAUSE", "0"))


def paced(line):
    time.sleep(PAUSE)
    return line if isinstance(line, str) else line[0]


flow = ms.Flow("logs")
keyed = flow.source("logs", {source}).map(paced, name="paced").key_by(str)
counts = keyed.count("each", name="counts").items()
counts.map(lambda pair: f"{{pair[0]}} {{pair[1]}}").sink("out", ms.files.write(os.environ["OUT"]))
"""


class Machine:
    """A machine: a directory with files, in which a process runs.

    Args:
        folder: the directory.
        name: what its lines begin with.
        names: of its files.
    """

    def __init__(self, folder: Path, name: str, names: list[str]) -> None:
        self.folder = folder
        self.name = name
        (folder / "log").mkdir(parents=True)
        for file in names:
            self.write(file, LINES)

    def write(self, file: str, count: int, first: int = 0) -> None:
        with open(self.folder / "log" / file, "a") as lines:
            lines.writelines(f"{self.name}-{file}-{number}\n" for number in range(first, first + count))

    @property
    def lines(self) -> Counter[str]:
        """The lines that a run has written when it has read all once."""
        paths = (self.folder / "log").iterdir()
        return Counter(f"{line} 1" for path in paths for line in path.read_text().splitlines())


class Flow:
    """The flow on several machines, with a state directory each.

    Args:
        folder: of the flow, its output and its state.
        kind: of its source.
        local: whether it reads with ``local=True``.
        free_port: returns a port.
    """

    def __init__(self, folder: Path, kind: str, local: bool, free_port: Callable[[], int]) -> None:
        self.folder = folder
        self.free_port = free_port
        self.path = folder / "flow.py"
        source = SOURCES[kind].format(local=", local=True" if local else "").replace(".map(first)", "")
        self.path.write_text(FLOW.format(source=source))
        self.out = folder / "out" / "out.txt"
        self.out.parent.mkdir()

    def start(self, machines: list[Machine], *options: object, pause: float = 0.0) -> list[Supervised]:
        hosts = ",".join(f"127.0.0.1:{self.free_port()}" for _ in machines)
        environment = os.environ | {"OUT": str(self.out), "PAUSE": str(pause)}
        place = ["--state", self.folder / "state", "--epoch", "20ms", "--sync", "never"]
        if len(machines) > 1:
            place += ["--hosts", hosts]
        started = []
        for number, machine in enumerate(machines):
            own = [*place, *(["--process", number] if len(machines) > 1 else []), *options]
            program = ["env", "-C", str(machine.folder), *command(self.path, *own)]
            started.append(Supervised(program, environment))
        return started

    def run(self, machines: list[Machine]) -> None:
        for process in self.start(machines):
            process.end(0)

    def writes(self, lines: int) -> None:
        """Waits until so many more lines are written."""
        before = output(self.out).total()
        wait_for(lambda: output(self.out).total() > before + lines, "output")

    def stopped(self, machines: list[Machine]) -> None:
        """Runs until a part is written, and stops."""
        running = self.start(machines, pause=0.01)
        self.writes(20)
        running[0].process.send_signal(signal.SIGTERM)
        for process in running:
            process.end(0)

    def scale(self, processes: int) -> str:
        scaled = [
            sys.executable,
            "-m",
            "millstream",
            "scale",
            self.folder / "state",
            "--processes",
            processes,
        ]
        done = subprocess.run([*map(str, scaled)], capture_output=True, text=True, timeout=TIMEOUT)
        assert done.returncode == 0, done.stderr
        return done.stdout


NAMES = ["0.log", "1.log", "2.log"]


@pytest.fixture
def machines(tmp_path: Path) -> list[Machine]:
    return [Machine(tmp_path / name, name, NAMES) for name in "ABC"]


@pytest.mark.parametrize("kind", OF_FILES)
def test_other_files_of_one_name_are_refused(
    kind: str, machines: list[Machine], tmp_path: Path, free_port: Callable[[], int]
) -> None:
    first, second = Flow(tmp_path, kind, False, free_port).start(machines[:2])
    text = second.end(1)
    first.said("process 1 is refused")
    for said in (text, first.text):
        assert 'source "logs"' in said and "local=True" in said, said
    first.process.kill()


@pytest.mark.parametrize("kind", OF_FILES)
def test_copies_of_the_same_files_are_divided(
    kind: str, machines: list[Machine], tmp_path: Path, free_port: Callable[[], int]
) -> None:
    shutil.rmtree(machines[1].folder)
    shutil.copytree(machines[0].folder, machines[1].folder)
    flow = Flow(tmp_path, kind, False, free_port)
    flow.run(machines[:2])
    assert output(flow.out) == machines[0].lines


@pytest.mark.parametrize("kind", OF_FILES)
def test_each_process_reads_the_files_of_its_machine_once(
    kind: str, machines: list[Machine], tmp_path: Path, free_port: Callable[[], int]
) -> None:
    flow = Flow(tmp_path, kind, True, free_port)
    two = machines[:2]
    running = flow.start(two, "--restarts", "100/10m", "--ready-file", tmp_path / "ready", pause=0.005)
    for _ in range(2):
        flow.writes(10)
        running[1].kill(running[1].members(1)[0])
        running[1].said("started again")
    for process in running:
        process.end(0)
    assert output(flow.out) == two[0].lines + two[1].lines
    # And what has come since.
    for machine in two:
        machine.write("1.log", 30, first=LINES)
    flow.run(two)
    assert output(flow.out) == two[0].lines + two[1].lines


@pytest.mark.parametrize("kind", ["lines", "csv_directory"])
def test_other_numbers_of_processes_keep_the_positions_of_each_machine(
    kind: str, machines: list[Machine], tmp_path: Path, free_port: Callable[[], int]
) -> None:
    flow = Flow(tmp_path, kind, True, free_port)
    flow.stopped(machines[:1])
    flow.scale(2)
    flow.stopped(machines[:2])
    assert "stays unread" in flow.scale(1)
    # What the second machine has not read is left out until it comes again.
    flow.run(machines[:1])
    assert machines[0].lines <= output(flow.out)
    flow.scale(3)
    flow.run(machines)
    assert output(flow.out) == sum((machine.lines for machine in machines), Counter[str]())


def test_a_position_counts_in_the_file_of_its_machine_only(
    machines: list[Machine], tmp_path: Path, free_port: Callable[[], int]
) -> None:
    flow = Flow(tmp_path, "lines", True, free_port)
    flow.stopped(machines[:2])
    before = output(flow.out)
    first, second = flow.start([machines[0], machines[2]])
    text = second.end(1)
    assert "another file or journal than in the run before" in text and "--drop-state" in text, text
    first.process.kill()
    first.process.wait(TIMEOUT)
    assert before <= machines[0].lines + machines[1].lines
    flow.run(machines[:2])
    assert output(flow.out) == machines[0].lines + machines[1].lines


@pytest.mark.parametrize("kind", OF_FILES)
def test_processes_of_one_machine_do_not_read_its_files_twice(
    kind: str, machines: list[Machine], tmp_path: Path, free_port: Callable[[], int]
) -> None:
    first, second = Flow(tmp_path, kind, True, free_port).start([machines[0], machines[0]])
    text = second.end(1)
    assert "twice" in text and "leave local=True out" in text, text
    first.process.kill()


def test_a_source_does_not_become_local_with_positions(
    machines: list[Machine], tmp_path: Path, free_port: Callable[[], int]
) -> None:
    flow = Flow(tmp_path, "lines", False, free_port)
    one = machines[:2]
    shutil.rmtree(one[1].folder)
    shutil.copytree(one[0].folder, one[1].folder)
    flow.stopped(one)
    flow.path.write_text(flow.path.read_text().replace('"log/2.log"]', '"log/2.log"], local=True'))
    first, second = flow.start(one)
    for process in (first, second):
        assert "each machine reads its own files" in process.end(1)


def test_journals_of_one_path_are_read_like_files(
    machines: list[Machine], tmp_path: Path, free_port: Callable[[], int]
) -> None:
    """Refused if they are two, read by each process with local=True, and known again."""
    expected: Counter[str] = Counter()
    for machine in machines:
        with ms.Journal(machine.folder / "journal") as journal:
            journal.append_many([f"{machine.name}-{number}" for number in range(LINES)])
        expected.update({f"{machine.name}-{number} 1" for number in range(LINES) if machine.name != "C"})
    folders = [tmp_path / "shared", tmp_path / "local"]
    for folder in folders:
        folder.mkdir()
    first, second = Flow(folders[0], "journal", False, free_port).start(machines[:2])
    text = second.end(1)
    assert "two journals" in text and "local=True" in text, text
    first.process.kill()
    flow = Flow(folders[1], "journal", True, free_port)
    flow.stopped(machines[:2])
    first, second = flow.start([machines[0], machines[2]])
    assert "another file or journal than in the run before" in second.end(1)
    first.process.kill()
    first.process.wait(TIMEOUT)
    flow.run(machines[:2])
    assert output(flow.out) == expected


def test_a_local_source_is_not_durable(
    machines: list[Machine], tmp_path: Path, free_port: Callable[[], int]
) -> None:
    flow = Flow(tmp_path, "lines", True, free_port)
    flow.path.write_text(flow.path.read_text().replace("local=True)", "local=True).durable()"))
    text = flow.start(machines[:1])[0].end(1)
    assert "leave out durable" in text, text
