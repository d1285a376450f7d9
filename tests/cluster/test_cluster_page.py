"""One page, one list of metrics and one report for all processes of a flow."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from shapes import command
from supervised import Supervised, wait_for

ENDLESS = """
import itertools
import millstream as ms

flow = ms.Flow("observed")
keyed = flow.source("numbers", ms.generate(itertools.count, rate=2000)).key_by(lambda n: n % 7)
keyed.count("each", name="counts").items().sink("out", ms.testing.discard())
"""

ENDING = """
import millstream as ms

flow = ms.Flow("ending")
numbers = flow.source("numbers", ms.testing.items(range(100))).redistribute()
numbers.key_by(lambda n: n % 7).count("end", name="counts").items().sink("out", ms.testing.discard())
"""


def read(url: str) -> str:
    with urllib.request.urlopen(url, timeout=60) as answer:
        text: str = answer.read().decode()
        return text


def page(running: Supervised) -> str:
    """The address of the page of process 0."""
    running.said("page: http://")
    found = re.search(r"page: (http://\S+/)", running.text)
    assert found is not None
    return found[1]


def snapshot(url: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(read(f"{url}api/snapshot.json"))
    return found


def states(url: str) -> list[str]:
    return [one["state"] for one in snapshot(url).get("processes", [])]


def test_the_page_of_process_0_shows_all(tmp_path: Path) -> None:
    flow = tmp_path / "flow.py"
    flow.write_text(ENDLESS)
    options = ["--processes", 2, "--workers", 2, "--http", "127.0.0.1:0", "--dead-after", "10m"]
    running = Supervised(command(flow, *options))
    url = page(running)
    wait_for(lambda: states(url) == ["running", "running"], "both processes")

    def counted() -> dict[str, Any]:
        steps: dict[str, Any] = {step["name"]: step for step in snapshot(url)["steps"]}
        return steps

    # Each item that was read was counted, here or there.
    wait_for(lambda: counted()["counts"]["items_in"] > 3000, "items")
    workers = snapshot(url)["workers"]
    assert [(one["worker"], one["process"]) for one in workers] == [(0, 0), (1, 0), (2, 1), (3, 1)]
    metrics = read(f"{url}metrics")
    for process in range(2):
        assert f'millstream_step_items_in_total{{process="{process}",' in metrics
    assert metrics.count("# TYPE millstream_step_items_in_total counter") == 1
    top = subprocess.run(
        [sys.executable, "-m", "millstream", "top", url, "--once"], capture_output=True, text=True, timeout=60
    )
    assert re.search(r"^process 1: running, ", top.stdout, re.MULTILINE), top
    # A process that says nothing is lost, and the page is not blocked by it.
    stopped = running.members(2)[1]
    running.kill(stopped, signal.SIGSTOP)
    wait_for(lambda: states(url) == ["running", "lost"], "the loss")
    running.kill(stopped, signal.SIGCONT)
    wait_for(lambda: states(url) == ["running", "running"], "its return")
    running.process.terminate()
    running.end(0)


@pytest.mark.parametrize("supervised", [[], ["--restarts", "3/1m"]], ids=["alone", "restarts"])
def test_process_0_prints_the_metrics_of_all_machines(
    supervised: list[str], tmp_path: Path, free_port: Callable[[], int]
) -> None:
    flow = tmp_path / "flow.py"
    flow.write_text(ENDING)
    hosts = f"127.0.0.1:{free_port()},127.0.0.1:{free_port()}"
    options = ["--hosts", hosts, "--metrics", "--state", tmp_path / "state", *supervised]
    run = [Supervised(command(flow, "--process", process, *options)) for process in range(2)]
    texts = [one.end(0) for one in run]
    assert "on 2 processes x 1 workers" in texts[0], texts[0]
    rows = [line.split() for line in texts[0].splitlines()]
    counts = {row[1]: int(row[2]) for row in rows if row[:1] == ["counts"]}
    assert counts["all"] == counts["p0"] + counts["p1"] == 100, texts[0]


def test_lines_of_machines_name_their_process(tmp_path: Path, free_port: Callable[[], int]) -> None:
    flow = tmp_path / "flow.py"
    flow.write_text(ENDING.replace("ms.testing.discard()", 'ms.files.write("out.txt")'))
    hosts = f"127.0.0.1:{free_port()},127.0.0.1:{free_port()}"
    here = os.getcwd()
    for format in ("json", "text"):
        os.chdir(tmp_path)
        try:
            options = ["--hosts", hosts, "--log-format", format]
            run = [Supervised(command(flow, "--process", process, *options)) for process in range(2)]
        finally:
            os.chdir(here)
        for process, one in enumerate(run):
            lines = one.end(0).splitlines()
            assert lines
            for line in lines:
                if format == "json":
                    assert json.loads(line)["process"] == process
                else:
                    assert line.endswith(f" process={process}") or f" process={process} " in line


def test_ms_run_returns_the_reports_of_the_others(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        ENDING + "import sys\n"
        "hosts = [sys.argv[2] + '/p0', sys.argv[2] + '/p1']\n"
        "report = ms.run(flow, cluster=ms.Cluster(int(sys.argv[1]), hosts))\n"
        "print([(one['process'], one['flow']) for one in report.others], file=sys.stderr)\n"
    )
    run = [Supervised([sys.executable, str(program), str(number), str(tmp_path)]) for number in range(2)]
    assert [one.end(0) for one in run] == ["[(1, 'ending')]", "[]"]
