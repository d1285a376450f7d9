"""The web shop: puts orders into the queue. python shop.py [COUNT] [HOST:PORT]

An order that the queue has acknowledged is on disk. Every tenth order has no address.
"""

import json
import sys

from pymemcache.client.base import Client

ADDRESS = "127.0.0.1:22133"


def order(number: int) -> dict[str, object]:
    return {"order": number, "mail": "" if number % 10 == 9 else f"customer-{number}@shop.example"}


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    queue = Client(sys.argv[2] if len(sys.argv) > 2 else ADDRESS, timeout=10, default_noreply=False)
    for number in range(count):
        if not queue.set("orders", json.dumps(order(number))):
            sys.exit(f"order {number} was not accepted: the queue is full")
    print(f"{count} orders accepted")


if __name__ == "__main__":
    main()
