"""Journals: durable logs of records that any process of the machine may append to and tail.

>>> import millstream as ms
>>> from tempfile import TemporaryDirectory
>>> with TemporaryDirectory() as folder, ms.Journal(folder) as journal:
...     journal.append(b"first")
...     journal.append_many([b"second", "third"])
...     [record.body for record in journal]
0
range(1, 3)
[b'first', b'second', b'third']
"""

from __future__ import annotations

import os

from .. import _millstream
from .._errors.journal import JournalUsageError
from .._values.checked import checked_as
from .._values.durations import Sync, seconds, seconds_or_none, sync_seconds

TYPE_CHECKING = False
if TYPE_CHECKING:
    from datetime import datetime
    from typing import Literal

    from .._values.durations import Seconds


MiB = 1 << 20


class Journal(_millstream.Journal):
    """A durable log of records, numbered from 0, in a directory. Any number of processes may append to it
    and read it.

    The death of a process never loses a record that was appended. Records are read by iterating, by number,
    and by slices of numbers; negative numbers count from the end. A record is a :class:`JournalRecord`.

    Args:
        path: the directory.
        mode: ``"a"`` appends to a journal and creates it if it does not exist, ``"x"`` creates it and
            raises if it exists, ``"r"`` reads only.
        sync: when a record survives a loss of power: ``"never"`` (when the system writes it), ``"always"``
            (before ``append`` returns), or an interval such as ``"10ms"``: a loss of power
            takes at most the records of this interval. An append waits for a sync that is late.
        segment_bytes: the size of a segment file, a multiple of 64 KiB, for a journal that is created.
        record_bytes_max: the size of the longest record that may be appended.
        exclusive: whether opening the journal a second time to write is an error.
        retain_bytes: old segments are removed above this size, when records are appended; see
            :meth:`prune`.
        retain_age: segments whose records are all older, are removed.
        retain_for_cursors: whether records that a cursor has not passed are retained.
        busy_timeout: how long an append waits for another process that does not finish its own.

    Raises:
        JournalUsageError: an option is out of range.
        JournalError: the journal cannot be opened; the subclass says why.

    Example:
        >>> import millstream as ms
        >>> from tempfile import TemporaryDirectory
        >>> folder = TemporaryDirectory()
        >>> journal = ms.Journal(folder.name, sync=0.1)
        >>> journal.append_many(f"order {n}" for n in range(100))
        range(0, 100)
        >>> journal[42].body, bytes(journal[-1]), len(journal)
        (b'order 42', b'order 99', 100)
        >>> [record.sequence for record in journal[10:13]]
        [10, 11, 12]
        >>> with journal.cursor("billing") as cursor:
        ...     for record in journal.read(cursor.position, 3):
        ...         cursor.position = record.sequence + 1
        >>> journal.cursors()
        {'billing': 3}
        >>> journal.close()
    """

    @checked_as(JournalUsageError)
    def __new__(
        cls,
        path: str | os.PathLike[str],
        mode: Literal["a", "r", "x"] = "a",
        *,
        sync: Sync = "never",
        segment_bytes: int = 64 * MiB,
        record_bytes_max: int = 16 * MiB,
        exclusive: bool = False,
        retain_bytes: int | None = None,
        retain_age: Seconds | None = None,
        retain_for_cursors: bool = False,
        busy_timeout: Seconds = 10.0,
    ) -> Journal:
        for name, value in (("segment_bytes", segment_bytes), ("record_bytes_max", record_bytes_max)):
            if not 0 <= value < 1 << 32:
                raise JournalUsageError(f"{name} = {value}: a number of bytes from 0 to 4 GiB")
        retain = (
            retain_bytes,
            seconds_or_none("retain_age", retain_age, 0, JournalUsageError),
            retain_for_cursors,
        )
        return super().__new__(
            cls,
            os.fspath(path),
            mode,
            sync_seconds(sync, JournalUsageError),
            segment_bytes,
            record_bytes_max,
            exclusive,
            retain,
            seconds("busy_timeout", busy_timeout, 0, JournalUsageError),
        )

    def tail(
        self,
        start: int | None = None,
        *,
        timeout: Seconds | None = None,
        wait: Literal["block", "backoff", "spin"] = "block",
    ) -> _millstream.JournalReader:
        """Iterates over the records from ``start`` on, and then over each record that any process appends.

        The iteration ends when no record has come for ``timeout``, or when the journal or the reader is
        closed. Other threads run while it waits.

        Args:
            start: the number of the first record. None: only records that are appended from now on.
            timeout: the time to wait at most. None waits without a limit.
            wait: ``"block"`` sleeps until a writer wakes it; ``"backoff"`` polls less and less often;
                ``"spin"`` polls without a pause, for the shortest latency, and uses a core.

        Returns:
            The reader.

        Raises:
            ValueError: ``wait`` is unknown.
            JournalUsageError: ``timeout`` is out of range.

        Example:
            >>> import millstream as ms
            >>> from tempfile import TemporaryDirectory
            >>> with TemporaryDirectory() as folder, ms.Journal(folder) as journal:
            ...     _ = journal.append_many(["a", "b", "c"])
            ...     [record.body for record in journal.tail(1, timeout=0)]
            [b'b', b'c']
        """
        return self._tail(start, seconds_or_none("timeout", timeout, 0, JournalUsageError), wait)

    def wait_follower(self, sequence: int, *, timeout: Seconds | None = None, followers: int = 1) -> None:
        """Waits until followers on other machines have acknowledged a record, and with it all earlier ones.

        A follower is a ``millstream journal follow`` of this journal; its ``--sync`` says what its
        acknowledgement means. It must count: ``millstream journal followers`` lists those that do, and why
        others do not. Other threads run meanwhile.

        Args:
            sequence: the number of the record.
            timeout: the time to wait at most. None waits without a limit.
            followers: how many followers must have acknowledged it.

        Raises:
            RecordNotFollowedError: (a ``TimeoutError``) the followers have not acknowledged the record in
                time; it stays in the journal. The message names followers that do not count, and what to do.

        Example:
            >>> import millstream as ms
            >>> from tempfile import TemporaryDirectory
            >>> with TemporaryDirectory() as folder, ms.Journal(folder) as journal:
            ...     try:
            ...         journal.wait_follower(journal.append("order"), timeout=0)
            ...     except TimeoutError as error:
            ...         print(error)
            record 0 is in the journal, but 0 of 1 follower(s) had acknowledged it after 0ns
        """
        self._wait_follower(sequence, seconds_or_none("timeout", timeout, 0, JournalUsageError), followers)

    def seek(self, *, time: datetime | float) -> int:
        """Returns the number of the first record of a time or later.

        Args:
            time: a datetime with a time zone, an int of nanoseconds since 1970 (as ``record.time_ns``), or
                a float of seconds since 1970 (as ``time.time()``).

        Returns:
            The number; ``next`` when all records are earlier.

        Raises:
            JournalUsageError: the time has no time zone, or is not in the years 1970 to 2554.

        Example:
            >>> import millstream as ms
            >>> from tempfile import TemporaryDirectory
            >>> with TemporaryDirectory() as folder, ms.Journal(folder) as journal:
            ...     _ = journal.append("old"), journal.append("new")
            ...     journal.seek(time=0), journal.seek(time=journal[1].time_ns), journal.seek(time=1e10)
            (0, 1, 2)
        """
        return self._seek(_nanoseconds(time))

    def prune(
        self,
        *,
        bytes: int | None = None,
        age: Seconds | None = None,
        keep_for_cursors: bool = False,
    ) -> int:
        """Removes old records, whole segments at a time.

        Without a limit, all segments that every cursor has passed are removed if ``keep_for_cursors`` is
        set.

        Args:
            bytes: segments are removed until all together have at most so many bytes.
            age: segments whose last record is older, are removed.
            keep_for_cursors: whether records that a cursor has not passed are retained.

        Returns:
            The number of the oldest record that is left.

        Raises:
            JournalUsageError: ``age`` is out of range.

        Example:
            >>> import millstream as ms
            >>> from tempfile import TemporaryDirectory
            >>> with TemporaryDirectory() as folder, ms.Journal(folder) as journal:
            ...     _ = journal.append("order")
            ...     journal.prune(bytes=0)
            0
        """
        return self._prune(bytes, seconds_or_none("age", age, 0, JournalUsageError), keep_for_cursors)


def _nanoseconds(time: datetime | float) -> int:
    """
    >>> from datetime import datetime, timedelta, timezone
    >>> _nanoseconds(datetime(1970, 1, 1, 1, 0, 0, 250_000, timezone(timedelta(hours=1))))
    250000000
    >>> _nanoseconds(7), _nanoseconds(0.25)
    (7, 250000000)
    """
    from datetime import datetime, timedelta, timezone

    if isinstance(time, datetime):
        if time.tzinfo is None:
            raise JournalUsageError(f"{time!r} has no time zone")
        time = (time - datetime(1970, 1, 1, tzinfo=timezone.utc)) // timedelta(microseconds=1) * 1000
    elif isinstance(time, float):
        time = int(time * 1e9) if abs(time) < 1e18 else -1
    if not 0 <= time < 1 << 64:
        raise JournalUsageError(f"a time is within the years 1970 to 2554, not {time!r}")
    return time


def _datetime(time_ns: int) -> datetime:
    """
    >>> _datetime(1_500_000_999)
    datetime.datetime(1970, 1, 1, 0, 0, 1, 500000, tzinfo=datetime.timezone.utc)
    """
    from datetime import datetime, timedelta, timezone

    return datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(microseconds=time_ns // 1000)


def _memory(address: int, length: int, keeper: object) -> memoryview:
    """A read-only view of memory that stays mapped while `keeper` lives; the view refers to `keeper`."""
    import ctypes

    memory = (ctypes.c_ubyte * length).from_address(address)
    memory.keeper = keeper  # type: ignore[attr-defined]
    return memoryview(memory).cast("B").toreadonly()
