"""Commits without an answer: the server tells whether the rows in the table are those of this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import millstream as ms
import pytest
from millstream.postgres import destination
from millstream.postgres.destination import Destination, TableOptions
from millstream.postgres.errors import PostgresError
from postgres_server import Database

OUTBOX = ms.OutboxIdentity("numbers", "table", "0f" * 16)


def connected(database: Database) -> Destination:
    """A destination as that of a process of its own."""
    options = TableOptions(database.dsn, "numbers", None, (), None, "fail", 30)
    made = Destination(options)
    made.connect(OUTBOX)
    made.position()
    return made


@pytest.fixture
def table(database: Database) -> Database:
    database.execute("CREATE TABLE numbers (number bigint, text text)")
    return database


@contextmanager
def cut(made: Destination, database: Database, *, after_commit: bool) -> Iterator[None]:
    """Within the block the connection is lost around the next commit."""
    connection, progress = made.connection, made.progress
    assert connection is not None and progress is not None
    owner: Any = progress if after_commit else made.statements
    name = "committed" if after_commit else "write"
    real: Callable[..., None] = getattr(owner, name)

    def lose(*given: Any, **options: Any) -> None:
        if not after_commit:
            real(*given, **options)
        database.execute("SELECT pg_terminate_backend(%s)", connection.info.backend_pid)
        connection.execute("SELECT 1")

    setattr(owner, name, lose)
    yield
    setattr(owner, name, real)


def numbers(database: Database) -> list[tuple[Any, ...]]:
    return database.rows("SELECT number, text FROM numbers ORDER BY number, text")


@pytest.mark.parametrize("begun", [False, True])
def test_rows_of_another_process_are_not_taken_for_those_of_this_one(
    table: Database, begun: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = connected(table)
    with monkeypatch.context() as another_process:
        another_process.setattr(destination, "RUN", "another")
        other = connected(table)
    first = 0
    if begun:
        late.write([(0, "both")], 0, 0)
        assert other.position() == 0
        first = 1
    with cut(late, table, after_commit=False), pytest.raises(ConnectionError):
        late.write([(first, "late"), (first + 1, "late")], first, first + 1)
    other.write([(first, "other"), (first + 1, "other")], first, first + 1)
    late.connect(OUTBOX)
    with pytest.raises(PostgresError, match="another process delivers the same outbox") as raised:
        late.position()
    assert "\n" not in str(raised.value)
    rows = [(first, "other"), (first + 1, "other")]
    assert numbers(table) == ([(0, "both"), *rows] if begun else rows)
    late.close()
    other.close()


def test_a_commit_whose_answer_was_lost_is_found(table: Database) -> None:
    made = connected(table)
    with cut(made, table, after_commit=True), pytest.raises(ConnectionError):
        made.write([(0, "a"), (1, "b")], 0, 1)
    made.connect(OUTBOX)
    assert made.position() == 1
    made.write([(2, "c")], 2, 2)
    # It is not asked for again.
    made.connect(OUTBOX)
    assert made.position() == 2
    assert numbers(table) == [(0, "a"), (1, "b"), (2, "c")]
    made.close()


def test_a_transaction_that_was_lost_is_written_again(table: Database) -> None:
    made = connected(table)
    with cut(made, table, after_commit=False), pytest.raises(ConnectionError):
        made.write([(0, "a")], 0, 0)
    made.connect(OUTBOX)
    assert made.position() is None
    made.write([(0, "a")], 0, 0)
    assert numbers(table) == [(0, "a")]
    made.close()


def test_a_server_that_does_not_know_the_transaction(table: Database) -> None:
    """One that was restored elsewhere has other numbers: its position is believed."""
    made = connected(table)
    with cut(made, table, after_commit=True), pytest.raises(ConnectionError):
        made.write([(0, "a")], 0, 0)
    assert made.progress is not None and made.progress.unanswered is not None
    unanswered = made.progress.unanswered
    made.progress.unanswered = type(unanswered)(unanswered.transaction + (1 << 40), unanswered.first)
    made.connect(OUTBOX)
    assert made.position() == 0
    made.close()
