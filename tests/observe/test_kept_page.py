"""The page of a flow that has failed: it stays, with the error, the last figures and the restarts."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import millstream as ms
import pytest
import servers
from millstream._errors.command import LOST
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


def row_of(tab: Tab, step: str) -> str:
    return tab.page.locator("#steps tr", has_text=step).get_attribute("class") or ""


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
            # The step that failed is coloured, and only that one.
            tab.wait("document.querySelectorAll('.node.critical').length === 1")
            assert "book" in tab.page.locator(".node.critical").text_content()
            assert "critical" in row_of(tab, "book")
            assert tab.page.locator("#conditions b").count() == 0
            # Nothing is known of its workers any more: there is no empty table.
            assert tab.page.locator("#steps").is_visible() and tab.page.locator("#workers").is_hidden()
        for scheme in ("light", "dark"):
            tab.page.emulate_media(color_scheme=scheme)
            assert faults(tab) == []
            tab.page.screenshot(path=tmp_path / f"failed-{scheme}.png")
        flow.process.send_signal(signal.SIGINT)
        assert flow.process.wait(PATIENCE) == 1


PROGRAM = """
if __name__ == "__main__":
    try:
        {start}
    except ms.StepError as error:
        print("raised:", error, file=sys.stderr)
    pathlib.Path(__file__).with_name("went on").touch()
    sys.stdin.read()
"""
KEPT = 'http="127.0.0.1:0", keep_page=True'
RUNS = (f"ms.run(flow, {KEPT})", f"flow.start({KEPT}).wait()")


@pytest.mark.parametrize("start", RUNS, ids=["run", "start"])
def test_a_program_keeps_the_page_of_its_flow(tmp_path: Path, start: str) -> None:
    file = tmp_path / "program.py"
    file.write_text(FAILING.replace("import pathlib", "import pathlib, sys") + PROGRAM.format(start=start))
    command = [sys.executable, str(file)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stderr=pipe, text=True) as program:
        assert program.stdin and program.stderr
        url = next(line for line in program.stderr if line.startswith("page: ")).split()[1]

        def shown() -> Any:
            with urllib.request.urlopen(f"{url}api/snapshot.json", timeout=PATIENCE) as answer:
                return json.load(answer)

        until("items", lambda: [step for step in shown()["steps"] if step["items_in"] > 0])
        (tmp_path / "end").touch()
        down = until("the failure", lambda: shown().get("down"))
        assert "ValueError: no account" in down["error"] and "raise ValueError" in down["traceback"]
        if start == RUNS[0]:
            # The error is raised after Ctrl-C.
            assert next(program.stderr).endswith("; its page stays until Ctrl-C\n")
            assert not (tmp_path / "went on").exists()
            program.send_signal(signal.SIGINT)
        assert next(line for line in program.stderr if line.startswith("raised: "))
        until("the rest of the program", (tmp_path / "went on").exists)
        if start == RUNS[1]:
            assert shown()["state"] == "failed"
        program.stdin.close()
        assert program.wait(PATIENCE) == 0


def test_nothing_can_be_asked_of_a_flow_that_has_failed(tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    start = 'flow.start(http="127.0.0.1:0", http_token="secret", keep_page=True).wait()'
    file.write_text(FAILING.replace("import pathlib", "import pathlib, sys") + PROGRAM.format(start=start))
    (tmp_path / "end").touch()
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, str(file)], stdin=pipe, stderr=pipe, text=True) as program:
        assert program.stdin and program.stderr
        url = next(line for line in program.stderr if line.startswith("page: ")).split()[1]
        until("the rest of the program", (tmp_path / "went on").exists)
        token = {"Authorization": "Bearer secret"}
        asked = urllib.request.Request(f"{url}api/actions/stop", method="POST", headers=token)
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(asked, timeout=PATIENCE)
        assert refused.value.code == 409 and b"no flow runs here" in refused.value.read()
        program.stdin.close()
        assert program.wait(PATIENCE) == 0


def test_a_page_that_is_kept_needs_an_address() -> None:
    with pytest.raises(ms.FlowUsageError, match="keep_page needs the address of the page: http="):
        ms.run(ms.Flow("none"), keep_page=True)


@pytest.mark.parametrize("comes", [False, True])
def test_the_process_that_is_missing_is_named_by_its_number(tmp_path: Path, comes: bool) -> None:
    hosts = ",".join(f"127.0.0.1:{servers.free_port()}" for _ in range(2))
    options = ("--process", "0", "--hosts", hosts, "--meet-within", "30s" if comes else "2s", "--keep-page")
    with Observed(tmp_path, HEALTHY, *options) as flow:
        if comes:
            file = str(tmp_path / "observed_flow.py")
            command = [sys.executable, "-m", "millstream", "run", file, "--process", "1", "--hosts", hosts]
            with subprocess.Popen(command, stderr=subprocess.DEVNULL) as other:
                flow.wait_running()
                other.kill()
        missing = 'millstream_flow_processes_missing{flow="healthy",process="1"} 1'
        shown = until("the failure", lambda: (snapshot(flow) or {}).get("down") and snapshot(flow))
        assert shown["missing"] == [1] and "process" in shown["down"]["error"]
        assert missing in flow.get("/metrics")[1]
        flow.process.send_signal(signal.SIGINT)
        assert flow.process.wait(PATIENCE) == LOST


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


def counting(name: str, fails_at: int, count: int) -> ms.Flow:
    """A flow that fails at a number, and ends after `count`."""

    def check(n: int) -> int:
        if n == fails_at:
            raise ValueError(f"no account {n}")
        return n

    flow = ms.Flow(name)
    numbers = flow.source("numbers", ms.generate(lambda: range(count)))
    numbers.map(check, name="check").sink("out", ms.testing.discard())
    return flow


def page_of(running: ms.Running) -> tuple[Any, tuple[int, str], list[str]]:
    """The snapshot, the answer to a probe, and the metrics of a flow that nobody waits for."""

    def get(path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://{running.address}{path}", timeout=PATIENCE) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    return json.loads(get("/api/snapshot.json")[1]), get("/readyz"), get("/metrics")[1].splitlines()


@pytest.mark.parametrize("keeps", [True, False])
def test_a_flow_that_nobody_waits_for_is_shown_as_failed(keeps: bool) -> None:
    running = counting("unseen", 50, 1 << 40).start(http="127.0.0.1:0", keep_page=keeps)
    until("the failure", lambda: page_of(running)[0]["state"] == "failed")
    until("the end", lambda: running.has_ended and not page_of(running)[0]["workers"])
    shown, ready, metrics = page_of(running)
    assert "no account 50" in shown["down"]["error"] and "raise ValueError" in shown["down"]["traceback"]
    assert [one["name"] for one in shown["conditions"]] == ["MillstreamFlowDown"]
    assert "has failed and is not started again" in shown["conditions"][0]["words"]
    assert {step["in_rate"] for step in shown["steps"]} == {None}
    assert ready[0] == 503 and "no account 50" in ready[1]
    assert 'millstream_flow_running{flow="unseen"} 0.0' in metrics
    with pytest.raises(ms.StepError, match="no account 50"):
        running.wait()
    if keeps:
        assert page_of(running)[0]["down"]["since_ms"] == shown["down"]["since_ms"]


def test_a_flow_that_nobody_waits_for_is_shown_as_ended() -> None:
    running = counting("over", -1, 100).start(http="127.0.0.1:0")
    until("the end", lambda: page_of(running)[0]["state"] == "ended")
    shown, ready, metrics = page_of(running)
    assert (shown["conditions"], shown["workers"]) == ([], [])
    assert next(step for step in shown["steps"] if step["name"] == "check")["items_in"] == 100
    assert ready == (503, "the flow has ended\n")
    assert 'millstream_flow_running{flow="over"} 0.0' in metrics
    assert running.wait().step("check")["items_in"] == 100


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("reads", [True, False])
def test_late_items_that_a_sink_has_are_not_dropped(reads: bool, ordered: bool) -> None:
    flow = ms.Flow("handled")
    numbers = flow.source("numbers", ms.generate(itertools.count, rate=500))
    timed = numbers.event_time(lambda n: n - 100 if n % 5 == 4 else n).key_by(lambda n: "k")
    counts = timed.window("w", ms.windows.tumbling(10), ordered=ordered).count()
    counts.values().sink("out", ms.testing.discard())
    if reads:
        counts.late.values().sink("late", ms.testing.discard())
    with flow.start(http="127.0.0.1:0") as running:

        def step() -> Any:
            return next(one for one in page_of(running)[0]["steps"] if one["name"] == "w")

        until("late items", lambda: step()["late"] > 50)
        shown = step()
        assert shown["late_dropped"] == (0 if reads else shown["late"])
        if reads:
            assert page_of(running)[0]["conditions"] == []
        else:
            held = until("the condition", lambda: page_of(running)[0]["conditions"])
            assert [one["name"] for one in held] == ["MillstreamItemsLate"]
