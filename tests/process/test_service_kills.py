"""Services that are killed with -9 at random moments under load do as if they had not been.

The publisher goes on meanwhile. ``make crash`` kills more often (``MILLSTREAM_KILLS``, default 4 here). A
failure prints the seed.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Protocol

import millstream as ms
import pytest
from millstream.service import replay

KILLS = int(os.environ.get("MILLSTREAM_KILLS", "4"))
SEED = int(os.environ.get("MILLSTREAM_SEED", "0")) or random.randrange(1 << 31)
TIMEOUT = 120

LEDGER = '''
from typing import Protocol


class Entries(Protocol):
    def book(self, account: str, amount: int) -> None: ...


class Balances(Protocol):
    def booked(self, account: str, balance: int) -> None: ...

    def checked(self, entries: int, digest: int) -> None: ...


class Ledger(Entries):
    """Balances by account. Each tenth entry tells a digest of all so far too, each seventh nothing."""

    def __init__(self, balances: Balances) -> None:
        self.balances = balances
        self.state = ({}, 0, 0)

    def book(self, account: str, amount: int) -> None:
        accounts, entries, digest = self.state
        accounts[account] = accounts.get(account, 0) + amount
        self.state = (accounts, entries + 1, (digest * 31 + accounts[account]) % 1_000_003)
        if entries % 7 != 6 or QUIET == 0:
            self.balances.booked(account, accounts[account])
        if entries % 10 == 9 or QUIET == 0:
            self.balances.checked(*self.state[1:])

    def snapshot(self) -> object:
        return self.state

    def restore(self, state: object) -> None:
        self.state = state

    def rebuild_booked(self, account: str, balance: int) -> None:
        self.state[0][account] = balance

    def rebuild_checked(self, entries: int, digest: int) -> None:
        self.state = (self.state[0], entries, digest)
'''


class Entries(Protocol):
    """The interface of the ledger, for the publisher."""

    def book(self, account: str, amount: int) -> None: ...


def publish(entries: Entries, chance: random.Random, count: int) -> None:
    for _ in range(count):
        entries.book(f"ACCT-{chance.randrange(20)}", chance.randrange(-100, 100))


def calls(journal: Path) -> list[str]:
    """The calls of an output journal, without what differs between runs."""
    text = subprocess.run(
        [sys.executable, "-m", "millstream", "service", "export", str(journal)],
        capture_output=True,
        text=True,
        check=True,
        timeout=TIMEOUT,
    ).stdout
    parts = text.split("---\n")
    return ["".join(line for line in part.splitlines(True) if line[0] not in "#a") for part in parts]


@pytest.mark.parametrize("rebuild", ["inputs", "snapshot", "outputs"])
def test_a_ledger_is_killed_and_books_each_entry_once(tmp_path: Path, rebuild: str) -> None:
    print(f"seed {SEED}")
    chance = random.Random(SEED)
    source, inputs, out = tmp_path / "ledger.py", tmp_path / "entries", tmp_path / "balances"
    # State comes back from outputs only where they say all of it: then no entry is quiet.
    source.write_text(f"QUIET = {0 if rebuild == 'outputs' else 1}\n{LEDGER}")
    component = f"{source}:Ledger"
    entries = ms.publisher(Entries, inputs)
    command = [sys.executable, "-m", "millstream", "service", "run", component]
    command += ["--in", str(inputs), "--out", str(out), "--rebuild", rebuild, "--snapshot-every", "500"]
    kills = 0
    while kills < KILLS:
        running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        end = time.monotonic() + 0.2 + chance.random() * 0.6
        while time.monotonic() < end and running.poll() is None:
            publish(entries, chance, 200)
            time.sleep(0.01)
        running.send_signal(signal.SIGKILL)
        _, told = running.communicate(timeout=TIMEOUT)
        assert running.returncode == -signal.SIGKILL, told
        kills += 1
    done = subprocess.run([*command, "--drain"], capture_output=True, text=True, timeout=TIMEOUT)
    assert done.returncode == 0, done.stderr
    sys.path.insert(0, str(tmp_path))
    try:
        sys.modules.pop("ledger", None)
        import ledger  # type: ignore[import-not-found]

        expected = replay(ledger.Ledger, inputs)
    finally:
        sys.path.remove(str(tmp_path))
    found = calls(out)
    wrong = sum(a != b for a, b in zip(found, expected, strict=False)) + abs(len(found) - len(expected))
    figures = {
        "promise": 9,
        "service": "ledger",
        "rebuild": rebuild,
        "runs": kills,
        "calls": len(expected),
        "failures": wrong,
        "first_seed": SEED,
    }
    print(json.dumps(figures))
    assert len(expected) > 100
    assert wrong == 0, f"seed {SEED}"
