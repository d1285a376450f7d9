"""JSON lines: files whose lines are JSON values. :mod:`millstream.files` exports the functions."""

from __future__ import annotations

from typing import Any

from .. import _millstream
from .._connectors.file_options import MAX_FRAME, Compression, Path, paths_of, poll
from .._errors.flow import FlowUsageError
from .._values.checked import checked, positive
from .json import dump, load

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .durations import Seconds
    from .types import Frame, T, Written


@checked
def json_lines(
    path: Path | Sequence[Path],
    type: type[T] | None = None,
    max_line: int = MAX_FRAME,
    compression: Compression = "auto",
    local: bool = False,
) -> _millstream.ByteSource[T]:
    """Reads files whose lines are JSON values (UTF-8).

    A line that is no JSON, or no value of ``type``, is treated as ``on_error`` of the source says; the error
    names file, line and offset. So is an empty line.

    Args:
        path: the file, or several, each of which is a partition.
        type: the type of the values: a dataclass, a ``TypedDict``, a ``msgspec.Struct`` or another type that
            ``msgspec.json.decode`` takes; it needs the package ``msgspec``. None: values are as
            ``json.loads`` of the standard library returns them; NaN and numbers out of range are no JSON.
        max_line: the longest line in bytes; a longer one ends the flow.
        compression: of the files, as for :func:`frames`.
        local: whether each process reads what its own machine has, as for :func:`millstream.files.lines`.

    Returns:
        A source of values.

    Raises:
        FlowUsageError: ``type`` is given and ``msgspec`` is not installed, or does not know the type.

    Example:
        >>> import millstream as ms
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> flow, out = ms.Flow("prices"), ms.testing.collect()
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder, "prices.jsonl")
        ...     _ = path.write_text('{"name": "tea", "price": 3}\\n')
        ...     flow.source("prices", ms.files.json_lines(path)).sink("out", out)
        ...     _ = ms.run(flow)
        >>> out
        [{'name': 'tea', 'price': 3}]
    """
    return _millstream.file_read(
        paths_of(path),
        framing="lines",
        max_frame=max_line,
        decode=_decoder(type),
        position=0,
        compression=compression,
        local=local,
    )


@checked
def json_lines_directory(
    path: Path,
    pattern: str = "*.jsonl",
    type: type[T] | None = None,
    partitions: int = 1,
    follow: Seconds | None = None,
    max_line: int = MAX_FRAME,
    compression: Compression = "auto",
    local: bool = False,
) -> _millstream.ByteSource[T]:
    """Reads all files of JSON lines in a directory: values as :func:`json_lines`, files as :func:`directory`.

    Args:
        path: the directory.
        pattern: which names are read, as for :func:`directory`.
        type: the type of the values, as for :func:`json_lines`.
        partitions: how many files are read at once, each on one worker. A run that resumes has as many as
            the run before it.
        follow: the time after which the directory is searched for new files again, without
            end. None: the source ends with the files that exist when it begins.
        max_line: the longest line in bytes; a longer one ends the flow.
        compression: of the files, as for :func:`frames`.
        local: whether each process reads what its own machine has, as for :func:`millstream.files.lines`.

    Returns:
        A source of values.

    Raises:
        FlowUsageError: an option is out of range, or ``type`` as for :func:`json_lines`.

    Example:
        >>> import millstream as ms
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> flow, out = ms.Flow("numbers"), ms.testing.collect()
        >>> with TemporaryDirectory() as folder:
        ...     _ = Path(folder, "b.jsonl").write_text("3\\n")
        ...     _ = Path(folder, "a.jsonl").write_text("1\\n[2]\\n")
        ...     flow.source("numbers", ms.files.json_lines_directory(folder)).sink("out", out)
        ...     _ = ms.run(flow)
        >>> out
        [1, [2], 3]
    """
    return _millstream.directory_read(
        path,
        pattern,
        partitions=positive("partitions", partitions),
        follow=poll(follow),
        framing="lines",
        max_frame=max_line,
        decode=_decoder(type),
        compression=compression,
        local=local,
    )


@checked
def write_json_lines(
    path: Path, encode: Callable[[Written], Frame] | None = None, compression: Compression = "auto"
) -> _millstream.ByteSink[Written]:
    """Writes each item as a line of JSON to a file, which is created anew.

    An item that JSON cannot represent fails the flow: NaN and infinities too, which are no JSON.

    Args:
        path: the file.
        encode: a function that makes JSON of an item, as text or bytes on one line, for instance
            ``msgspec.json.encode``. None: ``json.dumps`` of the standard library, without spaces.
        compression: of the file, as for :func:`write`.

    Returns:
        A sink.

    Example:
        >>> import millstream as ms
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> flow = ms.Flow("prices")
        >>> prices = flow.source("prices", ms.testing.items([{"name": "tea", "price": 3}]))
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder, "prices.jsonl")
        ...     prices.sink("out", ms.files.write_json_lines(path))
        ...     _ = ms.run(flow)
        ...     path.read_text()
        '{"name":"tea","price":3}\\n'
    """
    encode = dump if encode is None else encode
    return _millstream.file_write(path, framing="lines", encode=encode, compression=compression)


def _decoder(type: Any) -> Callable[[bytes], Any]:
    if type is None:
        return load
    try:
        import msgspec
    except ImportError:
        raise FlowUsageError("type needs the package msgspec: pip install msgspec") from None
    try:
        decode: Callable[[bytes], Any] = msgspec.json.Decoder(type).decode
    except TypeError as error:
        raise FlowUsageError(f"type: {error}") from error
    return decode
