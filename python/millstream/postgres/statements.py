"""The statements that write rows: COPY into the table, or into a temporary one that is merged by key."""

from __future__ import annotations

from .rows import BadRow

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    import psycopg
    from psycopg import sql

    from .table import Table

__all__ = ["Statements"]

ROWS, NUMBER, DELETES = "millstream_rows", "millstream_number", "millstream_deletes"


class Statements:
    """Writes rows into a table.

    Args:
        table: the table.
        columns: the names of the columns of a row.
        key: the names of the key columns; empty: rows are added.
        deletes: whether the last value of a row says that the row of its key is deleted.
    """

    def __init__(self, table: Table, columns: Sequence[str], key: Sequence[str], deletes: bool) -> None:
        from psycopg import sql

        self.copy: sql.Composed
        self.deletes = deletes
        self.merges = bool(key)
        names: sql.Composed = _names(columns)
        self.target = table.identifier
        self.columns = names
        if not key:
            self.copy = sql.SQL("COPY {} ({}) FROM STDIN").format(self.target, names)
            return
        more = [DELETES] if deletes else []
        rows = sql.Identifier("pg_temp", ROWS)
        self.copy = sql.SQL("COPY {} ({}) FROM STDIN").format(rows, _names([*columns, *more]))
        # The last row of each key. The database compares the keys, which Python may do in another way.
        latest = sql.SQL(
            "(SELECT DISTINCT ON ({key}) * FROM {rows} ORDER BY {key}, {number} DESC) latest"
        ).format(key=_names(key), rows=rows, number=sql.Identifier(NUMBER))
        others = [name for name in columns if name not in key]
        update = sql.SQL("UPDATE SET {}").format(sql.SQL(", ").join(map(_assigned, others)))
        self.upsert = sql.SQL(
            "INSERT INTO {target} ({names}) SELECT {names} FROM {latest}{kept} "
            "ON CONFLICT ({key}) DO {update}"
        ).format(
            target=self.target,
            names=names,
            latest=latest,
            kept=sql.SQL(" WHERE NOT {}").format(sql.Identifier(DELETES)) if deletes else sql.SQL(""),
            key=_names(key),
            update=update if others else sql.SQL("NOTHING"),
        )
        same = sql.SQL(" AND ").join(
            sql.SQL("t.{0} = latest.{0}").format(sql.Identifier(name)) for name in key
        )
        self.delete = sql.SQL("DELETE FROM {} t USING {} WHERE latest.{} AND {}").format(
            self.target, latest, sql.Identifier(DELETES), same
        )
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
        add = sql.SQL("ALTER TABLE pg_temp.{} ADD COLUMN {} {}")
        rows = sql.Identifier(ROWS)
        connection.execute(
            add.format(rows, sql.Identifier(NUMBER), sql.SQL("bigint GENERATED ALWAYS AS IDENTITY"))
        )
        if self.deletes:
            connection.execute(add.format(rows, sql.Identifier(DELETES), sql.SQL("boolean")))
        connection.execute(sql.SQL("EXPLAIN ") + self.upsert)

    def write(self, connection: psycopg.Connection[Any], rows: list[list[Any]], again: bool = False) -> None:
        """Writes rows, in a transaction of the caller; ``again``: it may have written others before."""
        with connection.cursor() as cursor:
            if self.merges and again:
                cursor.execute(self.empty)
            with cursor.copy(self.copy) as copy:
                for row in rows:
                    try:
                        copy.write_row(row)
                    except (TypeError, ValueError, OverflowError) as error:
                        # A value that cannot be converted: JSON of an object, text that is not Unicode.
                        raise BadRow(f"{type(error).__name__}: {error}") from error
            if not self.merges:
                return
            if self.deletes:
                cursor.execute(self.delete)
            cursor.execute(self.upsert)


def _names(names: Sequence[str]) -> sql.Composed:
    from psycopg import sql

    return sql.SQL(", ").join(map(sql.Identifier, names))


def _assigned(name: str) -> sql.Composed:
    from psycopg import sql

    return sql.SQL("{0} = EXCLUDED.{0}").format(sql.Identifier(name))
