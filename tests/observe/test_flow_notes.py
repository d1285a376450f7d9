"""What has happened to a flow, on its page: state, lag, failures, restarts, and actions by token."""

import http.client
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import servers
from axe_playwright_python.sync_playwright import Axe
from observed import HEALTHY, PATIENCE, Observed, until

if TYPE_CHECKING:
    from conftest import Tab

FAILING = """
import itertools
import os
import time
import millstream as ms

folder = os.path.dirname(__file__)
flow = ms.Flow("failing")

def parse(n):
    if n % 10 == 3:
        raise ValueError(f"<script>alert({n})</script>")
    if n % 10 == 5:
        raise KeyError("five")
    return n

def refuse(n):
    if n % 10 == 7:
        raise TypeError("seven")
    return n

def count(state, n):
    state.value = (state.value or 0) + 1
    return []

letters = ms.dead_letter(ms.testing.discard())
numbers = flow.source("numbers", ms.generate(itertools.count, rate=200, batch_size=10))
parsed = numbers.map(parse, name="parse", on_error=letters).map(refuse, name="refuse", on_error="skip")
(parsed.key_by(lambda n: n % 4, name="by four").count().items().sink("out", ms.testing.discard()))

def slow(line):
    time.sleep(0.002)
    return line

lines = flow.source("lines", ms.files.lines(os.path.join(folder, "lines.txt")))
lines.map(slow, name="slow").sink("end", ms.testing.discard())
"""


def failing(folder: Path, *options: str) -> Observed:
    (folder / "lines.txt").write_text("a line of text\n" * 50_000)
    return Observed(folder, FAILING, "--state", str(folder / "state"), *options)


def step(snapshot: Any, name: str) -> Any:
    return next(one for one in snapshot["steps"] if one["name"] == name)


def test_failures_state_and_lag_are_on_the_page(tab: "Tab", tmp_path: Path) -> None:
    with failing(tmp_path) as flow:
        tab.page.goto(flow.url)
        tab.wait("page.snapshot?.failures.some((one) => one.outcome === 'skipped')")
        tab.wait("page.snapshot.failures.some((one) => one.error.includes('<script>'))")
        tab.wait("page.snapshot.epochs?.commits > 1 && page.snapshot.sources[1]?.lag_bytes > 0")
        tab.wait("page.snapshot.steps.some((one) => one.keys === 4)")
        snapshot = tab.page.evaluate("page.snapshot")
        letters = [one for one in snapshot["failures"] if one["outcome"] == "dead letter"]
        assert {one["step"] for one in letters} == {"parse"} and len(snapshot["failures"]) <= 50
        script = next(one for one in letters if "<script>" in one["error"])
        assert script["item"].endswith("3") and script["error"].startswith("ValueError: <script>")
        assert "in parse" in script["traceback"] and "raise ValueError" in script["traceback"]
        skipped = next(one for one in snapshot["failures"] if one["outcome"] == "skipped")
        assert (skipped["step"], skipped["error"]) == ("refuse", "TypeError: seven")
        # Numbers of their own, although the policy of both is to skip.
        parse = step(snapshot, "parse")
        refuse = step(snapshot, "refuse")
        assert parse["dead_letters"] == parse["skipped"] > 0
        assert refuse["dead_letters"] == 0 < refuse["skipped"]
        assert snapshot["epochs"]["since_commit_seconds"] < PATIENCE
        size = (tmp_path / "lines.txt").stat().st_size
        assert 0 < snapshot["sources"][1]["lag_bytes"] < size
        shown = tab.page.locator("#failures").inner_text()
        assert "<script>alert(" in shown and tab.page.locator("#failures script").count() == 0
        tab.page.locator("#failures summary").first.click()
        assert "Traceback" in tab.page.locator("#failures details[open] pre").first.inner_text()
        found = Axe().run(tab.page).response["violations"]
        assert [one["id"] for one in found if one["impact"] in ("serious", "critical")] == []
        status, metrics = flow.get("/metrics")
        assert status == 200
        for name in (
            "step_dead_letters_total",
            "step_state_keys",
            "source_lag_bytes",
            "edge_in_flight_items",
        ):
            assert f"millstream_{name}{{" in metrics, name
        assert tab.errors == []


def request(flow: Observed, name: str, method: str = "POST", **headers: str) -> int:
    client = http.client.HTTPConnection(flow.host, flow.port, timeout=PATIENCE)
    try:
        client.request(method, f"/api/actions/{name}", headers=headers)
        return client.getresponse().status
    finally:
        client.close()


@pytest.fixture
def secret(tmp_path: Path) -> str:
    file = tmp_path / "token"
    file.write_text("abc123")
    return str(file)


def test_only_the_token_may_act(tmp_path: Path, secret: str) -> None:
    options = ("--http-token-file", secret, "--state", str(tmp_path / "state"), "--epoch", "60m")
    with Observed(tmp_path, HEALTHY, *options) as flow:
        flow.wait_running()
        bearer = {"Authorization": "Bearer abc123"}
        assert request(flow, "stop") == 401
        assert request(flow, "stop", Authorization="Bearer abc124") in (401, 403)
        # The token of a query is for readers only: it is in histories of browsers.
        assert request(flow, "stop?token=abc123") == 401
        for origin in ("https://evil.example", "null", f"http://127.0.0.1:{flow.port + 1}"):
            assert request(flow, "stop", Origin=origin, **bearer) == 403
        assert request(flow, "stop", Host="evil.example", **bearer) == 403
        evil = {"Host": "evil.example", "Origin": "http://evil.example"}
        assert request(flow, "stop", **evil, **bearer) == 403
        assert request(flow, "stop", "GET", **bearer) == 405
        # A browser that asks whether another page may send the header is refused.
        ask = {"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}
        assert request(flow, "stop", "OPTIONS", **ask) == 403
        assert request(flow, "reload", **bearer) in (404, 405)
        assert flow.process.poll() is None

        def commits() -> int:
            return int(flow.json("/api/snapshot.json?token=abc123")["epochs"]["commits"])

        before = commits()
        own = f"http://{flow.host}:{flow.port}"
        assert request(flow, "commit", Origin=own, **bearer) == 200
        until("the commit", lambda: commits() > before)
        assert request(flow, "stop", **bearer) == 200
        assert "stop was asked for on its page" in flow.ended()


def test_a_server_without_a_token_only_reads(tmp_path: Path) -> None:
    with Observed(tmp_path, HEALTHY) as flow:
        flow.wait_running()
        assert request(flow, "stop") == 403
        assert flow.snapshot()["actions"] == []
        assert flow.process.poll() is None


def test_the_page_has_buttons_with_the_token_only(tab: "Tab", tmp_path: Path, secret: str) -> None:
    options = ("--http-token-file", secret, "--state", str(tmp_path / "state"))
    with Observed(tmp_path, HEALTHY, *options) as flow:
        tab.page.goto(f"{flow.url}/#token=abc123")
        tab.wait("page.snapshot?.epochs")
        tab.page.locator("#actions button", has_text="Commit now").click()
        tab.wait("document.getElementById('action-outcome').textContent === 'Commit now: asked for.'")
        found = Axe().run(tab.page).response["violations"]
        assert [one["id"] for one in found if one["impact"] in ("serious", "critical")] == []
        tab.page.on("dialog", lambda dialog: dialog.accept())
        tab.page.locator("#actions button", has_text="Stop the flow").click()
        flow.ended()


def test_restarts_are_shown_with_their_causes(tmp_path: Path) -> None:
    address = f"127.0.0.1:{servers.free_port()}"
    options = ("--processes", "1", "--state", str(tmp_path / "state"))
    with Observed(tmp_path, HEALTHY, *options, address=address) as flow:
        flow.wait_running()
        (worker,) = children(flow.process.pid)
        os.kill(worker, signal.SIGKILL)

        def restarts() -> Any:
            try:
                return flow.snapshot()["restarts"]
            except OSError:
                return None  # it starts again

        (restart,) = until("the restart", restarts)
        assert "SIGKILL" in restart["cause"] or "signal 9" in restart["cause"], restart
        assert flow.get("/metrics")[1].count('millstream_flow_restarts_total{flow="healthy"} 1') == 1
        flow.stop()


def children(pid: int) -> list[int]:
    """The child processes of a process."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
