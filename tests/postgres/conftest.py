"""Fixtures: a PostgreSQL server for the session, databases, a server to kill, a link to cut."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from postgres_server import Database, Server
from tcp_link import Link


@pytest.fixture(scope="session")
def server(postgres: Server) -> Server:
    """A server that no test kills."""
    return postgres


@pytest.fixture
def database(server: Server) -> Iterator[Database]:
    """A database of this test."""
    database = server.create_database()
    yield database
    database.drop()


@pytest.fixture
def mortal() -> Iterator[Server]:
    """A server of this test alone, which may kill it."""
    server = Server()
    try:
        server.start()
        yield server
    finally:
        server.remove()


@pytest.fixture
def link(server: Server) -> Iterator[Link]:
    """A TCP proxy to the server, which the test may cut or stall."""
    with Link(server.port) as link:
        yield link
