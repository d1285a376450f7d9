"""Market Spread: two streams over TCP meet in one state for each symbol; rejected orders go out over TCP.

quotes --+
         +--> by symbol --> spread --> results
orders --+
"""

import os
import time
from dataclasses import dataclass

import millstream as ms


class Quote(ms.Record, format=">B4s21sdd", fields="type symbol time bid offer"):
    """What is bid and what is asked for a symbol."""


class Order(ms.Record, format=">BBI6s4sdd21s", fields="type side account id symbol quantity price time"):
    """An order to buy or to sell."""


class Result(ms.Record, format=">BI6s4sddddQ", fields="side account id symbol quantity price bid offer time"):
    """A rejected order with the quote that it was judged by."""


@dataclass
class Market:
    """What is known of a symbol. One that was never quoted rejects."""

    bid: float = 0.0
    offer: float = 0.0
    reject: bool = True


def spread(market: Market, message: Quote | Order) -> Result | None:
    """A quote changes what is known; an order gives a result if it is rejected."""
    if isinstance(message, Quote):
        market.bid, market.offer = message.bid, message.offer
        width, middle = market.offer - market.bid, (market.bid + market.offer) / 2
        market.reject = width >= 0.05 or width / middle >= 0.05
        return None
    if not market.reject:
        return None
    order, now = message, time.time_ns() // 10_000
    sent = order.side, order.account, order.id, order.symbol, order.quantity, order.price
    return Result.pack(*sent, market.bid, market.offer, now)


flow = ms.Flow("market-spread")

# Two connections bring quotes: the initial ones, then the running ones. Then the stream has ended.
quotes_at = os.environ.get("QUOTES", "127.0.0.1:7001")
quotes = flow.source("quotes", ms.tcp.listen(quotes_at, connections=2, decode=Quote), on_error="skip")

orders_at = os.environ.get("ORDERS", "127.0.0.1:7002")
orders = flow.source("orders", ms.tcp.listen(orders_at, connections=1, decode=Order), on_error="skip")

(
    quotes.key_by("symbol")
    .merge(orders.key_by("symbol"))
    .stateful("spread", spread, state=Market)
    .values()
    .sink("results", ms.tcp.send_to(os.environ.get("RESULTS", "127.0.0.1:7003")))
)

if __name__ == "__main__":
    ms.run(flow)
