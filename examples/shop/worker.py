"""A worker of the shop: sends the mails of each order by a mail service. Any number may run.

    python worker.py QUEUE_PORT MAIL_URL

The service answers 2xx for a mail that it has taken, 503 with ``Retry-After: SECONDS`` when it is busy. With
any other answer the order has failed: the queue tries it again later, and puts it into ``orders.failed`` when
it has failed too often. SIGTERM ends the worker after its order.
"""

import json
import signal
import sys
import time
import urllib.request
from typing import Any
from urllib.error import HTTPError

from pymemcache.client.base import Client
from pymemcache.exceptions import MemcacheError

# A worker waits so long for an order before it looks for a SIGTERM, in milliseconds.
WAIT_MS = 1_000
# It begins the time of its order anew before each mail, in seconds: more than a mail takes.
LEASE = 30


class Worker:
    def __init__(self, port: int, mail_url: str) -> None:
        self.queue = Client(("127.0.0.1", port), timeout=10, default_noreply=False)
        self.mail_url = mail_url
        self.ends = False

    def end(self, *_: object) -> None:
        self.ends = True

    def run(self) -> None:
        while not self.ends:
            try:
                order = self.queue.get(f"orders/open/t={WAIT_MS}")
                if order is not None:
                    self.process(order)
            except (OSError, MemcacheError):
                # The server is away, or the time of the order was over. What was open is in the queue again.
                self.queue.close()
                time.sleep(0.2)

    def process(self, order: bytes) -> None:
        try:
            for mail in json.loads(order)["mails"]:
                if not self.queue.touch("orders", LEASE):
                    return  # its time was over: another worker has it
                self.send(mail)
        except HTTPError as error:
            seconds = error.headers.get("Retry-After")
            if error.code == 503 and seconds:
                # The service knows when: not the delay of the queue, but this one.
                self.queue.get(f"orders/abort/delay={float(seconds) * 1000:.0f}")
            else:
                self.queue.get("orders/abort")
        except (OSError, ValueError, TypeError, KeyError):
            self.queue.get("orders/abort")
        else:
            self.queue.get("orders/close")

    def send(self, mail: Any) -> None:
        body = json.dumps(mail).encode()
        with urllib.request.urlopen(self.mail_url, body, timeout=LEASE / 2):
            pass


def main() -> None:
    worker = Worker(int(sys.argv[1]), sys.argv[2])
    signal.signal(signal.SIGTERM, worker.end)
    worker.run()


if __name__ == "__main__":
    main()
