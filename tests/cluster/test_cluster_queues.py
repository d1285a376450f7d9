"""Queues as source and sink of a flow on several processes, of which process 0 has them open."""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from pathlib import Path

import millstream as ms
import pytest
from shapes import command
from supervised import Supervised, children, wait_for

ITEMS = 3000
KILLS = int(os.environ.get("MILLSTREAM_KILLS", "2"))
SEED = int(os.environ.get("MILLSTREAM_SEED", "0")) or random.randrange(1 << 31)

FLOW = """
import os
import time
import millstream as ms

flow = ms.Flow("queues")
items = flow.source("items", ms.queues.read(os.environ["QUEUES"], "a", "b", decode=str, until_empty=True))


def number(state, item):
    time.sleep(0.0005)
    return (state or 0) + 1, f"{item} {(state or 0) + 1}"


keyed = items.key_by(lambda item: item.split("-")[0])
keyed.stateful_map("number", number).values().sink("out", ms.queues.write(os.environ["QUEUES"], "out"))
"""


def fill(folder: Path) -> Counter[str]:
    """Puts items into two queues; returns what comes out of the flow."""
    expected = Counter()
    with ms.Queues(folder) as queues:
        for name in ("a", "b"):
            items = [f"{name}{number % 10}-{number}" for number in range(ITEMS)]
            queues[name].put_many([item.encode() for item in items])
            expected.update(f"{item} {number // 10 + 1}" for number, item in enumerate(items))
    return expected


def drain(folder: Path) -> tuple[Counter[str], list[int]]:
    """Takes all items that the flow has put; returns them, and how many are left in its inputs."""
    with ms.Queues(folder) as queues:
        return Counter(bytes(body).decode() for body in queues["out"]), [len(queues[name]) for name in "ab"]


@pytest.mark.parametrize("processes, workers", [(2, 1), (3, 2)])
def test_processes_that_are_killed_lose_and_repeat_no_item(
    processes: int, workers: int, tmp_path: Path
) -> None:
    print(f"seed {SEED}")
    chance = random.Random(SEED)
    flow = tmp_path / "queues.py"
    ready = tmp_path / "ready"
    flow.write_text(FLOW)
    expected = fill(tmp_path / "q")
    options = [
        "--processes",
        processes,
        "--workers",
        workers,
        "--state",
        tmp_path / "state",
        "--epoch",
        "20ms",
    ]
    run = command(flow, *options, "--ready-file", ready)
    running = Supervised(run, os.environ | {"QUEUES": str(tmp_path / "q")})
    kills = 0
    while kills < KILLS and running.is_ready(ready):
        time.sleep(chance.random() * 0.5)
        victims = children(running.process.pid)
        if victims:
            # The first one is process 0, which has the queues open.
            running.kill(victims[0] if chance.random() < 0.5 else chance.choice(victims))
            kills += 1
            wait_for(lambda: not ready.exists() or running.process.poll() is not None, "the end of the run")
    running.end(0)
    found, left = drain(tmp_path / "q")
    lost = expected - found
    more = found - expected
    assert (lost.total(), more.total(), left) == (0, 0, [0, 0]), (
        list(lost)[:3],
        list(more)[:3],
        running.text,
    )
    assert kills > 0


def test_a_flow_without_state_reads_and_writes_queues_on_two_processes(tmp_path: Path) -> None:
    flow = tmp_path / "queues.py"
    flow.write_text(FLOW)
    expected = fill(tmp_path / "q")
    running = Supervised(command(flow, "--processes", 2), os.environ | {"QUEUES": str(tmp_path / "q")})
    running.end(0)
    assert drain(tmp_path / "q") == (expected, [0, 0])
