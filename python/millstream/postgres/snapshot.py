"""The rows that the tables of a publication have when a slot is created."""

from __future__ import annotations

from .change import Change
from .decode import RowDecoder
from .pgoutput import parse_row
from .publication import published_tables

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    import psycopg

    from .._adapter.undecoded import Undecoded
    from .publication import Published
    from .types import Types

__all__ = ["begin_snapshot", "snapshot_rows", "truncations"]


def begin_snapshot(connection: psycopg.Connection[Any], snapshot: str) -> None:
    """Begins a transaction that sees what an exported snapshot does."""
    from psycopg import sql

    connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
    connection.execute(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(sql.Literal(snapshot)))


def truncations(connection: psycopg.Connection[Any], publication: str, lsn: int) -> list[Change]:
    """A truncation of each table, after which a snapshot begins again."""
    found = []
    for table in published_tables(connection, publication):
        name = f"{table.relation.schema}.{table.relation.name}"
        found.append(Change("truncate", name, None, None, None, lsn, None, None))
    return found


def snapshot_rows(
    connection: psycopg.Connection[Any], publication: str, types: Types, lsn: int
) -> Iterator[tuple[Change | Undecoded, int]]:
    """Yields the rows of all tables in the transaction of ``begin_snapshot``, each with its size in bytes."""
    from psycopg import sql

    tables = published_tables(connection, publication)
    statements = [
        copy_statement(table).as_string(connection).encode(types.encoding.codec) for table in tables
    ]
    # The server checks and converts nothing then: a row that is wrong would end the statement.
    connection.execute(sql.SQL("SET LOCAL client_encoding TO {}").format(sql.Literal(types.encoding.name)))
    for table, statement in zip(tables, statements, strict=True):
        rows = RowDecoder(table.relation, types)
        with connection.cursor() as cursor, cursor.copy(statement) as copy:
            for line in copy:
                yield rows.snapshot(parse_row(bytes(line)), lsn), len(line)


def copy_statement(table: Published) -> Any:
    """The statement that reads the rows of a table."""
    from psycopg import sql

    relation = table.relation
    names = sql.SQL(", ").join(sql.Identifier(column.name) for column in relation.columns)
    # The condition is an expression of the server itself.
    where = sql.SQL(f" WHERE {table.condition}") if table.condition else sql.SQL("")
    return sql.SQL("COPY (SELECT {} FROM {}{}) TO STDOUT").format(
        names, sql.Identifier(relation.schema, relation.name), where
    )
