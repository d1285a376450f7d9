"""The page of journals: their followers, their records, and directories that other processes write."""

import os
import re
import shutil
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import millstream as ms
import servers
from documents import GUIDE
from observed import PATIENCE, until
from queue_server import Line
from store_server import StoreServer
from test_page import area
from test_prometheus import promtool
from test_queue_page import faults

if TYPE_CHECKING:
    from conftest import Tab

# Keeps each sentence about journals that the page shows, with its colour.
KEEP_SENTENCES = """() => {
    window.sentences = [];
    const show = JournalsPart.prototype.say;
    JournalsPart.prototype.say = function (...given) {
        show.apply(this, given);
        sentences.push([this.attention.className, this.attention.textContent]);
    };
}"""
EVIL = "<img src=x onerror=alert(1)>"


def append(program: Path, journal: Path, *lines: str) -> None:
    command = [str(program), "journal", "append", str(journal)]
    text = "".join(f"{line}\n" for line in lines)
    subprocess.run(command, input=text, text=True, check=True, capture_output=True, timeout=PATIENCE)


def journal_of(server: StoreServer, name: str) -> Any:
    journals = server.snapshot().get("journals", {}).get("journals", [])
    return next((one for one in journals if one["name"] == name), {})


def follow(program: Path, leader: StoreServer, copy: Path) -> "subprocess.Popen[bytes]":
    assert leader.serves is not None
    host, port = leader.serves
    command = [str(program), "journal", "follow", f"{host}:{port}/orders", str(copy), "--as", "backup"]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def test_a_lagging_follower_is_named(millstream_bin: Path, tab: "Tab", tmp_path: Path) -> None:
    orders = tmp_path / "orders"
    copy = tmp_path / "copy"
    address = f"127.0.0.1:{servers.free_port()}"
    pictures = GUIDE / "pictures" if os.environ.get("MILLSTREAM_PICTURES") else tmp_path
    serve = ["journal", "serve", "--listen", "127.0.0.1:0", str(orders)]
    append(millstream_bin, orders, *[f"order {number}" for number in range(100)], EVIL)
    with StoreServer(millstream_bin, *serve, address=address) as server:
        follower = follow(millstream_bin, server, copy)
        try:
            until("the follower", lambda: journal_of(server, "orders").get("follower_lag") == 0)
            assert journal_of(server, "orders")["state"] == "good"
        finally:
            follower.kill()
            follower.wait()
        append(millstream_bin, orders, *[f"late {number}" for number in range(10)])
        until("the lag", lambda: journal_of(server, "orders").get("state") == "lagging")
        journal = journal_of(server, "orders")
        assert (journal["next"], journal["first"], journal["follower_lag"]) == (111, 0, 10)
        [cursor] = journal["cursors"]
        assert (cursor["name"], cursor["is_follower"], cursor["position"]) == ("backup", True, 101)
        assert cursor["counts"] is True
        info = subprocess.run(
            [str(millstream_bin), "journal", "info", str(orders)], capture_output=True, text=True, check=True
        )
        assert "follower.backup at 101, 10 behind" in info.stdout
        shows_journals(tab, server, pictures)
        promtool("check", "metrics", text=server.get("/metrics")[1])
        metrics = server.metrics()
        labels = '{journal="orders",follower="backup"}'
        assert metrics[f"millstream_journal_follower_lag_records{labels}"] == 10
        assert metrics[f"millstream_journal_follower_lag_seconds{labels}"] >= 5
        assert metrics['millstream_journal_records_total{journal="orders"}'] == 111
        server.stop()
    tab.wait("document.getElementById('state').textContent.includes('no connection')")
    with StoreServer(millstream_bin, *serve, address=address) as server:
        follower = follow(millstream_bin, server, copy)
        try:
            tab.wait("page.snapshot.journals && page.snapshot.conditions.length === 0")
        finally:
            follower.kill()
            follower.wait()
    refused = "Failed to load resource: net::ERR_"
    assert [error for error in tab.errors if refused not in error] == []


def shows_journals(tab: "Tab", server: StoreServer, pictures: Path) -> None:
    tab.page.goto(server.url)
    tab.wait("document.querySelectorAll('#journals tr.critical').length === 1")
    said = tab.page.locator("#journals-attention").inner_text()
    assert 'Follower "backup" of journal "orders" has not acknowledged 10 records' in said
    tab.page.locator("#journals button", has_text="orders").focus()
    tab.page.keyboard.press("Enter")
    tab.wait("document.getElementById('records')?.rows.length === 51")
    assert "late 9" in tab.page.locator("#records").inner_text()
    assert EVIL in tab.page.locator("#records").inner_text()
    assert tab.page.locator("#records img").count() == 0
    assert "backup" in tab.page.locator("#cursors").inner_text()
    tab.page.evaluate("scrollTo(0, 0)")
    tab.page.screenshot(path=pictures / "page-journals.png", clip=area(760))
    tab.page.locator("#record-from").fill("7")
    tab.page.keyboard.press("Enter")
    tab.wait("document.querySelector('#records tbody tr th')?.textContent === '7'")
    assert "order 7" in tab.page.locator("#records").inner_text()
    tab.page.locator("#record-form").select_option("hex")
    hexadecimal = " ".join(f"{byte:02x}" for byte in b"order 7")
    tab.wait(f"document.getElementById('records').textContent.includes('{hexadecimal}')")
    tab.page.locator("#section-detail button", has_text="Earlier").click()
    tab.wait("document.querySelector('#records tbody tr th')?.textContent === '0'")
    assert faults(tab) == []
    tab.page.emulate_media(color_scheme="dark")
    assert faults(tab) == []


def test_records_by_time(millstream_bin: Path, tmp_path: Path) -> None:
    journal = tmp_path / "orders"
    append(millstream_bin, journal, "early")
    between = int(time.time() * 1000) + 1
    until("the time", lambda: time.time() * 1000 > between)
    append(millstream_bin, journal, "late")
    with StoreServer(millstream_bin, "watch", str(tmp_path)) as server:
        name = f"{tmp_path.name}/orders"
        until("the journal", lambda: journal_of(server, name))
        query = f"/api/records.json?journal={name}"
        texts = [record["text"] for record in server.json(query)["records"]]
        assert texts == ["early", "late"]
        found = server.json(f"{query}&time_ms={between}")
        assert [record["sequence"] for record in found["records"]] == [1]
        assert server.json(f"{query}&from=99")["records"] == []
        assert server.get("/api/records.json?journal=no")[0] == 404


def test_watched_directories_are_only_read(millstream_bin: Path, tmp_path: Path) -> None:
    queues = tmp_path / "queues"
    with StoreServer(
        millstream_bin, "queue", "serve", "--dir", str(queues), "--listen", "127.0.0.1:0"
    ) as queue_server:
        assert queue_server.serves is not None
        with Line(queue_server.serves[1], timeout=PATIENCE) as client:
            for number in range(5):
                assert client.set("jobs", b"%d" % number) == b"STORED"
            assert client.get("jobs") == b"0"
            flow = ms.Flow("counting")
            flow.source("numbers", ms.testing.items(range(10))).key_by(lambda n: n % 2).count().items().sink(
                "out", ms.testing.discard()
            )
            ms.run(flow, state=tmp_path / "state")
            before = files_of(tmp_path)
            with StoreServer(millstream_bin, "watch", str(queues), str(tmp_path / "state")) as server:
                until("the queue", lambda: journal_of(server, "queues/jobs").get("items") == 4)
                until("the state", lambda: journal_of(server, "state/epochs"))
                assert journal_of(server, "queues/jobs")["kind"] == "queue"
                assert journal_of(server, "queues/jobs")["writers"] == [queue_server.process.pid]
                assert journal_of(server, "state/epochs")["kind"] == "state"
                assert journal_of(server, "state/epochs")["writers"] == []
                assert files_of(tmp_path) == before
                assert client.set("jobs", b"more") == b"STORED"
                until("one more", lambda: journal_of(server, "queues/jobs").get("items") == 5)
                shown = top(millstream_bin, str(queues))
                jobs = next(line for line in shown if line.startswith("queues/jobs"))
                assert jobs.split()[1:3] == ["queue", "good"]
                shown = top(millstream_bin, f"{server.host}:{server.port}")
                assert shown[0].startswith("journals: ")
                page = f"{queue_server.host}:{queue_server.port}"
                head = "queues: server up, 1 queues, 5 items"
                until("one more on the page", lambda: top(millstream_bin, page)[0].startswith(head))
                server.stop()


def files_of(folder: Path) -> dict[str, tuple[int, int]]:
    """The files below a directory, with their lengths and inodes."""
    files = {path: path.stat() for path in folder.rglob("*") if path.is_file()}
    return {str(path): (stat.st_size, stat.st_ino) for path, stat in files.items()}


def top(program: Path, of: str) -> list[str]:
    command = [str(program), "top", of, "--once"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_damaged_journal_is_reported(millstream_bin: Path, tmp_path: Path) -> None:
    append(millstream_bin, tmp_path / "orders", "one")
    segment = next((tmp_path / "orders").glob("segment-*"))
    with segment.open("r+b") as file:
        file.write(b"damaged!")
    with StoreServer(millstream_bin, "watch", str(tmp_path)) as server:
        name = f"{tmp_path.name}/orders"
        until("the damage", lambda: journal_of(server, name).get("state") == "unreadable")
        [condition] = server.snapshot()["conditions"]
        assert (condition["name"], condition["subject"]) == ("MillstreamJournalUnreadable", name)
        assert server.metrics()[f'millstream_journal_unreadable{{journal="{name}"}}'] == 1


def test_the_first_look_at_many_journals_says_how_far_it_is(
    millstream_bin: Path, tab: "Tab", tmp_path: Path
) -> None:
    append(millstream_bin, tmp_path / "all" / "0", "one")
    for number in range(1, 2_000):
        # A segment is 64 MiB: links share it.
        shutil.copytree(tmp_path / "all" / "0", tmp_path / "all" / str(number), copy_function=os.link)
    with StoreServer(millstream_bin, "watch", str(tmp_path / "all")) as server:
        tab.page.goto(server.url)
        tab.page.evaluate(KEEP_SENTENCES)
        held, said = [], []

        def is_ready() -> bool:
            status, line = server.get("/readyz")
            said.append(line)
            held.extend(server.snapshot()["conditions"])
            return status == 200

        until("all are read", is_ready)
        assert held == []
        read = [re.fullmatch(r"(\d+) of 2000 journals were read\n", line) for line in said]
        assert [0 <= int(found[1]) <= 2_000 for found in read if found]
        tab.wait("page.snapshot.journals.read === null && page.snapshot.journals.count === 2000")
        # Until then the page said how far it was, and was not green.
        sentences = [tuple(one) for one in tab.page.evaluate("window.sentences")]
        good = ("verdict good", "All journals can be read, and followers keep up.")
        assert sentences[-1] == good
        first = r"The journals are read for the first time: [\d,]+ of (0|2,000)\."
        before = [one for one in sentences if one != good]
        assert all(kind == "verdict " and re.fullmatch(first, text) for kind, text in before), before
        assert "100 of 2000" in tab.page.locator("#journals-part").inner_text()
