"""The page of a server of queues: it is true, names a stuck consumer, and does not disturb the queues."""

import os
import re
import socket
import subprocess
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import servers
from axe_playwright_python.sync_playwright import Axe
from documents import GUIDE
from observed import PATIENCE, until
from queue_server import Line
from store_server import StoreServer
from test_prometheus import promtool

if TYPE_CHECKING:
    from conftest import Tab

EVIL = "<script>alert(1)<b>"


def serve(program: Path, folder: Path, *options: str, address: str = "127.0.0.1:0") -> StoreServer:
    listen = ["queue", "serve", "--dir", str(folder / "queues"), "--listen", "127.0.0.1:0", *options]
    return StoreServer(program, *listen, address=address)


def line(server: StoreServer) -> Line:
    assert server.serves is not None
    return Line(server.serves[1], timeout=PATIENCE)


def queue_of(server: StoreServer, name: str) -> Any:
    queues = server.snapshot()["queues"]["queues"]
    return next((one for one in queues if one["name"] == name), {})


def faults(tab: "Tab") -> list[Any]:
    found = Axe().run(tab.page).response["violations"]
    return [(one["id"], one["nodes"]) for one in found if one["impact"] in ("serious", "critical")]


def test_a_stuck_consumer_is_named(millstream_bin: Path, tab: "Tab", tmp_path: Path) -> None:
    address = f"127.0.0.1:{servers.free_port()}"
    pictures = GUIDE / "pictures" if os.environ.get("MILLSTREAM_PICTURES") else tmp_path
    with serve(millstream_bin, tmp_path, address=address) as server:
        with line(server) as producer, line(server) as stuck:
            for number in range(20):
                assert producer.set("orders", b"order %d" % number) == b"STORED"
                assert producer.set(EVIL, b"<img src=x onerror=alert(1)>") == b"STORED"
            assert producer.set("done", b"x") == b"STORED" and producer.get("done") == b"x"
            assert stuck.value(stuck.ask(b"get orders/open")) == b"order 0"
            until("the stuck consumer", lambda: queue_of(server, "orders").get("state") == "stuck")
            client = stuck.socket.getsockname()
            stats = producer.stats()
            queue = queue_of(server, "orders")
            assert queue["held_by"] == f"{client[0]}:{client[1]}"
            for key, name in (
                ("items", "items"),
                ("bytes", "bytes"),
                ("in_items", "total_items"),
                ("open_items", "open_transactions"),
            ):
                assert queue[key] == int(stats[f"queue_orders_{name}"]), key
            done = queue_of(server, "done")
            assert (done["in_items"], done["out_items"], done["items"]) == (1, 1, 0)
            shows_queues(tab, server, pictures)
            reports_metrics(server)
        # The client is gone, and its item is back.
        until("the item is back", lambda: queue_of(server, "orders")["items"] == 20)
        until("no connection has it", lambda: queue_of(server, "orders")["held_seconds"] == 0)
        server.kill()
    tab.wait("document.getElementById('state').textContent.includes('no connection')")
    with serve(millstream_bin, tmp_path, address=address) as server:
        tab.wait("page.snapshot.queues.queues.find((one) => one.name === 'orders')?.items === 20")
        # Nothing was put in since the start.
        tab.wait("page.snapshot.queues.total.in_items === 0")
        server.stop()
    refused = "Failed to load resource: net::ERR_"
    assert [error for error in tab.errors if refused not in error] == []


def shows_queues(tab: "Tab", server: StoreServer, pictures: Path) -> None:
    tab.page.goto(server.url)
    tab.wait("document.querySelectorAll('#queues tr.warning').length === 1")
    stuck = tab.page.locator("#queues tr.warning")
    assert "a client keeps an item" in stuck.inner_text() and "orders" in stuck.inner_text()
    said = tab.page.locator("#queues-attention").inner_text()
    assert 'queue "orders"' in said and "19 items wait" in said
    assert tab.page.locator("#queues script").count() == 0
    assert EVIL in tab.page.locator("#queues").inner_text()
    assert tab.page.locator("main > section:not(#about-section):visible").count() == 0
    tab.page.screenshot(
        path=pictures / "page-queues.png", clip={"x": 0, "y": 0, "width": 1280, "height": 360}
    )
    # With the keyboard alone: what is known of a queue, with its items.
    tab.page.locator("#queues button", has_text=EVIL).focus()
    tab.page.keyboard.press("Enter")
    tab.wait("document.querySelectorAll('#items tbody tr').length === 20")
    assert (
        "<img src=x" in tab.page.locator("#items").inner_text()
        and tab.page.locator("#items img").count() == 0
    )
    tab.page.locator("#queues button", has_text="orders").click()
    tab.wait("document.querySelectorAll('#holders tbody tr').length === 1")
    tab.wait("document.getElementById('items')?.textContent.includes('order 19')")
    tab.wait("document.querySelectorAll('#charts canvas').length >= 2")
    assert faults(tab) == []
    tab.page.emulate_media(color_scheme="dark")
    assert faults(tab) == []
    tab.page.set_viewport_size({"width": 360, "height": 700})
    tab.wait("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    tab.page.set_viewport_size({"width": 1280, "height": 900})
    tab.page.emulate_media(color_scheme="light")
    tab.page.keyboard.press("Escape")
    tab.page.locator("#queue-search").fill("don")
    tab.wait("document.querySelectorAll('#queues tbody tr').length === 1")
    tab.page.locator("#queue-search").fill("")
    tab.wait("document.querySelectorAll('#queues tbody tr').length === 3")


def reports_metrics(server: StoreServer) -> None:
    promtool("check", "metrics", text=server.get("/metrics")[1])
    metrics = server.metrics()
    assert metrics['millstream_queue_items{queue="orders"}'] == 19
    assert metrics['millstream_queue_held_seconds{queue="orders"}'] >= 5
    assert metrics[f'millstream_queue_in_items_total{{queue="{EVIL}"}}'] == 20
    assert metrics['millstream_queues_latency_seconds_count{kind="set"}'] >= 20
    assert not any(name.startswith("millstream_flow") for name in metrics)
    assert server.get("/readyz")[0] == 200


def test_many_queues_have_bounded_answers(millstream_bin: Path, tmp_path: Path) -> None:
    count = 110
    with serve(millstream_bin, tmp_path, "--sync", "never") as server, line(server) as producer:
        for number in range(count):
            assert producer.set(f"q{number:05}", b"x") == b"STORED"
        # A queue is there before its first item is.
        until("all items", lambda: server.snapshot()["queues"]["total"]["items"] == count)
        queues = server.snapshot()["queues"]
        assert len(queues["queues"]) == 100 and queues["count"] == count
        found = server.json("/api/queues.json?search=q000&from=95")
        assert found["count"] == 100 and len(found["queues"]) == 5
        metrics = server.metrics()
        labelled = [name for name in metrics if name.startswith("millstream_queue_items{")]
        assert len(labelled) == count and metrics["millstream_queues_unlabelled"] == 0


def test_a_server_without_its_follower_is_not_ready(millstream_bin: Path, tmp_path: Path) -> None:
    replica = ("--replica", "127.0.0.1:0", "--commit-on-replica")
    with serve(millstream_bin, tmp_path, *replica) as server, line(server) as client:
        until("the first figures", lambda: server.get("/readyz")[0] == 200)
        client.send(b"set jobs 0 0 1\r\n1\r\n")
        until("no follower", lambda: server.get("/readyz")[0] == 503)
        assert "Not all followers that count acknowledge" in server.get("/readyz")[1]
        assert [one["name"] for one in server.snapshot()["conditions"]] == ["MillstreamQueuesHeld"]
        assert server.metrics()["millstream_queues_held"] == 1
        found = re.search(r"followers are served at ([\d.:]+)", "".join(server.lines))
        assert found
        copy = [millstream_bin, "queue", "follow", found[1], tmp_path / "copy", "--as", "two"]
        with subprocess.Popen(copy, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as follower:
            assert client.read() == b"STORED"
            until("a follower", lambda: server.get("/readyz")[0] == 200)
            assert server.metrics()["millstream_queues_held"] == 0
            followers = 'millstream_journal_follower_lag_records{journal=".changes",follower="two"}'
            until("the follower on the page", lambda: server.metrics().get(followers) == 0)
            follower.terminate()


def test_items_are_private_where_clients_authenticate(millstream_bin: Path, tmp_path: Path) -> None:
    users = tmp_path / "users"
    users.write_text("ann:secret\n")
    with serve(millstream_bin, tmp_path, "--auth-file", str(users)) as server, line(server) as client:
        client.send(b"set auth 0 0 10\r\nann secret\r\n")
        assert client.read() == b"STORED" and client.set("jobs", b"private") == b"STORED"
        until("the queue", lambda: queue_of(server, "jobs"))
        assert server.detail("queue", "jobs")["items_are_shown"] is False
        assert "private" not in server.get("/api/queue.json?name=jobs")[1]


def test_abuse_of_the_page_does_not_harm_the_queue(millstream_bin: Path, tmp_path: Path) -> None:
    stop = threading.Event()
    with serve(millstream_bin, tmp_path, "--sync", "never") as server, line(server) as client:

        def flood() -> None:
            while not stop.is_set():
                with socket.create_connection((server.host, server.port), timeout=PATIENCE) as one:
                    one.sendall(b"GET /api/queue.json?name=jobs HTTP/1.1\r\nHost: localhost\r\n\r\n" * 50)
                    one.recv(100)

        silent = [socket.create_connection((server.host, server.port)) for _ in range(30)]
        for one in silent:
            one.sendall(b"GET /events HTTP/1.1\r\nHost: loc")
        huge = socket.create_connection((server.host, server.port), timeout=PATIENCE)
        huge.sendall(b"GET / HTTP/1.1\r\nX: " + b"a" * 200_000)
        floods = [threading.Thread(target=flood) for _ in range(4)]
        for one in floods:
            one.start()
        for number in range(2_000):
            item = b"%d" % number
            assert client.set("jobs", item) == b"STORED" and client.get("jobs") == item
        stop.set()
        for one in floods:
            one.join(PATIENCE)
        for one in [*silent, huge]:
            one.close()
        until("the page answers", lambda: queue_of(server, "jobs").get("out_items") == 2_000)


def test_options_that_do_not_go_together(millstream_bin: Path, tmp_path: Path) -> None:
    def refused(*options: str) -> str:
        command = [
            str(millstream_bin),
            "queue",
            "serve",
            "--dir",
            str(tmp_path / "q"),
            "--listen=127.0.0.1:0",
            *options,
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode != 0
        return done.stderr

    assert "--http" in refused("--http-open")
    assert "other machines can reach this address" in refused("--http", "0.0.0.0:0")
