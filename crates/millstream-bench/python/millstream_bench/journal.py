"""Measures journals from Python: ``journal FOLDER`` prints seconds and rates as JSON."""

import json
import sys
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

print(json.dumps({"append_many": append_many, "append": single, "iterate": iterate}))
