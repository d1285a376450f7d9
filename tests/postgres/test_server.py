"""The server of the tests: it refuses a wrong password, and keeps what was committed when it is killed."""

import psycopg
import pytest
from postgres_server import Database, Server


def test_it_asks_for_the_password(server: Server) -> None:
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(server.dsn("postgres", password="wrong"))


def test_it_writes_a_logical_log(database: Database) -> None:
    assert database.rows("SHOW wal_level") == [("logical",)]


def test_a_kill_keeps_what_was_committed(mortal: Server) -> None:
    database = mortal.create_database()
    database.execute("CREATE TABLE kept AS SELECT 7 AS number")
    for _ in range(2):
        mortal.kill()
        mortal.start()
    assert database.rows("SELECT number FROM kept") == [(7,)]
