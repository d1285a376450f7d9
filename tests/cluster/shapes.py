"""Flows that tests run on several processes, with their input and their expected output.

The file of a flow reads its input and the path of its output from the environment: ``IN`` is a folder of text
files, each of which is a partition. The output of any number of processes, as a multiset of lines, equals
that of one.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

TIMEOUT = float(os.environ.get("MILLSTREAM_TIMEOUT", "180"))
"""Seconds after which a run hangs."""

# The pause makes a flow slow enough to be interrupted. All runs have the step: their graphs must be equal.
HEAD = """
import os
import time
from glob import glob
import millstream as ms

OUT = os.environ["OUT"]
PAUSE = float(os.environ.get("PAUSE", "0"))


def paced(line):
    if PAUSE:
        time.sleep(PAUSE)
    return line


def lines(name):
    paths = sorted(glob(os.environ["IN"] + "/" + name + ".*"))
    return flow.source(name, ms.files.lines(paths)).map(paced, name="pace " + name)


"""

WORDS = """
flow = ms.Flow("words")
keyed = lines("words").flat_map(str.split).key_by(str.lower)
each = keyed.count("each", name="each").items()
last = keyed.count("end", name="last").items().map(lambda pair: ("end", *pair))
each.merge(last).sink("out", ms.files.write(OUT))
"""

# The checks of Market Spread: an order is rejected when the last quote of its symbol has a wide spread.
MARKET = """
flow = ms.Flow("market")


def check(state, line):
    kind, symbol, a, b = line.split(",")
    state = state or {"quotes": 0, "rejects": False}
    if kind == "quote":
        bid, offer = float(a), float(b)
        middle = (bid + offer) / 2
        spread = offer - bid
        rejects = spread >= 0.05 and spread / middle >= 0.05
        return {"quotes": state["quotes"] + 1, "rejects": rejects}, None
    return state, (a, state["quotes"], "rejected" if state["rejects"] else "accepted")


orders = lines("market").key_by(lambda line: line.split(",")[1])
checked = orders.stateful_map("check", check).items().filter(lambda pair: pair[1] is not None)
checked.sink("out", ms.files.write(OUT))
"""

WINDOWS = """
flow = ms.Flow("windows")
readings = lines("readings").map(lambda line: line.split(","))
(readings.event_time(lambda reading: int(reading[0]), lateness=5)
    .key_by(lambda reading: reading[1])
    .map(lambda reading: int(reading[2]))
    .window("tens", ms.windows.tumbling(10))
    .sum()
    .map(lambda window: (window.start, window.value))
    .sink("out", ms.files.write(OUT)))
"""

JOINS = """
flow = ms.Flow("joins")


def timed(name):
    rows = lines(name).map(lambda line: line.split(","))
    keyed = rows.event_time(lambda row: int(row[0]), lateness=5).key_by(lambda row: row[1])
    return keyed.map(lambda row: row[2])


pairs = timed("clicks").join("pairs", timed("views"), how="left", within=2)
pairs.items().sink("out", ms.files.write(OUT))
"""

SHAPES = {"words": WORDS, "market": MARKET, "windows": WINDOWS, "joins": JOINS}
PARTITIONS = 5


def write_lines(folder: Path, name: str, partition: int, lines: list[str]) -> None:
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.{partition}").write_text("".join(f"{line}\n" for line in lines))


def words(folder: Path, chance: random.Random, count: int) -> None:
    for partition in range(PARTITIONS):
        pairs = [f"w{chance.randrange(500)} W{chance.randrange(50)}" for _ in range(count)]
        write_lines(folder, "words", partition, pairs)


def market(folder: Path, chance: random.Random, count: int) -> None:
    for partition in range(PARTITIONS):
        rows = []
        for number in range(count):
            symbol = f"s{partition}_{chance.randrange(40)}"
            bid = chance.randrange(100, 200) / 100
            quote = f"quote,{symbol},{bid},{round(bid + chance.choice((0.01, 0.2)), 2)}"
            rows.append(quote if chance.random() < 0.5 else f"order,{symbol},o{partition}_{number},0")
        write_lines(folder, "market", partition, rows)


def timed(folder: Path, name: str, chance: random.Random, count: int) -> None:
    for partition in range(PARTITIONS):
        rows = [
            f"{number // 50 + chance.randrange(5)},k{chance.randrange(30)},{chance.randrange(1000)}"
            for number in range(count)
        ]
        write_lines(folder, name, partition, rows)


def joins(folder: Path, chance: random.Random, count: int) -> None:
    for name in ("clicks", "views"):
        timed(folder, name, chance, count // 4)


INPUTS: dict[str, Callable[[Path, random.Random, int], None]] = {
    "words": words,
    "market": market,
    "windows": lambda folder, chance, count: timed(folder, "readings", chance, count),
    "joins": joins,
}


class Shape:
    """A flow with its input in a folder.

    Args:
        name: one of :data:`SHAPES`.
        folder: where its files are.
        seed: of its input.
        count: how many lines each partition has, about.
    """

    def __init__(self, name: str, folder: Path, seed: int, count: int) -> None:
        self.name = name
        self.folder = folder
        self.flow = folder / f"{name}.py"
        self.flow.write_text(HEAD + SHAPES[name])
        INPUTS[name](folder / "in", random.Random(seed), count)
        self.expected = self.run_on_one()

    def environment(self, out: Path, seconds: float = 0.0) -> dict[str, str]:
        """What the flow reads from the environment; a run on one worker takes at least so many seconds."""
        out.parent.mkdir(exist_ok=True)
        lines = sum(len(file.read_text().splitlines()) for file in (self.folder / "in").iterdir())
        return os.environ | {"IN": str(self.folder / "in"), "OUT": str(out), "PAUSE": str(seconds / lines)}

    def run_on_one(self) -> Counter[str]:
        """The output of one process that nothing interrupts."""
        out = self.folder / "one" / "out.txt"
        subprocess.run(command(self.flow), env=self.environment(out), check=True, timeout=TIMEOUT)
        found = output(out)
        assert found
        return found

    def check(self, out: Path) -> None:
        """Compares the output of a run with that of one process."""
        found = output(out)
        lost = self.expected - found
        more = found - self.expected
        assert not lost and not more, (
            f"{lost.total()} lost, {more.total()} too many: {[*lost][:3]} {[*more][:3]}"
        )


def command(flow: Path, *options: object) -> list[str]:
    """The command that runs a flow."""
    return [sys.executable, "-m", "millstream", "run", str(flow), *map(str, options)]


def output(out: Path) -> Counter[str]:
    """The lines of all files of an output, whose processes write beside each other."""
    found: Counter[str] = Counter()
    for file in out.parent.glob(f"{out.stem}*"):
        if file.is_file():
            found.update(file.read_text().splitlines())
    return found
