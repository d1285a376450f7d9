"""A flow that reads the changes of a table, in a process, and a writer that records what it has committed."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
from flow_traffic import PATIENCE
from postgres_server import Database

FLOW = """
import json
import os
import millstream as ms

from millstream.postgres import session

options = eval(os.environ["OPTIONS"])
session.WATCH_SECONDS = float(os.environ["WATCH_SECONDS"])
flow = ms.Flow("changes")


@ms.sink
def dead(letters, first, last):
    with open(os.environ["OUT"] + ".dead", "a") as out:
        for letter in letters:
            change = letter.item
            parts = [letter.step, letter.key, change.kind, change.table, change.old, change.new, change.lsn]
            print(json.dumps([*parts, letter.error_text(), letter.position], default=repr), file=out)


policy = os.environ["ON_ERROR"]
on_error = ms.dead_letter(dead) if policy == "dead" else policy
source = ms.postgres.changes(os.environ["DSN"], os.environ["SLOT"], **options)
changes = flow.source("changes", source, on_error=on_error)


def line(change):
    parts = [change.kind, change.table, change.key, change.old, change.new, change.lsn, change.transaction]
    return json.dumps(parts, default=str)


changes.map(line).sink("out", ms.files.write(os.environ["OUT"]))
open(os.environ["OUT"] + ".loaded", "w").close()
"""
RETRY = "'retry': ms.Backoff(first=0.02, most=0.2)"


class Reading:
    """Runs of the flow.

    Args:
        folder: the directory for its files.
        database: what it reads.
        options: more options of the source, as Python text.
        dsn: the connection string, if it is not that of the database.
    """

    def __init__(
        self, folder: Path, database: Database, options: str = "'tables': 'items'", dsn: str | None = None
    ) -> None:
        self.folder = folder
        self.database = database
        self.options = "{" + RETRY + ", " + options + "}"
        self.dsn = dsn or database.dsn
        self.slot = database.name
        self.watch_seconds = 10.0
        self.on_error = "fail"
        self.has_state = True
        self.state = folder / "state"
        self.out = folder / "out"
        self.running: subprocess.Popen[str] | None = None
        (folder / "changes.py").write_text(FLOW)

    def start(self, *more: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "millstream", "run", str(self.folder / "changes.py")]
        if self.has_state:
            command += ["--state", str(self.state), "--epoch", "50ms", "--sync", "never", *more]
        mine = {"DSN": self.dsn, "OUT": str(self.out), "OPTIONS": self.options, "SLOT": self.slot}
        self.loaded.unlink(missing_ok=True)
        environment = (
            os.environ | mine | {"WATCH_SECONDS": str(self.watch_seconds), "ON_ERROR": self.on_error}
        )
        with (self.folder / "errors").open("w") as errors:
            self.running = subprocess.Popen(command, env=environment, stderr=errors, text=True)
        return self.running

    def errors(self) -> str:
        """What the run has written to standard error so far."""
        return (self.folder / "errors").read_text()

    def changes(self) -> list[Any]:
        """The changes in the output but for the truncations before snapshots: kind, table, key, old, new,
        position, transaction."""
        return [change for change in self.everything() if change[0] != "truncate" or change[6] is not None]

    def everything(self) -> list[Any]:
        """All changes in the output."""
        if not self.out.exists():
            return []
        lines = self.out.read_text().split("\n")
        return [json.loads(line) for line in lines[:-1]]

    def dead(self) -> list[Any]:
        """The dead letters: step, key, kind, table, old and new as they were sent, LSN, error, position."""
        path = self.out.with_name(self.out.name + ".dead")
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def wait(self, condition: Callable[[], object]) -> None:
        assert self.running is not None
        until = time.monotonic() + PATIENCE
        while not condition():
            assert self.running.poll() is None, self.errors()
            assert time.monotonic() < until, f"it does not come: {self.changes()[-3:]}"
            time.sleep(0.02)

    def wait_for(self, count: int) -> list[Any]:
        """Waits until there are so many changes; returns them."""
        self.wait(lambda: len(self.changes()) >= count)
        return self.changes()

    def kill(self) -> None:
        assert self.running is not None
        self.running.kill()
        self.running.wait(timeout=PATIENCE)

    def stop(self, sent: signal.Signals = signal.SIGINT) -> str:
        """Ends it as a signal does; returns what it wrote to standard error."""
        assert self.running is not None
        self.running.send_signal(sent)
        self.running.wait(timeout=PATIENCE)
        errors = self.errors()
        assert self.running.returncode == 0, errors
        assert "Traceback" not in errors and "panicked" not in errors, errors
        return errors

    def failure(self) -> str:
        """Starts it and waits until it fails; returns what it wrote."""
        running = self.start()
        running.wait(timeout=PATIENCE)
        assert running.returncode == 1, self.errors()
        return self.errors()

    def confirmed(self) -> int:
        """Up to where the slot is confirmed."""
        found = self.database.rows(
            "SELECT (confirmed_flush_lsn - '0/0')::int8 FROM pg_replication_slots WHERE slot_name = %s",
            self.slot,
        )
        return int(found[0][0]) if found and found[0][0] is not None else 0

    @property
    def loaded(self) -> Path:
        """A file that the process writes when it has read the flow."""
        return self.out.with_name(self.out.name + ".loaded")

    def stop_reading(self) -> str:
        """Ends it when it reads the stream: an interrupt of a process that is loading is not tested here."""
        self.wait(lambda: self.loaded.exists() and self.is_active())
        return self.stop()

    def is_active(self) -> bool:
        """Whether it reads the stream; a slot is active while it is created, too."""
        return self.database.rows(
            "SELECT state FROM pg_stat_replication JOIN pg_replication_slots ON pid = active_pid "
            "WHERE slot_name = %s",
            self.slot,
        ) == [("streaming",)]


class Writer(threading.Thread):
    """Changes the table ``items`` at random, in transactions that also write to the table ``audit``."""

    def __init__(self, database: Database, seed: int, pause: float = 0.002) -> None:
        super().__init__(daemon=True)
        self.database = database
        self.chance = random.Random(seed)
        self.pause = pause
        self.stopping = threading.Event()
        self.failure: BaseException | None = None
        self.committed = 0

    @staticmethod
    def create_tables(database: Database, rows: int) -> None:
        """Creates the tables, with so many rows."""
        database.execute("CREATE TABLE items (id int PRIMARY KEY, version bigint, text text)")
        database.execute(
            "CREATE TABLE audit (number bigserial PRIMARY KEY, kind text, id int, version bigint)"
        )
        database.execute(
            "WITH made AS (INSERT INTO items SELECT n, n, 'text ' || n FROM generate_series(1, %s) n "
            "RETURNING id, version) "
            "INSERT INTO audit (kind, id, version) SELECT 'insert', id, version FROM made",
            rows,
        )

    def run(self) -> None:
        while not self.stopping.is_set():
            try:
                with psycopg.connect(self.database.dsn, connect_timeout=5) as connection:
                    self.write(connection)
            except psycopg.OperationalError:
                time.sleep(0.05)
            except BaseException as error:
                self.failure = error
                return

    def write(self, connection: psycopg.Connection[Any]) -> None:
        ids = {row[0] for row in connection.execute("SELECT id FROM items").fetchall()}
        found = connection.execute("SELECT coalesce(max(version), 0) FROM audit").fetchone()
        assert found is not None
        version = int(found[0])
        while not self.stopping.is_set():
            for _ in range(self.chance.randint(1, 5)):
                version += 1
                self.change(connection, ids, version)
            connection.commit()
            self.committed = version
            self.stopping.wait(self.pause)

    def change(self, connection: psycopg.Connection[Any], ids: set[int], version: int) -> None:
        number = self.chance.randint(1, 500)
        kind = "insert"
        if number in ids:
            kind = self.chance.choice(["update", "update", "delete"])
        statements = {
            "insert": "INSERT INTO items VALUES (%(id)s, %(version)s, 'new')",
            "update": "UPDATE items SET version = %(version)s WHERE id = %(id)s",
            "delete": "DELETE FROM items WHERE id = %(id)s",
        }
        values = {"id": number, "version": version, "kind": kind}
        connection.execute(statements[kind], values)
        connection.execute(
            "INSERT INTO audit (kind, id, version) VALUES (%(kind)s, %(id)s, %(version)s)", values
        )
        if kind == "delete":
            ids.discard(number)
        else:
            ids.add(number)

    def stop(self) -> None:
        self.stopping.set()
        self.join(PATIENCE)
        assert not self.is_alive() and self.failure is None, self.failure


def judge(reading: Reading, **figures: object) -> None:
    """The snapshot is the table after some transaction, and each change after that follows once, in order."""
    audit = reading.database.rows("SELECT kind, id, version FROM audit ORDER BY number")
    reading.wait(lambda: is_complete(reading))
    changes = reading.everything()
    begin = max((place + 1 for place, change in enumerate(changes) if change[0] == "truncate"), default=0)
    restarts = sum(change[0] == "truncate" for change in changes) - 1
    rows = [change for change in changes[begin:] if change[0] == "snapshot"]
    stream = changes[begin + len(rows) :]
    assert all(change[0] != "snapshot" for change in stream), "rows of the snapshot come after changes"
    followed = [
        (change[0], change[2]["id"], change[4]["version"] if change[4] else None) for change in stream
    ]
    given = [(kind, number, None if kind == "delete" else version) for kind, number, version in audit]
    before = given[: len(given) - len(followed)]
    figures |= {"audit": len(given), "snapshot": len(rows), "stream": len(stream), "restarts": restarts}
    print(json.dumps({"source": "postgres"} | figures))
    assert followed == given[len(before) :]
    state: dict[int, int | None] = {}
    for kind, number, version in before:
        if kind == "delete":
            state.pop(number)
        else:
            state[number] = version
    assert {change[4]["id"]: change[4]["version"] for change in rows} == state
    assert len(rows) == len(state)
    positions = [change[5] for change in changes[begin:]]
    assert positions == sorted(positions)


def is_complete(reading: Reading) -> bool:
    """Whether the last change of the audit is in the output."""
    kind, number, version = reading.database.rows(
        "SELECT kind, id, version FROM audit ORDER BY number DESC LIMIT 1"
    )[0]
    changes = reading.changes()
    if not changes:
        return False
    last = changes[-1]
    # Where nothing was changed, rows of the snapshot are the last.
    return bool(
        last[0] in (kind, "snapshot")
        and last[2]["id"] == number
        and (kind == "delete" or last[4]["version"] == version)
    )


def replayed(changes: list[Any]) -> dict[str, dict[str, Any]]:
    """By the names of tables, their rows by key, as a copy that follows the changes has them.

    A change that does not fit the rows before it is an error: each change counts once.
    """
    tables: dict[str, dict[str, Any]] = {}
    for change in changes:
        kind, table, key, old, new = change[:5]
        rows = tables.setdefault(table, {})
        if kind == "truncate":
            rows.clear()
            continue
        name = json.dumps(key)
        if kind in ("snapshot", "insert"):
            assert name not in rows, f"{change} came before"
            rows[name] = new
        elif kind == "update":
            before = rows.pop(name if old is None else json.dumps(old))
            rows[name] = {
                column: before[column] if value == "UNCHANGED" else value for column, value in new.items()
            }
        else:
            del rows[name]
    return tables


def rows_of(database: Database, *tables: str) -> dict[str, dict[str, Any]]:
    """The rows of tables of the schema ``public``, which have the key ``id``, without those of children."""
    found = {}
    for table in tables:
        name = table.removesuffix("*")
        only = "" if name != table else "ONLY "
        rows = database.rows(f"SELECT to_jsonb(t) FROM {only}{name} t")  # type: ignore[arg-type]
        found[f"public.{name}"] = {json.dumps({"id": row["id"]}): row for (row,) in rows}
    return found
