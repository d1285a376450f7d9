"""The total of each customer's orders, from topic to topic, exactly once.

Run, with a broker that has the topics orders and totals:
millstream run totals.py --state state
"""

import json
import os

import millstream as ms

SERVERS = os.environ.get("SERVERS", "localhost:9092")
ORDERS = os.environ.get("ORDERS", "orders")
TOTALS = os.environ.get("TOTALS", "totals")


def customer(order: ms.kafka.Message) -> str:
    """The customer of an order, which is the key of the message."""
    return (order.key or b"").decode()


def cents(order: ms.kafka.Message) -> int:
    """The amount of an order such as {"cents": 250}. A tombstone has none."""
    return int(json.loads(order.value)["cents"]) if order.value is not None else 0


flow = ms.Flow("totals")
orders = flow.source("orders", ms.kafka.read(SERVERS, ORDERS))
totals = orders.key_by(customer).map(cents).sum(emit="each").items()
sink = ms.kafka.write(
    SERVERS,
    TOTALS,
    key=lambda total: total[0],
    encode=lambda total: json.dumps({"cents": total[1]}),
)
totals.sink("totals", sink)
