"""Object stores as a destination and a source of flows: S3, others that obstore knows, and local directories.

It needs ``pip install 'millstream[s3]'``, for Parquet ``'millstream[s3,parquet]'``, and for tables of Apache
Iceberg ``'millstream[iceberg]'``.

Example:
    >>> import millstream as ms
    >>> ms.objects.write("s3://bucket/orders", "json_lines")
    <sink objects s3://bucket/orders>
"""

from .errors import ObjectError
from .iceberg import iceberg
from .sink import write
from .source import read

__all__ = ["ObjectError", "iceberg", "read", "write"]
