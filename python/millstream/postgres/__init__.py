"""PostgreSQL as a destination and a source of flows. It needs ``pip install 'millstream[postgres]'``.

Example:
    >>> import millstream as ms
    >>> ms.postgres.write("host=localhost dbname=shop", "orders", key="id")
    <sink postgres table orders>
"""

from .._values.rows import UNCHANGED
from .change import Change
from .errors import PostgresError
from .sink import write
from .source import changes

__all__ = ["UNCHANGED", "Change", "PostgresError", "changes", "write"]
