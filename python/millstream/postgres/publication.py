"""Publications: the tables whose changes a slot has."""

from __future__ import annotations

from dataclasses import dataclass

from .errors import PostgresError
from .pgoutput import Relation, RelationColumn
from .table import split_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    import psycopg

__all__ = ["Published", "ensure_publication", "published_tables"]


@dataclass(frozen=True)
class Published:
    """A table of a publication: its columns as a stream describes them, and the condition for its rows."""

    relation: Relation
    condition: str | None


EXISTS = "SELECT 1 FROM pg_publication WHERE pubname = %s"
TABLES = "SELECT schemaname, tablename FROM pg_publication_tables WHERE pubname = %s ORDER BY 1, 2"
IDENTITY = """
SELECT c.relreplident <> 'n' AND (c.relreplident <> 'd' OR EXISTS
    (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary))
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %s AND c.relname = %s AND c.relkind IN ('r', 'p')
"""


def ensure_publication(
    connection: psycopg.Connection[Any], server: str, name: str, tables: Sequence[str] | None
) -> None:
    """Checks that a publication exists and has the tables; creates it where tables are given.

    Raises:
        PostgresError: it is missing, has other tables, or a table has no replica identity.
    """
    exists = connection.execute(EXISTS, (name,)).fetchone() is not None
    if tables is None:
        if not exists:
            raise PostgresError(
                f'{server}: there is no publication "{name}"; create it, or name the tables with tables=[...]'
            )
        return
    wanted = sorted(f"{schema or 'public'}.{table}" for schema, table in map(split_name, tables))
    if exists:
        found = [".".join(row) for row in connection.execute(TABLES, (name,)).fetchall()]
        if found != wanted:
            raise PostgresError(
                f'{server}: publication "{name}" has the tables {", ".join(found) or "(none)"}, and not '
                f'{", ".join(wanted)}; change it with ALTER PUBLICATION "{name}" SET TABLE ..., or name '
                "another one with publication="
            )
        return
    create(connection, server, name, wanted)


def create(connection: psycopg.Connection[Any], server: str, name: str, tables: list[str]) -> None:
    from psycopg import sql

    identifiers = []
    for table in tables:
        schema, _, relation = table.partition(".")
        found = connection.execute(IDENTITY, (schema, relation)).fetchone()
        if found is None:
            raise PostgresError(f'{server}: there is no table "{table}"')
        if not found[0]:
            # The publication would make the server refuse updates and deletes of the application.
            raise PostgresError(
                f'{server}: table "{table}" has no primary key: the server refuses updates and deletes of a '
                f"published table without a replica identity. Add a key, or ALTER TABLE {table} REPLICA "
                "IDENTITY FULL"
            )
        identifiers.append(sql.Identifier(schema, relation))
    statement = sql.SQL("CREATE PUBLICATION {} FOR TABLE {}")
    connection.execute(statement.format(sql.Identifier(name), sql.SQL(", ").join(identifiers)))


COLUMNS = """
SELECT a.attname, a.atttypid::int8, c.relreplident::text, c.relreplident = 'f' OR EXISTS (
    SELECT FROM pg_index i WHERE i.indrelid = c.oid AND a.attnum = ANY (i.indkey)
    AND CASE c.relreplident WHEN 'd' THEN i.indisprimary WHEN 'i' THEN i.indisreplident ELSE false END)
FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %s AND c.relname = %s AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
ORDER BY a.attnum
"""


def published_tables(connection: psycopg.Connection[Any], name: str) -> list[Published]:
    """The tables of a publication, as its transaction sees them."""
    more = ", attnames, rowfilter" if connection.info.server_version >= 150000 else ", NULL, NULL"
    query = f"SELECT schemaname, tablename{more} FROM pg_publication_tables WHERE pubname = %s ORDER BY 1, 2"
    found = []
    for schema, table, names, condition in connection.execute(query.encode(), (name,)).fetchall():
        described = connection.execute(COLUMNS, (schema, table)).fetchall()
        identity = described[0][2] if described else "d"
        columns = tuple(
            RelationColumn(is_key, column, type_)
            for column, type_, _, is_key in described
            if names is None or column in names
        )
        found.append(Published(Relation(0, schema, table, identity, columns), condition))
    return found
