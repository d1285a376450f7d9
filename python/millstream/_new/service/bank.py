"""A bank: accounts, deposits and transfers, in cents.

    millstream service run bank.py:Bank --in payments --out bookings

The bank has a flaw, which the recording shows: see README.md.
"""

from typing import Protocol


class Payments(Protocol):
    """What customers ask for."""

    def deposit(self, account: str, cents: int) -> None: ...

    def transfer(self, source: str, target: str, cents: int) -> None: ...


class Bookings(Protocol):
    """What the bank answers."""

    def booked(self, account: str, balance: int) -> None: ...

    def refused(self, account: str, reason: str) -> None: ...


class Bank(Payments):
    """Keeps the balance of each account. After a crash it is called with the recorded payments again."""

    def __init__(self, bookings: Bookings) -> None:
        self.bookings = bookings
        self.balances: dict[str, int] = {}

    def deposit(self, account: str, cents: int) -> None:
        self.add(account, cents)

    def transfer(self, source: str, target: str, cents: int) -> None:
        if self.balances.get(source, 0) < cents:
            self.bookings.refused(source, "not enough money")
            return
        self.add(source, -cents)
        self.add(target, cents)

    def add(self, account: str, cents: int) -> None:
        self.balances[account] = self.balances.get(account, 0) + cents
        self.bookings.booked(account, self.balances[account])
