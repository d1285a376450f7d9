"""Errors of SQLite after which another attempt would fail in the same way."""

from __future__ import annotations

from .._errors.flow import FlowError


class SqliteError(FlowError):
    """SQLite refuses what a sink asks for. The text names file, table and, if there is one, the row.

    Example:
        >>> import millstream as ms
        >>> issubclass(ms.sqlite.SqliteError, ms.FlowError)
        True
    """


SqliteError.__module__ = "millstream.sqlite"
