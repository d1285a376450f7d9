"""A table of SQLite as the destination of a flow. It needs nothing but Python.

Example:
    >>> import millstream as ms
    >>> ms.sqlite.write("shop.db", "orders", key="id")
    <sink sqlite table orders>
"""

from .errors import SqliteError
from .sink import write

__all__ = ["SqliteError", "write"]
