"""Object stores as a destination and a source of flows: S3, others that obstore knows, and local directories.

It needs ``pip install 'millstream[s3]'``, and for Parquet ``'millstream[s3,parquet]'``.

Example:
    >>> import millstream as ms
    >>> ms.objects.write("s3://bucket/orders", "json_lines")
    <sink objects s3://bucket/orders>
"""

from .errors import ObjectError
from .sink import write
from .source import read

__all__ = ["ObjectError", "read", "write"]
