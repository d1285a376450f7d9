"""A flow with a slow step is killed with -9 each second: every life commits, and the output is exact.

The file is one read of its source and takes its step many seconds. A flow that could commit only between two
reads would begin anew in each life. ``make kills`` kills more often (``MILLSTREAM_KILLS``, default 3 here).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from flow_traffic import KILLS, PATIENCE

LIFE_SECONDS = 1.0
LINES_PER_LIFE = 200
"""A step of 5 ms handles no more in a second."""

FLOW = """
import os, time
import millstream as ms

told = []

def work(line):
    if not told:
        told.append(print("at work", flush=True))
    time.sleep(0.005)
    return line

flow = ms.Flow("slow")
lines = flow.source("lines", ms.files.lines(os.environ["LINES"]))
if os.environ["PLACE"] == "at the source":
    keyed = lines.map(work).key_by(lambda line: line.split()[0])
else:
    keyed = lines.key_by(lambda line: line.split()[0]).map(work)
keyed.count("each", name="count").items().sink("out", ms.files.write(os.environ["OUT"]))
"""


def committed_bytes(state: Path) -> int:
    """How much of the file belongs to committed epochs; 0 before the first."""
    command = [sys.executable, "-m", "millstream", "state", "info", str(state), "--json"]
    told = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    if told.returncode:
        return 0
    return sum(int(source["position"]) for source in json.loads(told.stdout)["sources"])


@pytest.mark.parametrize("place", ["at the source", "after an exchange"])
def test_each_life_of_a_second_commits_and_the_output_is_exact(tmp_path: Path, place: str) -> None:
    flow, lines, state, out = (tmp_path / name for name in ("flow.py", "lines", "state", "out"))
    flow.write_text(FLOW)
    keys = [f"k{n * n % 7}" for n in range(LINES_PER_LIFE * (KILLS + 2))]
    lines.write_text("".join(f"{key} {n}\n" for n, key in enumerate(keys)))
    environment = os.environ | {"LINES": str(lines), "OUT": str(out), "PLACE": place}
    options = ["--state", str(state), "--epoch", "50ms", "--sync", "never"]
    command = [sys.executable, "-m", "millstream", "run", str(flow), *options]

    def start() -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        return subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe, text=True)

    positions = [0]
    for _ in range(KILLS):
        running = start()
        assert running.stdout is not None
        first = running.stdout.readline()
        time.sleep(LIFE_SECONDS)
        assert first == "at work\n" and running.poll() is None, running.communicate()[1]
        running.send_signal(signal.SIGKILL)
        running.communicate(timeout=PATIENCE)
        positions.append(committed_bytes(state))
        assert positions[-1] > positions[-2], f"a life without a commit: {positions}"
    last = start()
    _, told = last.communicate(timeout=PATIENCE)
    assert last.returncode == 0, told
    seen: Counter[str] = Counter()
    expected = []
    for key in keys:
        seen[key] += 1
        expected.append(f"('{key}', {seen[key]})")
    found = out.read_text().splitlines()
    figures = {"promise": 9, "flow": "slow step", "place": place, "kills": KILLS, "positions": positions[:10]}
    print(json.dumps(figures))
    assert found == expected, figures
