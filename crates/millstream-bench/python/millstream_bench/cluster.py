"""``python -m millstream_bench.cluster``: a flow on two processes beside the same flow on one.

One process and two take turns, so that slow phases of the machine meet both. Each figure is a median.
The step keeps a state for each key and works for about 2 us an item, as an application in Python does.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

__all__ = ["main"]

REPEATS = 5
LINES = 600_000
"""In each of two partitions."""

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
    handled = re.findall(r"^work +(?:all +)?(\d+)", done.stderr, re.MULTILINE)
    assert found is not None and handled, done.stderr
    assert int(handled[-1]) == 2 * LINES, done.stderr
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


def show(name: str, value: float, unit: str) -> None:
    print(json.dumps({"name": name, "value": round(value, 3), "unit": unit}), flush=True)


def main() -> int:
    with TemporaryDirectory() as folder:
        measure_step(Path(folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
