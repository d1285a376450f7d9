"""Flows from topic to topic are killed with -9, inside transactions too.

``make kills`` kills more often (``MILLSTREAM_KILLS``, default 3 here). A failure prints the seed.
"""

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from broker import Broker
from clients import Judge, put

KILLS = int(os.environ.get("MILLSTREAM_KILLS", "3"))
SEED = int(os.environ.get("MILLSTREAM_SEED", "0")) or random.randrange(1 << 31)

# Counts by key: a message that is lost, or counted twice, shows in all later numbers of its key.
COUNTS = """
import os
import millstream as ms

flow = ms.Flow("counts")
orders = flow.source("orders", ms.kafka.read(os.environ["SERVERS"], os.environ["FROM"]))
counts = orders.key_by(lambda order: order.key.decode()).count("each").items()
sink = ms.kafka.write(
    os.environ["SERVERS"],
    os.environ["TO"],
    key=lambda pair: pair[0],
    encode=lambda pair: str(pair[1]),
    exactly_once=os.environ["EXACTLY"] == "1",
)
counts.sink("out", sink)
"""


@pytest.mark.parametrize(("workers", "exactly"), [(1, True), (2, True), (1, False)])
def test_counts_from_topic_to_topic(broker: Broker, tmp_path: Path, workers: int, exactly: bool) -> None:
    print(f"seed {SEED}")
    chance = random.Random(SEED)
    name = f"kills-{workers}-{exactly}".lower()
    source = broker.create(f"{name}-from", partitions=3)
    target = broker.create(f"{name}-to", partitions=2)
    program = tmp_path / "flow.py"
    program.write_text(COUNTS)
    environment = {"SERVERS": broker.servers, "FROM": source, "TO": target, "EXACTLY": str(int(exactly))}
    options = [
        "--workers",
        str(workers),
        "--state",
        str(tmp_path / "state"),
        "--epoch",
        "20ms",
        "--sync",
        "never",
    ]
    command = [sys.executable, "-m", "millstream", "run", str(program), *options]
    expected: Counter[bytes] = Counter()
    for kill in range(KILLS + 1):
        running = subprocess.Popen(
            command, env={**os.environ, **environment}, stderr=subprocess.PIPE, text=True
        )
        deadline = time.monotonic() + 0.6 + chance.random() * 1.5
        while time.monotonic() < deadline:
            key = f"k{chance.randrange(20)}".encode()
            put(broker, source, [b"x"] * 50, chance.randrange(3), key=key)
            expected[key] += 50
        if kill < KILLS:
            running.send_signal(signal.SIGKILL)
            _, told = running.communicate(timeout=60)
            assert running.returncode == -signal.SIGKILL, told
    judge = Judge(broker, target)
    try:
        judge.wait_for(expected.total())
    finally:
        running.send_signal(signal.SIGINT)
        _, told = running.communicate(timeout=60)
        print(told)
    assert running.returncode == 0
    found = Counter((message.key(), int(message.value())) for message in judge.read())
    wanted = Counter((key, number) for key, total in expected.items() for number in range(1, total + 1))
    lost = wanted - found
    twice = found - wanted
    print(f"{KILLS} kills, {expected.total()} messages, {twice.total()} twice, {lost.total()} lost")
    assert not lost, lost
    if exactly:
        assert not twice, twice
    else:
        assert set(found) == set(wanted)


def test_flow_and_broker_are_killed_at_once(own_broker: Callable[..., Broker], tmp_path: Path) -> None:
    """As when a machine dies that has both: the broker ends the open transactions of the flow."""
    print(f"seed {SEED}")
    chance = random.Random(SEED)
    broker = own_broker()
    source = broker.create("from", partitions=2)
    target = broker.create("to")
    program = tmp_path / "flow.py"
    program.write_text(COUNTS)
    environment = {"SERVERS": broker.servers, "FROM": source, "TO": target, "EXACTLY": "1"}
    command = [sys.executable, "-m", "millstream", "run", str(program), "--state", str(tmp_path / "state")]
    command += ["--epoch", "20ms", "--sync", "never"]
    expected: Counter[bytes] = Counter()
    for kill in range(KILLS // 2 + 1):
        running = subprocess.Popen(
            command, env={**os.environ, **environment}, stderr=subprocess.PIPE, text=True
        )
        deadline = time.monotonic() + 0.8 + chance.random() * 1.5
        while time.monotonic() < deadline:
            key = f"k{chance.randrange(20)}".encode()
            put(broker, source, [b"x"] * 50, chance.randrange(2), key=key)
            expected[key] += 50
        if kill < KILLS // 2:
            victims = [running.kill, broker.kill]
            chance.shuffle(victims)
            for victim in victims:
                victim()
            running.communicate(timeout=60)
            broker.start()
    judge = Judge(broker, target)
    try:
        judge.wait_for(expected.total())
    finally:
        running.send_signal(signal.SIGINT)
        _, told = running.communicate(timeout=60)
        print(told)
    assert running.returncode == 0
    found = Counter((message.key(), int(message.value())) for message in judge.read())
    wanted = Counter((key, number) for key, total in expected.items() for number in range(1, total + 1))
    assert found == wanted, (wanted - found, found - wanted)
