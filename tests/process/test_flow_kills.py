"""Flows that are killed with -9 at random moments resume: output equals that of an uninterrupted run.

``make kills`` kills more often (``MILLSTREAM_KILLS``, default 3 here). A failure prints the seed.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

KILLS = int(os.environ.get("MILLSTREAM_KILLS", "3"))
SEED = int(os.environ.get("MILLSTREAM_SEED", "0")) or random.randrange(1 << 31)

WORD_COUNT = """
import os
import millstream as ms

flow = ms.Flow("word-count")
lines = flow.source("lines", ms.files.lines(os.environ["BOOKS"].split(":")))
keyed = lines.flat_map(str.split).key_by(str.lower)
each = keyed.count("each", name="each").items()
last = keyed.count("end", name="last").items().map(lambda pair: ("end", *pair))
each.merge(last).sink("out", ms.files.write(os.environ["OUT"]))
"""


def command(flow: Path, workers: int, state: Path) -> list[str]:
    options = ["--workers", str(workers), "--state", str(state), "--epoch", "20ms", "--sync", "never"]
    return [sys.executable, "-m", "millstream", "run", str(flow), *options]


@pytest.mark.parametrize("workers", [1, 2])
def test_word_count_is_killed_and_loses_and_repeats_nothing(tmp_path: Path, workers: int) -> None:
    print(f"seed {SEED}")
    chance = random.Random(SEED)
    flow = tmp_path / "flow.py"
    state = tmp_path / "state"
    out = tmp_path / "out"
    flow.write_text(WORD_COUNT)
    books = [tmp_path / "a", tmp_path / "b"]
    lines = 30_000 + 15_000 * min(KILLS, 40)
    for book in books:
        words = (f"w{chance.randrange(500)} W{chance.randrange(50)}" for _ in range(lines))
        book.write_text("\n".join(words) + "\n")
    environment = os.environ | {"BOOKS": ":".join(map(str, books)), "OUT": str(out)}
    kills = 0
    resumed = []
    while True:
        started = time.monotonic()
        running = subprocess.Popen(
            command(flow, workers, state), env=environment, stderr=subprocess.PIPE, text=True
        )
        if kills < KILLS:
            try:
                running.wait(0.15 + chance.random() * 0.5)
            except subprocess.TimeoutExpired:
                running.send_signal(signal.SIGKILL)
        _, told = running.communicate(timeout=120)
        if running.returncode == 0:
            break
        assert running.returncode == -signal.SIGKILL, told
        kills += 1
        resumed.append(time.monotonic() - started)
    counts: Counter[str] = Counter()
    for word in " ".join(book.read_text() for book in books).lower().split():
        counts[word] += 1
    expected = Counter(f"('{word}', {n})" for word, count in counts.items() for n in range(1, count + 1))
    expected.update(f"('end', '{word}', {count})" for word, count in counts.items())
    found = Counter(out.read_text().splitlines())
    lost = expected - found
    repeated = found - expected
    figures = {
        "promise": 9,
        "flow": "word count",
        "workers": workers,
        "kills": kills,
        "lost": lost.total(),
        "repeated": repeated.total(),
        "first_seed": SEED,
    }
    print(json.dumps(figures))
    assert not lost and not repeated, figures
