"""What objects contain: rows of Parquet, JSON lines, or lines of text; each is written, counted and read.

Lines may be compressed with gzip or zstd: the sink appends ``.gz`` or ``.zst`` to the name.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import Protocol

from .. import _millstream
from .._connectors.adapter.undecoded import Undecoded
from .._connectors.file_options import MAX_FRAME
from .._errors.flow import FlowUsageError, show
from .._values.json import dump, load
from .errors import ObjectError, RowError
from .store import Found, Prefix, Reader

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from typing import Any


ROWS = 1000
"""How many rows of Parquet are passed on at once."""
ENDINGS = {"gzip": ".gz", "zstd": ".zst"}
"""The end of the name of an object of lines, by its compression."""
CODECS = ("auto", "zstd", "snappy", "gzip", "brotli", "lz4", None)
"""The compression of Parquet."""


class Format(Protocol):
    """The contents of an object.

    A reader's place in an object is a number: of rows for Parquet, of bytes for lines, after decompression.
    """

    @property
    def ending(self) -> str:
        """The end of the names of objects."""

    def encoder(self) -> Callable[[Any], bytes] | None:
        """What makes the record of an item for the outbox; None: items are saved as they are."""

    def join(self, batch: list[Any], first: int) -> bytes:
        """The object with the items of a batch, whose first has the number ``first``."""

    def read(self, prefix: Prefix, found: Found, start: int) -> Iterator[tuple[int, list[Any]]]:
        """The items from a place on, in lists with the place after each."""


def import_pyarrow() -> Any:
    """Imports the library; an error that names the remedy where it is missing."""
    try:
        import pyarrow  # type: ignore[import-untyped]
        import pyarrow.parquet  # type: ignore[import-untyped]
    except ImportError as error:
        raise ObjectError(f"Parquet needs pyarrow ({error}): pip install 'millstream[s3,parquet]'") from None
    return pyarrow


class Lines:
    """Lines of text in UTF-8.

    Args:
        max_line: the longest line that is read, in bytes.
        compression: ``"gzip"``, ``"zstd"`` or None. ``"auto"``: of an object that is read by the end of its
            name; no compression of objects that are written.
    """

    kind = ".txt"

    def __init__(self, max_line: int = MAX_FRAME, compression: str | None = "auto") -> None:
        if compression not in ("auto", *ENDINGS, None):
            raise FlowUsageError(f'compression is "auto", "gzip", "zstd" or None, not {compression!r}')
        self.max_line = max_line
        self.compression = compression

    @property
    def ending(self) -> str:
        return self.kind + ENDINGS.get(self.compression or "", "")

    def encoder(self) -> Callable[[Any], bytes] | None:
        return self.encode

    def encode(self, item: Any) -> bytes:
        if not isinstance(item, str):
            raise TypeError(f"a line is text, not {type(item).__name__}")
        if "\n" in item:
            raise ValueError(f"a line has no line ends, unlike {show(item)}")
        return item.encode()

    def decode(self, line: bytes) -> Any:
        return line.removesuffix(b"\r").decode()

    def join(self, batch: list[bytes], first: int) -> bytes:
        content = b"\n".join(batch) + b"\n"
        return _millstream.compress(content, self.compression) if self.compression in ENDINGS else content

    def chunks(self, prefix: Prefix, found: Found, start: int = 0) -> Iterator[bytes]:
        """The contents of an object from a place on."""
        compression = self.compression
        if compression == "auto":
            ends = (name for name, ending in ENDINGS.items() if found.name.endswith(ending))
            compression = next(ends, None)
        if compression is not None:
            yield from decompressed(prefix, found, compression, start)
        elif start < found.size:
            yield from prefix.chunks(found.name, start)

    def count(self, prefix: Prefix, found: Found) -> int:
        """How many lines an object has."""
        return sum(chunk.count(b"\n") for chunk in self.chunks(prefix, found))

    def read(self, prefix: Prefix, found: Found, start: int) -> Iterator[tuple[int, list[Any]]]:
        at = start
        rest = b""
        for chunk in self.chunks(prefix, found, start):
            lines = (rest + chunk).split(b"\n")
            rest = lines.pop()
            if lines:
                items, at = self.items(prefix, found, at, lines)
                yield at, items
            self.check_size(prefix, found, at, rest)
        if rest:
            items, at = self.items(prefix, found, at, [rest])
            # The last line has no line end.
            yield at - 1, items

    def items(self, prefix: Prefix, found: Found, at: int, lines: list[bytes]) -> tuple[list[Any], int]:
        """The items of complete lines, and the offset after them."""
        items: list[Any] = []
        for line in lines:
            self.check_size(prefix, found, at, line)
            try:
                items.append(self.decode(line))
            except ValueError as error:
                place = where(prefix, found, at)
                why = ObjectError(f"{place}: {show(line)}: {type(error).__name__}: {error}")
                items.append(Undecoded(line, why, None, place))
            at += len(line) + 1
        return items, at

    def check_size(self, prefix: Prefix, found: Found, at: int, line: bytes) -> None:
        if len(line) > self.max_line:
            text = f"a line has more than {self.max_line} bytes (max_line)"
            raise ObjectError(f"{where(prefix, found, at)}: {text}")


class JsonLines(Lines):
    """A JSON value on each line."""

    kind = ".jsonl"

    def encode(self, item: Any) -> bytes:
        return dump(item).encode()

    def decode(self, line: bytes) -> Any:
        return load(line)


class Parquet:
    """Rows of Parquet, which are dictionaries.

    Args:
        schema: the schema of pyarrow; None takes it from the rows of each object.
        compression: the codec of the columns; ``"auto"`` is zstd.
        without: columns that objects do not have.
    """

    ending = ".parquet"

    def __init__(
        self, schema: Any = None, compression: str | None = "auto", without: Collection[str] = ()
    ) -> None:
        self.pyarrow = import_pyarrow()
        if schema is not None and not isinstance(schema, self.pyarrow.Schema):
            raise FlowUsageError(f"schema is a pyarrow.Schema, not {show(schema)}")
        if compression not in CODECS:
            raise FlowUsageError(f"compression of Parquet is one of {CODECS}, not {compression!r}")
        if schema is not None and without:
            fields = [field for field in schema if field.name not in without]
            schema = self.pyarrow.schema(fields, metadata=schema.metadata)
        self.schema = schema
        self.compression = "zstd" if compression == "auto" else compression or "none"

    def encoder(self) -> None:
        return None

    def join(self, batch: list[Any], first: int) -> bytes:
        return self.content(batch, range(first, first + len(batch)))

    def content(
        self, batch: list[Any], numbers: Sequence[int], metadata: Mapping[str, str] | None = None
    ) -> bytes:
        """An object with rows that have these numbers, and with metadata in its footer."""
        table = self.checked(batch, numbers)
        if metadata:
            table = table.replace_schema_metadata({**(table.schema.metadata or {}), **metadata})
        out = self.pyarrow.BufferOutputStream()
        self.pyarrow.parquet.write_table(table, out, compression=self.compression)
        return bytes(out.getvalue())

    def checked(self, batch: list[Any], numbers: Sequence[int]) -> Any:
        """The table of rows that have these numbers.

        Raises:
            RowError: one of them is none; the text has its number.
            ObjectError: they do not go together.
        """
        try:
            return self.table(batch)
        except (TypeError, ValueError, OverflowError, self.pyarrow.ArrowException) as error:
            index, error = self.refused(batch, error)
            row = "" if index is None else f"record {numbers[index]}, {show(batch[index])}: "
            text = " ".join(str(error).split())
            # Rows that do not go together are each fine: another division would hide that.
            kind = ObjectError if index is None else RowError
            raise kind(f"{row}no row of Parquet: {type(error).__name__}: {text}") from None

    def table(self, batch: list[Any]) -> Any:
        for row in batch:
            if not hasattr(row, "keys"):
                raise TypeError(f"a row is a mapping from columns to values, not {type(row).__name__}")
        names = dict.fromkeys(name for row in batch for name in row)
        if self.schema is not None:
            unknown = [name for name in names if name not in self.schema.names]
            if unknown:
                raise ValueError(f"the schema has no column {unknown[0]!r}")
            names = dict.fromkeys(self.schema.names)
        if not names:
            raise ValueError("a row has no columns")
        columns = {name: [row.get(name) for row in batch] for name in names}
        for name in names if self.schema is not None else ():
            if not self.schema.field(name).nullable and None in columns[name]:
                raise ValueError(f'the column "{name}" is required, and has no value')
        return self.pyarrow.table(columns, schema=self.schema)

    def refused(self, batch: list[Any], error: Exception) -> tuple[int | None, Exception]:
        """The index of the first row that is none alone, and why; None if each is one."""
        for index, row in enumerate(batch):
            try:
                self.table([row])
            except (TypeError, ValueError, OverflowError, self.pyarrow.ArrowException) as own:
                return index, own
        return None, error

    @contextmanager
    def opened(self, prefix: Prefix, found: Found) -> Iterator[Any]:
        """Opens an object; what pyarrow reports of it in the block is an error of the object."""
        reader = Reader(prefix, found)
        try:
            yield self.pyarrow.parquet.ParquetFile(reader)
        # Of damaged pages it reports an OSError, which is none of the store.
        except (self.pyarrow.ArrowException, OSError, ValueError, OverflowError) as error:
            if reader.failure is not None:
                raise reader.failure from None
            text = " ".join(str(error).split())
            raise ObjectError(f"{where(prefix, found)}: it is not Parquet, or damaged: {text}") from None

    def count(self, prefix: Prefix, found: Found) -> int:
        """How many rows an object has."""
        with self.opened(prefix, found) as file:
            return int(file.metadata.num_rows)

    def read(self, prefix: Prefix, found: Found, start: int) -> Iterator[tuple[int, list[Any]]]:
        with self.opened(prefix, found) as file:
            at = 0
            for group in range(file.num_row_groups):
                rows = file.metadata.row_group(group).num_rows
                if at + rows <= start:
                    at += rows
                    continue
                for part in file.iter_batches(batch_size=ROWS, row_groups=[group]):
                    skip = min(max(0, start - at), part.num_rows)
                    at += part.num_rows
                    if skip < part.num_rows:
                        yield at, part.slice(skip).to_pylist()


def count_items(prefix: Prefix, found: Found) -> int:
    """How many items an object has, in the format of its name: an earlier run may have had another."""
    is_parquet = found.name.endswith(Parquet.ending)
    return Parquet().count(prefix, found) if is_parquet else Lines().count(prefix, found)


def decompressed(prefix: Prefix, found: Found, compression: str, start: int) -> Iterator[bytes]:
    """The contents of a compressed object from a place on."""
    try:
        for chunk in _millstream.Decompressor(prefix.chunks(found.name), compression):
            if start < len(chunk):
                yield chunk[start:]
            start = max(0, start - len(chunk))
        if start:
            raise ObjectError(
                f"{where(prefix, found)}: it was replaced while it was read: its contents end {start} bytes "
                "before the place that was read last"
            )
    except ValueError as error:
        raise ObjectError(f"{where(prefix, found)}: {error}") from None


def where(prefix: Prefix, found: Found, offset: int | None = None) -> str:
    """An object, and an offset in it, in messages."""
    at = "" if offset is None else f", offset {offset}"
    return f'{prefix.address}, object "{prefix.path(found.name)}"{at}'
