"""Counters and gauges of the user's program, on the page and in the metrics."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path
from typing import Any

import millstream as ms
import pytest
from millstream import testing
from observed import Observed, until

TYPE_CHECKING = False
if TYPE_CHECKING:
    from conftest import Tab

PROGRAM = """
import itertools
import millstream as ms

odd = ms.counter("odd_numbers", "Numbers that 2 does not divide")
latest = ms.gauge("latest_number")


def seen(n):
    if n % 2:
        odd.inc()
    latest.set(n)
    return n


flow = ms.Flow("numbers")
numbers = flow.source("numbers", ms.generate(itertools.count, rate=500, batch_size=50))
numbers.key_by(lambda n: n % 7).count(emit="each").map(seen).sink("out", ms.testing.discard())
"""


def metrics(text: str, name: str) -> dict[str, float]:
    """The samples of a metric, by their labels."""
    found = re.findall(rf"^{name}(\{{[^}}]*\}})? (\S+)$", text, flags=re.MULTILINE)
    return {labels: float(value) for labels, value in found}


def test_they_are_on_the_page_and_in_the_metrics(tmp_path: Path) -> None:
    with Observed(tmp_path, PROGRAM, "--workers", "2") as flow:
        name = "millstream_user_odd_numbers_total"
        until("a count", lambda: metrics(flow.get("/metrics")[1], name).get("", 0) > 0)
        text = flow.get("/metrics")[1]
        assert f"# HELP {name} Numbers that 2 does not divide" in text and f"# TYPE {name} counter" in text
        assert "# TYPE millstream_user_latest_number gauge" in text
        shown = {one["name"]: one for one in flow.snapshot()["user"]}
        assert shown["odd_numbers"]["counter"] and not shown["latest_number"]["counter"]
        assert shown["odd_numbers"]["value"] > 0 and shown["latest_number"]["value"] > 0
        open_metrics = flow.get("/metrics", accept="application/openmetrics-text")[1]
        assert f"# TYPE {name.removesuffix('_total')} counter" in open_metrics


def test_the_page_shows_them(tab: Tab, tmp_path: Path) -> None:
    with Observed(tmp_path, PROGRAM) as flow:
        tab.page.goto(flow.url)
        tab.wait("page.snapshot?.user?.[1]?.value > 0")
        shown = tab.page.locator("#user-section").inner_text()
        assert "Of the program" in shown and "odd_numbers" in shown and "latest_number" in shown
        assert tab.errors == []


def test_process_0_has_those_of_all_processes(tmp_path: Path) -> None:
    with Observed(tmp_path, PROGRAM, "--processes", "2") as flow:
        first = r"p0 \| .*page: http://[\d.]+:(\d+)/"
        flow.port = int(until("the page", lambda: re.search(first, "".join(flow.lines)))[1])
        name = "millstream_user_odd_numbers_total"
        labels = {'{process="0"}', '{process="1"}'}
        until(
            "both processes",
            lambda: (
                {each for each, value in metrics(flow.get("/metrics")[1], name).items() if value > 0}
                == labels
            ),
        )
        # What is shown is a second old at most.
        counted = metrics(flow.get("/metrics")[1], name)
        all_counted = sum(counted.values())
        until(
            "the sum",
            lambda: [
                one
                for one in flow.snapshot()["user"]
                if one["name"] == "odd_numbers" and one["value"] >= all_counted
            ],
        )


def test_threads_lose_no_count() -> None:
    counter = ms.counter("test_of_threads")

    def count() -> None:
        for _ in range(10_000):
            counter.inc()

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counter.value == 40_000 and ms.counter("test_of_threads_total").value == 40_000


@pytest.mark.parametrize("workers", [1, 3])
def test_every_function_of_a_step_counts(workers: int) -> None:
    counter = ms.counter(f"test_of_steps_{workers}")
    gauge = ms.gauge(f"test_of_steps_{workers}_gauge")
    flow = ms.Flow("f")

    def key(n: int) -> int:
        counter.inc(0.5)
        return n % 5

    def add(total: int, n: int) -> int:
        counter.inc(2)
        gauge.inc()
        return total + n

    numbers = flow.source("in", testing.items(range(100)))
    numbers.key_by(key).fold("sum", int, add).sink("out", testing.discard())
    with flow.start(workers=workers, http="127.0.0.1:0") as running:
        address = running.address
        running.wait(60)
    assert address and counter.value == 250 and gauge.value == 100


def test_a_page_of_a_flow_that_was_started() -> None:
    counter = ms.counter("test_of_a_page", 'with "quotes" and\na line')
    ends = threading.Event()

    def numbers() -> Any:
        yield 1
        ends.wait(60)

    flow = ms.Flow("f")
    made = flow.source("in", ms.generate(numbers, batch_size=1)).inspect(lambda n: counter.inc())
    made.sink("out", testing.discard())
    with flow.start(http="127.0.0.1:0") as running:

        def text() -> str:
            with urllib.request.urlopen(f"http://{running.address}/metrics", timeout=60) as answer:
                return str(answer.read().decode())

        until("the count", lambda: "millstream_user_test_of_a_page_total 1" in text())
        assert "# HELP millstream_user_test_of_a_page_total with 'quotes' and a line\n" in text()
        ends.set()


WRONG = {
    "letters": (lambda: ms.counter("orders-rejected"), "letters a to z, digits and _"),
    "a digit": (lambda: ms.gauge("1st"), "does not begin with a digit"),
    "the ending": (lambda: ms.gauge("orders_total"), "does not end with _total"),
    "both kinds": (lambda: (ms.counter("both"), ms.gauge("both")), "of a counter and of a gauge"),
    "less": (lambda: ms.counter("less").inc(-1), "a counter grows by 0 or more, not by -1"),
    "no number": (lambda: ms.counter("less").inc(float("nan")), "a counter grows by 0 or more"),
}


@pytest.mark.parametrize("case", WRONG)
def test_mistakes_name_the_metric(case: str) -> None:
    make, says = WRONG[case]
    with pytest.raises(ValueError, match=says):
        make()


def test_there_is_a_limit_of_names() -> None:
    # In a process of its own: the names are there until the end of it.
    program = "import millstream as ms\nfor number in range(1100): ms.counter(f'name_{number}')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "a name is not for values of the data" in done.stderr
