"""PostgreSQL in the states of ``conformance.py``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from conformance import (
    Continues,
    Ends,
    SinkConnector,
    SourceConnector,
    test_ctrl_c_ends_it,
    test_it_is_killed,
    test_it_recovers,
)
from postgres_server import Database, Server
from tcp_link import Link

__all__ = ["test_ctrl_c_ends_it", "test_it_is_killed", "test_it_recovers"]

RETRY = "retry=ms.Backoff(first=0.05, most=0.2), timeout=1"


class PostgresWrite(SinkConnector):
    title = "ms.postgres.write"
    thing = "numbers"
    steps = ".map(lambda n: (n,))"
    states = {
        "absent": Continues("{address}", "{thing}", "refused"),
        "away": Continues("{address}", "{thing}"),
        "login": Ends("{address}", "password authentication failed"),
        "unknown": Ends("{address}", '"{thing}"'),
        "slow": Continues("{address}", "{thing}", "has not ended within 1 s"),
        "rubbish": Continues("{address}", "{thing}"),
    }

    def prepare(self, servers: Callable[[str], Any]) -> None:
        server: Server = servers("postgres")
        self.database: Database = server.create_database()
        self.database.execute("CREATE TABLE numbers (number bigint)")
        self.link = Link(server.port)

    def flow(self) -> str:
        assert self.link is not None
        password = "wrong" if self.state == "login" else "secret"
        dsn = self.database.server.dsn(self.database.name, self.link.port, password)
        self.sink = f"ms.postgres.write({dsn!r}, 'numbers', {RETRY})"
        return super().flow()

    def enter(self, state: str) -> None:
        super().enter(state)
        if state == "unknown":
            self.database.execute("ALTER TABLE numbers RENAME TO others")

    def leave(self) -> None:
        if self.state == "unknown":
            self.database.execute("ALTER TABLE others RENAME TO numbers")
        super().leave()

    def delivered(self) -> list[int]:
        table = "others" if self.state == "unknown" else "numbers"
        return [row[0] for row in self.database.rows(f"SELECT number FROM {table} ORDER BY number")]  # type: ignore[arg-type]

    def close(self) -> None:
        super().close()
        self.database.drop()


class PostgresChanges(SourceConnector):
    title = "ms.postgres.changes"
    thing = "numbers"
    states = {
        "absent": Continues("{address}", "the next attempt is in"),
        "away": Continues("{address}", "the next attempt is in"),
        "login": Ends("{address}", "password authentication failed"),
        "unknown": Ends("{address}", '"public.{thing}"'),
        "slow": Continues("{address}", "for 1 s"),
        "rubbish": Continues("{address}", "the next attempt is in"),
    }

    def prepare(self, servers: Callable[[str], Any]) -> None:
        server: Server = servers("postgres")
        self.database: Database = server.create_database()
        self.database.execute("CREATE TABLE numbers (number bigint PRIMARY KEY)")
        self.link = Link(server.port)

    def flow(self) -> str:
        assert self.link is not None
        password = "wrong" if self.state == "login" else "secret"
        dsn = self.database.server.dsn(self.database.name, self.link.port, password)
        options = f"{RETRY}, tables='numbers', heartbeat=0.2"
        self.source = f"ms.postgres.changes({dsn!r}, {self.database.name!r}, {options})"
        numbers = ".filter(lambda change: change.new).map(lambda change: change.new['number'])"
        return super().flow().replace(".sink", f"{numbers}.sink")

    def enter(self, state: str) -> None:
        super().enter(state)
        if state == "unknown":
            self.database.execute("ALTER TABLE numbers RENAME TO others")

    def leave(self) -> None:
        if self.state == "unknown":
            self.database.execute("ALTER TABLE others RENAME TO numbers")
        super().leave()

    def feed(self, numbers: range) -> None:
        insert = "INSERT INTO numbers SELECT generate_series(%s::bigint, %s)"
        if self.state == "unknown":
            insert = insert.replace("INTO numbers", "INTO others")
        self.database.execute(insert, numbers.start, numbers.stop - 1)  # type: ignore[arg-type]

    def close(self) -> None:
        super().close()
        self.database.drop()


CONNECTORS = [PostgresWrite, PostgresChanges]
