"""``ms.objects.read``: the objects of a store as a source."""

from __future__ import annotations

import os
from typing import Any

from .._connectors.adapter import At, SourceFunction, source as generator_source
from .._connectors.file_options import MAX_FRAME
from .._errors.flow import FlowUsageError
from .._values.backoff import Backoff
from .._values.checked import checked, positive
from .._values.durations import seconds, seconds_or_none
from .sink import FormatName, check_place, format_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Literal

    from .._values.durations import Seconds
    from .reader import ReadOptions


PATTERNS = {"parquet": ("*.parquet",), "json_lines": ("*.jsonl", "*.jsonl.gz", "*.jsonl.zst")}
"""The names that are read by default."""


@checked
def read(
    at: str | os.PathLike[str] | Any,
    format: FormatName,
    *,
    pattern: str | None = None,
    follow: Seconds | None = None,
    prefix: str = "",
    config: Mapping[str, Any] | None = None,
    max_line: int = MAX_FRAME,
    compression: Literal["auto", "gzip", "zstd"] | None = "auto",
    timeout: Seconds = 30.0,
    retry: Backoff | None = None,
) -> SourceFunction[..., Any]:
    """Reads the objects of a store below a prefix, each once, in the order of their names.

    An object must not change. Within a directory, which is the part of a name before the last ``/``, names
    must ascend: an object that appears with a lower name than one that was read is not read, and a warning
    names the directory. ``Report.lags`` has the bytes of the objects that were found and not read.

    Args:
        at: a URL such as ``"s3://bucket/orders"``, the path of a directory, or a store of ``obstore``.
        format: ``"parquet"``: items are dicts, one for each row. ``"json_lines"``: the values that
            ``json.loads`` returns. ``"lines"``: text, without line ends. A line that is no JSON or no text is
            handled by ``on_error`` of :meth:`Flow.source`.
        pattern: which names are read, without their directories: ``*`` matches any characters, ``?`` one,
            ``[a-z]`` one of a range. None: ``*.parquet``; ``*.jsonl``, ``*.jsonl.gz`` and ``*.jsonl.zst``; or
            ``*``, by the format.
        follow: the time after which the store is searched for new objects again, without end.
            None: the source ends with the objects that exist when it begins.
        prefix: the prefix of the names in a store that is given as an object.
        config: as in :func:`write`.
        max_line: the longest line in bytes; a longer one ends the flow.
        compression: of lines: ``"gzip"``, ``"zstd"`` or None. ``"auto"``: by the end of the name of each
            object, ``.gz`` or ``.zst``.
        timeout: the limit for a request to the store of a URL, in seconds.
        retry: the delays after failed requests. None: ``Backoff()``, without end.

    Returns:
        The source. It has one partition.

    Raises:
        FlowUsageError: an option has a wrong value.
        ObjectError: obstore or pyarrow is missing.

    Example:
        >>> import millstream as ms
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> flow, out = ms.Flow("orders"), ms.testing.collect()
        >>> with TemporaryDirectory() as folder:
        ...     _ = Path(folder, "2.jsonl").write_text('{"id":3}\\n')
        ...     _ = Path(folder, "1.jsonl").write_text('{"id":1}\\n{"id":2}\\n')
        ...     flow.source("in", ms.objects.read(folder, "json_lines")).sink("out", out)
        ...     _ = ms.run(flow)
        >>> out
        [{'id': 1}, {'id': 2}, {'id': 3}]
    """
    from .reader import ReadOptions

    check_place(at, prefix, config)
    if pattern is not None and (not pattern or "/" in pattern):
        raise FlowUsageError(f'pattern is for names without directories, such as "*.txt", not {pattern!r}')
    if format == "parquet" and compression != "auto":
        raise FlowUsageError("compression is for lines: an object of Parquet says how it is compressed")
    options = ReadOptions(
        at,
        format_of(format, max_line=positive("max_line", max_line), compression=compression),
        PATTERNS.get(format, ("*",)) if pattern is None else (pattern,),
        seconds_or_none("follow", follow),
        prefix,
        config,
        seconds("timeout", timeout, 1_000_000),
        Backoff() if retry is None else retry,
    )
    return _reading(options)


def _read(options: ReadOptions, resume: Any = None) -> Iterator[At[list[Any]]]:
    from .reader import Reading

    yield from Reading(options, resume).run()


_read.__name__ = "objects"
_reading = generator_source(batches=True, resume=True)(_read)._with(undecoded=True)
