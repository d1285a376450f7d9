"""What a process, a link, a key and an epoch cost: memory, threads, descriptors, bytes on disk, time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from time import monotonic, sleep

from .cluster_output import children, wait_until

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["measure"]

NUMBERS = (1, 2, 4, 8)
KEYS = (1_000, 500_000)
EPOCHS_S = 5.0

# As many items at first as there are keys; then one for each process in each millisecond, so that each
# epoch has a change.
FLOW = """
import os
import millstream as ms


class Numbers(ms.Source):
    def partitions(self, workers):
        return [str(number) for number in range(workers)]

    def open(self, partition, position):
        self = Numbers()
        self.next, self.end = position or 0, int(os.environ["KEYS"])
        self.first = int(partition) * 1_000_000
        return self

    def next_batch(self):
        left = min(self.end - self.next, 1000) or int(os.environ["MORE"])
        first, self.next = self.next, self.next + left
        return [self.first + number % self.end for number in range(first, self.next)]

    def next_awake(self):
        return 0.001

    def position(self):
        return self.next


def note(text, number):
    return "%0100d" % number, None


flow = ms.Flow("costs")
keyed = flow.source("numbers", Numbers()).key_by(lambda number: number)
keyed.stateful_map("note", note).sink("out", ms.testing.discard())
"""


class Costs:
    """The flow on several processes, in a folder.

    Args:
        folder: where its state is.
        processes: how many there are.
        keys: how many keys the flow has for each.
        more: how many items there are for each in a millisecond, after all keys have a state.
        epoch: its epochs.
    """

    def __init__(self, folder: Path, processes: int, keys: int, more: int, epoch: str) -> None:
        self.processes = processes
        self.keys = keys
        self.more = more
        self.epoch = epoch
        self.flow = folder / "costs.py"
        self.ready = folder / "ready"
        self.state = folder / f"state.{processes}.{keys}.{more}"
        self.flow.write_text(FLOW)

    @contextmanager
    def running(self) -> Iterator[list[int]]:
        """Runs it; yields the ids of its processes when all keys have a state, and stops it."""
        command = [sys.executable, "-m", "millstream", "run", str(self.flow), "--state", str(self.state)]
        command += [
            "--processes",
            str(self.processes),
            "--epoch",
            self.epoch,
            "--ready-file",
            str(self.ready),
        ]
        environment = os.environ | {"KEYS": str(self.keys), "MORE": str(self.more)}
        began = monotonic()
        supervisor = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
        try:
            wait_until(self.ready.exists, 60)
            self.start_s = monotonic() - began
            sleep(2.0 + self.keys * self.processes / 100_000)
            yield children(supervisor.pid)
        finally:
            supervisor.terminate()
            supervisor.wait()
            self.lived_s = monotonic() - began - self.start_s


def memory(pid: int) -> int:
    """The bytes of a process that are in memory; its share of those that processes have in common."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


def entries(pid: int, name: str) -> int:
    return len(list(Path(f"/proc/{pid}/{name}").iterdir()))


def of_processes(folder: Path) -> dict[str, float]:
    """Start, memory, threads and descriptors of each of several processes."""
    found: dict[str, float] = {}
    for processes in NUMBERS:
        flow = Costs(folder, processes, 1, 0, "1s")
        with flow.running() as members:
            name = f"{processes} processes"
            found[f"{name}: start until the flow runs, s"] = flow.start_s
            found[f"{name}: memory of each, MB"] = median(memory(pid) for pid in members) / 1e6
            found[f"{name}: threads of each"] = median(entries(pid, "task") for pid in members)
            found[f"{name}: descriptors of each"] = median(entries(pid, "fd") for pid in members)
    return found


def of_keys(folder: Path) -> dict[str, float]:
    """Memory, and bytes in the state directory, of a key with a state of 100 bytes."""
    memories = []
    sizes = []
    for keys in KEYS:
        flow = Costs(folder, 2, keys, 0, "1s")
        with flow.running() as members:
            memories.append(sum(map(memory, members)))
        files = [file.stat() for file in flow.state.rglob("*") if file.is_file()]
        sizes.append(sum(file.st_blocks * 512 for file in files))
    more = 2 * (KEYS[1] - KEYS[0])
    return {
        "a key with a text of 100 bytes: memory, B": (memories[1] - memories[0]) / more,
        "a key with a text of 100 bytes: state directory, B": (sizes[1] - sizes[0]) / more,
    }


def of_epochs(folder: Path) -> dict[str, float]:
    """How long an epoch lasts that is asked to be shorter than its commit, with changes in all processes."""
    found = {}
    for processes in NUMBERS[1:]:
        flow = Costs(folder, processes, 1000, 1, "1ms")
        with flow.running():
            sleep(EPOCHS_S)
        scale = [sys.executable, "-m", "millstream", "scale", str(flow.state), "--processes", "1", "--json"]
        done = subprocess.run(scale, capture_output=True, text=True, check=True)
        epochs = json.loads(done.stdout)["epoch"]
        found[f"{processes} processes: a commit, ms"] = 1000 * flow.lived_s / epochs
    return found


def measure(folder: Path, runs: int) -> dict[str, float]:
    """Returns all costs, each of one run."""
    del runs
    return of_processes(folder) | of_keys(folder) | of_epochs(folder)
