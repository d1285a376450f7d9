"""A real queue server with jobs: late workers, restarts, delays by expiry, a damaged subscriber."""

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from queue_server import QueueServer, Serve

LIMIT = 60


def until(is_so: Callable[[], object]) -> None:
    end = time.monotonic() + LIMIT
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.02)


def drained(server: QueueServer, queue: str) -> list[bytes]:
    with server.connect() as line:
        return list(iter(lambda: line.get(queue), None))


def items(server: QueueServer, queue: str) -> str | None:
    with server.connect() as line:
        return line.stats().get(f"queue_{queue}_items")


def test_a_worker_that_is_late_removes_its_own_item_or_none(serve: Serve) -> None:
    server = serve("--sync=never", config='[defaults]\nmax_opens = 2\nopen_timeout = "1s"')
    with server.connect() as shop, server.connect() as worker:
        assert shop.set("q", b"A") == shop.set("q", b"B") == b"STORED"
        assert worker.get("q/open") == b"A"
        until(lambda: items(server, "q") == "2")
        assert worker.get("q/open") == b"A"  # it has come back, and is the worker's again
        assert worker.get("q/open") == b"B"
        assert worker.ask(b"get q/close") == b"END"
        until(lambda: items(server, "q") == "1")  # B, whose time is over; A is gone
        assert worker.ask(b"get q/close") == b"NOT_FOUND"
    assert drained(server, "q") == [b"B"]


def test_items_are_confirmed_by_their_ids_from_another_connection(serve: Serve) -> None:
    server = serve("--sync=never", config="[defaults]\nmax_opens = 9")
    with server.connect() as worker, server.connect() as other:
        ids = []
        for item in (b"A", b"B", b"C"):
            assert worker.set("q", item) == b"STORED"
            ids.append(int(worker.ask(b"gets q/open").split()[-1]))
            assert [worker.read(), worker.read()] == [item, b"END"]
        assert other.ask(b"get q/close=%d" % ids[2]) == b"END"
        assert other.ask(b"confirm q id=%d id=%d" % (ids[0], ids[2])) == b"NOT_FOUND"
        assert other.ask(b"get q/abort=%d" % ids[1]) == b"END"
        assert other.get("q/open") == b"B"
        assert [worker.ask(b"get q/close") for _ in range(4)] == [b"NOT_FOUND"] * 3 + [b"END"]
        assert other.ask(b"get q/close") == b"END"
    assert drained(server, "q") == []


@pytest.mark.parametrize("deliveries", [1, 3])
def test_a_restart_is_no_failed_delivery(serve: Serve, deliveries: int) -> None:
    server = serve("--sync=never", config=f"[queue.q]\nmax_deliveries = {deliveries}")
    with server.connect() as line:
        assert line.set("q", b"order") == b"STORED"
    for _ in range(4):
        with server.connect() as worker:
            assert worker.get("q/open") == b"order"
            assert server.stop() == 0
        server.start()
    for _ in range(deliveries):
        with server.connect() as worker:
            assert worker.get("q/open") == b"order"
        until(lambda: items(server, "q") in ("0", "1"))
    until(lambda: items(server, "q") == "0")


@pytest.mark.parametrize("end", ["stop", "kill"])
@pytest.mark.parametrize("memory", [100_000_000, 40_000])
def test_a_delay_by_expiry_ends_without_a_reader(serve: Serve, end: str, memory: int) -> None:
    config = f'[queue.wait]\nexpire_to = "ready"\nmemory_bytes = {memory}'
    server = serve("--sync=never", config=config)
    sent = [b"%04d" % item + b"x" * 100 for item in range(1000)]
    with server.connect() as line:
        assert all(line.set("wait", item, expiry=2) == b"STORED" for item in sent)
    getattr(server, end)()
    server.start()
    until(lambda: items(server, "ready") == "1000")
    assert drained(server, "ready") == sent
    assert items(server, "wait") == "0"


def test_a_damaged_subscriber_gets_all_items_in_the_end(
    serve: Serve, run: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    server = serve("--sync=always")
    with server.connect() as line:
        assert line.get("orders+audit") is None
        for order in range(3):
            assert line.set("orders", b"order-%d-xxxxxxxx" % order) == b"STORED"
    server.stop()
    segment = server.folder / "orders+audit" / "segment-0000000000.log"
    content = bytearray(segment.read_bytes())
    content[content.index(b"order-1") + 2] ^= 1
    segment.write_bytes(content)
    server.start()
    with server.connect() as line:
        refused = line.set("orders", b"order-3")
        assert refused.startswith(b'SERVER_ERROR queue "orders+audit" is closed: '), refused
        assert line.stats()["queue_orders+audit_closed"] == "1"
    # As the guide says.
    to = f"--server=127.0.0.1:{server.port}"
    for command in (
        ["salvage", "orders+audit", f"--dir={server.folder}", "--live", to],
        ["delete", "orders+audit", to],
        ["redrive", "orders-audit.salvaged", "orders+audit", to],
    ):
        done = run("queue", *command)
        assert done.returncode == 0, done.stderr
    with server.connect() as line:
        assert line.set("orders", b"order-3") == b"STORED"
    assert [item[:7] for item in drained(server, "orders+audit")] == [b"order-0", b"order-2", b"order-3"]
    assert [item[:7] for item in drained(server, "orders")] == [b"order-%d" % order for order in range(4)]


def test_a_new_subscriber_is_logged(serve: Serve) -> None:
    server = serve("--sync=never")
    with server.connect() as line:
        assert line.get("orders+adit") is None
    server.wait_for(r'queue "orders\+adit" gets a copy of each item of "orders" from now on')
    assert Path(server.folder / "orders+adit").is_dir()
