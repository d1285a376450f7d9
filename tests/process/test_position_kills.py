"""Durable sources with positions of any type, killed with -9 at random: each item is in the output once.

``make kills`` kills more often (``MILLSTREAM_KILLS``, default 3 here). A failure prints the seed.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest
from flow_traffic import KILLS, PATIENCE, Killed, journal_items, journal_length

SEED = int(os.environ.get("MILLSTREAM_SEED", "0")) or random.randrange(1 << 31)

FLOW = """
import hashlib
import os
import millstream as ms


def token(partition, page):
    return hashlib.sha256(f"{partition} {page}".encode()).digest()


class Pages(ms.Source):
    \"\"\"Pages of ten numbers, each with a token for the next; the last run ends after fifty.\"\"\"

    def partitions(self):
        return ["a", "b"]

    def open(self, partition, position):
        pages = Pages()
        pages.partition, pages.page, pages.waits = partition, 0, False
        if position is not None:
            pages.page = position["page"]
            assert position["token"] == token(partition, pages.page), position
        with open(os.environ["OPENED"], "a") as file:
            file.write(f"{partition} {pages.page}\\n")
        pages.end = pages.page + 50 if "LAST" in os.environ else None
        return pages

    def next_batch(self):
        if self.page == self.end:
            return None
        self.waits = not self.waits
        if self.waits:
            return []
        self.page += 1
        return [f"{self.partition} {self.page * 10 + n}" for n in range(10)]

    def next_awake(self):
        return 0.001

    def position(self):
        return {"page": self.page, "token": token(self.partition, self.page)}


flow = ms.Flow("pages")
flow.source("in", Pages().durable()).sink("out", ms.journals.append(os.environ["OUT"]))
"""


def by_partition(lines: list[str]) -> dict[str, list[int]]:
    numbers = defaultdict(list)
    for line in lines:
        partition, number = line.split()
        numbers[partition].append(int(number))
    return numbers


@pytest.mark.parametrize("workers", [1, 2])
def test_pages_with_tokens(tmp_path: Path, workers: int) -> None:
    print(f"seed {SEED}")
    flow, state, out, opened = (tmp_path / name for name in ("flow.py", "state", "out", "opened"))
    flow.write_text(FLOW)
    options = ["--workers", str(workers), "--state", str(state), "--epoch", "20ms", "--sync", "never"]
    command = [sys.executable, "-m", "millstream", "run", str(flow), *options]
    environment = os.environ | {"OUT": str(out), "OPENED": str(opened)}
    killed = Killed(command, environment, lambda: journal_length(out), random.Random(SEED))
    killed.kill(KILLS)
    last = subprocess.run(
        command, env=environment | {"LAST": "1"}, stderr=subprocess.PIPE, text=True, timeout=PATIENCE
    )
    assert last.returncode == 0, last.stderr
    pages = by_partition(opened.read_text().splitlines())
    found = by_partition([record.decode() for record in journal_items(out)])
    figures = {"promise": 9, "flow": "pages", "workers": workers, "items": sum(map(len, found.values()))}
    print(json.dumps(figures | {"first_seed": SEED} | killed.figures()))
    assert sorted(pages) == sorted(found) == ["a", "b"]
    for partition, numbers in found.items():
        # It was never opened at an earlier page than before, and gave all up to the last.
        assert pages[partition] == sorted(pages[partition])
        assert numbers == list(range(10, 10 + 10 * (pages[partition][-1] + 50)))
