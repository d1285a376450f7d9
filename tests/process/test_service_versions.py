"""A chain of two services is killed, upgraded and restored from backups; a ledger has a place for each call.

A version of a stage makes other calls for an input than the one before: more, fewer, others, in another
order. The ledger knows for each input which calls the versions that ran may have left. ``make versions``
continues for ``MILLSTREAM_SECONDS``. A failure names its seed.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import millstream as ms
import pytest

SEED = int(os.environ.get("MILLSTREAM_SEED", "1"))
SECONDS = float(os.environ.get("MILLSTREAM_SECONDS", "0"))
ROUNDS = 10
TIMEOUT = 60

#: A call: its method, and its argument.
Call = tuple[str, int]

STAGE = """
import time
from typing import Protocol
class Calls(Protocol):
    def a(self, n: int) -> None: ...
    def b(self, n: int) -> None: ...
    def c(self, n: int) -> None: ...
class Stage(Calls):
    def __init__(self, out: Calls) -> None:
        self.out, self.calls = out, 0
    def take(self, n: int) -> None:
        self.calls += 1
        for name in "{plan}":
            if self.calls % 8 == 0:
                time.sleep(0.01)  # it is killed here, too
            getattr(self.out, name)(self.calls if {counts} else n)
    a = b = c = take
    def snapshot(self) -> object:
        return self.calls
    def restore(self, state: int) -> None:
        self.calls = state
    def rebuild_a(self, n: int) -> None:
        self.calls = n
    rebuild_b = rebuild_c = rebuild_a
"""

#: Each makes a call at least, so that the outputs contain the state.
PLANS = ["a", "b", "ab", "ba", "abc", "ca", "aab"]


class Numbers(Protocol):
    def a(self, n: int) -> None: ...
    def b(self, n: int) -> None: ...
    def c(self, n: int) -> None: ...


Numbers.__name__ = "Calls"  # the interface of the stages


def calls_of(journal: Path) -> list[Call]:
    """The calls of a journal."""
    text = ms._millstream.service_export(os.fspath(journal), 0, None)
    pairs = (line.split(": ") for line in text.splitlines() if line[:3] in ("a: ", "b: ", "c: "))
    return [(name, int(n)) for name, n in pairs]


@dataclass
class Stage:
    """One of the services."""

    folder: Path
    name: str
    source: str
    rebuild: str
    plans: list[str] = field(default_factory=list)
    running: subprocess.Popen[str] | None = None

    @property
    def counts(self) -> bool:
        """Whether it has a state: the number of its calls."""
        return self.rebuild != "nothing"

    def upgrade(self, plan: str) -> None:
        self.plans.append(plan)
        text = STAGE.format(plan=plan, counts=self.counts)
        (self.folder / f"{self.name}.py").write_text(text)

    def start(self, *more: str) -> None:
        command = [
            sys.executable,
            "-B",
            "-m",
            "millstream",
            "service",
            "run",
            f"{self.name}.py:Stage",
            "--in",
        ]
        command += [self.source, "--out", self.name, "--rebuild", self.rebuild, "--snapshot-every", "20"]
        command += ["--wait-for-inputs", "--accept-differences", "1000000", *more]
        self.running = subprocess.Popen(
            command, cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )

    def end(self, how: signal.Signals | None) -> None:
        assert self.running is not None
        if how is not None:
            self.running.send_signal(how)
        _, said = self.running.communicate(timeout=TIMEOUT)
        # SIGTERM ends the interpreter where it comes before the service has its handlers.
        assert self.running.returncode in (0, -signal.SIGKILL, -signal.SIGTERM), said

    def argument(self, at: int, n: int) -> int:
        return at + 1 if self.counts else n

    def may_leave(self, at: int, n: int, found: Sequence[Call]) -> set[int]:
        """How many of the calls are those of the input at this place, whose argument is ``n``: the first."""
        # Lengths of what is there after a version that was killed, and after one that has finished the input.
        left = {0}
        finished = set()
        # A version may have been killed in its calls for the input, and started again.
        for plan in (plan for plan in self.plans for _ in range(2)):
            made = [(name, self.argument(at, n)) for name in plan]
            for before in list(left):
                rest = made[same(found[:before], made) :]
                there = same(found[before:], rest)
                left.update(range(before, before + there + 1))
                if there == len(rest):
                    finished.add(before + there)
        return finished

    def check(self, inputs: Sequence[Call]) -> None:
        """Divides the recorded calls among the inputs."""
        recorded = calls_of(self.folder / self.name)
        places = {0}
        for at, (_, n) in enumerate(inputs):
            # No input has more calls than all versions together.
            ends = {start: recorded[start : start + 60] for start in places}
            places = {
                start + count for start, found in ends.items() for count in self.may_leave(at, n, found)
            }
            assert places, f"{self.name}, input {at} ({n}): {recorded[:20]} by {self.plans}"
        assert len(recorded) in places, f"{self.name}: {len(recorded)} calls, not {places}"


def same(one: Sequence[Call], other: Sequence[Call]) -> int:
    """How many calls at the start of both are the same."""
    return next(
        (at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )


def journals_of(folder: Path) -> list[Path]:
    return [
        path for path in folder.iterdir() if path.is_dir() and path.name.split(".")[0] in ("first", "second")
    ]


def back_up(folder: Path, backup: Path) -> None:
    shutil.rmtree(backup, ignore_errors=True)
    backup.mkdir()
    for path in journals_of(folder):
        shutil.copytree(path, backup / path.name)


def restore(folder: Path, backup: Path) -> None:
    for path in journals_of(folder):
        shutil.rmtree(path)
    for path in backup.iterdir():
        shutil.copytree(path, folder / path.name)


def run(folder: Path, seed: int, rounds: int) -> int:
    """Runs a chain for some rounds, and checks it. Returns the number of its inputs."""
    chance = random.Random(seed)
    folder.mkdir()
    ways = ["inputs", "snapshot", "outputs", "nothing"]
    first = Stage(folder, "first", "numbers", chance.choice(ways))
    second = Stage(folder, "second", "first", chance.choice(ways))
    chain = (first, second)
    numbers = ms.publisher(Numbers, folder / "numbers")
    published: list[Call] = []
    for number in range(rounds):
        for stage in chain:
            if not stage.plans or chance.random() < 0.6:
                stage.upgrade(chance.choice(PLANS))
        for stage in chain:
            stage.start()
        for _ in range(chance.randrange(4)):
            for _ in range(chance.randrange(15)):
                numbers.a(len(published))
                published.append(("a", len(published)))
            time.sleep(chance.random() * 0.25)
        time.sleep(chance.random() * 0.8)
        for stage in chance.sample(chain, 2):
            stage.end(chance.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM]))
        if number % 3 == 1:
            back_up(folder, folder / "backup")
        elif number % 5 == 4 and (folder / "backup").exists():
            restore(folder, folder / "backup")
    for stage in chain:
        stage.start("--drain")
        stage.end(None)
    first.check(published)
    second.check(calls_of(folder / "first"))
    with pytest.raises(AssertionError):
        first.check(published[1:])  # the ledger notices an input that is missing
    return len(published)


@pytest.mark.parametrize("seed", range(SEED, SEED + 2))
def test_versions_of_a_chain_leave_what_the_ledger_says(seed: int, tmp_path: Path) -> None:
    print(f"seed {seed}")
    run(tmp_path / "chain", seed, ROUNDS)


def test_chains_for_a_time(tmp_path: Path) -> None:
    end = time.monotonic() + SECONDS
    seed = SEED * 1_000_000
    inputs = 0
    while time.monotonic() < end:
        print(f"seed {seed}")
        inputs += run(tmp_path / f"chain{seed}", seed, 2 * ROUNDS)
        shutil.rmtree(tmp_path / f"chain{seed}")
        seed += 1
    print(f"{seed - SEED * 1_000_000} chains from seed {SEED}, {inputs} inputs")
