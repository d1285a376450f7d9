"""``python -m millstream_bench.page``: the live page of a flow of many steps in a browser.

A flow of 200 steps runs with ``--http``; headless Chromium opens its page, each time in a new profile.
Printed are the bytes of the page, the time to its first paint beside that of an empty page, the pauses
between two frames while it is updated each second, and how long its main thread works for that. Each visit
checks that the page shows every step of the flow. What the page costs the flow is measured by
``millstream-bench market-spread --watched``. Needs Playwright and Debian's Chromium.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from threading import Thread
from time import monotonic
from typing import Any
from urllib.request import urlopen

from playwright.sync_api import sync_playwright

from .cluster_output import wait_until

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, CDPSession

__all__ = ["main"]

WATCHED_S = 10.0
"""How long the frames of a page are watched."""

FLOW = """
import time
import millstream as ms


@ms.source
def numbers():
    number = 0
    while True:
        time.sleep(0.001)
        yield number
        number += 1


flow = ms.Flow("wide")
items = flow.source("numbers", numbers())
for branch in range({branches}):
    step = items
    for depth in range({depth}):
        step = step.map(lambda number: number + 1)
    step.sink(f"out-{{branch}}", ms.testing.discard())
"""

# The time between two frames, from now on.
WATCH_FRAMES = """() => {
  window.frames_ms = [];
  let last = performance.now();
  const next = (now) => { window.frames_ms.push(now - last); last = now; requestAnimationFrame(next); };
  requestAnimationFrame(next);
}"""
PAINT = "performance.getEntriesByName('first-contentful-paint').map((entry) => entry.startTime)[0]"
BYTES = """performance.getEntries()
  .filter((entry) => entry.encodedBodySize !== undefined && !entry.name.includes('/api/'))
  .reduce((sum, entry) => sum + entry.encodedBodySize, 0)"""
ROWS = "document.querySelectorAll('#steps tbody tr').length"


@contextmanager
def running(folder: Path, steps: int) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A flow of so many steps, and the address of its page."""
    depth = 9
    path = folder / "wide.py"
    ready = folder / "ready"
    path.write_text(FLOW.format(branches=steps // (depth + 1), depth=depth))
    command = [sys.executable, "-m", "millstream", "run", str(path), "--ready-file", str(ready)]
    with (folder / "log").open("w") as log:
        flow = subprocess.Popen([*command, "--http", "127.0.0.1:0"], stdout=log, stderr=log)
    try:
        wait_until(lambda: ready.exists() or flow.poll() is not None, 60)
        if flow.poll() is not None:
            raise RuntimeError((folder / "log").read_text())
        wait_until(lambda: "http://" in (folder / "log").read_text(), 60)
        text = (folder / "log").read_text()
        address = text[text.index("http://") :].split()[0].rstrip("/,;")
        yield flow, address
    finally:
        flow.terminate()
        flow.wait()


def open_page(browser: Browser, address: str, steps: int) -> dict[str, float]:
    """Opens the page once and watches it; the figures of this visit."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    page.goto(address)
    end = monotonic() + 60
    while page.evaluate(ROWS) < steps:
        if monotonic() > end:
            raise RuntimeError(f"{steps} steps run, the page shows {page.evaluate(ROWS)}")
        page.wait_for_timeout(50)
    found: dict[str, float] = {"bytes of the page": page.evaluate(BYTES)}
    page.evaluate(WATCH_FRAMES)
    session = context.new_cdp_session(page)
    session.send("Performance.enable")
    busy = -task_seconds(session)
    page.wait_for_timeout(WATCHED_S * 1000)
    found["main thread, ms a second"] = (busy + task_seconds(session)) * 1000 / WATCHED_S
    frames: list[float] = sorted(page.evaluate("window.frames_ms"))
    found["frames a second"] = len(frames) / WATCHED_S
    found["longest pause between two frames, ms"] = frames[-1]
    found["99 of 100 frames within, ms"] = frames[len(frames) * 99 // 100]
    context.close()
    return found


def task_seconds(session: CDPSession) -> float:
    """How long the main thread of a page has worked."""
    metrics = session.send("Performance.getMetrics")["metrics"]
    return float(next(metric["value"] for metric in metrics if metric["name"] == "TaskDuration"))


class Empty(BaseHTTPRequestHandler):
    """Answers with a page of one word."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>empty</title><p>empty")

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing: each visit would be a line."""


@contextmanager
def empty_page() -> Iterator[str]:
    """The address of a page of one word."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Empty)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def first_paint(browser: Browser, address: str) -> float:
    """Milliseconds until a new window shows something of a page."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    page.goto(address)
    end = monotonic() + 60
    while (paint := page.evaluate(PAINT)) is None:
        if monotonic() > end:
            raise RuntimeError(f"{address} shows nothing")
        page.wait_for_timeout(50)
    context.close()
    return float(paint)


def measure(steps: int, runs: int, chromium: str) -> dict[str, float]:
    """Medians over so many visits."""
    with TemporaryDirectory(prefix="millstream-bench-") as folder, running(Path(folder), steps) as (flow, at):
        shown: dict[str, Any] = json.load(urlopen(f"{at}/api/snapshot.json"))
        count = len(shown["steps"])
        if count < steps:
            raise RuntimeError(f"{steps} steps ordered, {count} run")
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            with empty_page() as empty:
                paints = [(first_paint(browser, empty), first_paint(browser, at)) for _ in range(runs)]
            visits = [open_page(browser, at, count) for _ in range(runs)]
            browser.close()
        if flow.poll() is not None:
            raise RuntimeError((Path(folder) / "log").read_text())
    figures = {
        "steps": count,
        "first paint, ms": median(own for _, own in paints),
        "first paint of an empty page, ms": median(empty for empty, _ in paints),
    }
    return figures | {name: median(visit[name] for visit in visits) for name in visits[0]}


def main() -> int:
    """Measures the page and prints its figures."""
    parser = argparse.ArgumentParser(prog="python -m millstream_bench.page", description=__doc__)
    parser.add_argument("--steps", type=int, default=200, help="how many steps the flow has, about")
    parser.add_argument("--runs", type=int, default=5, help="how many visits; figures are medians")
    parser.add_argument("--chromium", default="/usr/bin/chromium", help="the browser")
    arguments = parser.parse_args()
    for name, figure in measure(arguments.steps, arguments.runs, arguments.chromium).items():
        print(f"{name:40} {figure:12.1f}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
