"""Files as sources and sinks: lines of text, frames of bytes, rows of CSV; single files, the files of a
directory, a file for each key."""

from __future__ import annotations

from typing import overload

from . import _millstream
from ._durations import nanos
from ._errors import FlowUsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, Literal

    from ._durations import Seconds
    from ._types import Decoder, Frame, U

    Path = str | os.PathLike[str]
    Row = Mapping[str, object] | Sequence[object]

__all__ = [
    "csv",
    "csv_directory",
    "directory",
    "frames",
    "lines",
    "write",
    "write_by_key",
    "write_csv",
    "write_csv_by_key",
]

MAX_FRAME = 1 << 20


def _paths(path: Path | Sequence[Path]) -> list[Path]:
    return list(path) if isinstance(path, (list, tuple)) else [path]  # type: ignore[list-item]


def lines(path: Path | Sequence[Path], max_frame: int = MAX_FRAME) -> _millstream.ByteSource[str]:
    """The lines of a text file (UTF-8), without their ends; of several files, each is a partition."""
    return frames(path, "lines", str, max_frame)


@overload
def frames(
    path: Path | Sequence[Path],
    framing: str = "u32",
    decode: None = None,
    max_frame: int = MAX_FRAME,
    position: int = 0,
) -> _millstream.ByteSource[bytes]: ...
@overload
def frames(
    path: Path | Sequence[Path],
    framing: str = "u32",
    decode: Decoder[U] = ...,
    max_frame: int = MAX_FRAME,
    position: int = 0,
) -> _millstream.ByteSource[U]: ...
def frames(
    path: Path | Sequence[Path],
    framing: str = "u32",
    decode: type | Callable[[bytes], Any] | None = None,
    max_frame: int = MAX_FRAME,
    position: int = 0,
) -> _millstream.ByteSource[Any]:
    """The frames of a file, from byte ``position`` on; see :mod:`millstream.tcp` for ``framing`` and
    ``decode``."""
    return _millstream.file_read(
        _paths(path), framing=framing, max_frame=max_frame, decode=decode, position=position
    )


@overload
def write(
    path: Path, framing: Literal["lines"] = "lines", encode: None = None
) -> _millstream.ByteSink[object]: ...
@overload
def write(path: Path, framing: str = "lines", encode: None = None) -> _millstream.ByteSink[Frame]: ...
@overload
def write(
    path: Path, framing: str = "lines", encode: Callable[[U], Frame] = ...
) -> _millstream.ByteSink[U]: ...
def write(
    path: Path, framing: str = "lines", encode: Callable[[Any], Any] | None = None
) -> _millstream.ByteSink[Any]:
    """Writes a file anew: bytes, str or records, or what ``encode`` makes of them; as lines, ``str`` of
    anything."""
    return _millstream.file_write(path, framing=framing, encode=encode)


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
def write_by_key(
    directory: Path,
    suffix: str = "",
    framing: str = "lines",
    encode: Callable[[Any], Any] | None = None,
    max_open: int = 128,
) -> _millstream.KeyedSink[Any]:
    """Writes the values of each key to a file of its own in ``directory``; a sink for streams behind
    ``key_by``.

    The directory belongs to the sink: it is made if it is not there, and what an earlier run wrote there is
    removed; one with other files is refused. A file is named by its key and ``suffix``: letters, digits,
    ``-``, ``_`` and ``.`` stand for themselves, every other byte is ``%`` and two hexadecimal digits, the
    empty key is ``%``, a name of more than 200 bytes is shortened and ends with a hash. Members of a tuple
    have commas (``%2C``) between them. All keys have one type: the keys ``1`` and ``"1"`` would have one
    file, which is an error. Values are written as :func:`write` does. At most ``max_open`` files are open at
    once.

    With a state directory a run that resumes takes all files back to the last commit.

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
        max_open=_positive("max_open", max_open),
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
) -> _millstream.ByteSource[U]: ...
def directory(
    path: Path,
    pattern: str = "*",
    partitions: int = 1,
    follow: Seconds | None = None,
    framing: str = "lines",
    decode: type | Callable[[bytes], Any] | None = None,
    max_frame: int = MAX_FRAME,
) -> _millstream.ByteSource[Any]:
    """The lines (or frames) of all files in a directory whose names match ``pattern``, in the order of the
    names.

    In a pattern ``*`` stands for any characters, ``?`` for one, ``[a-z]`` for one of several; with a ``/`` it
    is matched with paths below the directory, in which ``**`` stands for any directories. Names that begin
    with a dot are left out. Each file is resumed where it was. The source ends with the files that were there
    when it began; with ``follow`` it looks for new ones every so many seconds, for ever. A file that has
    grown is read on. Files ought to be complete when they appear: write them under a name that does not
    match, and rename them.

    So many ``partitions`` are read at once, each on one worker; a file belongs to one by its name. A run that
    resumes has as many as the one before it. ``decode`` as for :func:`frames`, ``str`` for lines unless
    given.

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
        partitions=_positive("partitions", partitions),
        follow=_poll(follow),
        framing=framing,
        max_frame=max_frame,
        decode=decode,
    )


@overload
def csv(
    path: Path | Sequence[Path],
    header: Literal[False],
    delimiter: str = ",",
    quote: str | None = '"',
    max_record: int = MAX_FRAME,
) -> _millstream.CsvSource[list[str]]: ...
@overload
def csv(
    path: Path | Sequence[Path],
    header: Literal[True] | Sequence[str] = True,
    delimiter: str = ",",
    quote: str | None = '"',
    max_record: int = MAX_FRAME,
) -> _millstream.CsvSource[dict[str, str]]: ...
def csv(
    path: Path | Sequence[Path],
    header: bool | Sequence[str] = True,
    delimiter: str = ",",
    quote: str | None = '"',
    max_record: int = MAX_FRAME,
) -> _millstream.CsvSource[Any]:
    """The rows of a CSV file (UTF-8); of several files, each is a partition.

    A row is a dict by the names in the first record of its file, or by the names that ``header`` gives; with
    ``header=False`` it is a list. Fields are text, read as Python's module ``csv`` reads them; with
    ``quote=None`` quotes are characters like others. Empty lines are skipped. A row with another number of
    fields than names, or that is not UTF-8, does as the source's ``on_error`` says, and the error names file,
    line and column. A quote that is not closed ends the flow, as does a record of more than ``max_record``
    bytes.

    >>> import millstream as ms
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> flow, out = ms.Flow("prices"), ms.testing.collect()
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "prices.csv")
    ...     _ = path.write_text('name,price\\n"tea, green",3\\n')
    ...     flow.source("prices", ms.files.csv(path)).sink("out", out)
    ...     _ = ms.run(flow)
    >>> out
    [{'name': 'tea, green', 'price': '3'}]
    """
    dialect = (delimiter, quote, _header(header))
    return _millstream.csv_read(_paths(path), dialect=dialect, max_record=max_record)


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
) -> _millstream.CsvSource[dict[str, str]]: ...
def csv_directory(
    path: Path,
    pattern: str = "*.csv",
    header: bool | Sequence[str] = True,
    delimiter: str = ",",
    quote: str | None = '"',
    partitions: int = 1,
    follow: Seconds | None = None,
    max_record: int = MAX_FRAME,
) -> _millstream.CsvSource[Any]:
    """The rows of all CSV files in a directory: as :func:`csv` reads a file, and :func:`directory` a
    directory."""
    return _millstream.csv_directory(
        path,
        pattern,
        partitions=_positive("partitions", partitions),
        follow=_poll(follow),
        dialect=(delimiter, quote, _header(header)),
        max_record=max_record,
    )


@overload
def write_csv(
    path: Path, fields: None = None, delimiter: str = ",", quote: str = '"'
) -> _millstream.ByteSink[Sequence[object]]: ...
@overload
def write_csv(
    path: Path, fields: Sequence[str], delimiter: str = ",", quote: str = '"'
) -> _millstream.ByteSink[Row]: ...
def write_csv(
    path: Path, fields: Sequence[str] | None = None, delimiter: str = ",", quote: str = '"'
) -> _millstream.ByteSink[Any]:
    """Writes rows to a CSV file, which is made anew: dicts, of which ``fields`` says the order, or sequences.

    With ``fields`` the file begins with them as its header; a dict without one of them has an empty field
    there, one with another key is an error. Lines end with LF.

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
    return _millstream.file_write(path, framing=None, encode=encode, preamble=head)


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
def write_csv_by_key(
    directory: Path,
    fields: Sequence[str] | None = None,
    delimiter: str = ",",
    quote: str = '"',
    suffix: str = ".csv",
    max_open: int = 128,
) -> _millstream.KeyedSink[Any]:
    """A CSV file for each key: rows as for :func:`write_csv`, files as for :func:`write_by_key`."""
    encode, head = _csv_rows(fields, delimiter, quote)
    return _millstream.file_write_by_key(
        directory,
        suffix=suffix,
        framing=None,
        encode=encode,
        preamble=head,
        max_open=_positive("max_open", max_open),
    )


def _positive(name: str, number: object) -> int:
    if not isinstance(number, int) or number < 1:
        raise FlowUsageError(f"{name} is a number, 1 or more, not {number!r}")
    return number


def _poll(follow: Seconds | None) -> float | None:
    return None if follow is None else nanos("follow", follow) / 1e9


def _header(header: bool | Sequence[str]) -> bool | list[str]:
    if isinstance(header, bool):
        return header
    names = [] if isinstance(header, str) else list(header)
    if not names or len({*names}) < len(names) or not all(isinstance(name, str) for name in names):
        raise FlowUsageError(f"header is True, False or the names of the fields, each once, not {header!r}")
    return names


class _Echo:
    """A file that gives back what is written: so a row of CSV becomes text."""

    def write(self, text: str) -> str:
        return text


def _csv_rows(fields: Sequence[str] | None, delimiter: str, quote: str) -> tuple[Callable[[Row], str], bytes]:
    """What makes a line of a row, and the line of the header."""
    from csv import writer

    names = None if fields is None else _header(fields)
    if isinstance(names, bool):
        raise FlowUsageError(f"fields are the names of the fields, each once, not {fields!r}")
    known = {*names} if names is not None else set()

    def line(row: Sequence[object]) -> str:
        # A writer of its own, because several workers write; with this line end both CR and LF are quoted.
        made = writer(_Echo(), delimiter=delimiter, quotechar=quote, lineterminator="\r\n").writerow(row)
        text: str = made
        return text[:-2] + "\n"

    def encode(row: Row) -> str:
        if isinstance(row, (str, bytes)) or not hasattr(row, "__len__"):
            raise TypeError(f"a row is a dict or a sequence, not {type(row).__name__}")
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
