"""The rows that tables have when a slot is created.

A change ``"truncate"`` of each table comes before its rows, so that they replace what the flow has of it:
from a snapshot that was not read to its end, or from before its state was dropped.
"""

from __future__ import annotations

from .change import Change
from .decode import RowDecoder
from .pgoutput import parse_row

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    import psycopg

    from .._connectors.adapter.undecoded import Undecoded
    from .publication import Published
    from .types import Types


def begin_snapshot(connection: psycopg.Connection[Any], snapshot: str) -> None:
    """Begins a transaction that sees what an exported snapshot does."""
    from psycopg import sql

    connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
    connection.execute(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(sql.Literal(snapshot)))


def snapshot_changes(
    connection: psycopg.Connection[Any], tables: Sequence[Published], types: Types, lsn: int
) -> Iterator[tuple[Change | Undecoded, int]]:
    """Yields a truncation of each table and its rows, each with its size in bytes, in the transaction of
    ``begin_snapshot``."""
    from psycopg import sql

    statements = [
        copy_statement(table).as_string(connection).encode(types.encoding.codec) for table in tables
    ]
    # The server checks and converts nothing then: a row that is wrong would end the statement.
    connection.execute(sql.SQL("SET LOCAL client_encoding TO {}").format(sql.Literal(types.encoding.name)))
    for table, statement in zip(tables, statements, strict=True):
        rows = RowDecoder(table.relation, types)
        yield Change("truncate", table.name, None, None, None, lsn, None, None), 0
        with connection.cursor() as cursor, cursor.copy(statement) as copy:
            for line in copy:
                yield rows.snapshot(parse_row(bytes(line)), lsn), len(line)


def copy_statement(table: Published) -> Any:
    """The statement that reads the rows which a stream has by the name of a table."""
    from psycopg import sql

    relation = table.relation
    names = sql.SQL(", ").join(sql.Identifier(column.name) for column in relation.columns)
    # Children of a table have names of their own in a stream, partitions do not. The condition is an
    # expression of the server itself.
    where = sql.SQL(f" WHERE {table.condition}") if table.condition else sql.SQL("")
    return sql.SQL("COPY (SELECT {} FROM {}{}{}) TO STDOUT").format(
        names,
        sql.SQL("" if table.is_partitioned else "ONLY "),
        sql.Identifier(relation.schema, relation.name),
        where,
    )
