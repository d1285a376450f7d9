"""Market Spread: two streams over TCP meet in one state for each symbol; rejected orders go out over TCP.

quotes --+
         +--> by symbol --> spread --> results
orders --+
"""

import os

import millstream as ms
from millstream.market_spread import Market, Order, Quote, spread

flow = ms.Flow("market-spread")

# A message of another length or type is counted, reported with its offset, and skipped.
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
