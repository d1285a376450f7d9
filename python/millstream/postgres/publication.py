"""Publications: the tables whose changes a slot has, and which of them a source reads."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby

from .errors import PostgresError
from .pgoutput import Relation, RelationColumn
from .table import split_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    import psycopg
    from psycopg import sql


@dataclass(frozen=True)
class Published:
    """A table of a publication.

    Args:
        relation: its columns, as a stream describes them. The number is that of the table.
        entry: the number of what has put it into the publication. A table that was removed and added again
            has another one, and so has one with another filter or in another publication.
        condition: the condition for its rows.
        is_partitioned: whether the rows are those of its partitions.
    """

    relation: Relation
    entry: int
    condition: str | None
    is_partitioned: bool

    @property
    def name(self) -> str:
        return f"{self.relation.schema}.{self.relation.name}"


PUBLICATION = """
SELECT puballtables, coalesce((to_jsonb(p) ->> 'pubviaroot')::bool, false)
FROM pg_publication p WHERE pubname = %s
"""
DESCENDANTS = """
WITH RECURSIVE found (oid, kind, place) AS (
    SELECT c.oid, c.relkind, named.place
    FROM unnest(%(schemas)s::text[], %(names)s::text[]) WITH ORDINALITY AS named (schema, name, place)
    JOIN pg_namespace n ON n.nspname = named.schema
    JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = named.name AND c.relkind IN ('r', 'p')
    UNION
    SELECT c.oid, c.relkind, found.place
    FROM found JOIN pg_inherits i ON i.inhparent = found.oid JOIN pg_class c ON c.oid = i.inhrelid
    WHERE NOT (%(by_root)s AND found.kind = 'p')
)
SELECT found.place - 1, n.nspname, c.relname, c.relreplident <> 'n' AND (c.relreplident <> 'd' OR EXISTS
    (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary))
FROM found JOIN pg_class c ON c.oid = found.oid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind = 'r' OR %(by_root)s ORDER BY 1, 2, 3
"""
"""By the place of a named table, the tables whose rows it has, and whether each has a replica identity."""
EXISTS = """
SELECT 1 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %s AND c.relname = %s AND c.relkind IN ('r', 'p')
"""
TABLES = """
SELECT p.schemaname, p.tablename, c.oid::int8, c.relreplident::text, c.relkind = 'p', coalesce(
    (SELECT max(r.oid::int8) FROM pg_publication_rel r WHERE r.prpubid = q.oid AND
        (r.prrelid = c.oid OR r.prrelid IN (SELECT relid FROM pg_partition_ancestors(c.oid)))),
    {schema_entry}, q.oid::int8), {condition}, a.attname, a.atttypid::int8,
    c.relreplident = 'f' OR EXISTS (
        SELECT FROM pg_index i WHERE i.indrelid = c.oid AND a.attnum = ANY (i.indkey)
        AND CASE c.relreplident WHEN 'd' THEN i.indisprimary WHEN 'i' THEN i.indisreplident ELSE false END)
FROM pg_publication_tables p JOIN pg_publication q USING (pubname)
JOIN pg_namespace n ON n.nspname = p.schemaname
JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = p.tablename
LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    AND a.attgenerated = '' AND {is_chosen}
WHERE p.pubname = %s ORDER BY 1, 2, a.attnum
"""


@dataclass(frozen=True)
class Selection:
    """What a source reads: the tables of a publication; of these, if it names tables, those with their rows.

    A table with children (inheritance) has their rows, which are published by the names of the children. A
    partitioned table has those of its partitions, which are published by its own name, unless a publication
    of the user's has ``publish_via_partition_root = false``.

    Args:
        server: the server, for messages.
        publication: the name of the publication.
        tables: the names of tables; None: all of the publication.
    """

    server: str
    publication: str
    tables: tuple[str, ...] | None

    def ensure(self, connection: psycopg.Connection[Any]) -> None:
        """Checks that the publication exists and has the tables; creates it where tables are named.

        Raises:
            PostgresError: it is missing, has other tables, or a table has no replica identity.
        """
        found = connection.execute(PUBLICATION, (self.publication,)).fetchone()
        if self.tables is None:
            if found is None:
                raise PostgresError(
                    f'{self.server}: there is no publication "{self.publication}"; create it, or name the '
                    "tables with tables=[...]"
                )
        elif found is None:
            self.create(connection)
        else:
            self.check(connection, *found)

    def check(self, connection: psycopg.Connection[Any], has_all: bool, by_root: bool) -> None:
        """Checks that the publication has the named tables and no others."""
        wanted = self.existing(connection, by_root)
        names = {name for tables in wanted.values() for name in tables}
        there = {table.name for table in self.all_published(connection)}
        if there == names:
            return
        problem = (
            f'{self.server}: publication "{self.publication}" has the tables '
            f"{', '.join(sorted(there)) or '(none)'}, and not {', '.join(sorted(names))}"
        )
        another = "name another one with publication=, which is created"
        if has_all:
            raise PostgresError(f"{problem}, since it is of all tables; {another}, or leave tables= out")
        statements = []
        missing = [
            table
            for named, tables in wanted.items()
            for table in ([named] if not there.intersection(tables) else sorted(set(tables) - there))
        ]
        for verb, tables in (("ADD", missing), ("DROP", sorted(there - names))):
            if tables:
                listed = ", ".join(identifier(table).as_string(connection) for table in tables)
                quoted = identifier(self.publication, is_table=False).as_string(connection)
                statements.append(f"ALTER PUBLICATION {quoted} {verb} TABLE {listed}")
        raise PostgresError(f"{problem}. Change it with {'; '.join(statements)}; or {another}")

    def create(self, connection: psycopg.Connection[Any]) -> None:
        from psycopg import sql

        by_root = connection.info.server_version >= 130000
        wanted = self.existing(connection, by_root)
        for tables in wanted.values():
            for table, has_identity in tables.items():
                if not has_identity:
                    # The publication would make the server refuse updates and deletes of the application.
                    raise PostgresError(
                        f'{self.server}: table "{table}" has no primary key: the server refuses updates and '
                        "deletes of a published table without a replica identity. Add a key, or ALTER TABLE "
                        f"{identifier(table).as_string(connection)} REPLICA IDENTITY FULL"
                    )
        statement = sql.SQL("CREATE PUBLICATION {} FOR TABLE {}{}")
        option = " WITH (publish_via_partition_root = true)" if by_root else ""
        connection.execute(
            statement.format(
                identifier(self.publication, is_table=False),
                sql.SQL(", ").join(map(identifier, wanted)),
                sql.SQL(option),
            )
        )

    def descendants(self, connection: psycopg.Connection[Any], by_root: bool) -> dict[str, dict[str, bool]]:
        """By the name of a named table, the tables with its rows, and whether each has a replica identity."""
        split = [(schema or "public", table) for schema, table in map(split_name, self.tables or ())]
        wanted: dict[str, dict[str, bool]] = {".".join(names): {} for names in split}
        named = list(dict.fromkeys(split))
        given = {
            "schemas": [schema for schema, _ in named],
            "names": [table for _, table in named],
            "by_root": by_root,
        }
        for place, schema, table, has_identity in connection.execute(DESCENDANTS, given).fetchall():
            wanted[".".join(named[place])][f"{schema}.{table}"] = has_identity
        return wanted

    def existing(self, connection: psycopg.Connection[Any], by_root: bool) -> dict[str, dict[str, bool]]:
        """The same.

        Raises:
            PostgresError: a table does not exist.
        """
        wanted = self.descendants(connection, by_root)
        for table in wanted:
            schema, name = table.split(".", 1)
            if connection.execute(EXISTS, (schema, name)).fetchone() is None:
                raise PostgresError(f'{self.server}: there is no table "{table}"')
        return wanted

    def published(self, connection: psycopg.Connection[Any]) -> list[Published]:
        """The tables that the source reads, as the transaction of the connection sees them."""
        found = self.all_published(connection)
        if self.tables is None:
            return found
        publication = connection.execute(PUBLICATION, (self.publication,)).fetchone()
        wanted = self.descendants(connection, publication is not None and publication[1])
        names = {name for tables in wanted.values() for name in tables}
        return [table for table in found if table.name in names]

    def all_published(self, connection: psycopg.Connection[Any]) -> list[Published]:
        """All tables of the publication."""
        has_filters = connection.info.server_version >= 150000
        query = TABLES.format(
            schema_entry="(SELECT max(s.oid::int8) FROM pg_publication_namespace s "
            "WHERE s.pnpubid = q.oid AND s.pnnspid = n.oid)"
            if has_filters
            else "NULL",
            condition="p.rowfilter" if has_filters else "NULL",
            is_chosen="(p.attnames IS NULL OR a.attname = ANY (p.attnames))" if has_filters else "true",
        )
        rows = connection.execute(query.encode(), (self.publication,)).fetchall()
        found = []
        for head, columns in groupby(rows, lambda row: row[:7]):
            schema, table, number, identity, is_partitioned, entry, condition = head
            described = tuple(
                RelationColumn(is_key, name, type_) for *_, name, type_, is_key in columns if name is not None
            )
            relation = Relation(number, schema, table, identity, described)
            found.append(Published(relation, entry, condition, is_partitioned))
        return found


def identifier(name: str, *, is_table: bool = True) -> sql.Identifier:
    """A name as SQL: that of a table has its schema before a dot."""
    from psycopg import sql

    return sql.Identifier(*name.split(".", 1)) if is_table else sql.Identifier(name)
