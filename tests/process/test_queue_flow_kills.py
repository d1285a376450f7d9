"""A flow from queue to queue is killed with -9 at random moments under load, around its end too: the final
queue is that of an unbroken run, with one worker and with two.

At the end the counts of each word must be there once and in order, the input empty, and nothing be left
staged. `make kills` kills more often (`MILLSTREAM_KILLS`, default 3 here). A failure prints the seed.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import millstream as ms
import pytest
from flow_traffic import KILLS, PATIENCE, Killed, journal_length
from soak import variations

SEED = int(os.environ.get("MILLSTREAM_SEED", "0")) or random.randrange(1 << 31)

COUNTING = """
import os
import time
import millstream as ms

place, last = os.environ["QUEUES"], "LAST" in os.environ
flow = ms.Flow("counting")
words = flow.source("words", ms.queues.read(place, "in", "in+more", decode=bytes.decode, until_empty=last))


def take_time(words):
    # So that the input lasts for all kills.
    time.sleep(0.05)
    return words


if not last:
    words = words.map_batch(take_time)
counted = words.key_by(str.lower).count("each", name="count").items()
counted.map(lambda pair: f"{pair[0]} {pair[1]}").sink("out", ms.queues.write(place, "out"))
"""


def command(flow: Path, workers: int, state: Path, sync: str) -> list[str]:
    options = ["--workers", str(workers), "--state", str(state), "--epoch", "20ms", "--sync", sync]
    return [sys.executable, "-m", "millstream", "run", str(flow), *options]


def fill(place: Path, chance: random.Random, items: int) -> Counter[str]:
    with ms.Queues(place, sync="never") as queues:
        assert queues["in+more"].get() is None  # a second partition
        words = [f"{chance.choice('wW')}{chance.randrange(500)}" for _ in range(items)]
        queues["in"].put_many(words)
    return Counter({word: 2 * count for word, count in Counter(word.lower() for word in words).items()})


@pytest.mark.parametrize(
    ("workers", "sync"), variations([(1, "never"), (2, "always")], lambda case: case[0] == 2)
)
def test_a_flow_from_queue_to_queue_loses_and_repeats_nothing(
    tmp_path: Path, workers: int, sync: str
) -> None:
    print(f"seed {SEED}")
    chance = random.Random(f"{SEED} {workers}")
    flow = tmp_path / "flow.py"
    state = tmp_path / "state"
    place = tmp_path / "queues"
    flow.write_text(COUNTING)
    expected = fill(place, chance, 60_000 + 20_000 * KILLS)
    # Each commit is a record of the state journal.
    killed = Killed(
        command(flow, workers, state, sync),
        os.environ | {"QUEUES": str(place)},
        lambda: journal_length(state / "epochs"),
        chance,
    )
    killed.kill(KILLS)
    while True:
        running = killed.start(LAST="1")
        if killed.kills < KILLS + KILLS // 2:
            try:
                running.wait(chance.random() * 4)
            except subprocess.TimeoutExpired:
                running.send_signal(signal.SIGKILL)
                killed.kills += 1
        _, told = running.communicate(timeout=PATIENCE)
        if running.returncode == 0:
            break
        assert running.returncode == -signal.SIGKILL, told
    lost = Counter(expected)
    reordered = 0
    last: Counter[str] = Counter()
    with ms.Queues(place) as queues:
        for item in queues["out"]:
            word, count = item.decode().split(" ")
            lost[word] -= 1
            reordered += int(count) != last[word] + 1
            last[word] = int(count)
        stats = queues["in"].stats(), queues["in+more"].stats()
    repeated = -lost
    figures = {
        "promise": 9,
        "flow": "queue to queue",
        "workers": workers,
        "sync": sync,
        "lost": (+lost).total(),
        "repeated": repeated.total(),
        "reordered": reordered,
        "first_seed": SEED,
    } | killed.figures()
    print(json.dumps(figures))
    assert not +lost and not repeated and not reordered, figures
    assert [(of["items"], of["open_transactions"]) for of in stats] == [(0, 0)] * 2
    assert not list((place / ".flows").iterdir())
