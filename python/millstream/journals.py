"""Journals as sources and sinks of flows. With a state directory both are exact.

:class:`millstream.Journal` is the same journal outside of flows.
"""

from __future__ import annotations

from typing import overload

from . import _millstream
from ._connectors.file_options import Path
from ._errors.flow import FlowUsageError
from ._values.checked import checked
from ._values.durations import Sync, sync_seconds

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime
    from typing import Any, Literal

    from ._values.types import Decoder, Frame, U

__all__ = ["append", "read"]


@overload
def read(
    path: Path,
    start: int | Literal["first", "next"] = "first",
    stop: int | None = None,
    time: datetime | float | None = None,
    follow: bool = False,
    cursor: str | None = None,
    decode: None = None,
    local: bool = False,
) -> _millstream.ByteSource[bytes]: ...
@overload
def read(
    path: Path,
    start: int | Literal["first", "next"] = "first",
    stop: int | None = None,
    time: datetime | float | None = None,
    follow: bool = False,
    cursor: str | None = None,
    decode: Decoder[U] = ...,
    local: bool = False,
) -> _millstream.ByteSource[U]: ...
@checked
def read(
    path: Path,
    start: int | Literal["first", "next"] = "first",
    stop: int | None = None,
    time: datetime | float | None = None,
    follow: bool = False,
    cursor: str | None = None,
    decode: type | Callable[[bytes], Any] | None = None,
    local: bool = False,
) -> _millstream.ByteSource[Any]:
    """Reads the records of a journal, up to its end when the flow begins.

    At most one of ``start``, ``time`` and ``cursor`` may be given.

    Args:
        path: the directory of the journal.
        start: the first record: a sequence number, ``"first"`` for the oldest one, ``"next"`` for those
            appended from now on.
        stop: the sequence number before which reading ends.
        time: begins with the first record of this time or later; as for :meth:`millstream.Journal.seek`.
        follow: whether the source waits for further records, without end.
        cursor: the name of a cursor at which reading begins and which is moved: when an epoch is committed,
            or without a state directory after items were passed on.
        decode: makes an item of the bytes: ``str``, ``bytes``, a subclass of :class:`millstream.Record`, or
            a function. None leaves bytes.
        local: whether each process reads the journal of its own machine, in a flow on several machines; see
            :class:`millstream.Cluster`. Otherwise one process reads it for all.

    Returns:
        A source of bytes, or of what ``decode`` makes of them.

    Raises:
        FlowUsageError: ``start`` is out of range, or several beginnings are given.

    Example:
        >>> import millstream as ms
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder, ms.Journal(folder) as journal:
        ...     _ = journal.append_many(["a", "b", "c"])
        ...     flow, out = ms.Flow("read"), ms.testing.collect()
        ...     flow.source("letters", ms.journals.read(folder, start=1, decode=str)).sink("out", out)
        ...     _ = ms.run(flow)
        >>> out
        ['b', 'c']
    """
    from ._stores.journal import _nanoseconds

    if sum([start != "first", time is not None, cursor is not None]) > 1:
        raise FlowUsageError("a journal is read from start, from a time or from a cursor: give one of them")
    number = 0 if start == "first" else None if start == "next" else start
    return _millstream.journal_read(
        path,
        start=None if time is not None else number,
        time_ns=None if time is None else _nanoseconds(time),
        stop=stop,
        follow=follow,
        cursor=cursor,
        decode=decode,
        local=local,
    )


@overload
def append(path: Path, encode: None = None, sync: Sync = "never") -> _millstream.ByteSink[Frame]: ...
@overload
def append(
    path: Path, encode: Callable[[U], Frame] = ..., sync: Sync = "never"
) -> _millstream.ByteSink[U]: ...
@checked
def append(
    path: Path, encode: Callable[[Any], Any] | None = None, sync: Sync = "never"
) -> _millstream.ByteSink[Any]:
    """Appends each item to a journal, as a record.

    With a state directory the journal is truncated to the last commit when the flow resumes, and its records
    are as durable as the commits. Other writers are refused from the start of the flow to its end in order;
    what they append after that stays.

    Args:
        path: the directory of the journal.
        encode: a function that makes bytes, ``str`` or a record of an item. None: items are that already.
        sync: when a record survives a loss of power, in runs without a state directory: ``"never"``,
            ``"always"``, or an interval such as ``"10ms"``.

    Returns:
        A sink of bytes, ``str``, records, or items for ``encode``.

    Example:
        >>> import millstream as ms
        >>> from tempfile import TemporaryDirectory
        >>> flow = ms.Flow("write")
        >>> with TemporaryDirectory() as folder:
        ...     numbers = flow.source("numbers", ms.testing.items([1, 2]))
        ...     numbers.map(str).sink("out", ms.journals.append(folder))
        ...     _ = ms.run(flow)
        ...     [record.body for record in ms.Journal(folder, "r")]
        [b'1', b'2']
    """
    return _millstream.journal_append(path, encode=encode, sync=sync_seconds(sync))
