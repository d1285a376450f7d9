"""``python -m millstream_bench.cluster``: a flow on two processes beside the same flow on one.

One process and two take turns, so that slow phases of the machine meet both. Each figure is a median.
The step keeps a state for each key and works for about 2 us an item, as an application in Python does.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

__all__ = ["main"]

REPEATS = 5
LINES = 600_000
"""In each of two partitions."""
KEYS = 100_000
KILLS = 9

STEP = """
import os
from glob import glob
import millstream as ms

flow = ms.Flow("step")


def work(total, number):
    for _ in range(22):  # about 2 us
        number = number * 31 & 0xFFFF
    return (total or 0) + number, None


numbers = flow.source("numbers", ms.files.lines(sorted(glob(os.environ["IN"] + "/*")))).map(int)
numbers.key_by(lambda number: number % 1000).stateful_map("work", work).sink("out", ms.testing.discard())
"""

ENDLESS = """
import os
import time
import millstream as ms

flow = ms.Flow("endless")
at = 0


def numbers():
    global at
    time.sleep(0.01)
    at += 1000
    return range(at, at + 1000)


keyed = flow.source("numbers", ms.generate(numbers)).key_by(lambda number: number % KEYS)
counts = keyed.count("each", name="counts").items().map(str)
counts.sink("out", ms.files.write(os.environ["OUT"]))
"""


def command(flow: Path, processes: int, *options: object) -> list[str]:
    program = [sys.executable, "-m", "millstream", "run", str(flow), "--processes", str(processes)]
    return [*program, *map(str, options)]


def seconds(flow: Path, folder: Path, processes: int) -> float:
    """How long the flow ran, without the start of its processes."""
    environment = os.environ | {"IN": str(folder)}
    done = subprocess.run(
        command(flow, processes, "--metrics"), env=environment, capture_output=True, text=True, check=True
    )
    found = re.search(r" ran ([\d.]+) s", done.stderr)
    assert found is not None, done.stderr
    return float(found[1])


def measure_step(folder: Path) -> None:
    """Items a second with one process and with two."""
    flow, lines = folder / "step.py", folder / "in"
    flow.write_text(STEP)
    lines.mkdir()
    for partition in range(2):
        (lines / str(partition)).write_text("".join(f"{n * 7919 % 1_000_003}\n" for n in range(LINES)))
    rates: dict[int, list[float]] = {1: [], 2: []}
    for _ in range(REPEATS):
        for processes, found in rates.items():
            found.append(2 * LINES / seconds(flow, lines, processes))
    ratios = [two / one for one, two in zip(rates[1], rates[2], strict=True)]
    for processes, found in rates.items():
        show(f"step of 2 us, {processes} x 1 worker", median(found), "items/s")
    show("two processes against one", median(ratios), "times")


def measure_kills(folder: Path) -> None:
    """Seconds from a kill -9 of a process to new output, with states of many keys."""
    flow, out = folder / "endless.py", folder / "out.txt"
    flow.write_text(ENDLESS.replace("KEYS", str(KEYS)))
    environment = os.environ | {"OUT": str(out)}
    options = ["--state", folder / "state", "--epoch", "100ms", "--restarts", "1000/1m"]
    running = subprocess.Popen(command(flow, 2, *options), env=environment, stderr=subprocess.DEVNULL)
    times = []
    try:
        for _ in range(KILLS):
            grown(folder, 4 * 1000)
            time.sleep(12)  # healthy: the pause before a start is the shortest one
            children = Path(f"/proc/{running.pid}/task/{running.pid}/children").read_text().split()
            began = time.perf_counter()
            os.kill(int(children[-1]), signal.SIGKILL)
            grown(folder, 1)
            times.append(time.perf_counter() - began)
    finally:
        running.terminate()
        running.wait()
    show(f"kill -9 to new output, {KEYS} keys", median(times), "s")


def grown(folder: Path, size: int) -> None:
    """Waits until the output has grown by so many bytes."""
    before = None
    while before is None or output_bytes(folder) < before + size:
        before = output_bytes(folder) if before is None else min(before, output_bytes(folder))
        time.sleep(0.005)


def output_bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.glob("out*"))


def show(name: str, value: float, unit: str) -> None:
    print(json.dumps({"name": name, "value": round(value, 3), "unit": unit}), flush=True)


def main() -> int:
    with TemporaryDirectory() as folder:
        measure_step(Path(folder))
    if "--kills" in sys.argv:
        with TemporaryDirectory() as folder:
            measure_kills(Path(folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
