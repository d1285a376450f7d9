"""What a reader with the token does with queues on their page: redrive and reload."""

from __future__ import annotations

import http.client
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import pytest
from observed import PATIENCE
from queue_server import Line
from store_server import StoreServer
from test_queue_page import EVIL, faults, line, serve

if TYPE_CHECKING:
    from conftest import Tab

TOKEN = "abc123"
BEARER = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture
def options(tmp_path: Path) -> list[str]:
    (tmp_path / "token").write_text(TOKEN)
    (tmp_path / "queues.toml").write_text("")
    return ["--http-token-file", str(tmp_path / "token"), "--config", str(tmp_path / "queues.toml")]


def act(server: StoreServer, action: str, headers: dict[str, str] = BEARER, **query: Any) -> tuple[int, str]:
    client = http.client.HTTPConnection(server.host, server.port, timeout=PATIENCE)
    try:
        client.request("POST", f"/api/actions/{action}?{urlencode(query)}", headers=headers)
        answer = client.getresponse()
        return answer.status, answer.read().decode()
    finally:
        client.close()


def items(client: Line, queue: str) -> int:
    return int(client.stats().get(f"queue_{queue}_items", "0"))


def says(tab: Tab, element: str, text: str) -> None:
    tab.wait(f"document.getElementById({element!r}).textContent.includes({text!r})")


def test_items_return_from_a_queue_of_dead_letters(
    millstream_bin: Path, tmp_path: Path, options: list[str]
) -> None:
    with serve(millstream_bin, tmp_path, *options) as server, line(server) as client:
        for number in range(5):
            assert client.set("dead", b"%d" % number) == b"STORED"
        for wrong in ({}, {"Authorization": "Bearer abc124"}):
            assert act(server, "redrive", wrong, **{"from": "dead", "to": "jobs"})[0] in (401, 403)
        # A token in an address is for reading only.
        assert act(server, "redrive", {}, token=TOKEN, **{"from": "dead", "to": "jobs"})[0] == 401
        page = {"Origin": "https://evil.example", **BEARER}
        assert act(server, "redrive", page, **{"from": "dead", "to": "jobs"})[0] == 403
        for query, status, said in (
            ({"from": "lost", "to": "jobs"}, 404, 'no queue "lost"'),
            ({"from": "dead", "to": "dead"}, 400, 'queue "dead"'),
            ({"from": "dead", "to": "jobs", "max": "1e3"}, 400, 'queue "dead"'),
            ({"from": "dead", "to": "jobs", "max": "0"}, 400, 'queue "dead"'),
            ({"from": "dead"}, 400, "two queues"),
            ({"from": "dead", "to": "a/b"}, 400, '"a/b"'),
        ):
            found, body = act(server, "redrive", **query)
            assert (found, said in body) == (status, True), body
        assert items(client, "dead") == 5
        status, body = act(server, "redrive", max=2, **{"from": "dead", "to": "jobs"})
        assert status == 200 and json.loads(body)["moved"] == 2
        assert [client.get("jobs"), client.get("jobs")] == [b"0", b"1"]
        status, body = act(server, "redrive", **{"from": "dead", "to": "jobs"})
        assert status == 200 and json.loads(body)["moved"] == 3
        # What was answered is on the disk.
        server.kill()
    with serve(millstream_bin, tmp_path, *options) as server, line(server) as client:
        assert (items(client, "dead"), items(client, "jobs")) == (0, 3)
        server.stop()


def test_the_configuration_is_read_again(millstream_bin: Path, tmp_path: Path, options: list[str]) -> None:
    config = tmp_path / "queues.toml"
    with serve(millstream_bin, tmp_path, *options) as server, line(server) as client:
        assert act(server, "reload", {})[0] == 401
        config.write_text("[queue.jobs]\nmax_items = 1\n")
        status, body = act(server, "reload")
        assert status == 200 and json.loads(body) == {"asked": "reload", "at_next_start": []}
        assert client.set("jobs", b"1") == b"STORED"
        assert b"full" in client.set("jobs", b"2") or items(client, "jobs") == 1
        config.write_text("[queue.jobs]\nmax_itmes = 1\n")
        status, body = act(server, "reload")
        assert status == 409 and "the old configuration holds" in body and str(config) in body
        server.stop()


def test_a_server_without_a_token_changes_nothing(millstream_bin: Path, tmp_path: Path) -> None:
    with serve(millstream_bin, tmp_path) as server, line(server) as client:
        assert client.set("dead", b"x") == b"STORED"
        assert act(server, "redrive", **{"from": "dead", "to": "jobs"})[0] == 403
        assert act(server, "reload")[0] == 403
        assert server.snapshot()["actions"] == [] and items(client, "dead") == 1


def test_the_page_moves_items(millstream_bin: Path, tab: Tab, tmp_path: Path, options: list[str]) -> None:
    with serve(millstream_bin, tmp_path, *options) as server, line(server) as client:
        assert client.set(EVIL, b"x") == b"STORED"
        tab.page.goto(f"{server.url}/#token={TOKEN}")
        tab.page.locator("#queues button", has_text=EVIL).click()
        tab.page.locator("#redrive-to").fill("jobs")
        tab.page.locator("#redrive-max").fill("10")
        assert faults(tab) == []
        tab.page.locator("#redrive-to").press("Enter")
        says(tab, "redrive-outcome", "1 items moved from <script>")
        assert tab.page.locator("#redrive-outcome script").count() == 0
        assert client.get("jobs") == b"x"
        tab.page.locator("#redrive-to").fill(EVIL)
        tab.page.locator("#redrive button").click()
        says(tab, "redrive-outcome", "cannot send items to itself")
        tab.page.locator("#actions button", has_text="Reload the configuration").click()
        says(tab, "action-outcome", "The configuration was read.")
        (tmp_path / "queues.toml").write_text("[queue.jobs]\nmax_itmes = 1\n")
        tab.page.locator("#actions button", has_text="Reload the configuration").click()
        says(tab, "action-outcome", "the old configuration holds")
        tab.page.set_viewport_size({"width": 360, "height": 700})
        # The outcome names a file whose path is long; the charts follow the width a moment later.
        tab.wait("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
        tab.page.set_viewport_size({"width": 1280, "height": 900})
        # Without the token there is neither the form nor the button.
        tab.page.goto("about:blank")
        refused = [error for error in tab.errors if "400" not in error and "409" not in error]
        assert refused == []
        server.stop()
    with serve(millstream_bin, tmp_path / "open") as server, line(server) as client:
        assert client.set("dead", b"x") == b"STORED"
        tab.page.goto(server.url)
        tab.page.locator("#queues button", has_text="dead").click()
        tab.wait("document.querySelectorAll('#items tbody tr').length === 1")
        assert tab.page.locator("#redrive, #actions button").count() == 0
