"""Market Spread: messages and state of the reference application.

A quote is remembered. An order is rejected when bid and offer of its symbol are 5 cents or 5 percent apart,
or when the symbol was never quoted. ``examples/market_spread`` makes a flow of it, in Python and in Rust, and
``millstream demo`` runs and measures it.

>>> market = Market()
>>> order = Order.pack(1, 300, b"order1", b" IBM", 10.0, 99.5, b"20260101-10:00:00.000")
>>> spread(market, order).symbol
b' IBM'
>>> spread(market, Quote.pack(b" IBM", b"20260101-10:00:00.000", 99.5, 99.5))
>>> spread(market, order)
"""

from __future__ import annotations

import time

import millstream as ms

__all__ = ["Market", "Order", "Quote", "Result", "spread"]


class Quote(ms.Record, format=">B4s21sdd", fields="type symbol time bid offer"):
    """The bid and the offer for a symbol."""

    type = 2


class Order(ms.Record, format=">BBI6s4sdd21s", fields="type side account id symbol quantity price time"):
    """An order to buy or to sell."""

    type = 1


class Result(ms.Record, format=">BI6s4sddddQ", fields="side account id symbol quantity price bid offer time"):
    """A rejected order with the quote that it was judged by; times in units of 10 us since the epoch."""


class Market:
    """The latest quote of a symbol. Orders of a symbol that was never quoted are rejected."""

    __slots__ = ("bid", "offer", "reject")

    def __init__(self) -> None:
        self.bid = 0.0
        self.offer = 0.0
        self.reject = True


def spread(market: Market, message: Quote | Order) -> Result | None:
    """A quote updates the state; an order returns a result if it is rejected."""
    if isinstance(message, Quote):
        market.bid = bid = message.bid
        market.offer = offer = message.offer
        width = offer - bid
        market.reject = width >= 0.05 or width / ((bid + offer) / 2) >= 0.05
        return None
    if not market.reject:
        return None
    order = message
    now = time.time_ns() // 10_000
    sent = order.side, order.account, order.id, order.symbol, order.quantity, order.price
    return Result.pack(*sent, market.bid, market.offer, now)
