"""The supervisor of ``millstream run --processes``: restarts, errors, signals, its own death."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from shapes import command
from supervised import Supervised, is_alive, wait_for

ENDLESS = """
import os
import time
import millstream as ms

flow = ms.Flow("endless")


def numbers():
    while True:
        time.sleep(0.01)
        yield from range(3)


def seen(pair):
    if "SEEN" in os.environ:
        open(os.environ["SEEN"], "w").close()
    return pair


keyed = flow.source("numbers", ms.generate(numbers)).key_by(str)
keyed.count("each", name="counts").items().map(seen).sink("out", ms.testing.discard())
"""


@pytest.fixture
def endless(tmp_path: Path) -> Path:
    flow = tmp_path / "endless.py"
    flow.write_text(ENDLESS)
    return flow


def state(tmp_path: Path) -> list[object]:
    return ["--state", tmp_path / "state", "--sync", "never", "--epoch", "50ms"]


@pytest.mark.parametrize("processes", [1, 2])
def test_a_killed_process_is_started_again(endless: Path, tmp_path: Path, processes: int) -> None:
    ready = tmp_path / "ready"
    options = ["--processes", processes, "--ready-file", ready, *state(tmp_path)]
    running = Supervised(command(endless, *options))
    wait_for(ready.exists, "the flow")
    before = running.members(processes)
    running.kill(before[-1])
    last = processes - 1
    running.said(
        f"process {last} died first: killed by SIGKILL; all are started again from the last commit in 0.1 s"
    )
    wait_for(lambda: not any(map(is_alive, before)), "the end of the others")
    after = running.members(processes)
    wait_for(ready.exists, "the flow")  # the supervisor has removed it
    assert not set(before) & set(after)
    running.process.send_signal(signal.SIGTERM)
    running.end(0)
    assert not ready.exists()


def test_restarts_have_a_limit(endless: Path, tmp_path: Path) -> None:
    running = Supervised(command(endless, "--processes", 1, "--restarts", "2/10m", *state(tmp_path)))
    for deaths in range(1, 4):
        [process] = running.members(1)
        running.kill(process)
        running.said("died first", deaths)
    text = running.end(75)
    assert "in 0.1 s" in text and "in 0.2 s" in text
    assert text.splitlines()[-1].endswith("the flow has died 3 times within 600 s (--restarts)")


def test_without_state_nothing_is_started_again(endless: Path) -> None:
    running = Supervised(command(endless, "--processes", 2))
    running.kill(running.members(2)[0])
    assert (
        "process 0 died first: killed by SIGKILL; without --state the flow is not started again"
        in running.end(75)
    )


FAILING = """
import millstream as ms

flow = ms.Flow("failing")
items = flow.source("numbers", ms.testing.items(range(5)))
items.key_by(str).map(lambda n: 1 // (n - 3), name="divide").sink("out", ms.testing.discard())
"""


@pytest.mark.parametrize("processes", [1, 2])
def test_an_error_of_a_step_ends_the_run(tmp_path: Path, processes: int) -> None:
    flow = tmp_path / "failing.py"
    flow.write_text(FAILING)
    text = Supervised(command(flow, "--processes", processes, *state(tmp_path))).end(1)
    last = text.splitlines()[-1]
    assert last.startswith("millstream run: process ")
    assert 'step "divide"' in last and "item 3" in last
    # The traceback of the user's code names the process.
    assert " | ZeroDivisionError: " in text
    assert "started again" not in text


def test_a_mistake_in_the_file_is_reported_once(tmp_path: Path) -> None:
    flow = tmp_path / "mistake.py"
    flow.write_text("import millstream as ms\nflow = ms.Flow('f')\nraise ValueError('no')\n")
    text = Supervised(command(flow, "--processes", 3)).end(1)
    assert text.count("ValueError: no") == 2  # the traceback, and the line
    text = Supervised(command(tmp_path / "missing.py", "--processes", 3)).end(2)
    assert text == f"millstream run: {tmp_path / 'missing.py'}: no such file"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_drains_all(endless: Path, tmp_path: Path, number: int) -> None:
    seen = tmp_path / "seen"
    environment = os.environ | {"SEEN": str(seen)}
    running = Supervised(command(endless, "--processes", 2, "--metrics"), environment)
    wait_for(seen.exists, "output")
    running.process.send_signal(number)
    text = running.end(0)
    assert "on 2 processes x 1 workers" in text
    rows = [line.split() for line in text.splitlines()]
    counts = {row[1]: int(row[2]) for row in rows if row[:1] == ["counts"]}
    assert counts["all"] == counts["p0"] + counts["p1"] > 0


def test_a_signal_during_the_start_ends_all(endless: Path, tmp_path: Path) -> None:
    running = Supervised(command(endless, "--processes", 2, *state(tmp_path)))
    running.members(1)
    running.process.send_signal(signal.SIGTERM)
    running.end(0)


STUCK = """
import os
import time
import millstream as ms

flow = ms.Flow("stuck")


def wait(item):
    open(os.environ["INSIDE"], "w").close()
    while True:
        time.sleep(0.05)


flow.source("numbers", ms.testing.items(range(5))).map(wait, name="wait").sink("out", ms.testing.discard())
"""


def test_a_second_signal_ends_all_at_once(tmp_path: Path) -> None:
    flow = tmp_path / "stuck.py"
    inside = tmp_path / "inside"
    flow.write_text(STUCK)
    running = Supervised(command(flow, "--processes", 2), os.environ | {"INSIDE": str(inside)})
    wait_for(inside.exists, "the step")
    members = running.members(2)
    # Two of a kind might be delivered as one.
    running.process.send_signal(signal.SIGINT)
    running.process.send_signal(signal.SIGTERM)
    text = running.end(130)
    assert text.splitlines()[-1] == "millstream run: interrupted"
    assert not any(map(is_alive, members))


def test_processes_end_with_their_supervisor(endless: Path, tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    running = Supervised(command(endless, "--processes", 2, "--ready-file", ready, *state(tmp_path)))
    wait_for(ready.exists, "the flow")
    members = running.members(2)
    running.process.kill()
    wait_for(lambda: not any(map(is_alive, members)), "their end")
    # Another supervisor resumes the flow.
    ready.unlink()
    running = Supervised(command(endless, "--processes", 2, "--ready-file", ready, *state(tmp_path)))
    wait_for(ready.exists, "the flow")
    running.process.terminate()
    running.end(0)


def test_a_fresh_start_is_fresh_once(tmp_path: Path) -> None:
    """A restart resumes what the first start with --fresh has begun."""
    flow = tmp_path / "words.py"
    out = tmp_path / "out.txt"
    flow.write_text(
        "import os, time\nimport millstream as ms\nflow = ms.Flow('slow')\n"
        "def slowly(line):\n    time.sleep(0.002)\n    return line\n"
        "lines = flow.source('lines', ms.files.lines(os.environ['IN'])).map(slowly)\n"
        "lines.sink('out', ms.files.write(os.environ['OUT']))\n"
    )
    (tmp_path / "in").write_text("".join(f"{n}\n" for n in range(1000)))
    environment = os.environ | {"IN": str(tmp_path / "in"), "OUT": str(out)}
    options = ["--processes", 1, "--fresh", *state(tmp_path)]
    running = Supervised(command(flow, *options), environment)
    wait_for(lambda: out.exists() and out.stat().st_size > 400, "output")
    [process] = running.members(1)
    running.kill(process)
    running.end(0)
    assert out.read_text() == (tmp_path / "in").read_text()


def test_lines_of_json_name_their_process(tmp_path: Path) -> None:
    flow = tmp_path / "logs.py"
    flow.write_text(
        "import logging\nimport millstream as ms\nflow = ms.Flow('logs')\n"
        "def log(item):\n    logging.getLogger('millstream.mine').warning('item %s', item)\n    return item\n"
        "items = flow.source('in', ms.testing.items(range(20))).redistribute()\n"
        "items.map(log).sink('out', ms.testing.discard())\n"
    )
    text = Supervised(command(flow, "--processes", 2, "--log-format", "json")).end(0)
    lines = [json.loads(line) for line in text.splitlines()]
    assert {line["process"] for line in lines if line["message"].startswith("item")} == {0, 1}
    text = Supervised(command(flow, "--processes", 2)).end(0)
    assert {line[:5] for line in text.splitlines() if "item" in line} == {"p0 | ", "p1 | "}


def test_ms_run_of_a_lost_member_ends_with_75(endless: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program of the user's own: the exception says which process was lost."""
    program = endless.with_name("program.py")
    program.write_text(
        "import sys\nimport millstream as ms\nfrom endless import flow\n"
        "def note(report):\n    open(f'running{sys.argv[1]}', 'w').close()\n"
        "cluster = ms.Cluster(int(sys.argv[1]), sys.argv[2].split(','))\n"
        "try:\n    ms.run(flow, on_metrics=note, metrics_interval=0.05, cluster=cluster)\n"
        "except ms.MemberLostError as error:\n    print(error, file=sys.stderr)\n    sys.exit(75)\n"
    )
    hosts = f"{endless.parent}/p0,{endless.parent}/p1"
    monkeypatch.chdir(endless.parent)
    run = [Supervised([sys.executable, str(program), str(number), hosts]) for number in range(2)]
    for number in range(2):
        wait_for((endless.parent / f"running{number}").exists, "the flow")
    run[1].process.kill()
    assert "process 1" in run[0].end(75)


def test_a_log_that_cannot_be_written_ends_no_flow(tmp_path: Path) -> None:
    (tmp_path / "noisy.py").write_text(
        "import millstream as ms\n"
        "flow = ms.Flow('noisy')\n"
        "ages = flow.source('in', ms.testing.items(['1', 'x'] * 100)).map(int, name='age', on_error='skip')\n"
        "ages.key_by(lambda age: age).count().sink('out', ms.files.write('out.txt'))\n"
    )
    command = "millstream run noisy.py --processes 2 --state state 2>/dev/full"
    ran = subprocess.run(command, shell=True, cwd=tmp_path)
    assert ran.returncode == 0
    assert [path.read_text().strip() for path in tmp_path.glob("out*") if path.read_text()] == ["(1, 100)"]
