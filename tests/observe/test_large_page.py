"""The page of a large flow: its graph begins at the sources and has a map, its tables are sorted and keep
their first column, its figures are quiet and its faults loud."""

from __future__ import annotations

import gzip
import http.client
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from observed import HEALTHY, PATIENCE, Observed, until
from test_page import faults

if TYPE_CHECKING:
    from conftest import Tab

CHAIN = """
import itertools
import millstream as ms

flow = ms.Flow("chain")
stream = flow.source("numbers", ms.generate(itertools.count, rate=500, batch_size=50))
for number in range(60):
    stream = stream.map(lambda n: n + 1, name=f"step {number}")
stream.sink("out", ms.testing.discard())
"""
FAN = """
import itertools
import millstream as ms

flow = ms.Flow("fan")
numbers = flow.source("numbers", ms.generate(itertools.count, rate=500, batch_size=50))
for number in range({branches}):
    branch = numbers.filter(lambda n, number=number: n % 20 <= number, name=f"branch {{number}}")
    branch.sink(f"out {{number}}", ms.testing.discard())
"""
FAULTY = """
import itertools
import millstream as ms

def parse(n):
    if n % 10 == 3:
        raise ValueError(f"no number {n}")
    return n

flow = ms.Flow("faulty")
numbers = flow.source("numbers", ms.generate(itertools.count, rate=200, batch_size=10))
parsed = numbers.map(parse, name="parse", on_error="skip")
parsed.key_by(lambda n: n % 7).count().items().sink("out", ms.testing.discard())
"""
# Whether a node of the graph is in view: where, and whether it is within its place.
SOURCE = """() => {
    const place = document.getElementById('graph').getBoundingClientRect();
    const node = document.querySelector('.node').getBoundingClientRect();
    const across = node.left >= place.left && node.right <= place.right;
    return across && node.top >= place.top && node.bottom <= place.bottom;
}"""


@pytest.mark.parametrize(
    ("program", "width", "is_large"),
    [
        (CHAIN, 1280, True),
        (FAN.format(branches=20), 1280, True),
        (FAN.format(branches=14), 360, True),
        (HEALTHY, 1920, False),
    ],
)
def test_a_graph_begins_at_its_sources(
    tab: Tab, tmp_path: Path, program: str, width: int, is_large: bool
) -> None:
    tab.page.set_viewport_size({"width": width, "height": 900})
    with Observed(tmp_path, program) as flow:
        flow.wait_running()
        tab.page.goto(flow.url)
        tab.wait("document.querySelectorAll('.node').length > 2")
        assert tab.page.evaluate(SOURCE)
        assert tab.page.locator("svg.map").count() == int(is_large)
        tab.wait("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
        for scheme in ("light", "dark"):
            tab.page.emulate_media(color_scheme=scheme)
            assert faults(tab) == []
            tab.page.screenshot(path=tmp_path / f"large-{scheme}.png")
        if is_large:
            shows_the_part_of_its_map(tab)
            # A map that is made anew keeps its colours, also when no news comes.
            tab.page.evaluate("page.graph.drawn.newest.faultOf = () => ({ severity: 'critical' })")
            tab.page.evaluate("page.graph.drawn.fit()")
            assert tab.page.locator(".map-node.critical").count() > 2
        assert tab.errors == []


def shows_the_part_of_its_map(tab: Tab) -> None:
    """A click at the end of the map shows the end of the graph."""
    picture = tab.page.locator("svg.map")
    box = picture.bounding_box()
    assert box
    picture.click(position={"x": box["width"] - 8, "y": box["height"] - 6})
    end = "(place) => place.scrollLeft + place.clientWidth >= place.scrollWidth - 2"
    place = tab.page.locator("#graph")
    assert place.evaluate(end)
    assert place.evaluate(end.replace("Left", "Top").replace("Width", "Height"))


def names(tab: Tab) -> list[str]:
    return tab.page.locator("#steps tbody th").all_inner_texts()


def test_a_table_is_sorted_and_keeps_its_first_column(tab: Tab, tmp_path: Path) -> None:
    with Observed(tmp_path, FAN.format(branches=14)) as flow:
        flow.wait_running()
        until("items", lambda: flow.step("out 13")["items_in"] > 0)
        tab.page.set_viewport_size({"width": 360, "height": 800})
        tab.page.goto(flow.url)
        tab.wait("document.querySelectorAll('#steps tbody tr').length === 29")
        before = names(tab)
        head = tab.page.locator("#steps thead button", has_text="step")
        head.click()
        assert tab.page.locator("#steps thead th").first.get_attribute("aria-sort") == "ascending"
        branches = [name for name in names(tab) if name.startswith("branch")]
        assert branches == [f"branch {number}" for number in range(14)]
        head.click()
        assert [name for name in names(tab) if name.startswith("branch")] == branches[::-1]
        head.click()
        assert names(tab) == before
        # By a figure, the largest first; the next snapshot keeps the order and the focus.
        column = tab.page.locator("#steps thead button", has_text="items out")
        column.click()
        moment = tab.page.evaluate("document.body.dataset.time")
        tab.wait(f"document.body.dataset.time > {moment}")
        cells = tab.page.locator("#steps tbody td:last-child")
        outs = cells.evaluate_all("(cells) => cells.map((cell) => Number(cell.dataset.value))")
        assert outs == sorted(outs, reverse=True) and outs[0] > 0
        left = "document.querySelector('#steps tbody th').getBoundingClientRect().left"
        at = tab.page.evaluate(left)
        tab.page.locator("[aria-label='Table of steps']").evaluate("(place) => { place.scrollLeft = 400; }")
        assert tab.page.evaluate(left) == at
        assert faults(tab) == []
        assert tab.errors == []


def test_failures_are_counted_and_figures_quiet(tab: Tab, tmp_path: Path) -> None:
    with Observed(tmp_path, FAULTY, "--workers", "2") as flow:
        flow.wait_running()
        tab.page.goto(flow.url)
        tab.wait("page.snapshot?.failures.length > 3 && page.snapshot.steps[1].skipped > 3")
        # One line for one kind of failure.
        tab.wait("document.querySelectorAll('#failures > li').length === 1")
        assert " times since " in tab.page.locator("#failures").inner_text()
        tab.page.locator("#failures summary").click()
        newest = tab.page.evaluate("page.snapshot.failures[0].number")
        tab.wait(f"page.snapshot.failures[0].number > {newest}")
        assert "ValueError" in tab.page.locator("#failures details[open] pre").inner_text()
        row = tab.page.locator("#steps tbody tr").nth(1)
        assert row.locator(".loud").count() == 1
        assert row.locator(".zero").count() >= 3
        about = tab.page.locator("#about").inner_text()
        assert "workers=2" in about and "millstream run" in about and "0.1.0" in about
        tab.page.screenshot(path=tmp_path / "faulty.png", full_page=True)
        for scheme in ("light", "dark"):
            tab.page.emulate_media(color_scheme=scheme)
            assert faults(tab) == []
        assert tab.errors == []


def test_metrics_are_compressed_for_those_who_ask(tmp_path: Path) -> None:
    with Observed(tmp_path, HEALTHY) as flow:
        flow.wait_running()
        client = http.client.HTTPConnection(flow.host, flow.port, timeout=PATIENCE)
        answers: list[Any] = []
        for headers in ({}, {"Accept-Encoding": "gzip, deflate"}):
            client.request("GET", "/metrics", headers=headers)
            answer = client.getresponse()
            answers.append((answer.getheader("content-encoding"), answer.read()))
        (none, plain), (kind, compressed) = answers
        assert (none, kind) == (None, "gzip")
        text = gzip.decompress(compressed).decode()
        assert "millstream_step_items_in_total" in text and len(compressed) < len(plain) / 2


def test_the_page_is_opened_and_its_address_is_printed(tmp_path: Path) -> None:
    opened = tmp_path / "opened"
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {opened}\n')
    browser.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BROWSER", f"{browser} %s")
        # A log that shows nothing keeps the address from nobody.
        with Observed(tmp_path, HEALTHY, "--open", "--log-level", "error") as flow:
            until("the browser", opened.exists)
            assert until("the address", opened.read_text).strip() == f"{flow.url}/"
            flow.wait_running()
            flow.stop()
