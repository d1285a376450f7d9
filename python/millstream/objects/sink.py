"""``ms.objects.write``: the objects of a store as the destination of a stream."""

from __future__ import annotations

import os
from typing import Any

from .._connectors.outbox import OutboxSink, destination, with_outbox
from .._errors.flow import FlowUsageError
from .._values.durations import seconds
from .partitions import PartitionBy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Literal, TypeAlias

    from typing_extensions import Unpack

    from .._connectors.outbox import OutboxOptions
    from .._values.durations import Seconds
    from .formats import Format

FormatName: TypeAlias = 'Literal["parquet", "json_lines", "lines"]'


@with_outbox(batch=100_000, batch_bytes="16MiB", batch_age=10.0)
def write(
    to: str | os.PathLike[str] | Any,
    format: FormatName,
    *,
    prefix: str = "",
    config: Mapping[str, Any] | None = None,
    schema: Any = None,
    compression: str | None = "auto",
    timeout: Seconds = 30.0,
    partition_by: PartitionBy | None = None,
    max_partitions: int = 1000,
    **outbox: Unpack[OutboxOptions],
) -> OutboxSink[Any]:
    """Writes items into objects of a store, each once in a run with a state directory.

    An object has the items of one delivery. Its name is ``PREFIX/OUTBOX/FIRST.parquet`` (``.jsonl``,
    ``.txt``, and ``.gz`` or ``.zst`` after these if it is compressed): the identity of the outbox and the
    number of the object's first item, in 20 digits. An object is never changed. It ends at ``batch`` items,
    ``batch_bytes`` or ``batch_age``, whatever is first; with ``batch_age=None`` each commit ends one.

    With ``partition_by`` a delivery has one object in each partition of its rows, as Hive names them:
    ``PREFIX/dt=2026-11-28/country=DE/OUTBOX-FIRST.parquet``. A marker of each delivery, which tells the
    position, is in ``PREFIX/_millstream``.

    Args:
        to: a URL such as ``"s3://bucket/orders"``, the path of a directory, which is created, or a store of
            ``obstore``.
        format: ``"parquet"``: items are mappings from columns to values. ``"json_lines"``: what
            ``json.dumps`` takes. ``"lines"``: text without line ends.
        prefix: the prefix of the names in a store that is given as an object.
        config: the configuration of the store of a URL, with the names of ``obstore``: ``endpoint``,
            ``region``, ``access_key_id``, ``secret_access_key`` and others. What it leaves open comes from
            the environment (``AWS_REGION``, ...) or the machine.
        schema: the ``pyarrow.Schema`` of Parquet. None: the columns and types of each object are those of
            its rows.
        compression: of lines: ``"gzip"``, ``"zstd"`` or None; ``"auto"`` is None. Of Parquet the codec:
            ``"zstd"``, ``"snappy"``, ``"gzip"``, ``"brotli"``, ``"lz4"`` or None; ``"auto"`` is zstd.
        timeout: the limit for a request to the store of a URL, in seconds.
        partition_by: of Parquet: the name of a column, or several, or a dict from the name of each partition
            to a column or to a function of the row, for instance ``{"dt": lambda row: row["time"].date()}``.
            A value is text, a whole number, a bool, a date, a datetime or None. Objects do not have the
            columns.
        max_partitions: the largest number of partitions in one delivery; more fail the flow.

    Returns:
        The sink.

    Raises:
        FlowUsageError: an option has a wrong value.
        ObjectError: obstore or pyarrow is missing.

    Example:
        >>> import millstream as ms
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> flow = ms.Flow("orders")
        >>> with TemporaryDirectory() as folder:
        ...     out = ms.objects.write(f"{folder}/orders", "json_lines")
        ...     flow.source("in", ms.testing.items([{"id": 1}, {"id": 2}])).sink("out", out)
        ...     _ = ms.run(flow, state=f"{folder}/state")
        ...     [(path.name, path.read_text()) for path in Path(folder).glob("orders/*/*")]
        [('00000000000000000000.jsonl', '{"id":1}\\n{"id":2}\\n')]
    """
    from .destination import Destination, WriteOptions
    from .partitioned import PartitionedDestination
    from .partitions import Partitions

    name = check_place(to, prefix, config)
    partitions = None
    if partition_by is not None:
        if format != "parquet":
            raise FlowUsageError(f'partition_by is for "parquet", and not for {format!r}')
        partitions = Partitions(partition_by, max_partitions)
    without = partitions.columns if partitions is not None else ()
    shape = format_of(format, schema=schema, compression=compression, without=without)
    limit = seconds("timeout", timeout, 1_000_000)
    options = WriteOptions(to, shape, prefix, config, limit, partitions)
    kind = Destination if partitions is None else PartitionedDestination
    return destination(f"objects {name}", kind, encode=shape.encoder(), **outbox)(options)


def check_place(where: Any, prefix: str, config: Mapping[str, Any] | None) -> str:
    """Checks what names a store, and returns its name in messages.

    >>> check_place("s3://bucket/orders", "", None)
    's3://bucket/orders'
    """
    from .store import describe, import_obstore, open_store

    obstore = import_obstore()
    if not isinstance(where, (str, os.PathLike)):
        if config is not None:
            raise FlowUsageError("config is for a URL: a store that is given has its configuration")
        if not isinstance(where, _stores(obstore)):
            raise FlowUsageError(f"the store is a URL, a path or a store of obstore, not {where!r}")
        return describe(where)
    name = describe(where)
    if not name:
        raise FlowUsageError("the store is a URL, a path or a store of obstore, not ''")
    if prefix:
        raise FlowUsageError("prefix is for a store that is given: a URL or a path has it at its end")
    if "://" in name and not name.startswith("file://"):
        # This makes no request.
        open_store(where, config, 30.0, create=False)
    elif config is not None:
        raise FlowUsageError("config is for a URL: a directory has none")
    return name


def _stores(obstore: Any) -> tuple[type, ...]:
    names = ("S3Store", "GCSStore", "AzureStore", "LocalStore", "MemoryStore")
    return tuple(getattr(obstore.store, name) for name in names)


def format_of(format: str, **options: Any) -> Format:
    """The format with a name; ``options`` has those of all formats."""
    from .formats import JsonLines, Lines, Parquet

    if format == "parquet":
        options.pop("max_line", None)
        return Parquet(**options)
    options.pop("without", None)
    if options.pop("schema", None) is not None:
        raise FlowUsageError(f'schema is for "parquet", and not for {format!r}')
    if format == "json_lines":
        return JsonLines(**options)
    if format == "lines":
        return Lines(**options)
    raise FlowUsageError(f'format is "parquet", "json_lines" or "lines", not {format!r}')
