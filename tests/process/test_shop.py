"""The example of a shop: workers and the server are killed while orders come and the mail service fails."""

import json
import random
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.error import HTTPError

import pytest
from documents import ROOT
from queue_server import QueueServer, Serve

SHOP = ROOT / "examples" / "shop"
CONFIG = (SHOP / "queues.toml").read_text()
PATIENCE = 120
ORDERS = 40
WORKERS = {"python": [sys.executable, "worker.py"], "php": ["php", "worker.php"]}


class MailService:
    """Takes mails. `flaky` fails twice, `busy` is refused with a time once, `bad` fails until `repaired`."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.sent: Counter[str] = Counter()
        self.repaired = False
        self.lock = threading.Lock()
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                mail = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                status = service.status(mail["to"])
                self.send_response(status)
                if status == 503:
                    self.send_header("Retry-After", "0.3")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                """No line for each request."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/mail"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def status(self, to: str) -> int:
        with self.lock:
            self.asked[to] += 1
            kind = to.split("-")[0]
            asked = self.asked[to]
            if (kind == "flaky" and asked <= 2) or (kind == "bad" and not self.repaired):
                return 500
            if kind == "busy" and asked == 1:
                return 503
            self.sent[to] += 1
            return 200


@pytest.fixture
def mails() -> Iterator[MailService]:
    service = MailService()
    yield service
    service.server.shutdown()
    service.server.server_close()


@contextmanager
def program(*command: object, folder: Path = SHOP) -> Iterator[subprocess.Popen[str]]:
    running = subprocess.Popen([str(part) for part in command], cwd=folder, stdout=subprocess.PIPE, text=True)
    try:
        yield running
    finally:
        running.kill()
        running.wait()


def until(what: str, check: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE
    while not check():
        assert time.monotonic() < end, what
        time.sleep(0.05)


def post(shop: str, order: dict[str, object]) -> None:
    """Posts an order until the shop accepts it, as a customer would."""
    body = json.dumps(order).encode()
    end = time.monotonic() + PATIENCE
    while True:
        try:
            with urllib.request.urlopen(f"{shop}/order", body, timeout=30) as answer:
                assert answer.status == 202
                return
        except HTTPError as error:
            assert error.code == 503 and time.monotonic() < end, error
            time.sleep(0.1)


def counts(server: QueueServer, queue: str) -> tuple[int, int]:
    """The items of a queue, and those that are open."""
    with server.connect() as line:
        stats = line.stats()
    return int(stats.get(f"queue_{queue}_items", 0)), int(stats.get(f"queue_{queue}_open_transactions", 0))


@pytest.mark.parametrize("language", WORKERS)
def test_each_order_is_mailed_or_is_a_dead_letter(
    language: str, serve: Serve, mails: MailService, millstream_bin: Path
) -> None:
    server = serve(config=CONFIG)
    kinds = [("good", "busy", "flaky", "bad")[number % 4] for number in range(ORDERS)]
    # The first mail of an order is to a customer, the second to the warehouse.
    orders = [{"mails": [{"to": f"{kind}-{n}"}, {"to": f"stock-{n}"}]} for n, kind in enumerate(kinds)]
    bad = {n for n, kind in enumerate(kinds) if kind == "bad"}
    with ExitStack() as stack:

        def run(*command: object) -> subprocess.Popen[str]:
            return stack.enter_context(program(*command))

        shop = run(sys.executable, "shop.py", server.port)
        assert shop.stdout is not None
        url = shop.stdout.readline().strip()
        work = [*WORKERS[language], server.port, mails.url]
        workers = [run(*work) for _ in range(3)]
        chance = random.Random(7)
        for number, order in enumerate(orders):
            post(url, order)
            if number % 8 == 3:
                workers[0].kill()
                workers = [*workers[1:], run(*work)]
            if number == 10:
                server.kill()
                server.start()
            if number == 25:
                assert server.stop() == 0
                server.start()
            time.sleep(chance.random() / 50)
        until("the dead letters", lambda: counts(server, "orders.failed") == (len(bad), 0))
        until("the other orders", lambda: counts(server, "orders") == (0, 0))
        assert {to for to in mails.sent if not to.startswith("stock")} == {
            f"{kind}-{n}" for n, kind in enumerate(kinds) if kind != "bad"
        }
        assert {to for to in mails.sent if to.startswith("stock")} == {
            f"stock-{n}" for n in range(ORDERS) if n not in bad
        }
        address = ["--server", f"127.0.0.1:{server.port}"]
        verb = [str(millstream_bin), "queue"]
        shown = subprocess.run(
            [*verb, "peek", "orders.failed", "--json", *address], capture_output=True, check=True
        )
        origin = json.loads(shown.stdout)["origin"]
        assert (origin["queue"], origin["reason"], origin["deliveries"]) == ("orders", "failed", 5)
        mails.repaired = True
        moved = subprocess.run(
            [*verb, "redrive", "orders.failed", "orders", *address],
            capture_output=True,
            check=True,
            text=True,
        )
        assert str(len(bad)) in moved.stdout
        until("the mails of the dead letters", lambda: all(mails.sent[f"stock-{n}"] for n in bad))
        until("the end of all orders", lambda: counts(server, "orders") == (0, 0))
        for worker in workers:
            worker.terminate()
        assert [worker.wait(PATIENCE) for worker in workers] == [0, 0, 0]
