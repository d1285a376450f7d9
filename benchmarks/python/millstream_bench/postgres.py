"""Rows per second into a table of PostgreSQL, and changes per second out of one.

Run, with a server that has ``wal_level = logical`` and a database to which nothing else writes::

    python -m millstream_bench.postgres "host=127.0.0.1 dbname=bench user=postgres" --rows 1000000 --json

Flows have a state directory with ``sync`` off, so that the disk of this machine is not what is measured. The
time of a sink is that of the whole run; that of a source is from the first item to the last.
"""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import contextmanager
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter

import psycopg
from millstream import Flow, FlowError, generate, postgres, run
from millstream.testing import discard

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

__all__ = ["measure"]

SLOT = "millstream_bench"
TEXT = "x" * 80


class Enough(Exception):
    """The source has yielded all items."""


@contextmanager
def tables(dsn: str) -> Iterator[psycopg.Connection[Any]]:
    """The tables of the benchmark, which are dropped in the end."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        drop(connection)
        connection.execute("CREATE TABLE bench_rows (id bigint, text text, at timestamptz)")
        connection.execute("CREATE TABLE bench_keyed (id bigint PRIMARY KEY, text text, at timestamptz)")
        try:
            yield connection
        finally:
            drop(connection)


def drop(connection: psycopg.Connection[Any]) -> None:
    connection.execute(
        "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = %s", (SLOT,)
    )
    connection.execute(f"DROP PUBLICATION IF EXISTS {SLOT}")
    connection.execute("DROP TABLE IF EXISTS bench_rows, bench_keyed")


def sink_seconds(dsn: str, table: str, key: str | None, rows: int) -> float:
    """How long a flow takes that writes so many rows."""
    flow = Flow("bench")
    numbers = flow.source("numbers", generate(lambda: range(rows), batch_size=1000))
    made = numbers.map(lambda n: (n, TEXT, "2026-11-24 12:00:00+00"))
    made.sink("table", postgres.write(dsn, table, key=key, max_bytes="16GiB"))
    started = perf_counter()
    with TemporaryDirectory() as folder:
        run(flow, state=folder, sync=False)
        return perf_counter() - started


def copy_seconds(connection: psycopg.Connection[Any], rows: int) -> float:
    """How long a plain loop takes, with a transaction for each 5000 rows as the sink has."""
    started = perf_counter()
    for first in range(0, rows, 5000):
        copied = connection.cursor().copy("COPY bench_rows FROM STDIN")
        with connection.transaction(), copied as copy:
            for number in range(first, min(rows, first + 5000)):
                copy.write_row((number, TEXT, "2026-11-24 12:00:00+00"))
    return perf_counter() - started


def source_seconds(dsn: str, snapshot: bool, items: int) -> float:
    """How long the items of the source take; the slot may exist."""
    seen = 0
    begun = 0.0

    def count(changes: list[postgres.Change]) -> list[postgres.Change]:
        nonlocal seen, begun
        begun = begun or perf_counter()
        seen += len(changes)
        if seen >= items:
            raise Enough
        return changes

    flow = Flow("bench")
    source = postgres.changes(dsn, SLOT, tables="bench_rows", snapshot=snapshot)
    flow.source("changes", source).map_batch(count).sink("out", discard())
    try:
        with TemporaryDirectory() as folder:
            run(flow, state=folder, sync=False)
    except FlowError as error:
        if not isinstance(error.__cause__, Enough):
            raise
    return perf_counter() - begun


def snapshot_seconds(connection: psycopg.Connection[Any], dsn: str, rows: int) -> float:
    fill(connection, rows)
    seconds = source_seconds(dsn, True, rows)
    drop_slot(connection)
    return seconds


def stream_seconds(connection: psycopg.Connection[Any], dsn: str, rows: int) -> float:
    connection.execute("TRUNCATE bench_rows")
    connection.execute("ALTER TABLE bench_rows REPLICA IDENTITY FULL")
    connection.execute(f"DROP PUBLICATION IF EXISTS {SLOT}")
    connection.execute(f"CREATE PUBLICATION {SLOT} FOR TABLE bench_rows")
    connection.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (SLOT,))
    fill(connection, rows)
    seconds = source_seconds(dsn, False, rows)
    drop_slot(connection)
    return seconds


def fill(connection: psycopg.Connection[Any], rows: int) -> None:
    """Inserts rows, with a transaction for each 1000."""
    connection.execute("TRUNCATE bench_rows")
    connection.execute("ALTER TABLE bench_rows REPLICA IDENTITY FULL")
    for first in range(0, rows, 1000):
        connection.execute(
            "INSERT INTO bench_rows SELECT n, %s, now() FROM generate_series(%s::int8, %s::int8) n",
            (TEXT, first, min(rows, first + 1000) - 1),
        )


def drop_slot(connection: psycopg.Connection[Any]) -> None:
    """Drops the slot once the server has noticed that the flow is gone."""
    connection.execute(
        "SELECT pg_terminate_backend(active_pid, 10000) FROM pg_replication_slots "
        "WHERE slot_name = %s AND active_pid IS NOT NULL",
        (SLOT,),
    )
    connection.execute(
        "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = %s", (SLOT,)
    )


def measure(dsn: str, rows: int, repeats: int) -> list[dict[str, Any]]:
    """Measures all cases.

    Args:
        dsn: the connection string of a user that may create tables, publications and slots.
        rows: how many rows or changes each run has.
        repeats: how often each case runs.

    Returns:
        For each case what it is, and the median of the rows or changes per second.
    """
    with tables(dsn) as connection:
        cases: dict[str, Callable[[], float]] = {
            "a loop of psycopg, COPY": lambda: copy_seconds(connection, rows),
            "ms.postgres.write": lambda: sink_seconds(dsn, "bench_rows", None, rows),
            "ms.postgres.write by key": lambda: sink_seconds(dsn, "bench_keyed", "id", rows),
            "ms.postgres.changes, snapshot": lambda: snapshot_seconds(connection, dsn, rows),
            "ms.postgres.changes, stream": lambda: stream_seconds(connection, dsn, rows),
        }
        found = []
        for what, seconds in cases.items():
            rates = []
            for _ in range(repeats):
                connection.execute("TRUNCATE bench_rows, bench_keyed")
                rates.append(rows / seconds())
            found.append({"what": what, "per_second": median(rates), "runs": repeats})
        return found


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m millstream_bench.postgres", description=__doc__)
    parser.add_argument("dsn")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args(arguments)
    found = measure(chosen.dsn, chosen.rows, chosen.repeats)
    if chosen.json:
        print(json.dumps(found))
    else:
        for row in found:
            print(f"{row['what']:<36} {row['per_second']:>12,.0f} a second")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
