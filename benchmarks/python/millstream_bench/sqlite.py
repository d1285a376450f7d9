"""Measures SQLite in WAL mode: ``sqlite WORK FOLDER COUNT`` prints records a second as JSON.

One table of sequence, time and body, one connection, the usual form of a log in it.
"""

import json
import sqlite3
import sys
from pathlib import Path
from time import perf_counter, time_ns

work = sys.argv[1]
folder = Path(sys.argv[2])
count = int(sys.argv[3])
BODY = b"x" * 64
INSERT = "INSERT INTO log (time_ns, body) VALUES (?, ?)"
connection = sqlite3.connect(folder / "log.db", isolation_level=None)
connection.execute("PRAGMA journal_mode = WAL")
connection.execute(f"PRAGMA synchronous = {'FULL' if work == 'durable' else 'OFF'}")
connection.execute("CREATE TABLE log (sequence INTEGER PRIMARY KEY, time_ns INTEGER, body BLOB)")


def batches() -> None:
    for _ in range(count // 1000):
        now = time_ns()
        connection.execute("BEGIN")
        connection.executemany(INSERT, [(now, BODY)] * 1000)
        connection.execute("COMMIT")


def singles() -> None:
    for _ in range(count):
        connection.execute(INSERT, (time_ns(), BODY))


def read() -> None:
    seen = sum(1 for _ in connection.execute("SELECT sequence, time_ns, body FROM log ORDER BY sequence"))
    assert seen == count // 1000 * 1000


if work == "read":
    batches()
measured = {"append": singles, "batches": batches, "durable": singles, "read": read}[work]
start = perf_counter()
measured()
print(json.dumps(count / (perf_counter() - start)))
