"""An order desk: accepts orders within limits, rejects the others, and forgets its totals when a day ends.

Run: millstream service run desk.py:Desk --in /tmp/orders --out /tmp/replies
"""

from dataclasses import dataclass
from typing import Protocol

from millstream.service import Clock, char, timestamp


@dataclass
class NewOrder:
    id: str
    account: str
    symbol: str
    side: char
    quantity: float
    price: float


class Orders(Protocol):
    """The requests to a desk."""

    def new_order(self, order: NewOrder) -> None: ...

    def cancel(self, id: str) -> None: ...

    def set_limit(self, account: str, value: float) -> None: ...

    def end_of_day(self) -> None: ...


class Replies(Protocol):
    """The answers of a desk."""

    def accepted(self, id: str, exposure: float, at: timestamp) -> None: ...

    def rejected(self, id: str, reason: str, at: timestamp) -> None: ...

    def canceled(self, id: str, exposure: float) -> None: ...


class Desk(Orders):
    """Keeps for each account what its open orders are worth, and never lets it pass the account's limit."""

    def __init__(self, replies: Replies, clock: Clock) -> None:
        self.replies = replies
        self.clock = clock
        self.limits: dict[str, float] = {}
        self.exposures: dict[str, float] = {}
        self.open: dict[str, tuple[str, float]] = {}

    def new_order(self, order: NewOrder) -> None:
        value = order.quantity * order.price
        exposure = self.exposures.get(order.account, 0.0) + value
        reason = self.objection(order, exposure)
        if reason is not None:
            self.replies.rejected(order.id, reason, self.clock.now_ns())
            return
        self.exposures[order.account] = exposure
        self.open[order.id] = (order.account, value)
        self.replies.accepted(order.id, exposure, self.clock.now_ns())

    def objection(self, order: NewOrder, exposure: float) -> str | None:
        """Why an order is refused."""
        if not order.id or order.id in self.open:
            return "bad or known id"
        if order.side not in "12":
            return f"side {order.side}"
        if not (order.quantity > 0 and order.price > 0):
            return "nothing to trade"
        if exposure > self.limits.get(order.account, 0.0):
            return f"above the limit of account {order.account}"
        return None

    def cancel(self, id: str) -> None:
        if id not in self.open:
            self.replies.rejected(id, "unknown id", self.clock.now_ns())
            return
        account, value = self.open.pop(id)
        self.exposures[account] -= value
        self.replies.canceled(id, self.exposures[account])

    def set_limit(self, account: str, value: float) -> None:
        self.limits[account] = value

    def end_of_day(self) -> None:
        self.exposures.clear()
        self.open.clear()
