"""The page of a flow that has failed: it stays, with the error, the last figures and the restarts."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from millstream._run.processes import END_ALONE_S, Processes
from millstream._run.supervisor import END_S
from observed import HEALTHY, PATIENCE, Observed, until
from test_flow_notes import children
from test_page import faults

if TYPE_CHECKING:
    from conftest import Tab

FAILING = """
import itertools
import pathlib
import millstream as ms

END = pathlib.Path(__file__).with_name("end")


def book(n):
    if END.exists():
        raise ValueError(f"no account {n} <b>")
    return n


flow = ms.Flow("booking")
numbers = flow.source("numbers", ms.generate(itertools.count, rate=200, batch_size=10))
numbers.key_by(lambda n: n % 7).map(book, name="book").sink("out", ms.testing.discard())
"""


def snapshot(flow: Observed) -> Any:
    """The newest figures; none while nothing listens."""
    try:
        return flow.snapshot()
    except OSError:
        return None


@pytest.mark.parametrize("options", [[], ["--processes", "2"]])
def test_a_flow_that_has_failed_keeps_its_page(tab: Tab, tmp_path: Path, options: list[str]) -> None:
    with Observed(tmp_path, FAILING, "--keep-page", *options) as flow:
        flow.wait_running()
        until("items", lambda: flow.step("book")["items_in"] > 0)
        tab.page.goto(flow.url)
        tab.wait("document.querySelectorAll('.node').length > 2")
        (tmp_path / "end").touch()
        shown = until("the error", lambda: (snapshot(flow) or {}).get("down") and snapshot(flow))
        assert "ValueError: no account" in shown["down"]["error"] and not shown["down"]["is_restarted"]
        assert 'raise ValueError(f"no account {n} <b>")' in shown["down"]["traceback"]
        assert (shown["state"], shown["flow"]) == ("failed", "booking")
        book = next(step for step in shown["steps"] if step["name"] == "book")
        assert book["items_in"] > 0 and book["in_rate"] is None
        assert [one["name"] for one in shown["conditions"]] == ["MillstreamFlowDown"]
        status, line = flow.get("/readyz")
        assert status == 503 and "no account" in line
        assert 'millstream_flow_running{flow="booking"} 0' in flow.get("/metrics")[1]
        # The page that was open follows, and one that is opened now has the graph too.
        for reload in (False, True):
            if reload:
                tab.page.reload()
            tab.wait("document.body.classList.contains('down')")
            tab.wait("document.querySelectorAll('.node').length > 2")
            tab.wait("document.querySelector('#conditions pre')?.textContent.includes('raise ValueError')")
            assert "has failed and is not started again" in tab.page.locator("#verdict").inner_text()
            assert tab.page.locator("#conditions b").count() == 0
        for scheme in ("light", "dark"):
            tab.page.emulate_media(color_scheme=scheme)
            assert faults(tab) == []
            tab.page.screenshot(path=tmp_path / f"failed-{scheme}.png")
        flow.process.send_signal(signal.SIGINT)
        assert flow.process.wait(PATIENCE) == 1


def test_the_page_stays_while_the_flow_waits_for_its_restart(tmp_path: Path) -> None:
    options = ("--processes", "1", "--state", str(tmp_path / "state"))
    with Observed(tmp_path, HEALTHY, *options) as flow:
        flow.wait_running()
        until("items", lambda: flow.step("one more")["items_in"] > 0)
        killed: set[int] = set()

        # The pauses grow: one of them is long enough to be seen.
        def seen() -> Any:
            for pid in set(children(flow.process.pid)) - killed:
                killed.add(pid)
                os.kill(pid, signal.SIGKILL)
            found = snapshot(flow)
            return found if found and "down" in found else None

        shown = until("the page between two starts", seen)
        assert "killed by SIGKILL" in shown["down"]["error"] and shown["down"]["is_restarted"]
        assert shown["restarts"][0]["cause"] == shown["down"]["error"]
        assert "is started again" in shown["conditions"][0]["words"]
        # Port 0 was chosen once: the next process has the same address.
        until("the restart", lambda: (snapshot(flow) or {}).get("state") == "running")
        flow.stop()


def test_processes_that_have_not_met_end_at_once(tmp_path: Path) -> None:
    class Joined:
        is_running = False

    processes = Processes(
        ["flow.py"],
        range(2),
        ready_file=None,
        meet=True,
        resumes=False,
        once=[],
        limit=(1, 1.0),
        json_log=False,
        of_factory=[],
        shows=None,
    )
    members = [Joined(), Joined()]
    processes.children = members  # type: ignore[assignment]
    assert processes.end_s() == END_ALONE_S < END_S
    members[1].is_running = True
    assert processes.end_s() == END_S
    processes.children = []
    processes.kill()
