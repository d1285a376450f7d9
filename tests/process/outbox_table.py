"""A destination in SQLite for tests that stop or kill flows: the sink, and a reader that judges it."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any

SINKS = '''
import asyncio
import os
import sqlite3
import time
from pathlib import Path

import millstream as ms


class Connection:
    """Rows with their numbers; with a position in the same transaction, if the class has the method."""

    def __init__(self):
        self.behave("CONNECT")
        self.rows = sqlite3.connect(os.environ["TABLE"], timeout=60, isolation_level=None)
        self.rows.execute("PRAGMA journal_mode = WAL")
        self.rows.execute("PRAGMA synchronous = OFF")
        self.rows.execute("CREATE TABLE IF NOT EXISTS rows (number INTEGER, item TEXT)")
        self.rows.execute("CREATE TABLE IF NOT EXISTS positions (outbox TEXT PRIMARY KEY, last INTEGER)")

    def connect(self, outbox):
        self.outbox = outbox.id

    def behave(self, verb):
        """Does as the file says: away, hangs, refuses. Without the file all is well."""
        state = Path(os.environ["TABLE"] + "." + verb)
        word = state.read_text() if state.exists() else ""
        if word:
            with open(os.environ["TABLE"] + ".seen", "a") as seen:
                seen.write(word + "\\n")
        if word == "away":
            raise ConnectionError("away")
        if word == "hangs":
            time.sleep(3600)
        if word == "refuses":
            raise ValueError("no such column")

    def insert(self, batch, first, last):
        self.rows.executemany("INSERT INTO rows VALUES (?, ?)", zip(range(first, last + 1), map(str, batch)))

    def write(self, batch, first, last):
        self.behave("WRITE")
        self.rows.execute("BEGIN IMMEDIATE")
        self.insert(batch, first, last)
        self.rows.execute("COMMIT")

    def close(self):
        self.rows.close()


class Remembering(Connection):
    def write(self, batch, first, last):
        self.behave("WRITE")
        self.rows.execute("BEGIN IMMEDIATE")
        try:
            if (self.position() if first > 0 else None) != (first - 1 if first > 0 else None):
                raise RuntimeError("another copy delivers")
            self.insert(batch, first, last)
            self.rows.execute("REPLACE INTO positions VALUES (?, ?)", (self.outbox, last))
        except BaseException:
            self.rows.execute("ROLLBACK")
            raise
        self.rows.execute("COMMIT")

    def position(self):
        found = self.rows.execute("SELECT last FROM positions WHERE outbox = ?", (self.outbox,)).fetchone()
        return found[0] if found else None


class Asynchronous(Remembering):
    async def write(self, batch, first, last):
        if Path(os.environ["TABLE"] + ".WRITE").exists() and self.is_hanging():
            await asyncio.sleep(3600)
        await asyncio.sleep(0)
        super().write(batch, first, last)

    def is_hanging(self):
        word = Path(os.environ["TABLE"] + ".WRITE").read_text()
        if word == "hangs":
            with open(os.environ["TABLE"] + ".seen", "a") as seen:
                seen.write("hangs\\n")
        return word == "hangs"


kind = {"remembers": Remembering, "forgets": Connection, "async": Asynchronous}[os.environ["KIND"]]
table = ms.sink(kind, batch=200, **eval(os.environ.get("OPTIONS", "{}")))()
'''
"""The beginning of a flow's file: ``table`` is a sink of the kind in the environment."""

NUMBERS = (
    SINKS
    + """
end = int(os.environ["END"])
flow = ms.Flow("numbers")
source = ms.generate(lambda: range(end), rate=20_000 if end > 1 << 40 else None, batch_size=50)
numbers = flow.source("in", source).key_by(lambda n: n % 7).map(lambda n: n, name="spread").values()
numbers.sink("table", table)
numbers.sink("expected", ms.files.write(os.environ["EXPECTED"]))
"""
)
"""A flow of the numbers below ``END`` to the table, and to a file of what is expected there."""


class Table:
    """The table as a separate reader sees it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.seen = path.with_name(path.name + ".seen")

    def behave(self, verb: str, word: str) -> None:
        self.path.with_name(f"{self.path.name}.{verb}").write_text(word)

    def recover(self) -> None:
        for verb in ("CONNECT", "WRITE"):
            self.path.with_name(f"{self.path.name}.{verb}").unlink(missing_ok=True)
        self.seen.unlink(missing_ok=True)

    def rows(self) -> list[tuple[int, str]]:
        return [(row[0], row[1]) for row in self.select("number, item")]

    def length(self) -> int:
        return sum(row[0] for row in self.select("count(*)"))

    def select(self, columns: str) -> list[tuple[Any, ...]]:
        if not self.path.exists():
            return []
        reader = sqlite3.connect(self.path, timeout=60)
        try:
            return reader.execute(f"SELECT {columns} FROM rows").fetchall()
        except sqlite3.OperationalError as error:
            # A flow was killed before it had created the table.
            assert "no such table" in str(error)
            return []
        finally:
            reader.close()

    def judge(self, expected: list[str], once: bool, **figures: object) -> None:
        """Each item is there, with one number; once, if the destination remembers its position."""
        rows = self.rows()
        numbered = dict(rows)
        assert all(numbered[number] == item for number, item in rows), "a number has two items"
        assert sorted(numbered) == list(range(len(numbered))), "numbers have gaps"
        found = Counter(item for _, item in rows)
        given = Counter(expected)
        by_number = Counter(numbered.values())
        figures |= {
            "items": len(expected),
            "lost": (given - found).total() + (given - by_number).total(),
            "twice": (found - given).total(),
            "two_numbers": (by_number - given).total(),
        }
        print(json.dumps({"promise": 22} | figures))
        assert figures["lost"] == figures["two_numbers"] == 0, figures
        assert not once or figures["twice"] == 0, figures
