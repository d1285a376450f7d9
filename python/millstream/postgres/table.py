"""Tables as the catalog describes them."""

from __future__ import annotations

from dataclasses import dataclass

from .errors import PostgresError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    import psycopg
    from psycopg import sql


JSON_TYPES = ("json", "jsonb")


@dataclass(frozen=True)
class Column:
    """A column: its name, its type as text, and whether the server computes its values."""

    name: str
    type: str
    generated: bool

    @property
    def is_json(self) -> bool:
        return self.type in JSON_TYPES


@dataclass(frozen=True)
class Table:
    """A table that exists on a server."""

    server: str
    schema: str
    name: str
    columns: tuple[Column, ...]

    @property
    def identifier(self) -> sql.Identifier:
        from psycopg import sql

        return sql.Identifier(self.schema, self.name)

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}"

    def chosen(self, names: tuple[str, ...] | None) -> tuple[Column, ...]:
        """The columns with these names; without names, all that the server does not compute.

        Raises:
            PostgresError: a column is missing or computed.
        """
        if names is None:
            return tuple(column for column in self.columns if not column.generated)
        known = {column.name: column for column in self.columns}
        missing = [name for name in names if name not in known]
        if missing:
            there = ", ".join(known)
            raise PostgresError(f'{self.server}: table "{self}" has no column "{missing[0]}"; it has {there}')
        generated = [name for name in names if known[name].generated]
        if generated:
            raise PostgresError(f'{self.server} computes column "{generated[0]}" of table "{self}"')
        return tuple(known[name] for name in names)


def split_name(table: str) -> tuple[str | None, str]:
    """The schema, if there is one, and the table in a name such as ``shop.orders``.

    >>> split_name("shop.orders"), split_name("orders")
    (('shop', 'orders'), (None, 'orders'))
    """
    schema, dot, name = table.partition(".")
    return (schema, name) if dot else (None, table)


FIND = """
SELECT c.oid, n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relname = %(name)s AND c.relkind IN ('r', 'p', 'v', 'f')
AND (n.nspname = %(schema)s OR %(schema)s::text IS NULL AND n.nspname = ANY (current_schemas(true)))
ORDER BY array_position(current_schemas(true), n.nspname) LIMIT 1
"""
COLUMNS = """
SELECT attname, format_type(atttypid, NULL), attgenerated <> '' OR attidentity = 'a'
FROM pg_attribute WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped ORDER BY attnum
"""


def find_table(connection: psycopg.Connection[Any], table: str, server: str) -> Table:
    """Looks a table up.

    Raises:
        PostgresError: it does not exist.
    """
    schema, name = split_name(table)
    found = connection.execute(FIND, {"schema": schema, "name": name}).fetchone()
    if found is None:
        raise PostgresError(f'{server}: there is no table "{table}"')
    columns = connection.execute(COLUMNS, (found[0],)).fetchall()
    return Table(server, found[1], found[2], tuple(Column(*column) for column in columns))
