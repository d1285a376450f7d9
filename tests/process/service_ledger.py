"""A service with state, for tests that kill it: what it is called with, what it must have put out."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path
from typing import Protocol

from millstream.service import replay

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


def expected_calls(folder: Path, inputs: Path) -> list[str]:
    """The calls of the ledger of `ledger.py` in an uninterrupted run."""
    sys.path.insert(0, str(folder))
    try:
        sys.modules.pop("ledger", None)
        import ledger  # type: ignore[import-not-found]

        return replay(ledger.Ledger, inputs)
    finally:
        sys.path.remove(str(folder))


def differences(found: list[str], expected: list[str]) -> int:
    """How many calls are not what they must be, missing and additional ones among them."""
    return sum(a != b for a, b in zip(found, expected, strict=False)) + abs(len(found) - len(expected))
