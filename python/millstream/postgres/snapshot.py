"""The rows that the tables of a publication have when a slot is created."""

from __future__ import annotations

from .change import Change
from .decode import RowDecoder, Types
from .pgoutput import parse_row
from .publication import published_tables

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    import psycopg

    from .publication import Published

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
) -> Iterator[tuple[Change, int]]:
    """Yields the rows of all tables in the transaction of ``begin_snapshot``, each with its size in bytes."""
    for table in published_tables(connection, publication):
        rows = RowDecoder(table.relation, types)
        name = rows.table
        with connection.cursor() as cursor, cursor.copy(copy_statement(table)) as copy:
            for line in copy:
                new = rows.row(parse_row(bytes(line)))
                yield Change("snapshot", name, rows.key(new), None, new, lsn, None, None), len(line)


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
