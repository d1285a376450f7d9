"""A flow in a cell of a real IPython kernel: its live page, which a browser shows below the cell."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import servers
from observed import until
from test_notebooks import PATIENCE, SLOW, Kernel, kernel

if TYPE_CHECKING:
    from conftest import Tab

__all__ = ["kernel"]


def test_a_cell_shows_its_flow_with_a_button_that_stops_it(kernel: Kernel, tab: Tab, tmp_path: Path) -> None:
    kernel.run(SLOW.format(seconds=0.01))
    cell = kernel.begin("running = ms.show(flow)")
    html = kernel.shown(cell)
    assert kernel.reply(cell)["status"] == "ok"
    found = re.search(r'<iframe src="(http://127.0.0.1:\d+/#token=[\w-]+)"', html)
    assert found, html
    # A page of another origin, as that of a notebook is, has the live page in a frame.
    (tmp_path / "cell.html").write_text(html)
    notebook = servers.free_port()
    serving = [sys.executable, "-m", "http.server", str(notebook), "--bind", "127.0.0.1"]
    with subprocess.Popen([*serving, "--directory", str(tmp_path)], stderr=subprocess.DEVNULL) as server:
        try:
            until("the notebook", lambda: answers(notebook))
            stops_a_flow_in_a_frame(kernel, tab, tmp_path, f"http://127.0.0.1:{notebook}/cell.html", found[1])
        finally:
            server.kill()


def answers(port: int) -> bool:
    with socket.socket() as link:
        return link.connect_ex(("127.0.0.1", port)) == 0


def stops_a_flow_in_a_frame(kernel: Kernel, tab: Tab, folder: Path, notebook: str, page: str) -> None:
    tab.page.goto(notebook)
    frame = tab.page.frame_locator("iframe")
    frame.locator(".node", has_text="in").first.wait_for()
    frame.locator("#steps tbody tr").nth(2).wait_for()
    # Without the token nothing is read.
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(page.partition("#")[0] + "api/snapshot.json", timeout=PATIENCE)
    # The cell is run again: the flow before it has ended.
    cell = kernel.begin("before, running = running, ms.show(flow)\nassert before.has_ended")
    (folder / "cell.html").write_text(kernel.shown(cell))
    assert kernel.reply(cell)["status"] == "ok"
    # Another address: a file that has changed within a second is not loaded again.
    tab.page.goto(f"{notebook}?again")
    frame.locator("#actions button", has_text="Stop the flow").click()
    kernel.run("report = running.wait(timeout=60)\nassert report.step('out')['items_in'] < 100_000")
    kernel.run("assert '<table>' in report._repr_html_() and '<table>' in running._repr_html_()")
    # The same of flows that are started.
    kernel.run("running = flow.start()")
    kernel.run("again = flow.start()\nassert running.has_ended and not again.has_ended\nagain.stop()")
