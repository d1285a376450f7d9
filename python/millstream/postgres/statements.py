"""The statements that write rows: COPY into the table, or into a temporary one that is merged by key."""

from __future__ import annotations

from .._values.rows import EMPTY, BadRow

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    import psycopg
    from psycopg import sql

    from .._values.rows import Row
    from .table import Column, Table


ROWS = "millstream_rows"
NUMBER = "millstream_number"
UNCHANGED = "millstream_unchanged"
DELETES = "millstream_deletes"

MERGE = """
INSERT INTO {target} ({names}) SELECT {names} FROM {latest} {kept} ON CONFLICT ({key}) DO {update}
"""
LATEST = "(SELECT DISTINCT ON ({key}) * FROM {rows} ORDER BY {key}, {number} DESC) latest"
"""The last row of each key. The database compares the keys, which Python may do in another way."""
PARTS = """
(SELECT *, count(*) FILTER (WHERE NOT coalesce({place} = ANY ({unchanged}), false))
    OVER (PARTITION BY {key} ORDER BY {number}) AS millstream_part FROM {rows}) part
"""
"""The rows of each key in parts: one that has a value of a column, and those after it that leave it as it is.
Part 0 is without a value: that of the table stays."""
FILL = """
UPDATE {rows} written SET {column} = filled.value FROM (
    SELECT {number} AS number, CASE WHEN millstream_part = 0
        THEN (SELECT t.{column} FROM {target} t WHERE {same})
        ELSE first_value({column}) OVER (PARTITION BY {key}, millstream_part ORDER BY {number}) END AS value
    FROM {parts}) filled
WHERE filled.number = written.{number} AND {place} = ANY (written.{unchanged})
"""
WITHOUT = """
SELECT 1 FROM (
    SELECT {unchanged} AS unchanged, CASE WHEN millstream_part = 0
        THEN NOT EXISTS (SELECT FROM {target} t WHERE {same})
        ELSE first_value({deletes}) OVER (PARTITION BY {key}, millstream_part ORDER BY {number}) END AS wrong
    FROM {parts}) found
WHERE wrong AND {place} = ANY (unchanged) LIMIT 1
"""
"""Finds a row that leaves a column as it is, and has no row before it."""


class Statements:
    """Writes rows into a table.

    Args:
        table: the table.
        columns: the columns of a row.
        key: the names of the key columns; empty: rows are added.
        deletes: whether the last value of a row says that the row of its key is deleted.
    """

    def __init__(self, table: Table, columns: Sequence[Column], key: Sequence[str], deletes: bool) -> None:
        from psycopg import sql

        self.deletes = deletes
        self.merges = bool(key)
        self.names = names = [column.name for column in columns]
        self.json = [place for place, column in enumerate(columns) if column.is_json]
        self.target = table.identifier
        self.columns: sql.Composed = _names(names)
        self.truncate = sql.SQL("TRUNCATE {}").format(self.target)
        if not key:
            self.copy = sql.SQL("COPY {} ({}) FROM STDIN").format(self.target, self.columns)
            return
        more = [UNCHANGED, DELETES] if deletes else [UNCHANGED]
        self.rows = rows = sql.Identifier("pg_temp", ROWS)
        self.copy = sql.SQL("COPY {} ({}) FROM STDIN").format(rows, _names([*names, *more]))
        self.parts = {"key": _names(key), "rows": rows, "number": sql.Identifier(NUMBER)}
        latest = sql.SQL(LATEST).format(**self.parts)
        others = [name for name in names if name not in key]
        update = sql.SQL("UPDATE SET {}").format(sql.SQL(", ").join(map(_assigned, others)))
        self.upsert = sql.SQL(MERGE).format(
            target=self.target,
            names=self.columns,
            latest=latest,
            kept=sql.SQL("WHERE NOT {}").format(sql.Identifier(DELETES)) if deletes else sql.SQL(""),
            key=_names(key),
            update=update if others else sql.SQL("NOTHING"),
        )
        self.delete = sql.SQL("DELETE FROM {} t USING {} WHERE latest.{} AND {}").format(
            self.target, latest, sql.Identifier(DELETES), _same(key, "latest")
        )
        self.same = _same(key, "part")
        self.empty = sql.SQL("DELETE FROM {}").format(rows)

    def prepare(self, connection: psycopg.Connection[Any]) -> None:
        """Creates the temporary table, and has the server check the statements."""
        from psycopg import sql

        if not self.merges:
            return
        connection.execute(
            sql.SQL("CREATE TEMPORARY TABLE {} ON COMMIT DELETE ROWS AS SELECT {} FROM {} LIMIT 0").format(
                sql.Identifier(ROWS), self.columns, self.target
            )
        )
        more = {NUMBER: sql.SQL("bigint GENERATED ALWAYS AS IDENTITY"), UNCHANGED: sql.SQL("int[]")}
        if self.deletes:
            more[DELETES] = sql.SQL("boolean")
        for name, type_ in more.items():
            add = sql.SQL("ALTER TABLE pg_temp.{} ADD COLUMN {} {}")
            connection.execute(add.format(sql.Identifier(ROWS), sql.Identifier(name), type_))
        connection.execute(sql.SQL("EXPLAIN ") + self.upsert)

    def write(self, connection: psycopg.Connection[Any], rows: list[Row], again: bool = False) -> None:
        """Writes rows, in a transaction of the caller; ``again``: it may have written others before, and
        deferred constraints are checked at the call of ``check``."""
        with connection.cursor() as cursor:
            if again:
                cursor.execute("SET CONSTRAINTS ALL DEFERRED")
            if EMPTY in rows:
                cursor.execute(self.truncate)
                rows = rows[len(rows) - rows[::-1].index(EMPTY) :]
            if self.merges and again:
                cursor.execute(self.empty)
            with cursor.copy(self.copy) as copy:
                for row in rows:
                    assert row is not None
                    for place in self.json:
                        row[place] = _document(row[place])
                    try:
                        copy.write_row(row)
                    except (TypeError, ValueError, OverflowError) as error:
                        # A value that cannot be converted: JSON of an object, text that is not Unicode.
                        raise BadRow(f"{type(error).__name__}: {error}") from error
            if not self.merges:
                return
            width = len(self.names)
            for place in sorted({place for row in rows if row and row[width] for place in row[width]}):
                self.fill(cursor, place)
            if self.deletes:
                cursor.execute(self.delete)
            cursor.execute(self.upsert)

    def fill(self, cursor: psycopg.Cursor[Any], place: int) -> None:
        """Fills column ``place``, from 1, of the rows that leave it as it is: from the row before of the same
        key, or from the table."""
        from psycopg import sql

        name = self.names[place - 1]
        known = self.parts | {
            "target": self.target,
            "same": self.same,
            "place": sql.Literal(place),
            "column": sql.Identifier(name),
            "unchanged": sql.Identifier(UNCHANGED),
            "deletes": sql.Identifier(DELETES) if self.deletes else sql.SQL("false"),
        }
        known["parts"] = sql.SQL(PARTS).format(**known)
        if cursor.execute(sql.SQL(WITHOUT).format(**known)).fetchone():
            raise BadRow(f'column "{name}" is UNCHANGED, and the table has no row with this key')
        cursor.execute(sql.SQL(FILL).format(**known))

    def check(self, connection: psycopg.Connection[Any]) -> None:
        """Checks deferred constraints, which fail at the end of the transaction otherwise."""
        connection.execute("SET CONSTRAINTS ALL IMMEDIATE")


def _document(value: Any) -> Any:
    """A value of a JSON column: text is a JSON document already."""
    if value is None or isinstance(value, (str, bytes)):
        return value
    from psycopg.types.json import Jsonb

    return Jsonb(value)


def _names(names: Sequence[str]) -> sql.Composed:
    from psycopg import sql

    return sql.SQL(", ").join(map(sql.Identifier, names))


def _assigned(name: str) -> sql.Composed:
    from psycopg import sql

    return sql.SQL("{0} = EXCLUDED.{0}").format(sql.Identifier(name))


def _same(key: Sequence[str], other: str) -> sql.Composed:
    """Whether a row ``t`` of the table has the key of a row of ``other``."""
    from psycopg import sql

    equal = sql.SQL("t.{0} = {1}.{0}")
    return sql.SQL(" AND ").join(equal.format(sql.Identifier(name), sql.Identifier(other)) for name in key)
