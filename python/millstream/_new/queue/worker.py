"""A worker of the shop: confirms each order by a mail. python worker.py [HOST:PORT]

Any number may run. A worker opens an order, and closes it when the mail is sent; until then the order belongs
to the queue: if the worker dies, another one gets it. Ctrl-C or SIGTERM ends it after its order.
"""

import json
import signal
import sys
import time

from pymemcache.client.base import Client
from pymemcache.exceptions import MemcacheError

ADDRESS = "127.0.0.1:22133"
WAIT_MS = 1_000
"""The longest wait for an order, after which the worker looks whether it shall end."""


def send(order: dict[str, str]) -> None:
    """Sends the mail of an order: your code. What it raises makes the queue try the order again."""
    if "@" not in order["mail"]:
        raise ValueError(f"order {order['order']} has no address")
    time.sleep(0.05)
    print(f"order {order['order']}: mail to {order['mail']}", flush=True)


class Worker:
    def __init__(self, address: str = ADDRESS) -> None:
        self.queue = Client(address, timeout=10, default_noreply=False)
        self.ends = False

    def end(self, *_: object) -> None:
        self.ends = True

    def run(self) -> None:
        while not self.ends:
            try:
                order = self.queue.get(f"orders/open/t={WAIT_MS}")
                if order is not None:
                    self.process(order)
            except (OSError, MemcacheError) as error:
                # What was open is in the queue again.
                print(f"the queue: {error!r}; trying again", flush=True)
                self.queue.close()
                time.sleep(0.5)

    def process(self, order: bytes) -> None:
        try:
            send(json.loads(order))
        except (ValueError, KeyError, TypeError) as error:
            print(f"failed: {error}", flush=True)
            self.queue.get("orders/abort")
        else:
            self.queue.get("orders/close")


def main() -> None:
    worker = Worker(*sys.argv[1:])
    signal.signal(signal.SIGINT, worker.end)
    signal.signal(signal.SIGTERM, worker.end)
    worker.run()


if __name__ == "__main__":
    main()
