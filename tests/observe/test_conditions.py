"""What is wrong is on the page, in ``top``, ``/readyz`` and a real Prometheus, and nothing is green then.

``MILLSTREAM_PICTURES=FOLDER`` writes a picture of each condition there, light and dark, wide and narrow.
"""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import servers
from axe_playwright_python.sync_playwright import Axe
from observed import Observed, until
from test_prometheus import ask, prometheus
from test_queue_page import line, serve
from test_top import once

if TYPE_CHECKING:
    from conftest import Tab

BAD = """
import itertools
import time
import millstream as ms

def book(order):
    return order | {"amount": order["amount"] + 1}

def orders():
    for number in itertools.count():
        late = 3600 if number % 10 >= 8 and number > 100 else 0
        yield {"id": number, "amount": "x" if number % 10 < 6 else 1, "time": time.time() - late}

flow = ms.Flow("payments")
orders = flow.source("payments", ms.generate(orders, rate=300))
booked = orders.map(book, name="book", on_error=ms.dead_letter(ms.testing.discard()))
timed = booked.event_time(lambda order: order["time"], lateness=1).key_by(lambda order: order["id"] % 5)
timed.window("per second", ms.windows.tumbling(1)).count().sink("out", ms.testing.discard())
"""

NOT_DELIVERED = """
import itertools
import millstream as ms

flow = ms.Flow("posts")
posts = flow.source("numbers", ms.generate(lambda: ({"n": n} for n in itertools.count()), rate=50))
posts.sink("shop", ms.http.post("http://127.0.0.1:PORT/"))
"""

TWO = """
import itertools
import millstream as ms

flow = ms.Flow("two")
keyed = flow.source("numbers", ms.generate(itertools.count, rate=2000)).key_by(lambda n: n % 7)
keyed.count("each", name="counts").items().sink("out", ms.testing.discard())
"""

HUNG = """
import itertools
import threading
import millstream as ms

def ask_the_shop(n):
    never = threading.Event()
    if n == FIRST:
        never.wait()
    return n

flow = ms.Flow("hung")
numbers = flow.source("numbers", ms.generate(itertools.count, rate=400))
numbers.map(ask_the_shop, name="enrich").sink("out", ms.testing.discard())
"""

JOINED = """
import asyncio
import millstream as ms

@ms.source
async def orders():
    for number in range(10**9):
        await asyncio.sleep(0.01)
        yield number

@ms.source
async def rates():
    for number in range(FIRST):
        yield number
    await asyncio.Event().wait()

flow = ms.Flow("joined")
orders = flow.source("orders", orders).event_time(float, idle=IDLE).key_by(str)
rates = flow.source("rates", rates).event_time(float, idle=IDLE).key_by(str)
JOIN.sink("out", ms.testing.discard())
"""
MERGED = 'orders.merge(rates).window("w", ms.windows.tumbling(5)).count()'
PAIRED = 'orders.join("pairs", rates, within=5)'

NOT_GREEN = """() => [...document.querySelectorAll(".verdict")].filter((one) => one.offsetParent)
    .every((one) => !one.classList.contains("good"))"""


def held(snapshot: Any) -> dict[str, Any]:
    return {one["name"]: one for one in snapshot["conditions"]}


def looked_at(tab: "Tab", name: str, words: str, severity: str = "critical") -> None:
    """The page says it at the top, in its colour, with what to do; light and dark, wide and narrow."""
    sentences = f"[...document.querySelectorAll('.verdict.{severity}')]"
    tab.wait(f"{sentences}.some((one) => one.textContent.includes({words!r}))")
    assert tab.page.evaluate(NOT_GREEN)
    shown = tab.page.locator(".conditions:visible").inner_text()
    assert name in shown
    [condition] = [one for one in tab.page.evaluate("page.snapshot.conditions") if one["name"] == name]
    assert condition["action"].replace("`", "") in shown
    assert severity in (tab.page.locator("#state").get_attribute("class") or "")
    for scheme in ("light", "dark"):
        tab.page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
        found = Axe().run(tab.page).response["violations"]
        assert [one["id"] for one in found if one["impact"] in ("serious", "critical")] == []
        for width in (1280, 360):
            tab.page.set_viewport_size({"width": width, "height": 800})
            tab.wait("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
            pictures = Path(os.environ.get("MILLSTREAM_PICTURES", ""))
            if pictures.is_absolute():
                tab.page.screenshot(path=pictures / f"{name}-{scheme}-{width}.png")
    tab.page.emulate_media(color_scheme="light")
    tab.page.set_viewport_size({"width": 1280, "height": 900})


def holds(read: Callable[[], Any], name: str) -> Any:
    return until(name, lambda: held(read()).get(name))


def test_dead_letters_and_late_items_are_not_green(tab: "Tab", tmp_path: Path) -> None:
    with Observed(tmp_path, BAD) as flow, prometheus(tmp_path, f"{flow.host}:{flow.port}") as port:
        tab.page.goto(flow.url)
        # The first few of them are a warning.
        until("many", lambda: holds(flow.snapshot, "MillstreamItemsSkipped")["severity"] == "critical")
        skipped = holds(flow.snapshot, "MillstreamItemsSkipped")
        assert (skipped["kind"], skipped["subject"], skipped["severity"]) == ("step", "book", "critical")
        assert "as dead letters. The last error: " in skipped["words"] and "TypeError" in skipped["words"]
        late = holds(flow.snapshot, "MillstreamItemsLate")
        assert late["subject"] == "per second"
        looked_at(tab, "MillstreamItemsSkipped", "book has skipped ")
        tab.wait("document.querySelectorAll('.node.critical').length === 2")
        assert "critical" in (tab.page.locator("#steps tr", has_text="book").get_attribute("class") or "")
        assert "book has skipped " in once(flow.url, "--once").stdout
        assert "No step limits" not in once(flow.url, "--once").stdout
        # Late items are no reason to send a process no work.
        assert flow.get("/readyz")[0] == 200
        alert = 'alertname="MillstreamItemsSkipped",alertstate="firing",severity="critical",subject="book"'
        until("the alert", lambda: ask(port, f"ALERTS{{{alert}}}"))
    # The process is killed: nothing on the page is of now, and nothing is green.
    tab.wait("document.body.classList.contains('silent')")
    assert tab.page.locator("#verdict").inner_text().startswith("No news since ")
    assert tab.page.evaluate(NOT_GREEN)
    assert "lost" in (tab.page.locator("#state").get_attribute("class") or "")


def test_an_outbox_that_delivers_nothing_is_not_green(tab: "Tab", tmp_path: Path) -> None:
    program = NOT_DELIVERED.replace("PORT", str(servers.free_port()))
    with Observed(tmp_path, program, "--state", str(tmp_path / "state"), "--epoch", "200ms") as flow:
        tab.page.goto(flow.url)
        waits = holds(flow.snapshot, "MillstreamOutboxWaits")
        assert (waits["kind"], waits["subject"]) == ("sink", "shop")
        assert "does not accept the output of shop" in waits["words"]
        looked_at(tab, "MillstreamOutboxWaits", "does not accept the output of shop")
        assert flow.snapshot()["sinks"][0]["failures_in_a_row"] > 0


def test_a_stopped_process_is_not_green(tab: "Tab", tmp_path: Path) -> None:
    options = ("--processes", "2", "--dead-after", "10m")
    with Observed(tmp_path, TWO, *options) as flow:
        until("both", lambda: states(flow) == ["running", "running"])
        tab.page.goto(flow.url)
        tab.wait("document.getElementById('verdict').classList.contains('good')")
        member = member_of(flow.process.pid, 1)
        os.kill(member, signal.SIGSTOP)
        try:
            lost = holds(flow.snapshot, "MillstreamProcessLost")
            assert (lost["kind"], lost["subject"]) == ("process", "1")
            looked_at(tab, "MillstreamProcessLost", "Process 1 has sent no news for ")
            assert flow.get("/metrics")[1].count('condition="MillstreamProcessLost"') == 1
        finally:
            os.kill(member, signal.SIGCONT)
        until("the news", lambda: not held(flow.snapshot()))
        tab.wait("document.getElementById('verdict').classList.contains('good')")


@pytest.mark.parametrize("join", [MERGED, PAIRED])
@pytest.mark.parametrize("first", [0, 1])
def test_a_silent_source_that_holds_back_another_is_not_green(
    tab: "Tab", tmp_path: Path, join: str, first: int
) -> None:
    program = JOINED.replace("JOIN", join).replace("FIRST", str(first))
    with Observed(tmp_path, program.replace("IDLE", "None")) as flow:
        tab.page.goto(flow.url)
        back = holds(flow.snapshot, "MillstreamWatermarkHeldBack")
        assert (back["kind"], back["subject"]) == ("source", "rates")
        words = "of rates holds the watermark back" if first else "of rates has had no item"
        assert words in back["words"] and "`idle` of `event_time`" in back["action"]
        looked_at(tab, "MillstreamWatermarkHeldBack", words, "warning")
        assert words in once(flow.url, "--once").stdout
        # Late windows are no reason to send a process no work.
        assert flow.get("/readyz")[0] == 200
        assert list(held(flow.snapshot())) == ["MillstreamWatermarkHeldBack"]
    # What it says to do is done.
    with Observed(tmp_path, program.replace("IDLE", "1")) as flow:
        if join == MERGED:
            until("windows", lambda: flow.step("out")["items_in"] > 2)
        until("half a minute", lambda: flow.snapshot()["seconds"] > 35)
        assert held(flow.snapshot()) == {}


def states(flow: Observed) -> list[str]:
    return [one["state"] for one in flow.snapshot().get("processes", [])]


def test_a_hung_call_is_named_with_its_stack(tab: "Tab", tmp_path: Path) -> None:
    with Observed(tmp_path, HUNG.replace("FIRST", "500")) as flow:
        tab.page.goto(flow.url)
        limits = holds(flow.snapshot, "MillstreamStepSaturated")
        assert (limits["kind"], limits["subject"]) == ("step", "enrich")
        words = "enrich limits the flow: it takes 100% of the time of the worker"
        looked_at(tab, "MillstreamStepSaturated", words, "warning")
        tab.wait("document.querySelector('.conditions pre')?.textContent.includes('never.wait()')")
        snapshot = flow.snapshot()
        step = next(one for one in snapshot["steps"] if one["name"] == "enrich")
        # The call counts as work, and rates of before the call are not those of now.
        assert (step["busy"], step["in_rate"], step["mark"]) == (1.0, None, "cause")
        assert tab.page.locator("#steps tr", has_text="enrich").locator("td").nth(2).inner_text() == "–"
        # After half a minute it is a critical condition, and the one before is over.
        stuck = holds(flow.snapshot, "MillstreamWorkerStuck")
        assert (stuck["subject"], stuck["severity"]) == ("enrich", "critical")
        until("one condition", lambda: list(held(flow.snapshot())) == ["MillstreamWorkerStuck"])
        flow.kill()


def test_the_first_call_may_hang_and_a_worker_without_work_does_not(tmp_path: Path) -> None:
    # Three of four workers have no partition, and end at once.
    with Observed(tmp_path, HUNG.replace("FIRST", "-1"), "--workers", "4") as flow:
        until("items", lambda: flow.step("out")["items_in"] > 2000)
        assert [one["step"] for one in flow.snapshot()["workers"]] == [None] * 4
        assert flow.snapshot()["conditions"] == []
        flow.kill()
    with Observed(tmp_path, HUNG.replace("FIRST", "0")) as flow:
        limits = holds(flow.snapshot, "MillstreamStepSaturated")
        assert limits["subject"] == "enrich"
        until("the stack", lambda: "never.wait()" in (flow.snapshot()["workers"][0]["stack"] or ""))
        flow.kill()


def member_of(supervisor: int, process: int) -> int:
    """The process of this number of a supervised run, by its command line."""
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
            parent = int((entry / "stat").read_text().rsplit(") ", 1)[1].split()[1])
        except (OSError, ValueError):
            continue
        if parent == supervisor and b"--process" in words:
            if words[words.index(b"--process") + 1] == str(process).encode():
                return int(entry.name)
    raise AssertionError(f"process {process} of {supervisor} is not there")


def test_a_full_queue_and_one_without_clients_are_not_green(
    millstream_bin: Path, tab: "Tab", tmp_path: Path
) -> None:
    config = tmp_path / "queues.toml"
    config.write_text('[queue."small"]\nmax_items = 3\n')
    with serve(millstream_bin, tmp_path, "--config", str(config)) as server:
        tab.page.goto(server.url)
        with line(server) as producer:
            stored = [producer.set("small", b"%d" % number) for number in range(9)]
            assert stored == [b"STORED"] * 3 + [b"NOT_STORED"] * 6
            full = holds(server.snapshot, "MillstreamQueueFull")
            assert (full["kind"], full["subject"]) == ("queue", "small")
            assert "it has refused 6 items" in full["words"]
            looked_at(tab, "MillstreamQueueFull", 'Queue "small" is full')
            assert "is full" in once(server.url, "--once").stdout
            assert producer.set("orders", b"one") == b"STORED"
        # No client is connected any more.
        until(
            "both",
            lambda: (
                {
                    one["subject"]
                    for one in server.snapshot()["conditions"]
                    if one["name"] == "MillstreamQueueNotRead"
                }
                == {"orders", "small"}
            ),
        )
        assert "No client takes items of queue" in once(server.url, "--once").stdout
        tab.wait("document.querySelectorAll('#queues tr.critical').length === 2")
        with line(server) as consumer:
            assert consumer.get("orders") == b"one"
        metrics = server.metrics()
        labels = 'condition="MillstreamQueueFull",severity="critical",subject="small",flow=""'
        assert metrics[f"millstream_condition{{{labels}}}"] == 1
