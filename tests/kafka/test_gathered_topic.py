"""A topic that one process writes for all: a flow on two processes is killed with -9, one process at a time.

``make kills`` kills more often (``MILLSTREAM_KILLS``, default 2 here). A failure prints the seed.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from pathlib import Path

from broker import Broker
from clients import Judge, put
from shapes import command
from supervised import Supervised, wait_for
from test_kafka_kills import COUNTS

KILLS = int(os.environ.get("MILLSTREAM_KILLS", "2"))
SEED = int(os.environ.get("MILLSTREAM_SEED", "0")) or random.randrange(1 << 31)


def test_the_counts_of_two_processes_in_one_topic(broker: Broker, tmp_path: Path) -> None:
    print(f"seed {SEED}")
    chance = random.Random(SEED)
    source = broker.create("gathered-from", partitions=3)
    target = broker.create("gathered-to", partitions=2)
    program = tmp_path / "flow.py"
    ready = tmp_path / "ready"
    program.write_text(COUNTS.replace('sink("out", sink)', 'sink("out", sink, gather=True)'))
    environment = {"SERVERS": broker.servers, "FROM": source, "TO": target, "EXACTLY": "1"}
    options = ["--processes", 2, "--state", tmp_path / "state", "--epoch", "20ms", "--sync", "never"]
    options += ["--ready-file", ready, "--restarts", "1000/10m"]
    running = Supervised(command(program, *options), os.environ | environment)
    expected: Counter[bytes] = Counter()

    def write(count: int) -> None:
        for _ in range(count):
            key = f"k{chance.randrange(20)}".encode()
            put(broker, source, [b"x"] * 50, chance.randrange(3), key=key)
            expected[key] += 50

    judge = Judge(broker, target)
    for kill in range(KILLS):
        wait_for(ready.exists, "the flow")
        before = len(judge.read())
        write(10)
        wait_for(lambda before=before: len(judge.read()) > before, "output")
        write(10)
        time.sleep(chance.random() * 0.1)
        running.kill(running.members(2)[kill % 2])
        running.said("died first", kill + 1)
    judge.wait_for(expected.total())
    running.process.terminate()
    assert 'sink "out": process 0 writes the output of all processes' in running.end(0)
    found = Counter((message.key(), int(message.value())) for message in judge.read())
    judge.close()
    wanted = Counter((key, number) for key, total in expected.items() for number in range(1, total + 1))
    assert found == wanted, (wanted - found, found - wanted)
