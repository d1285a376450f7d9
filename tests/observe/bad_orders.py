"""A service that cannot take some of its orders."""

from typing import Protocol


class Orders(Protocol):
    def place(self, symbol: str, quantity: int) -> None: ...

    def cancel(self, symbol: str) -> None: ...


class Replies(Protocol):
    def accepted(self, symbol: str, total: int) -> None: ...


class Desk(Orders):
    def __init__(self, replies: Replies) -> None:
        self.replies = replies
        self.total = 0

    def place(self, symbol: str, quantity: int) -> None:
        if quantity < 0:
            raise ValueError(f"quantity {quantity}")
        self.total += quantity
        self.replies.accepted(symbol, self.total)

    def cancel(self, symbol: str) -> None:
        self.total = 0
