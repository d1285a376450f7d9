"""The web handler of the shop: an order that it accepts is in the queue, on disk.

    python shop.py QUEUE_PORT [HTTP_PORT]

``POST /order`` with the JSON of an order is answered 202 once the queue has acknowledged it, 503 when it has
not: then the customer may try again.
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from pymemcache.client.base import PooledClient
from pymemcache.exceptions import MemcacheError

# A handler waits this long for the queue, in seconds.
TIMEOUT = 10


def handler(queue: PooledClient) -> type[BaseHTTPRequestHandler]:
    class Shop(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.send_response(self.accept(body))
            self.send_header("Content-Length", "0")
            self.end_headers()

        def accept(self, body: bytes) -> int:
            try:
                order = json.loads(body)
            except ValueError:
                return 400
            if self.path != "/order" or not isinstance(order, dict) or "mails" not in order:
                return 400
            try:
                return 202 if queue.set("orders", body) else 503
            except (OSError, MemcacheError):
                return 503

        def log_message(self, format: str, *args: object) -> None:
            """No line for each request."""

    return Shop


def main() -> None:
    ports = [int(port) for port in sys.argv[1:]]
    queue = PooledClient(("127.0.0.1", ports[0]), timeout=TIMEOUT, default_noreply=False, max_pool_size=16)
    server = ThreadingHTTPServer(("127.0.0.1", ports[1] if len(ports) > 1 else 0), handler(queue))
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
