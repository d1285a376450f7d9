"""A numbered TCP sink and ``millstream receive --dedupe``, killed with -9 at random moments.

When only the flow is killed, the receiver has every message once. If the receiver is killed too, what it had
been sent and had not written is lost: its file has gaps, and nothing twice. A failure prints the seed.
"""

from __future__ import annotations

import json
import os
import random
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from flow_traffic import KILLING, KILLS, PATIENCE

SEED = int(os.environ.get("MILLSTREAM_SEED", "0")) or random.randrange(1 << 31)
ITEMS = 12_000 * (min(KILLS, 50) + 2)

FLOW = """
import os
import millstream as ms

flow = ms.Flow("numbers")
numbers = flow.source("numbers", ms.generate(lambda: range(int(os.environ["ITEMS"])), rate=50_000))
numbers.map(str).sink("out", ms.tcp.send_to(os.environ["TO"], numbered=True))
"""


def receiver(port: int, out: Path) -> subprocess.Popen[str]:
    listen = ["--listen", f"127.0.0.1:{port}", "--connections", "1000000"]
    running = subprocess.Popen(
        [sys.executable, "-m", "millstream", "receive", *listen, "--dedupe", "--json", "--out", str(out)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert running.stderr is not None and "listening" in running.stderr.readline()
    return running


def received(out: Path) -> list[int]:
    """The numbers in the file; each message is what its number says."""
    data = out.read_bytes()
    at = 0
    numbers = []
    while at < len(data):
        (length,) = struct.unpack_from(">I", data, at)
        (number,) = struct.unpack_from("<Q", data, at + 4)
        assert data[at + 12 : at + 4 + length] == b"%d" % number
        numbers.append(number)
        at += 4 + length
    return numbers


@pytest.mark.parametrize("receivers", ["stay", "are killed"])
def test_a_receiver_drops_what_comes_again(
    tmp_path: Path, receivers: str, free_port: Callable[[], int]
) -> None:
    print(f"seed {SEED}")
    chance = random.Random(SEED)
    flow = tmp_path / "flow.py"
    state = tmp_path / "state"
    out = tmp_path / "out"
    port = free_port()
    flow.write_text(FLOW)
    options = ["--state", str(state), "--epoch", "50ms", "--sync", "never"]
    command = [sys.executable, "-m", "millstream", "run", str(flow), *options]
    environment = os.environ | {"ITEMS": str(ITEMS), "TO": f"127.0.0.1:{port}"}
    listening = receiver(port, out)
    kills = 0
    reports = []
    started = time.monotonic()
    while True:
        assert time.monotonic() < started + KILLING + PATIENCE, "it gets nowhere"
        running = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
        if kills < KILLS and time.monotonic() < started + KILLING:
            arrived = out.stat().st_size
            while running.poll() is None and out.stat().st_size == arrived:
                time.sleep(0.005)
            time.sleep(chance.random() * 0.3)
            kills += 1
            victim = chance.choice([running, listening]) if receivers == "are killed" else running
            victim.send_signal(signal.SIGKILL)
        _, told = running.communicate(timeout=PATIENCE)
        if listening.poll() is not None:
            listening.communicate()
            listening = receiver(port, out)
        elif running.returncode == 0:
            break
        else:
            assert running.returncode in (-signal.SIGKILL, 1), told
    listening.send_signal(signal.SIGINT)
    reports.append(json.loads(listening.communicate(timeout=PATIENCE)[0]))
    numbers = received(out)
    figures = {
        "flow": "numbered tcp",
        "receivers": receivers,
        "kills": kills,
        "sent": ITEMS,
        "repeated_in_file": len(numbers) - len(set(numbers)),
        "missing_in_file": ITEMS - len(set(numbers)),
        "dropped": reports[-1]["repeated"],
        "first_seed": SEED,
    }
    print(json.dumps(figures))
    assert numbers == sorted(set(numbers)), figures
    if receivers == "stay":
        assert numbers == list(range(ITEMS)), figures
        assert reports[-1]["missing"] == 0
