"""Files as sources and sinks: lines of text, frames of bytes, rows of CSV, JSON lines; single files, the
files of a directory, a file for each key."""

from __future__ import annotations

from typing import overload

from . import _millstream
from ._connectors.file_options import MAX_FRAME, Compression, Path, paths_of, poll, types_of
from ._errors.flow import FlowUsageError
from ._values.checked import checked, positive
from ._values.json_lines import json_lines, json_lines_directory, write_json_lines

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, Literal, TypeAlias

    from ._values.durations import Seconds
    from ._values.types import Decoder, Frame, T, U

    Row = Mapping[str, object] | Sequence[object]

Types: TypeAlias = "Mapping[str, Callable[[str], object]]"

__all__ = [
    "csv",
    "csv_directory",
    "directory",
    "frames",
    "json_lines",
    "json_lines_directory",
    "lines",
    "write",
    "write_by_key",
    "write_csv",
    "write_csv_by_key",
    "write_json_lines",
]


@checked
def lines(
    path: Path | Sequence[Path],
    max_frame: int = MAX_FRAME,
    compression: Compression = "auto",
    local: bool = False,
) -> _millstream.ByteSource[str]:
    """Reads the lines of text files (UTF-8), without their line ends.

    Args:
        path: the file, or several, each of which is a partition.
        max_frame: the longest line in bytes; a longer one is an error.
        compression: of the files, as for :func:`frames`.
        local: whether each process reads the files of its own machine, in a flow on several machines; see
            :class:`millstream.Cluster`. Otherwise all must have the same files, each of which one of them
            reads.

    Returns:
        A source of ``str``.

    Example:
        >>> import millstream as ms
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> flow, out = ms.Flow("lines"), ms.testing.collect()
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder, "words.txt")
        ...     _ = path.write_text("to\\nbe\\n")
        ...     flow.source("words", ms.files.lines(path)).sink("out", out)
        ...     _ = ms.run(flow)
        >>> out
        ['to', 'be']
    """
    return frames(path, "lines", str, max_frame, compression=compression, local=local)


@overload
def frames(
    path: Path | Sequence[Path],
    framing: str = "u32",
    decode: None = None,
    max_frame: int = MAX_FRAME,
    position: int = 0,
    compression: Compression = "auto",
    local: bool = False,
) -> _millstream.ByteSource[bytes]: ...
@overload
def frames(
    path: Path | Sequence[Path],
    framing: str = "u32",
    decode: Decoder[U] = ...,
    max_frame: int = MAX_FRAME,
    position: int = 0,
    compression: Compression = "auto",
    local: bool = False,
) -> _millstream.ByteSource[U]: ...
@checked
def frames(
    path: Path | Sequence[Path],
    framing: str = "u32",
    decode: type | Callable[[bytes], Any] | None = None,
    max_frame: int = MAX_FRAME,
    position: int = 0,
    compression: Compression = "auto",
    local: bool = False,
) -> _millstream.ByteSource[Any]:
    """Reads the messages of files.

    Args:
        path: the file, or several, each of which is a partition.
        framing: how messages are separated; see :mod:`millstream.tcp`.
        decode: makes an item of the bytes: ``str``, ``bytes``, a subclass of :class:`millstream.Record`, or
            a function. None leaves bytes.
        max_frame: the largest message in bytes; a longer one is an error.
        position: the byte at which reading begins, after decompression.
        compression: of the files: ``"gzip"``, ``"zstd"`` or None. ``"auto"``: by the end of the name of each
            file, ``.gz`` or ``.zst``.
        local: whether each process reads what its own machine has, as for :func:`lines`.

    Returns:
        A source of bytes, or of what ``decode`` makes of them.

    Example:
        >>> import millstream as ms
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> flow, out = ms.Flow("frames"), ms.testing.collect()
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder, "pairs")
        ...     _ = path.write_bytes(b"abcd")
        ...     flow.source("pairs", ms.files.frames(path, framing="fixed:2")).sink("out", out)
        ...     _ = ms.run(flow)
        >>> out
        [b'ab', b'cd']
    """
    return _millstream.file_read(
        paths_of(path),
        framing=framing,
        max_frame=positive("max_frame", max_frame),
        decode=decode,
        position=position,
        compression=compression,
        local=local,
    )


@overload
def write(
    path: Path, framing: Literal["lines"] = "lines", encode: None = None, compression: Compression = "auto"
) -> _millstream.ByteSink[object]: ...
@overload
def write(
    path: Path, framing: str = "lines", encode: None = None, compression: Compression = "auto"
) -> _millstream.ByteSink[Frame]: ...
@overload
def write(
    path: Path,
    framing: str = "lines",
    encode: Callable[[U], Frame] = ...,
    compression: Compression = "auto",
) -> _millstream.ByteSink[U]: ...
@checked
def write(
    path: Path,
    framing: str = "lines",
    encode: Callable[[Any], Any] | None = None,
    compression: Compression = "auto",
) -> _millstream.ByteSink[Any]:
    """Writes items to a file, which is created anew.

    Args:
        path: the file.
        framing: how messages are separated; see :mod:`millstream.tcp`. ``"lines"`` writes ``str(item)`` of
            any item.
        encode: a function that makes bytes, ``str`` or a record of an item. None: items are that already.
        compression: of the file: ``"gzip"``, ``"zstd"`` or None. ``"auto"``: by the end of the name, ``.gz``
            or ``.zst``. A compressed file is complete after each commit and at the end of the run.

    Returns:
        A sink.

    Example:
        >>> import millstream as ms
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> flow = ms.Flow("numbers")
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder, "numbers.txt")
        ...     flow.source("in", ms.testing.items([1, 2])).sink("out", ms.files.write(path))
        ...     _ = ms.run(flow)
        ...     path.read_text()
        '1\\n2\\n'
    """
    return _millstream.file_write(path, framing=framing, encode=encode, compression=compression)


@overload
def write_by_key(
    directory: Path,
    suffix: str = "",
    framing: Literal["lines"] = "lines",
    encode: None = None,
    max_open: int = 128,
) -> _millstream.KeyedSink[tuple[object, object]]: ...
@overload
def write_by_key(
    directory: Path, suffix: str = "", framing: str = "lines", encode: None = None, max_open: int = 128
) -> _millstream.KeyedSink[tuple[object, Frame]]: ...
@overload
def write_by_key(
    directory: Path,
    suffix: str = "",
    framing: str = "lines",
    encode: Callable[[U], Frame] = ...,
    max_open: int = 128,
) -> _millstream.KeyedSink[tuple[object, U]]: ...
@checked
def write_by_key(
    directory: Path,
    suffix: str = "",
    framing: str = "lines",
    encode: Callable[[Any], Any] | None = None,
    max_open: int = 128,
) -> _millstream.KeyedSink[Any]:
    """Writes the values of each key to a file of their own; a sink for keyed streams.

    The directory belongs to the sink: it is created if it does not exist, and files of earlier runs are
    removed; a directory with other files is an error. The name of a file is its key and ``suffix``.
    Letters, digits, ``-``, ``_`` and ``.`` stand for themselves, every other byte is ``%`` and two
    hexadecimal digits, and the empty key is ``%``. Members of a tuple have a comma (``%2C``) between them.
    A name of more than 200 bytes is shortened and ends with a hash.

    All keys must have one type: the keys ``1`` and ``"1"`` would have the same file, which is an error.
    With a state directory a run that resumes rolls all files back to the last commit.

    Args:
        directory: the directory.
        suffix: the end of the name of each file.
        framing: how values are separated, as for :func:`write`.
        encode: a function that makes bytes, ``str`` or a record of an item. None: items are that already.
        max_open: how many files are open at once at most.

    Returns:
        A sink of pairs of key and value.

    Raises:
        FlowUsageError: ``max_open`` is below 1.

    Example:
        >>> import millstream as ms
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> flow = ms.Flow("by country")
        >>> orders = flow.source("orders", ms.testing.items([("fr", 1), ("a/b", 2), ("fr", 3)]))
        >>> with TemporaryDirectory() as folder:
        ...     keyed = orders.key_by(lambda order: order[0]).map(lambda order: order[1])
        ...     keyed.sink("out", ms.files.write_by_key(folder, suffix=".txt"))
        ...     _ = ms.run(flow)
        ...     sorted((path.name, path.read_text()) for path in Path(folder).glob("[!.]*"))
        [('a%2Fb.txt', '2\\n'), ('fr.txt', '1\\n3\\n')]
    """
    return _millstream.file_write_by_key(
        directory,
        suffix=suffix,
        framing=framing,
        encode=encode,
        preamble=b"",
        max_open=positive("max_open", max_open),
    )


@overload
def directory(
    path: Path,
    pattern: str = "*",
    partitions: int = 1,
    follow: Seconds | None = None,
    framing: Literal["lines"] = "lines",
    decode: None = None,
    max_frame: int = MAX_FRAME,
    compression: Compression = "auto",
    local: bool = False,
) -> _millstream.ByteSource[str]: ...
@overload
def directory(
    path: Path,
    pattern: str = "*",
    partitions: int = 1,
    follow: Seconds | None = None,
    framing: str = "lines",
    decode: None = None,
    max_frame: int = MAX_FRAME,
    compression: Compression = "auto",
    local: bool = False,
) -> _millstream.ByteSource[bytes]: ...
@overload
def directory(
    path: Path,
    pattern: str = "*",
    partitions: int = 1,
    follow: Seconds | None = None,
    framing: str = "lines",
    decode: Decoder[U] = ...,
    max_frame: int = MAX_FRAME,
    compression: Compression = "auto",
    local: bool = False,
) -> _millstream.ByteSource[U]: ...
@checked
def directory(
    path: Path,
    pattern: str = "*",
    partitions: int = 1,
    follow: Seconds | None = None,
    framing: str = "lines",
    decode: type | Callable[[bytes], Any] | None = None,
    max_frame: int = MAX_FRAME,
    compression: Compression = "auto",
    local: bool = False,
) -> _millstream.ByteSource[Any]:
    """Reads the lines (or messages) of all files in a directory whose names match ``pattern``, sorted by
    name.

    Names that begin with a dot are skipped. Each file is resumed at its position, and a file that has grown
    is read on. Files should be complete when they appear: write them under a name that does not match, and
    rename them. Each file belongs to one partition, chosen by its name.

    Args:
        path: the directory.
        pattern: which names are read: ``*`` matches any characters, ``?`` one, ``[a-z]`` one of a range. A
            pattern with a ``/`` is matched with paths below the directory, in which ``**`` matches any
            directories.
        partitions: how many files are read at once, each on one worker. A run that resumes has as many as
            the run before it.
        follow: the time after which the directory is searched for new files again, without
            end. None: the source ends with the files that exist when it begins.
        framing: how messages are separated; see :mod:`millstream.tcp`.
        decode: makes an item of the bytes, as for :func:`frames`. None: ``str`` for lines, bytes otherwise.
        max_frame: the largest message in bytes; a longer one is an error.
        compression: of the files, as for :func:`frames`.
        local: whether each process reads what its own machine has, as for :func:`lines`.

    Returns:
        A source of lines or messages.

    Raises:
        FlowUsageError: an option is out of range.

    Example:
        >>> import millstream as ms
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> flow, out = ms.Flow("logs"), ms.testing.collect()
        >>> with TemporaryDirectory() as folder:
        ...     _ = Path(folder, "b.log").write_text("three")
        ...     _ = Path(folder, "a.log").write_text("one\\ntwo")
        ...     flow.source("lines", ms.files.directory(folder, "*.log")).sink("out", out)
        ...     _ = ms.run(flow)
        >>> out
        ['one', 'two', 'three']
    """
    if decode is None and framing == "lines":
        decode = str
    return _millstream.directory_read(
        path,
        pattern,
        partitions=positive("partitions", partitions),
        follow=poll(follow),
        framing=framing,
        max_frame=positive("max_frame", max_frame),
        compression=compression,
        decode=decode,
        local=local,
    )


@overload
def csv(
    path: Path | Sequence[Path],
    header: Literal[False],
    delimiter: str = ",",
    quote: str | None = '"',
    max_record: int = MAX_FRAME,
    compression: Compression = "auto",
    *,
    local: bool = False,
) -> _millstream.CsvSource[list[str]]: ...
@overload
def csv(
    path: Path | Sequence[Path],
    header: Literal[True] | Sequence[str] = True,
    delimiter: str = ",",
    quote: str | None = '"',
    max_record: int = MAX_FRAME,
    compression: Compression = "auto",
    types: None = None,
    local: bool = False,
) -> _millstream.CsvSource[dict[str, str]]: ...
@overload
def csv(
    path: Path | Sequence[Path],
    header: Literal[True] | Sequence[str] = True,
    delimiter: str = ",",
    quote: str | None = '"',
    max_record: int = MAX_FRAME,
    compression: Compression = "auto",
    *,
    types: Types,
    local: bool = False,
) -> _millstream.CsvSource[dict[str, Any]]: ...
@overload
def csv(
    path: Path | Sequence[Path],
    header: Literal[True] | Sequence[str] = True,
    delimiter: str = ",",
    quote: str | None = '"',
    max_record: int = MAX_FRAME,
    compression: Compression = "auto",
    *,
    types: type[T],
    local: bool = False,
) -> _millstream.CsvSource[T]: ...
@checked
def csv(
    path: Path | Sequence[Path],
    header: bool | Sequence[str] = True,
    delimiter: str = ",",
    quote: str | None = '"',
    max_record: int = MAX_FRAME,
    compression: Compression = "auto",
    types: Types | type[Any] | None = None,
    local: bool = False,
) -> _millstream.CsvSource[Any]:
    """Reads the rows of CSV files (UTF-8).

    A row is a dict with the names of the fields, or a list with ``header=False``. Fields are text, read as
    Python's module ``csv`` reads them. Empty lines are skipped. A row that is not UTF-8, or has another
    number of fields than names, is treated as ``on_error`` of the source says; the error names file, line
    and column. A quote that is not closed ends the flow.

    Args:
        path: the file, or several, each of which is a partition.
        header: True takes the names of the fields from the first record of each file, False makes lists; or
            the names themselves.
        delimiter: the character between fields.
        quote: the character around fields that contain delimiters or line ends. None: quotes are ordinary
            characters.
        max_record: the largest record in bytes; a longer one ends the flow.
        compression: of the files, as for :func:`frames`.
        types: for the names of some fields the functions that make values of their text, for instance
            ``{"price": float}``; other fields stay text. Or the class of the rows: a dataclass,
            ``NamedTuple``, ``TypedDict`` or ``msgspec.Struct``, whose annotations say what is made of each
            field; others are left out. An exception is treated as ``on_error`` of the source says; the error
            names file, line and column. An empty field is None where the annotation allows it, and is
            passed on otherwise.
        local: whether each process reads what its own machine has, as for :func:`lines`.

    Returns:
        A source of dicts or lists, or of objects of the class.

    Raises:
        FlowUsageError: ``header`` has no names, or one twice; ``types`` has a name that is no field, or is
            no class of rows.

    Example:
        >>> import millstream as ms
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> flow, out = ms.Flow("prices"), ms.testing.collect()
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder, "prices.csv")
        ...     _ = path.write_text('name,price\\n"tea, green",3\\n')
        ...     flow.source("prices", ms.files.csv(path, types={"price": int})).sink("out", out)
        ...     _ = ms.run(flow)
        >>> out
        [{'name': 'tea, green', 'price': 3}]
    """
    dialect = (delimiter, quote, _header(header))
    functions, row = types_of(types, dialect[2])
    return _millstream.csv_read(
        paths_of(path),
        dialect=dialect,
        max_record=positive("max_record", max_record),
        compression=compression,
        types=functions,
        row=row,
        local=local,
    )


@overload
def csv_directory(
    path: Path,
    pattern: str = "*.csv",
    *,
    header: Literal[False],
    delimiter: str = ",",
    quote: str | None = '"',
    partitions: int = 1,
    follow: Seconds | None = None,
    max_record: int = MAX_FRAME,
    compression: Compression = "auto",
    local: bool = False,
) -> _millstream.CsvSource[list[str]]: ...
@overload
def csv_directory(
    path: Path,
    pattern: str = "*.csv",
    header: Literal[True] | Sequence[str] = True,
    delimiter: str = ",",
    quote: str | None = '"',
    partitions: int = 1,
    follow: Seconds | None = None,
    max_record: int = MAX_FRAME,
    compression: Compression = "auto",
    types: None = None,
    local: bool = False,
) -> _millstream.CsvSource[dict[str, str]]: ...
@overload
def csv_directory(
    path: Path,
    pattern: str = "*.csv",
    header: Literal[True] | Sequence[str] = True,
    delimiter: str = ",",
    quote: str | None = '"',
    partitions: int = 1,
    follow: Seconds | None = None,
    max_record: int = MAX_FRAME,
    compression: Compression = "auto",
    *,
    types: Types,
    local: bool = False,
) -> _millstream.CsvSource[dict[str, Any]]: ...
@overload
def csv_directory(
    path: Path,
    pattern: str = "*.csv",
    header: Literal[True] | Sequence[str] = True,
    delimiter: str = ",",
    quote: str | None = '"',
    partitions: int = 1,
    follow: Seconds | None = None,
    max_record: int = MAX_FRAME,
    compression: Compression = "auto",
    *,
    types: type[T],
    local: bool = False,
) -> _millstream.CsvSource[T]: ...
@checked
def csv_directory(
    path: Path,
    pattern: str = "*.csv",
    header: bool | Sequence[str] = True,
    delimiter: str = ",",
    quote: str | None = '"',
    partitions: int = 1,
    follow: Seconds | None = None,
    max_record: int = MAX_FRAME,
    compression: Compression = "auto",
    types: Types | type[Any] | None = None,
    local: bool = False,
) -> _millstream.CsvSource[Any]:
    """Reads the rows of all CSV files in a directory: rows as :func:`csv`, files as :func:`directory`.

    Args:
        path: the directory.
        pattern: which names are read: ``*`` matches any characters, ``?`` one, ``[a-z]`` one of a range. A
            pattern with a ``/`` is matched with paths below the directory, in which ``**`` matches any
            directories.
        header: True takes the names of the fields from the first record of each file, False makes lists; or
            the names themselves.
        delimiter: the character between fields.
        quote: the character around fields that contain delimiters or line ends. None: quotes are ordinary
            characters.
        partitions: how many files are read at once, each on one worker. A run that resumes has as many as
            the run before it.
        follow: the time after which the directory is searched for new files again, without
            end. None: the source ends with the files that exist when it begins.
        max_record: the largest record in bytes; a longer one ends the flow.
        compression: of the files, as for :func:`frames`.
        types: as for :func:`csv`.
        local: whether each process reads what its own machine has, as for :func:`lines`.

    Returns:
        A source of dicts or lists.

    Raises:
        FlowUsageError: an option is out of range.

    Example:
        >>> import millstream as ms
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> flow, out = ms.Flow("prices"), ms.testing.collect()
        >>> with TemporaryDirectory() as folder:
        ...     _ = Path(folder, "b.csv").write_text("name,price\\ntea,3\\n")
        ...     _ = Path(folder, "a.csv").write_text("name,price\\nmilk,1\\n")
        ...     flow.source("prices", ms.files.csv_directory(folder)).sink("out", out)
        ...     _ = ms.run(flow)
        >>> out
        [{'name': 'milk', 'price': '1'}, {'name': 'tea', 'price': '3'}]
    """
    dialect = (delimiter, quote, _header(header))
    functions, row = types_of(types, dialect[2])
    return _millstream.csv_directory(
        path,
        pattern,
        partitions=positive("partitions", partitions),
        follow=poll(follow),
        dialect=dialect,
        max_record=positive("max_record", max_record),
        compression=compression,
        types=functions,
        row=row,
        local=local,
    )


@overload
def write_csv(
    path: Path,
    fields: None = None,
    delimiter: str = ",",
    quote: str = '"',
    compression: Compression = "auto",
) -> _millstream.ByteSink[Sequence[object]]: ...
@overload
def write_csv(
    path: Path,
    fields: Sequence[str],
    delimiter: str = ",",
    quote: str = '"',
    compression: Compression = "auto",
) -> _millstream.ByteSink[Row]: ...
@checked
def write_csv(
    path: Path,
    fields: Sequence[str] | None = None,
    delimiter: str = ",",
    quote: str = '"',
    compression: Compression = "auto",
) -> _millstream.ByteSink[Any]:
    """Writes rows to a CSV file, which is created anew. Lines end with LF.

    Args:
        path: the file.
        fields: the names and order of the fields: the file begins with them as its header, and rows may be
            dicts. A dict without a field has an empty one; a dict with another key is an error. None: rows
            are sequences of at least one value. A value is written as ``str`` makes text of it.
        delimiter: the character between fields.
        quote: the character around fields that contain delimiters, quotes or line ends.
        compression: of the file, as for :func:`write`.

    Returns:
        A sink of rows.

    Raises:
        FlowUsageError: ``fields`` has no names, or one twice.

    Example:
        >>> import millstream as ms
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> flow = ms.Flow("prices")
        >>> rows = flow.source("rows", ms.testing.items([{"price": 3, "name": "tea, green"}]))
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder, "prices.csv")
        ...     rows.sink("out", ms.files.write_csv(path, ["name", "price"]))
        ...     _ = ms.run(flow)
        ...     path.read_text()
        'name,price\\n"tea, green",3\\n'
    """
    encode, head = _csv_rows(fields, delimiter, quote)
    return _millstream.file_write(path, framing=None, encode=encode, preamble=head, compression=compression)


@overload
def write_csv_by_key(
    directory: Path,
    fields: None = None,
    delimiter: str = ",",
    quote: str = '"',
    suffix: str = ".csv",
    max_open: int = 128,
) -> _millstream.KeyedSink[tuple[object, Sequence[object]]]: ...
@overload
def write_csv_by_key(
    directory: Path,
    fields: Sequence[str],
    delimiter: str = ",",
    quote: str = '"',
    suffix: str = ".csv",
    max_open: int = 128,
) -> _millstream.KeyedSink[tuple[object, Row]]: ...
@checked
def write_csv_by_key(
    directory: Path,
    fields: Sequence[str] | None = None,
    delimiter: str = ",",
    quote: str = '"',
    suffix: str = ".csv",
    max_open: int = 128,
) -> _millstream.KeyedSink[Any]:
    """Writes a CSV file for each key: rows as :func:`write_csv`, files as :func:`write_by_key`.

    Args:
        directory: the directory.
        fields: the names and order of the fields, or None, as for :func:`write_csv`.
        delimiter: the character between fields.
        quote: the character around fields that contain delimiters, quotes or line ends.
        suffix: the end of the name of each file.
        max_open: how many files are open at once at most.

    Returns:
        A sink of pairs of key and row.

    Raises:
        FlowUsageError: ``fields`` has no names, or one twice; ``max_open`` is below 1.

    Example:
        >>> import millstream as ms
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> flow = ms.Flow("by name")
        >>> rows = flow.source("rows", ms.testing.items([("tea", 3), ("milk", 1)]))
        >>> with TemporaryDirectory() as folder:
        ...     rows.key_by(lambda row: row[0]).sink("out", ms.files.write_csv_by_key(folder))
        ...     _ = ms.run(flow)
        ...     sorted((path.name, path.read_text()) for path in Path(folder).glob("[!.]*"))
        [('milk.csv', 'milk,1\\n'), ('tea.csv', 'tea,3\\n')]
    """
    encode, head = _csv_rows(fields, delimiter, quote)
    return _millstream.file_write_by_key(
        directory,
        suffix=suffix,
        framing=None,
        encode=encode,
        preamble=head,
        max_open=positive("max_open", max_open),
    )


def _header(header: bool | Sequence[str]) -> bool | list[str]:
    if isinstance(header, bool):
        return header
    names = [] if isinstance(header, str) else list(header)
    if not names or len({*names}) < len(names) or not all(isinstance(name, str) for name in names):
        raise FlowUsageError(f"header is True, False or the names of the fields, each once, not {header!r}")
    return names


class _Echo:
    """A file whose ``write`` returns the text: so a row of CSV becomes text."""

    def write(self, text: str) -> str:
        return text


def _csv_rows(fields: Sequence[str] | None, delimiter: str, quote: str) -> tuple[Callable[[Row], str], bytes]:
    """The function that makes a line of a row, and the line of the header."""
    from csv import QUOTE_ALL, QUOTE_MINIMAL, writer

    names = None if fields is None else _header(fields)
    if isinstance(names, bool):
        raise FlowUsageError(f"fields are the names of the fields, each once, not {fields!r}")
    known = {*names} if names is not None else set()

    def line(row: Sequence[object], quoting: Literal[0, 1] = QUOTE_MINIMAL) -> str:
        # A writer of its own, because several workers write; with this line end both CR and LF are quoted.
        ways: dict[str, Any] = {"delimiter": delimiter, "quotechar": quote, "quoting": quoting}
        text: str = writer(_Echo(), lineterminator="\r\n", **ways).writerow(row)
        # At the beginning of a file this character is a mark, which readers drop, unless it is quoted.
        is_mark = text.startswith("\ufeff")
        return line(row, QUOTE_ALL) if is_mark else text[:-2] + "\n"

    def encode(row: Row) -> str:
        if isinstance(row, (str, bytes, set, frozenset)) or not hasattr(row, "__len__"):
            raise TypeError(f"a row is a dict or a sequence, not {type(row).__name__}")
        if not len(row) and names is None:
            raise ValueError("a row has at least one field: readers skip an empty line")
        if hasattr(row, "keys"):
            if names is None:
                raise TypeError("a row that is a dict needs fields=, the names in the order of the file")
            unknown = [name for name in row if name not in known]
            if unknown:
                raise ValueError(f"the row has {unknown[0]!r}, which is no field of the file")
            return line([row.get(name, "") for name in names])  # type: ignore[union-attr]
        if names is not None and len(row) != len(names):
            raise ValueError(f"the row has {len(row)} fields, the header {len(names)}")
        return line(row)

    return encode, b"" if names is None else line(names).encode()
