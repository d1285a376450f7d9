"""Where the time of a run went: the profile, the picture of a report, the counters in a notebook."""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import millstream as ms
import pytest

PROGRAM = """
import time
import millstream as ms

def wait_for(n):
    time.sleep(0.002)
    return n

class Node:
    pass

def litter(n):
    for _ in range(200):
        one, other = Node(), Node()
        one.other, other.one = other, one
    return n

flow = ms.Flow("profiled")
numbers = flow.source("numbers", ms.testing.items(range(300)))
numbers.map(wait_for, name="slow").map(litter, name="litter").sink("out", ms.testing.discard())
"""


def profile(folder: Path, *options: str) -> Any:
    (folder / "profiled.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "millstream", "run", str(folder / "profiled.py")]
    command += ["--profile", str(folder / "out.json"), *options]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stderr
    return json.loads((folder / "out.json").read_text())


def named(document: Any, name: str) -> dict[tuple[str, ...], float]:
    """The seconds of each stack of a part of the profile."""
    (part,) = [one for one in document["profiles"] if one["name"] == name]
    frames = [frame["name"] for frame in document["shared"]["frames"]]
    stacks = [tuple(frames[number] for number in stack) for stack in part["samples"]]
    return dict(zip(stacks, part["weights"], strict=True))


def test_a_profile_has_the_time_of_steps_functions_and_waits(tmp_path: Path) -> None:
    document = profile(tmp_path)
    assert document["$schema"].startswith("https://www.speedscope.app/")
    steps = named(document, "steps")
    slow = steps["worker 0", "slow (map)"]
    # 300 items of 2 ms; a sleep is never shorter.
    assert slow >= 0.6 and slow > steps["worker 0", "litter (map)"]
    functions = named(document, "functions")
    assert any(stack[0] == "wait_for" for stack in functions), functions
    assert sum(seconds for stack, seconds in functions.items() if stack[0] == "wait_for") > 0.1
    (frame,) = [frame for frame in document["shared"]["frames"] if frame["name"] == "wait_for"]
    assert frame["file"].endswith("profiled.py") and frame["line"] == 5
    waits = named(document, "waits")
    assert any(stack[0] == "collector of cycles" for stack in waits)
    assert any(stack[0].startswith("waiting for the lock") for stack in waits)
    for part in document["profiles"]:
        assert part["endValue"] == pytest.approx(sum(part["weights"]))


def test_a_profile_that_cannot_be_written_is_an_error_before_the_flow_runs(tmp_path: Path) -> None:
    (tmp_path / "profiled.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "millstream", "run", str(tmp_path / "profiled.py")]
    command += ["--profile", str(tmp_path / "missing" / "out.json"), "--metrics"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 1 and "missing" in ended.stderr and "slow" not in ended.stderr


def test_a_report_is_a_picture(tmp_path: Path) -> None:
    flow = ms.Flow("drawn")
    flow.source("in", ms.testing.items(range(100))).map(str, name="text").sink("out", ms.testing.discard())
    figure = ms.run(flow).plot()
    figure.savefig(tmp_path / "report.png")
    assert (tmp_path / "report.png").stat().st_size > 1000
    rates, ages = figure.axes
    assert [label.get_text() for label in rates.get_yticklabels()] == ["in", "text", "out"]
    assert len(ages.lines) == 4


def test_a_started_flow_shows_its_counters_in_a_notebook_and_has_a_page() -> None:
    flow = ms.Flow("live")
    numbers = flow.source("<b>", ms.generate(lambda: iter(int, 1), rate=500, batch_size=10))
    numbers.sink("out", ms.testing.discard())
    assert "<table>" not in flow._repr_html_()
    with flow.start(http="127.0.0.1:0") as running:
        assert running.address is not None and not running.address.endswith(":0")
        end = time.monotonic() + 60
        while not any(step["items_in"] for step in running.report().steps):
            assert time.monotonic() < end
            time.sleep(0.02)
        html = flow._repr_html_()
        assert html.startswith("<svg") and "<table>" in html and "<td>&lt;b&gt;</td>" in html
    assert "<table>" not in flow._repr_html_()
