"""Measures journals from Python: ``journal FOLDER`` prints seconds and rates as JSON."""

import json
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from statistics import median
from time import perf_counter

import millstream as ms

RECORDS = 1_000_000
BODY = b"x" * 64

with ms.Journal(sys.argv[1]) as journal:
    bodies = [BODY] * RECORDS
    start = perf_counter()
    journal.append_many(bodies)
    append_many = RECORDS / (perf_counter() - start)

    append = journal.append
    start = perf_counter()
    for _ in range(RECORDS):
        append(BODY)
    single = (perf_counter() - start) / RECORDS

    start = perf_counter()
    for record in journal:
        record.body  # noqa: B018
    iterate = 2 * RECORDS / (perf_counter() - start)

# Records by number, over some segments, beside rows by key: SQLite with an integer key. In turn.
ROWS = 400_000
LOOKS = 2_000
body = b"y" * 1000
folder = Path(sys.argv[1])
table = sqlite3.connect(folder / "by-key.db")
table.execute("CREATE TABLE log (sequence INTEGER PRIMARY KEY, body BLOB)")
table.executemany("INSERT INTO log (body) VALUES (?)", ((body,) for _ in range(ROWS)))
table.commit()
with ms.Journal(folder / "by-number") as written:
    written.append_many([body] * ROWS)


def seconds(look: Callable[[int], bytes], seed: int) -> float:
    """Seconds for each of many records in random order."""
    random = Random(seed)
    numbers = [random.randrange(ROWS) for _ in range(LOOKS)]
    start = perf_counter()
    found = [look(number) for number in numbers]
    elapsed = perf_counter() - start
    assert found == [body] * LOOKS
    return elapsed / LOOKS


def row(number: int) -> bytes:
    found: tuple[bytes] = table.execute("SELECT body FROM log WHERE sequence = ?", (number + 1,)).fetchone()
    return found[0]


with ms.Journal(folder / "by-number", "r") as reading:
    rounds = [(seconds(lambda n: bytes(reading[n].body), seed), seconds(row, seed)) for seed in range(7)]
by_number, by_key = (median(times) for times in zip(*rounds, strict=True))

measured = {"append_many": append_many, "append": single, "iterate": iterate}
print(json.dumps(measured | {"by_number": by_number, "by_key": by_key}))
