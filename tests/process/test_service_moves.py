"""A service that is killed, moved, copied, renamed and upgraded does each thing once, in order.

Before each start its folder may have been copied to another place, and the program may have another working
directory, another spelling of the paths, another set of timers and one input more. ``make kills`` goes on for
longer (``MILLSTREAM_KILLS``, default 5 here). A failure prints the seed.
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
from pathlib import Path
from typing import Protocol

import millstream as ms
import pytest
from service_ledger import TIMEOUT

KILLS = int(os.environ.get("MILLSTREAM_KILLS", "5"))
SEED = int(os.environ.get("MILLSTREAM_SEED", "0")) or random.randrange(1 << 31)

BOOKS = '''
from typing import Protocol

from millstream.service import every


class Entries(Protocol):
    def book(self, source: str, number: int) -> None: ...


class Booked(Protocol):
    def booked(self, source: str, number: int, entries: int) -> None: ...

    def ticked(self, timer: str, ticks: int) -> None: ...


class Books(Entries):
    """Numbers entries and ticks of timers. Each seventh entry is quiet."""

    def __init__(self, out: Booked) -> None:
        self.out = out
        self.entries = 0
        self.ticks = {}

    def book(self, source: str, number: int) -> None:
        self.entries += 1
        if number % 7 != 6:
            self.out.booked(source, number, self.entries)

    def tick(self, timer: str) -> None:
        self.ticks[timer] = self.ticks.get(timer, 0) + 1
        self.out.ticked(timer, self.ticks[timer])

    def snapshot(self) -> object:
        return self.entries, self.ticks

    def restore(self, state: tuple) -> None:
        self.entries, self.ticks = state


class Timed(Books):
    @every(0.02, renamed_from="a_minute")
    def minute(self, now_ns: int) -> None:
        self.tick("minute")


class More(Timed):
    @every(0.02)
    def alarm(self, now_ns: int) -> None:
        self.tick("alarm")


class Renamed(Books):
    @every(0.03, renamed_from="minute")
    def a_minute(self, now_ns: int) -> None:
        self.tick("minute")
'''


#: The versions of the service, and which timers each has.
TIMERS: dict[str, set[str]] = {
    "Books": set(),
    "Timed": {"minute"},
    "More": {"minute", "alarm"},
    "Renamed": {"minute"},
}


class Entries(Protocol):
    """The interface of the ledger, for the publisher."""

    def book(self, source: str, number: int) -> None: ...


class Life:
    """The folder of a service, and how it is started next."""

    def __init__(self, folder: Path, chance: random.Random) -> None:
        self.folder = folder / "0"
        self.chance = chance
        self.moves = 0
        self.several = False
        self.root = folder
        self.folder.mkdir()
        self.numbers = {"a": 0, "b": 0}
        self.kind, self.next_kind = "Books", chance.choice([*TIMERS])

    def move(self) -> None:
        """Copies the folder, or moves it; the old directory is not used again."""
        self.moves += 1
        to = self.root / str(self.moves)
        if self.chance.random() < 0.5:
            shutil.copytree(self.folder, to)
            self.folder.rename(self.root / f"old-{self.moves}")
        else:
            self.folder.rename(to)
        self.folder = to

    def spell(self, name: str, cwd: Path) -> str:
        path = self.folder / name
        relative = os.path.relpath(path, cwd)
        return self.chance.choice(
            [str(path), relative, f"./{relative}", f"{self.folder}/../{self.folder.name}/{name}"]
        )

    def command(self, cwd: Path, rebuild: str) -> list[str]:
        self.kind, self.next_kind = self.next_kind, self.chance.choice([*TIMERS])
        inputs = ["a", "b"] if self.several else ["a"]
        self.chance.shuffle(inputs)
        command = [sys.executable, "-m", "millstream", "service", "run", f"{self.root}/books.py:{self.kind}"]
        for name in inputs:
            command += ["--in", self.spell(name, cwd)]
        command += ["--out", self.spell("out", cwd), "--rebuild", rebuild]
        return [*command, "--snapshot-every", "150"]

    def loses_timers(self) -> bool:
        """Whether the next version lacks a timer of this one."""
        return bool(TIMERS[self.kind] - TIMERS[self.next_kind])

    def feed(self, seconds: float) -> None:
        names = ["a", "b"] if self.several else ["a"]
        entries = {name: ms.publisher(Entries, self.folder / name) for name in names}  # type: ignore[type-abstract]
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for _ in range(self.chance.randrange(30)):
                name = self.chance.choice(names)
                entries[name].book(name, self.numbers[name])
                self.numbers[name] += 1
            time.sleep(0.01)


def calls(out: Path) -> list[tuple[str, dict[str, str]]]:
    command = [sys.executable, "-m", "millstream", "service", "export", str(out)]
    text = subprocess.run(command, capture_output=True, text=True, check=True, timeout=TIMEOUT).stdout
    found = []
    for document in text.split("---\n"):
        _, _, method, *arguments = document.splitlines()
        pairs = dict(line.strip().split(": ") for line in arguments)
        found.append((method.rstrip(":"), pairs))
    return found


def wrong(found: list[tuple[str, dict[str, str]]], numbers: dict[str, int]) -> list[str]:
    """What is not as in a life without deaths: entries of each input in order, everything counted by one."""
    faults: list[str] = []
    booked: dict[str, list[int]] = {"a": [], "b": []}
    ticks: dict[str, int] = {}
    before = 0
    for method, given in found:
        if method == "ticked":
            timer = given["timer"]
            ticks[timer] = ticks.get(timer, 0) + 1
            if int(given["ticks"]) != ticks[timer]:
                faults.append(f"{given} is tick {ticks[timer]}")
            continue
        booked[given["source"]].append(int(given["number"]))
        # Quiet entries may have come in between, at most one of each input.
        if not 1 <= int(given["entries"]) - before <= 3:
            faults.append(f"{given} after {before} entries")
        before = int(given["entries"])
    for name, count in numbers.items():
        expected = [number for number in range(count) if number % 7 != 6]
        if booked[name] != expected:
            faults.append(f"entries of {name}: {len(booked[name])} instead of {len(expected)}")
    loud = sum(map(len, booked.values()))
    if not loud <= before <= sum(numbers.values()):
        faults.append(f"{before} entries were counted, of which {loud} had effects")
    return faults


@pytest.mark.parametrize("rebuild", ["inputs", "snapshot"])
def test_a_service_resumes_from_any_copy_in_any_version(tmp_path: Path, rebuild: str) -> None:
    print(f"seed {SEED}")
    chance = random.Random(SEED)
    (tmp_path / "books.py").write_text(BOOKS)
    life = Life(tmp_path, chance)
    life.feed(0.02)
    kills = 0
    for turn in range(KILLS):
        if turn == 2:
            life.several = True
            life.feed(0.02)
        if chance.random() < 0.6:
            life.move()
        cwd = chance.choice([tmp_path, life.folder, Path("/")])
        running = subprocess.Popen(
            life.command(cwd, rebuild), cwd=cwd, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        life.feed(0.8 + chance.random() * 0.5)
        if running.poll() is None:
            kills += 1
        # One in four ends by itself, and each before a timer is taken away: nothing repeats the ticks after
        # the last snapshot then.
        ends = chance.random() < 0.25 or (rebuild == "snapshot" and life.loses_timers())
        how = signal.SIGTERM if ends else signal.SIGKILL
        running.send_signal(how)
        _, told = running.communicate(timeout=TIMEOUT)
        assert running.returncode in (0, -how), f"seed {SEED}: {told}"
    life.move()
    last = [*life.command(tmp_path, rebuild), "--drain"]
    done = subprocess.run(last, cwd=tmp_path, capture_output=True, text=True, timeout=TIMEOUT)
    assert done.returncode == 0, f"seed {SEED}: {done.stderr}"
    found = calls(life.folder / "out")
    faults = wrong(found, life.numbers)
    figures = {
        "promise": 18,
        "rebuild": rebuild,
        "kills": kills,
        "moves": life.moves,
        "calls": len(found),
        "failures": len(faults),
        "first_seed": SEED,
    }
    print(json.dumps(figures))
    assert len(found) > 100
    assert not faults, f"seed {SEED}: {faults[:5]}"
