"""The page in a browser: it shows what is true, says what limits the flow, and survives a restart of it.

``MILLSTREAM_PICTURES=1`` writes the pictures of the guide.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import servers
from axe_playwright_python.sync_playwright import Axe
from documents import GUIDE
from observed import HEALTHY, SLOW, Observed

if TYPE_CHECKING:
    from conftest import Tab
    from playwright.sync_api import FloatRect

CAUSE = "document.querySelectorAll('.node.cause').length === 1"
# The page has its snapshot and what it shows of it in one moment.
SHOWN = """() => ({
    snapshot: page.snapshot,
    rows: [...document.querySelectorAll('#steps tbody tr')].map((row) => ({
        name: row.querySelector('th').textContent, mark: row.className,
        values: [...row.querySelectorAll('td')].map((cell) => cell.dataset.value ?? cell.textContent),
    })),
    nodes: [...document.querySelectorAll('.node')].map((node) => ({
        name: node.querySelector('.name').textContent, classes: node.getAttribute('class'),
    })),
    verdict: document.getElementById('verdict').textContent,
})"""


def faults(tab: "Tab") -> list[Any]:
    """What axe-core finds that is serious."""
    found = Axe().run(tab.page).response["violations"]
    return [(one["id"], one["nodes"]) for one in found if one["impact"] in ("serious", "critical")]


def test_a_slow_step_is_seen_at_one_glance(tab: "Tab", tmp_path: Path) -> None:
    with Observed(tmp_path, SLOW) as flow:
        tab.page.goto(flow.url)
        tab.wait(CAUSE)
        tab.wait("page.snapshot.steps[2].ages")
        shown = tab.page.evaluate(SHOWN)
        marks = {node["name"]: node["classes"].split()[1:] for node in shown["nodes"]}
        assert marks["enrich"] == ["cause", "warning"] and marks["orders"] == ["waiting"]
        assert marks["<script>1</script>"] == ["waiting"] and marks["large ones"] == []
        assert shown["verdict"].startswith("enrich limits the flow: it takes ")
        # What is shown are the figures of the snapshot.
        for row, step in zip(shown["rows"], shown["snapshot"]["steps"], strict=True):
            assert row["name"] == step["name"]
            assert float(row["values"][2]) == pytest.approx(step["in_rate"])
            assert float(row["values"][4]) == pytest.approx(step["busy"])
            assert int(row["values"][-2]) == step["items_in"]
        # Words are beside the colours.
        words = tab.page.locator("#steps tr.cause").inner_text()
        assert "limits the flow" in words
        assert tab.page.locator("#steps script").count() == 0
        assert tab.page.title() == "orders <b>: enrich limits it"
        assert faults(tab) == []
        shows_charts(tab)
        tab.page.emulate_media(color_scheme="dark")
        assert faults(tab) == []
        tab.page.set_viewport_size({"width": 360, "height": 700})
        wide = "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
        tab.wait(wide)
        last = tab.page.evaluate("page.snapshot.steps[2]")
        errors = flow.stop()
        reported = next(line.split() for line in errors.splitlines() if line.startswith("enrich "))
        items = int(reported[1])
        busy_seconds = float(reported[3]) / 1e3
        assert last["items_in"] <= items
        # An item takes the millisecond that the step sleeps, or more on a busy machine.
        assert 0.001 * last["items_in"] <= last["busy_seconds"] <= busy_seconds
        assert tab.errors == []


def shows_charts(tab: "Tab") -> None:
    """With the keyboard alone: the charts of a step, and their end."""
    node = tab.page.locator(".node.cause")
    node.focus()
    tab.page.keyboard.press("Enter")
    tab.wait("document.querySelectorAll('#charts canvas').length >= 3")
    assert tab.page.locator("#detail-title").inner_text() == "enrich"
    points = "page.charts[0].times.length"
    before = tab.page.evaluate(points)
    tab.wait(f"{points} > {before}")
    tab.page.keyboard.press("Escape")
    assert tab.page.locator("#charts canvas").count() == 0


def test_a_healthy_flow_has_no_bottleneck_and_shows_its_epochs(tab: "Tab", tmp_path: Path) -> None:
    with Observed(tmp_path, HEALTHY, "--state", str(tmp_path / "state"), "--workers", "2") as flow:
        tab.page.goto(flow.url)
        tab.wait("page.snapshot?.epochs?.commits > 1 && page.snapshot.workers.length === 2")
        tab.wait("document.getElementById('epochs').rows.length === 2")
        tab.wait("document.getElementById('verdict').textContent.startsWith('No step limits this flow')")
        assert all(row["mark"] == "" for row in tab.page.evaluate(SHOWN)["rows"])
        for table, row in (("epochs", "epochs"), ("workers", "1"), ("sources", "numbers")):
            tab.page.locator(f"#{table} button", has_text=row).click()
            tab.wait("page.charts.length === 1")
        commits = tab.page.locator("#last-commits tbody tr")
        assert commits.count() > 1 and "committed" in commits.first.inner_text()
        assert faults(tab) == []
        flow.stop()
        assert tab.errors == []


def test_the_page_continues_with_the_next_run(tab: "Tab", tmp_path: Path) -> None:
    address = f"127.0.0.1:{servers.free_port()}"
    with Observed(tmp_path, HEALTHY, address=address) as flow:
        tab.page.goto(flow.url)
        tab.wait("document.querySelectorAll('.node').length > 3")
        tab.page.locator("#steps button", has_text="one more").click()
        tab.wait("page.charts[0].plots.length > 0")
        first = tab.page.evaluate("page.snapshot.run")
        flow.kill()
    tab.wait("document.getElementById('state').textContent.includes('no connection')")
    with Observed(tmp_path, SLOW, address=address):
        tab.wait(f"page.snapshot.run !== '{first}'")
        tab.wait(CAUSE)
        assert tab.page.locator("#flow").inner_text() == "orders <b>"
        # The step that was chosen does not exist any more.
        assert tab.page.locator("#detail").is_hidden()
    refused = "Failed to load resource: net::ERR_"
    assert [error for error in tab.errors if refused not in error] == []


def test_a_page_with_a_token(tab: "Tab", tmp_path: Path) -> None:
    secret = tmp_path / "token"
    secret.write_text("abc123")
    with Observed(tmp_path, HEALTHY, "--http-token-file", str(secret)) as flow:
        tab.page.goto(f"{flow.url}/#token=abc123")
        tab.wait("page.snapshot?.state === 'running'")
        assert tab.errors == []
        tab.page.goto("about:blank")
        tab.page.goto(flow.url)
        tab.wait("document.getElementById('state').textContent.includes('token')")


# The line of a chart has the colour of the scheme, light or dark.
CHART_IS_OF_SCHEME = """page.charts[0].plots[0].chart.series[1]._stroke ===
    getComputedStyle(document.documentElement).getPropertyValue('--series-1').trim()"""


def test_pictures_of_the_guide(tab: "Tab", tmp_path: Path) -> None:
    folder = GUIDE / "pictures" if os.environ.get("MILLSTREAM_PICTURES") else tmp_path
    program = SLOW.replace("orders <b>", "order-desk").replace("<script>1</script>", "parse")
    with Observed(tmp_path, program, "--state", str(tmp_path / "state")) as flow:
        tab.page.goto(flow.url)
        tab.wait(CAUSE)
        tab.wait("page.snapshot.epochs?.commits > 3")
        tab.page.screenshot(path=folder / "page-slow-step.png", clip=area(640))
        tab.page.locator("#steps button", has_text="enrich").click()
        tab.wait("document.querySelectorAll('#charts canvas').length >= 3")
        tab.page.evaluate("scrollTo(0, 0)")
        tab.page.screenshot(path=folder / "page-charts.png", clip=area(660))
        for scheme in ("dark", "light"):
            tab.page.emulate_media(color_scheme=scheme)
            tab.wait(CHART_IS_OF_SCHEME)


def area(height: int) -> "FloatRect":
    """The upper part of the page."""
    return {"x": 0, "y": 0, "width": 1280, "height": height}


def test_a_flow_shows_itself_in_a_notebook() -> None:
    import millstream as ms

    flow = ms.Flow("squares & more")
    flow.source("<i>", ms.testing.items([1])).map(lambda n: n * n, name="squares").sink(
        "out", ms.testing.discard()
    )
    html = flow._repr_html_()
    assert (
        html.startswith("<svg") and "&lt;i&gt;" in html and "<i>" not in html and "squares &amp; more" in html
    )
