"""Services that are killed with -9 at random moments under load have the outputs of an uninterrupted run.

The publisher runs meanwhile. ``make kills`` kills more often (``MILLSTREAM_KILLS``, default 3 here). A
failure prints the seed.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import millstream as ms
import pytest
from service_ledger import LEDGER, TIMEOUT, Entries, calls, differences, expected_calls, publish

KILLS = int(os.environ.get("MILLSTREAM_KILLS", "3"))
SEED = int(os.environ.get("MILLSTREAM_SEED", "0")) or random.randrange(1 << 31)


@pytest.mark.parametrize("rebuild", ["inputs", "snapshot", "outputs"])
def test_a_ledger_is_killed_and_books_each_entry_once(tmp_path: Path, rebuild: str) -> None:
    print(f"seed {SEED}")
    chance = random.Random(SEED)
    source = tmp_path / "ledger.py"
    inputs = tmp_path / "entries"
    out = tmp_path / "balances"
    # State is rebuilt from outputs only where they contain all of it: then each entry has an output.
    source.write_text(f"QUIET = {0 if rebuild == 'outputs' else 1}\n{LEDGER}")
    component = f"{source}:Ledger"
    entries = ms.publisher(Entries, inputs)
    command = [sys.executable, "-m", "millstream", "service", "run", component]
    command += ["--in", str(inputs), "--out", str(out), "--rebuild", rebuild, "--snapshot-every", "500"]
    kills = 0
    while kills < KILLS:
        running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        end = time.monotonic() + 0.2 + chance.random() * 0.6
        while time.monotonic() < end and running.poll() is None:
            publish(entries, chance, 200)
            time.sleep(0.01)
        running.send_signal(signal.SIGKILL)
        _, told = running.communicate(timeout=TIMEOUT)
        assert running.returncode == -signal.SIGKILL, told
        kills += 1
    done = subprocess.run([*command, "--drain"], capture_output=True, text=True, timeout=TIMEOUT)
    assert done.returncode == 0, done.stderr
    expected = expected_calls(tmp_path, inputs)
    wrong = differences(calls(out), expected)
    figures = {
        "promise": 9,
        "service": "ledger",
        "rebuild": rebuild,
        "runs": kills,
        "calls": len(expected),
        "failures": wrong,
        "first_seed": SEED,
    }
    print(json.dumps(figures))
    assert len(expected) > 100
    assert wrong == 0, f"seed {SEED}"
