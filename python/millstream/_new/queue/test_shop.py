"""Run by: pytest. A real server, on a port of its own."""

import json
import re
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import worker
from pymemcache.client.base import Client

CONFIG = Path(__file__).parent / "queues.toml"


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """The address of a server with empty queues."""
    command = ["millstream", "queue", "serve", "--listen", "127.0.0.1:0", "--config", str(CONFIG)]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        found = next(filter(None, (re.search(r"127\.0\.0\.1:\d+", line) for line in server.stderr)))
        yield found[0]
        server.terminate()


def test_each_order_is_confirmed_or_fails_after_four_tries(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[int] = []

    def send(order: dict[str, int]) -> None:
        tried.append(order["order"])
        if order["order"] == 1:
            raise ValueError("no address")

    monkeypatch.setattr(worker, "send", send)
    queue = Client(address, default_noreply=False)
    for number in range(3):
        queue.set("orders", json.dumps({"order": number}))
    one = worker.Worker(address)
    thread = threading.Thread(target=one.run)
    thread.start()
    try:
        until = time.monotonic() + 30
        while (failed := queue.get("orders.failed")) is None and time.monotonic() < until:
            time.sleep(0.05)
    finally:
        one.end()
        thread.join()
    assert failed is not None and json.loads(failed) == {"order": 1}
    assert sorted(tried) == [0, 1, 1, 1, 1, 2]
