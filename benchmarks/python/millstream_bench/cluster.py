"""``millstream-bench cluster --python``: flows in Python on several processes.

A step on two processes beside the same step on one; the time from the death of a process, and from the stop
of a flow whose number of processes changes, to its first new output; the CPU of processes without input; what
a process, a link, a key and an epoch cost. Steps, kills and rescales compare what a flow was sent with what
it has handled.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import monotonic, sleep

from .cluster_costs import measure as measure_costs
from .cluster_output import Output, children, cpu_seconds, wait_until

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["main"]

STEP_ITEMS = 1_000_000
"""Of each of two partitions."""
RATE = 5_000
"""Items a second of each of two partitions, while a flow is killed or scaled."""
KILL_KEYS = 100_000
RESCALE_KEYS = 1_000_000
WATCHED_S = 3.0

STEP = """
import os
import millstream as ms


class Numbers(ms.Source):
    def partitions(self):
        return ["0", "1"]

    def open(self, partition, position):
        self = Numbers()
        self.next, self.end = position or 0, int(os.environ["ITEMS"])
        return self

    def next_batch(self):
        first, self.next = self.next, min(self.next + 1000, self.end)
        return list(range(first, self.next)) or None

    def next_awake(self):
        return None

    def position(self):
        return self.next


def work(total, number):
    for _ in range(22):  # about 2 us
        number = number * 31 & 0xFFFF
    return (total or 0) + number, None


flow = ms.Flow("step")
keyed = flow.source("numbers", Numbers()).key_by(lambda number: number % 1000)
keyed.stateful_map("work", work).sink("out", ms.testing.discard())
"""

# First each key once, as fast as possible; then as many items a second as are due since a moment that all
# runs share, so that a run that resumes has what came meanwhile. Each line has the process that wrote it.
PACED = """
import os
import time
import millstream as ms

KEYS, RATE, BEGAN = (float(os.environ[name]) for name in ("KEYS", "RATE", "BEGAN"))


class Paced(ms.Source):
    def partitions(self):
        return ["0", "1"]

    def open(self, partition, position):
        self = Paced()
        self.partition, self.next = int(partition), position or 0
        return self

    def next_batch(self):
        due = int(KEYS / 2 + max(0, time.monotonic() - BEGAN) * RATE)
        first, self.next = self.next, max(self.next, min(self.next + 1000, due))
        return [number * 2 + self.partition for number in range(first, self.next)]

    def next_awake(self):
        return 0.002

    def position(self):
        return self.next


def note(text, number):
    return "%0100d" % number, f"p{os.getpid()} {number}"


flow = ms.Flow("paced")
keyed = flow.source("numbers", Paced()).key_by(lambda number: number % int(KEYS))
noted = keyed.stateful_map("note", note)
noted.values().sink("out", ms.files.write(os.environ["OUT"]))
"""


def other_than(old: list[int], known: int = -1) -> Callable[[int, int], bool]:
    """Whether a line is of another process than those, and has a larger number than is known."""
    return lambda pid, number: pid not in old and number > known


def run_command(flow: Path, processes: int, *options: object) -> list[str]:
    program = [sys.executable, "-m", "millstream", "run", str(flow), "--processes", str(processes)]
    return [*program, *map(str, options)]


def step_seconds(flow: Path, processes: int, apart: int = 1) -> float:
    """How long the flow ran, without the start of its processes; or so many of them at once that do not meet,
    each with its part of the items."""
    items = STEP_ITEMS // apart
    environment = os.environ | {"ITEMS": str(items)}
    command = run_command(flow, processes, "--metrics")
    runs = [
        subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) for _ in range(apart)
    ]
    longest = 0.0
    for text in [run.communicate()[1] for run in runs]:
        found = re.search(r" ran ([\d.]+) s", text)
        handled = re.findall(r"^work +(?:all +)?(\d+)", text, re.MULTILINE)
        # The line of all processes is the last one; a single process has one line with its number.
        handled = handled or re.findall(r"^work +p0 +(\d+)", text, re.MULTILINE)
        if found is None or not handled or int(handled[-1]) != 2 * items:
            raise RuntimeError(f"{2 * items} items ordered: {text}")
        longest = max(longest, float(found[1]))
    return longest


def measure_step(folder: Path, runs: int) -> dict[str, float]:
    """Items a second with one process, with two, and with two flows that do not meet, in turns."""
    flow = folder / "step.py"
    flow.write_text(STEP)
    ways = {"one process": (1, 1), "two processes": (2, 1), "two flows that do not meet": (1, 2)}
    rates: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(runs):
        for way, (processes, apart) in ways.items():
            rates[way].append(2 * STEP_ITEMS / step_seconds(flow, processes, apart))
    figures = {f"step of 2 us, {way}, items/s": median(found) for way, found in rates.items()}
    for way in [*ways][1:]:
        ratios = [rate / one for one, rate in zip(rates["one process"], rates[way], strict=True)]
        figures[f"{way} against one process"] = median(ratios)
    return figures


class Paced:
    """The flow of :data:`PACED` in a folder, as a supervisor runs it.

    Args:
        folder: where its state and its output are.
        keys: the number of keys.
    """

    def __init__(self, folder: Path, keys: int) -> None:
        self.folder = folder
        self.keys = keys
        self.flow = folder / "paced.py"
        self.state = folder / "state"
        self.flow.write_text(PACED)
        self.output = Output(folder / "out")
        self.began = monotonic() + 2.0 + keys / 100_000

    @contextmanager
    def running(self, processes: int) -> Iterator[subprocess.Popen[str]]:
        """Runs it until it is stopped; ends it in any case."""
        environment = os.environ | {
            "KEYS": str(self.keys),
            "RATE": str(RATE),
            "BEGAN": str(self.began),
            "OUT": str(self.output.folder / "out.txt"),
        }
        command = run_command(self.flow, processes, "--state", self.state)
        with (self.folder / "log").open("a") as log:
            flow = subprocess.Popen(command, env=environment, stderr=log, text=True)
        try:
            yield flow
        finally:
            if flow.poll() is None:
                flow.kill()
            flow.wait()

    def stop(self, flow: subprocess.Popen[str]) -> None:
        flow.terminate()
        if flow.wait(60) != 0:
            raise RuntimeError((self.folder / "log").read_text())

    def check(self) -> None:
        """Compares the output with the input: each number once, without a gap."""
        numbers = self.output.numbers()
        for partition in range(2):
            found = [number // 2 for number in numbers if number % 2 == partition]
            if sorted(found) != list(range(len(found))):
                raise RuntimeError(f"partition {partition}: {len(found)} lines have gaps or repetitions")

    def fill(self, flow: subprocess.Popen[str]) -> None:
        """Waits until each key has a state that is committed: the output has as much as two seconds more."""
        self.output.follow(lambda _, number: number >= self.keys + 4 * RATE, flow)


def measure_kill(folder: Path, runs: int) -> dict[str, float]:
    """From the kill of one of two processes until the output has a line of another process."""
    paced = Paced(folder, KILL_KEYS)
    any_line = []
    new_line = []
    with paced.running(2) as flow:
        paced.fill(flow)
        for run in range(runs):
            old = children(flow.pid)
            known = paced.output.follow_for(1.5)
            at = monotonic()
            os.kill(old[run % 2], 9)
            paced.output.follow(other_than(old), flow)
            any_line.append(monotonic() - at)
            paced.output.follow(other_than(old, known), flow)
            new_line.append(monotonic() - at)
            # The pause of the supervisor is the shortest again after ten seconds of work.
            paced.output.follow_for(11.0)
        paced.stop(flow)
    paced.check()
    return {
        f"kill to the first line of the next run, {KILL_KEYS} keys, s": median(any_line),
        "kill to the first line that no run had written, s": median(new_line),
        "the slowest of them, s": max(new_line),
    }


def measure_rescale(folder: Path, runs: int) -> dict[str, float]:
    """From the signal that stops a flow until the same flow on another number of processes has output."""
    paced = Paced(folder, RESCALE_KEYS)
    pauses = []
    stops = []
    scales = []
    stopped_at = 0.0
    processes = 2
    old: list[int] = []
    for run in range(runs + 1):
        with paced.running(processes) as flow:
            if run:
                paced.output.follow(other_than(old), flow)
                pauses.append(monotonic() - stopped_at)
                paced.output.follow_for(2.0)
            else:
                paced.fill(flow)
            old = children(flow.pid)
            stopped_at = monotonic()
            paced.stop(flow)
        stops.append(monotonic() - stopped_at)
        processes = 5 - processes
        command = [sys.executable, "-m", "millstream", "scale", str(paced.state)]
        done = subprocess.run(
            [*command, "--processes", str(processes), "--json"], capture_output=True, text=True, check=True
        )
        report = json.loads(done.stdout)
        scales.append(report["seconds"])
        if report["keys"] != RESCALE_KEYS:
            raise RuntimeError(f"{RESCALE_KEYS} keys ordered: {report}")
    paced.check()
    return {
        f"stop to the first line of another number of processes, {RESCALE_KEYS} keys of 100 B, s": median(
            pauses
        ),
        "of it: until the old processes had ended, s": median(stops),
        "of it: millstream scale, s": median(scales),
    }


def measure_idle(folder: Path, runs: int) -> dict[str, float]:
    """Percent of a core that each of two processes uses which have had one item and wait."""
    flow = folder / "idle.py"
    flow.write_text(
        "import millstream as ms\n"
        'flow = ms.Flow("idle")\n'
        'numbers = flow.source("in", ms.tcp.listen("127.0.0.1:0")).key_by(len)\n'
        'numbers.count("each").sink("out", ms.testing.discard())\n'
    )
    ready = folder / "ready"
    found = []
    command = run_command(flow, 2, "--state", folder / "state", "--ready-file", ready)
    for _ in range(runs):
        running = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        try:
            wait_until(ready.exists, 60)
            sleep(1.0)
            members = children(running.pid)
            before = [cpu_seconds(pid) for pid in members]
            began = monotonic()
            sleep(WATCHED_S)
            passed = monotonic() - began
            used = [cpu_seconds(pid) - cpu for pid, cpu in zip(members, before, strict=True)]
            found.append(100 * max(used) / passed)
        finally:
            running.terminate()
            running.wait()
    return {"an idle process of two, % of a core": median(found)}


PARTS = {
    "step": measure_step,
    "kill": measure_kill,
    "rescale": measure_rescale,
    "idle": measure_idle,
    "costs": measure_costs,
}


def main() -> int:
    """Measures the parts that the command line names, or all."""
    parser = argparse.ArgumentParser(prog="millstream-bench cluster --python")
    parser.add_argument("--only", action="append", choices=PARTS, help="measure this part only")
    parser.add_argument("--runs", type=int, default=5, help="how many runs; figures are medians")
    parser.add_argument("--json", action="store_true", help="report as JSON")
    arguments = parser.parse_args()
    figures: dict[str, float] = {}
    for name in arguments.only or PARTS:
        with TemporaryDirectory(prefix="millstream-bench-") as folder:
            found = PARTS[name](Path(folder), arguments.runs)
        figures |= found
        if not arguments.json:
            for what, value in found.items():
                print(f"{what:<80} {value:>12.3f}", flush=True)
    if arguments.json:
        print(json.dumps(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
