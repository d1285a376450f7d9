"""A flow that writes numbers to PostgreSQL, in a process, for tests that kill or stop it or its server."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import millstream as ms
import psycopg
import pytest
from flow_traffic import PATIENCE, Killed
from postgres_server import Database

FLOW = """
import os
import millstream as ms

end = int(os.environ["END"])
flow = ms.Flow("numbers")
source = ms.generate(lambda: range(end), rate=20_000 if end > 1 << 40 else None, batch_size=50)
numbers = flow.source("in", source).key_by(lambda n: n % 7).map(lambda n: n, name="spread").values()
options = eval(os.environ["OPTIONS"])
table = ms.postgres.write(os.environ["DSN"], "numbers", batch=200, **options)
numbers.map(lambda n: (n, f"n{n}")).sink("table", table)
numbers.sink("expected", ms.files.write(os.environ["EXPECTED"]))
"""
ENDLESS = 1 << 41
RETRY = "'retry': ms.Backoff(first=0.02, most=0.2)"


def deliver(
    items: list[Any], sink: ms.OutboxSink[Any], state: Path | None = None, on_error: Any = "fail"
) -> ms.Report:
    """Runs a flow of these items."""
    flow = ms.Flow("rows")
    flow.source("in", ms.testing.items(items)).sink("table", sink, on_error=on_error)
    return ms.run(flow, state=state, epoch=0.02, sync=False) if state else ms.run(flow)


def fails(items: list[Any], sink: ms.OutboxSink[Any], state: Path | None = None) -> str:
    """The same, which fails; returns the error."""
    with pytest.raises(ms.FlowError) as caught:
        deliver(items, sink, state)
    return str(caught.value)


class Writing:
    """Runs of the flow, with the table ``numbers`` as a connection of the test sees it."""

    def __init__(
        self, folder: Path, database: Database, *, keyed: bool = False, more: str = "", workers: int = 1
    ) -> None:
        key = "PRIMARY KEY" if keyed else ""
        database.execute(f"CREATE TABLE numbers (number bigint {key}, text text)")  # type: ignore[arg-type]
        self.database = database
        self.folder = folder
        self.state = folder / "state"
        self.expected = folder / "expected"
        (folder / "flow.py").write_text(FLOW)
        self.workers = workers
        key_option = "'key': 'number', " if keyed else ""
        self.options = "{" + key_option + (more or RETRY) + "}"
        self.dsn = database.dsn

    @property
    def command(self) -> list[str]:
        command = [sys.executable, "-m", "millstream", "run", str(self.folder / "flow.py")]
        command += ["--workers", str(self.workers), "--state", str(self.state)]
        return [*command, "--epoch", "20ms", "--sync", "never"]

    @property
    def environment(self) -> dict[str, str]:
        mine = {"DSN": self.dsn, "EXPECTED": str(self.expected), "OPTIONS": self.options}
        return os.environ | mine | {"END": str(ENDLESS)}

    def start(self, end: int = ENDLESS) -> subprocess.Popen[str]:
        environment = self.environment | {"END": str(end)}
        return subprocess.Popen(self.command, env=environment, stderr=subprocess.PIPE, text=True)

    def killed(self, seed: int) -> Killed:
        return Killed(self.command, self.environment, self.length, random.Random(seed))

    def length(self) -> int:
        """How many rows there are; none while the server is down."""
        try:
            return int(self.database.rows("SELECT count(*) FROM numbers")[0][0])
        except psycopg.OperationalError:
            return 0

    def wait(self, running: subprocess.Popen[str], condition: Callable[[], object]) -> None:
        until = time.monotonic() + PATIENCE
        while not condition():
            assert running.poll() is None, running.communicate()[1]
            assert time.monotonic() < until, "it does not come"
            time.sleep(0.02)

    def wait_for_rows(self, running: subprocess.Popen[str]) -> None:
        """Waits until there are more rows."""
        before = self.length()
        self.wait(running, lambda: self.length() > before)

    def complete(self) -> str:
        """Runs it until what waits is delivered, and judges the table; returns what it wrote."""
        last = self.start(1)
        _, errors = last.communicate(timeout=PATIENCE)
        assert last.returncode == 0, errors
        self.judge()
        return errors

    def judge(self, **figures: object) -> None:
        """Each number that the flow has produced is in the table, once."""
        rows = self.database.rows("SELECT number, text FROM numbers")
        assert all(text == f"n{number}" for number, text in rows)
        found = Counter(int(number) for number, _ in rows)
        given = Counter(map(int, self.expected.read_text().splitlines()))
        assert sorted(given) == list(range(len(given)))
        figures |= {"items": len(given), "lost": (given - found).total(), "twice": (found - given).total()}
        print(json.dumps({"destination": "postgres"} | figures))
        assert figures["lost"] == figures["twice"] == 0, figures
        assert figures["items"], "nothing was written"
