"""A machine is lost whose destination has refused records: the follower of its state has their letters."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

TIMEOUT = 120
COUNT = 400
FLOW = """
import os
import signal
import sqlite3
import time
import millstream as ms

@ms.sink(batch=20)
class Table:
    def __init__(self):
        self.rows = sqlite3.connect("rows.db", isolation_level=None)
        self.writes = 0

    def connect(self, outbox):
        self.outbox = outbox

    def write(self, batch, first, last):
        self.writes += 1
        self.rows.execute("BEGIN IMMEDIATE")
        for number, item in enumerate(batch, first):
            if item % 7 == 0:
                self.outbox.leave_out(number, "a multiple of seven")
            else:
                self.rows.execute("INSERT INTO rows VALUES (?, ?)", (number, item))
        self.rows.execute("UPDATE position SET last = ?", (last,))
        self.rows.execute("COMMIT")
        if str(self.writes) == os.environ.get("KILLED_AT"):
            # What is refused in the last moment may be missing at the follower: here nothing is.
            while self.refused("copy") < self.refused("state"):
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGKILL)

    def refused(self, state):
        with ms.Journal(f"{state}/outputs/out%refused", "r") as journal:
            return len(journal)

    def position(self):
        return self.rows.execute("SELECT last FROM position").fetchone()[0]

    def skip(self, number):
        self.rows.execute("UPDATE position SET last = ?", (number,))

flow = ms.Flow("refused")
letters = ms.files.write("letters", encode=lambda letter: str(letter.item))
numbers = flow.source("in", ms.generate(lambda: range(COUNT), batch_size=10))
numbers.sink("out", Table(), on_error=ms.dead_letter(letters))
"""


def test_the_follower_has_what_was_refused(tmp_path: Path, free_port: Callable[[], int]) -> None:
    (tmp_path / "flow.py").write_text(FLOW.replace("COUNT", str(COUNT)))
    rows = sqlite3.connect(tmp_path / "rows.db", isolation_level=None)
    rows.execute("CREATE TABLE rows (number INTEGER, item INTEGER)")
    rows.execute("CREATE TABLE position (last INTEGER)")
    rows.execute("INSERT INTO position VALUES (NULL)")
    millstream = [sys.executable, "-m", "millstream"]
    at = f"127.0.0.1:{free_port()}"
    run = [*millstream, "run", "flow.py", "--epoch", "50ms", "--state"]
    follower = subprocess.Popen([*millstream, "state", "follow", at, "copy"], cwd=tmp_path)
    try:
        replica = ["--replica", at, "--commit-on-replica"]
        killed = os.environ | {"KILLED_AT": "12"}
        flow = subprocess.run([*run, "state", *replica], cwd=tmp_path, env=killed, timeout=TIMEOUT)
        assert flow.returncode == -9
    finally:
        follower.terminate()
        follower.wait(TIMEOUT)
    shutil.rmtree(tmp_path / "state")
    subprocess.run([*millstream, "state", "promote", "copy"], cwd=tmp_path, check=True, timeout=TIMEOUT)
    for _ in range(2):
        subprocess.run([*run, "copy"], cwd=tmp_path, check=True, timeout=TIMEOUT)
        items = sorted(item for (item,) in rows.execute("SELECT item FROM rows"))
        assert items == [number for number in range(COUNT) if number % 7]
        letters = sorted(map(int, (tmp_path / "letters").read_text().split()))
        assert letters == list(range(0, COUNT, 7))
