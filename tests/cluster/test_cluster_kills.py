"""Processes of a flow are killed with -9 at random moments: output equals that of an unbroken run.

``make kills`` kills more often (``MILLSTREAM_KILLS``, default 3 for each flow), and each flow with 1 to 4
processes of 1 and 2 workers. A failure prints the seed.
"""

from __future__ import annotations

import json
import os
import random
import time
from itertools import product
from pathlib import Path

import pytest
from shapes import SHAPES, Shape, command
from soak import variations
from supervised import Supervised, children

KILLS = int(os.environ.get("MILLSTREAM_KILLS", "3"))
SEED = int(os.environ.get("MILLSTREAM_SEED", "0")) or random.randrange(1 << 31)
LAYOUTS = {"words": [(2, 1)], "market": [(3, 1)], "windows": [(2, 2)], "joins": [(4, 1)]}
"""The numbers of processes and of workers of each."""
if "MILLSTREAM_KILLS" in os.environ:
    LAYOUTS = dict.fromkeys(SHAPES, [*product(range(1, 5), (1, 2))])
CASES = [(name, *layout) for name, layouts in LAYOUTS.items() for layout in layouts]
KILLS_OF_A_CASE = max(1, KILLS * len(SHAPES) // len(CASES))
A_LIFE = 4
"""How often processes of one supervisor are killed, before it is killed: its pauses grow."""


@pytest.mark.parametrize(
    ("name", "processes", "workers"), variations(CASES, lambda case: case[0] in ("market", "joins"))
)
def test_killed_processes_lose_and_repeat_nothing(
    name: str, processes: int, workers: int, tmp_path: Path
) -> None:
    print(f"seed {SEED}")
    chance = random.Random(SEED)
    shape = Shape(name, tmp_path, SEED, 4000)
    out = tmp_path / "out" / "out.txt"
    ready = tmp_path / "ready"
    # Only workers that read a partition pause.
    environment = shape.environment(out, seconds=1.0 * min(KILLS_OF_A_CASE, 300) * processes * workers)
    options = ["--processes", processes, "--workers", workers, "--state", tmp_path / "state"]
    options += ["--epoch", "20ms", "--sync", "never", "--ready-file", ready]
    kills = 0
    ended = False
    while not ended:
        running = Supervised(command(shape.flow, *options), environment)
        for _ in range(A_LIFE):
            if kills == KILLS_OF_A_CASE:
                break
            if chance.random() < 0.7:
                running.is_ready(ready)
                time.sleep(chance.random() * 0.5)
            else:
                time.sleep(chance.random())
            victims = children(running.process.pid)
            if running.process.poll() is None and victims:
                running.kill(chance.choice(victims))
                kills += 1
        if kills < KILLS_OF_A_CASE and running.process.poll() is None:
            running.process.kill()
            running.process.wait()
            kills += 1
        else:
            running.end(0)
            ended = True
    figures = {"promise": 23, "flow": name, "processes": processes, "workers": workers, "kills": kills}
    print(json.dumps(figures | {"first_seed": SEED}))
    shape.check(out)
    assert kills > 0
