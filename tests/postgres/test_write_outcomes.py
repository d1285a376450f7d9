"""Commits without an answer: the server tells whether the rows in the table are those of this process.

After an error the engine connects a new destination, so what is known of a commit must outlive the old one.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import millstream as ms
import pytest
from millstream._connectors.table_sink import TableOptions
from millstream.postgres import destination
from millstream.postgres.destination import Destination
from millstream.postgres.errors import PostgresError
from millstream.postgres.progress import Progress, Unanswered
from millstream.postgres.statements import Statements
from postgres_server import Database

OUTBOX = ms.OutboxIdentity("numbers", "table", "0f" * 16)
REPEATED = ms.Backoff(first=0.01, most=0.05)


class Sink:
    """The destinations of one sink, one for each connection."""

    def __init__(self, database: Database, outbox: ms.OutboxIdentity = OUTBOX) -> None:
        self.options = TableOptions(database.dsn, "numbers", None, (), None, None, 30)
        self.unanswered: dict[str, Unanswered] = {}
        self.outbox = outbox

    def connect(self) -> Destination:
        made = Destination(self.options, self.unanswered)
        made.connect(self.outbox)
        return made

    def connected(self) -> Destination:
        made = self.connect()
        made.position()
        return made


@pytest.fixture
def table(database: Database) -> Database:
    database.execute("CREATE TABLE numbers (number bigint, text text)")
    return database


@pytest.fixture
def lose(table: Database, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Loses the connection of the next write, before or after the server has committed."""

    def lose(made: Destination, *, after_commit: bool) -> None:
        def cut(*given: Any, **options: Any) -> None:
            real(*given, **options)
            monkeypatch.setattr(owner, name, real)
            assert made.connection is not None
            table.execute("SELECT pg_terminate_backend(%s)", made.connection.info.backend_pid)
            made.connection.execute("SELECT 1")

        # `committed` is called when the server has answered: a lost answer is one that it never notes.
        owner: Any = made.progress if after_commit else made.statements
        name = "committed" if after_commit else "write"
        real: Callable[..., None] = getattr(owner, name) if not after_commit else lambda _: None
        monkeypatch.setattr(owner, name, cut)

    return lose


def of_another_process(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> Destination:
    with monkeypatch.context() as changed:
        changed.setattr(destination, "RUN", "another")
        return sink.connected()


def numbers(database: Database) -> list[tuple[Any, ...]]:
    return database.rows("SELECT number, text FROM numbers ORDER BY number, text")


@pytest.mark.parametrize("begun", [False, True])
def test_rows_of_another_process_are_not_taken_for_those_of_this_one(
    table: Database, begun: bool, monkeypatch: pytest.MonkeyPatch, lose: Callable[..., None]
) -> None:
    sink = Sink(table)
    late = sink.connected()
    other = of_another_process(Sink(table), monkeypatch)
    first = 0
    if begun:
        late.write([(0, "both")], 0, 0)
        assert other.position() == 0
        first = 1
    lose(late, after_commit=False)
    with pytest.raises(ConnectionError):
        late.write([(first, "late"), (first + 1, "late")], first, first + 1)
    other.write([(first, "other"), (first + 1, "other")], first, first + 1)
    again = sink.connect()
    with pytest.raises(PostgresError, match="another process delivers the same outbox") as raised:
        again.position()
    assert "\n" not in str(raised.value)
    rows = [(first, "other"), (first + 1, "other")]
    assert numbers(table) == ([(0, "both"), *rows] if begun else rows)
    for made in (late, other, again):
        made.close()


def test_a_commit_whose_answer_was_lost_is_found(table: Database, lose: Callable[..., None]) -> None:
    sink = Sink(table)
    made = sink.connected()
    lose(made, after_commit=True)
    with pytest.raises(ConnectionError):
        made.write([(0, "a"), (1, "b")], 0, 1)
    made = sink.connect()
    assert made.position() == 1
    made.write([(2, "c")], 2, 2)
    assert sink.unanswered == {}
    assert numbers(table) == [(0, "a"), (1, "b"), (2, "c")]
    made.close()


def test_a_transaction_that_was_lost_is_written_again(table: Database, lose: Callable[..., None]) -> None:
    sink = Sink(table)
    made = sink.connected()
    lose(made, after_commit=False)
    with pytest.raises(ConnectionError):
        made.write([(0, "a")], 0, 0)
    made = sink.connect()
    assert made.position() is None
    made.write([(0, "a")], 0, 0)
    assert numbers(table) == [(0, "a")]
    made.close()


def test_a_server_that_does_not_know_the_transaction(table: Database, lose: Callable[..., None]) -> None:
    """One that was restored elsewhere has other numbers: its position is believed."""
    sink = Sink(table)
    made = sink.connected()
    lose(made, after_commit=True)
    with pytest.raises(ConnectionError):
        made.write([(0, "a")], 0, 0)
    unanswered = sink.unanswered[OUTBOX.id]
    sink.unanswered[OUTBOX.id] = Unanswered(unanswered.transaction + (1 << 40), unanswered.first)
    made = sink.connect()
    assert made.position() == 0
    made.close()


@pytest.mark.parametrize("rival", [False, True])
def test_a_flow_that_loses_its_connection(
    table: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rival: bool
) -> None:
    """The transaction is lost, and written again, unless another process was there first."""
    identities: list[ms.OutboxIdentity] = []
    lost: list[int] = []
    prepare = Progress.__init__
    write = Statements.write

    def remember(self: Progress, connection: Any, its: Any, outbox: ms.OutboxIdentity, more: Any) -> None:
        identities.append(outbox)
        prepare(self, connection, its, outbox, more)

    def cut(self: Statements, connection: Any, rows: Any, **options: Any) -> None:
        write(self, connection, rows, **options)
        if lost:
            return
        lost.append(len(rows))
        table.execute("SELECT pg_terminate_backend(%s)", connection.info.backend_pid)
        if rival:
            other = of_another_process(Sink(table, identities[0]), monkeypatch)
            other.write([(number, "other") for number in range(len(rows))], 0, len(rows) - 1)
            other.close()
        connection.execute("SELECT 1")

    monkeypatch.setattr(Progress, "__init__", remember)
    monkeypatch.setattr(Statements, "write", cut)
    flow = ms.Flow("numbers")
    source = flow.source("in", ms.testing.items([(number, "own") for number in range(10)]))
    source.sink("table", ms.postgres.write(table.dsn, "numbers", batch=4, retry=REPEATED))
    if rival:
        with pytest.raises(ms.FlowError, match="another process delivers the same outbox"):
            ms.run(flow, state=tmp_path / "state")
        assert numbers(table) == [(number, "other") for number in range(lost[0])]
    else:
        ms.run(flow, state=tmp_path / "state")
        assert numbers(table) == [(number, "own") for number in range(10)]
    assert len(lost) == 1
