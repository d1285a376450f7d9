"""A publisher on one machine and a service on another: server, follower and service are killed at random.

Both machines are this one, with nothing between them but a socket. Every entry takes effect once and the copy
is the leader's journal. ``make kills`` kills more often (``MILLSTREAM_KILLS``, default 6 here). A failure
prints the seed.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import millstream as ms
from service_ledger import LEDGER, TIMEOUT, Entries, calls, differences, expected_calls, publish

KILLS = int(os.environ.get("MILLSTREAM_KILLS", "6"))
SEED = int(os.environ.get("MILLSTREAM_SEED", "0")) or random.randrange(1 << 31)


class Role:
    """A process that is started again whenever it was killed, and must not end by itself."""

    def __init__(self, folder: Path, *command: object) -> None:
        self.command = [sys.executable, "-m", "millstream", *map(str, command)]
        self.folder = folder
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(
            self.command, cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )

    def end(self, how: signal.Signals, code: int) -> None:
        self.process.send_signal(how)
        _, told = self.process.communicate(timeout=TIMEOUT)
        assert self.process.returncode == code, f"{self.command}: {told}"


def wait_until_copied(leader: Path, copy: Path) -> None:
    end = time.monotonic() + TIMEOUT
    while time.monotonic() < end:
        # The follower may have been killed before it had made its copy.
        with suppress(ms.JournalNotFoundError), ms.Journal(copy, "r") as copied:
            with ms.Journal(leader, "r") as journal:
                if copied.next == journal.next:
                    return
        time.sleep(0.05)
    raise AssertionError(f"the copy does not come up with its leader, seed {SEED}")


def records(path: Path) -> list[tuple[int, int, bytes]]:
    with ms.Journal(path, "r") as journal:
        return [(record.sequence, record.time_ns, bytes(record.body)) for record in journal]


def test_either_machine_is_killed_and_each_entry_is_booked_once(
    free_port: Callable[[], int], tmp_path: Path
) -> None:
    print(f"seed {SEED}")
    chance = random.Random(SEED)
    (tmp_path / "ledger.py").write_text(f"QUIET = 1\n{LEDGER}")
    inputs = tmp_path / "entries"
    copy = tmp_path / "copy"
    out = tmp_path / "balances"
    entries = ms.publisher(Entries, inputs)
    publish(entries, chance, 10)
    address = f"127.0.0.1:{free_port()}"
    run = ("service", "run", "ledger.py:Ledger", "--in", copy, "--wait-for-inputs", "--out", out)
    # In no order: a process that starts first waits for the others.
    roles = [
        Role(tmp_path, "journal", "serve", "--listen", address, inputs),
        Role(tmp_path, "journal", "follow", address, copy),
        Role(tmp_path, *run, "--rebuild", "snapshot", "--snapshot-every", "500"),
    ]
    kills = [0, 0, 0]
    while sum(kills) < KILLS:
        end = time.monotonic() + 0.1 + chance.random() * 0.8
        while time.monotonic() < end:
            publish(entries, chance, 50)
            time.sleep(0.01)
        killed = chance.randrange(3)
        roles[killed].end(signal.SIGKILL, -signal.SIGKILL)
        publish(entries, chance, 50)
        roles[killed].start()
        kills[killed] += 1
    publish(entries, chance, 50)
    wait_until_copied(inputs, copy)
    # The service may have been started a moment ago, before it can take a better signal.
    roles[2].end(signal.SIGKILL, -signal.SIGKILL)
    roles[1].end(signal.SIGTERM, 0)
    roles[0].end(signal.SIGTERM, 0)
    command = [sys.executable, "-m", "millstream", *map(str, run), "--drain"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=TIMEOUT)
    assert done.returncode == 0, done.stderr
    assert records(copy) == records(inputs), f"seed {SEED}"
    expected = expected_calls(tmp_path, inputs)
    wrong = differences(calls(out), expected)
    figures = {
        "promise": 9,
        "service": "ledger behind a copy",
        "kills": dict(zip(("server", "follower", "service"), kills, strict=True)),
        "calls": len(expected),
        "failures": wrong,
        "first_seed": SEED,
    }
    print(json.dumps(figures))
    assert len(expected) > 100
    assert wrong == 0, f"seed {SEED}"
