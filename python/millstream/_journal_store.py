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

from . import _millstream
from ._journal_errors import JournalUsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from datetime import datetime, timedelta
    from typing import Literal, TypeAlias

    Seconds: TypeAlias = float | timedelta
    Sync: TypeAlias = Literal["never", "always"] | Seconds

__all__ = ["Journal"]

MiB = 1 << 20


class Journal(_millstream.Journal):
    """A journal: a directory that holds a log of records, numbered from 0.

    ``mode`` is ``"a"`` to append to a journal, which is made when there is none, ``"x"`` to make one that
    must not be there yet, and ``"r"`` to read. Any number of processes may have it open, to append and to
    read.

    ``sync`` says when a record survives a loss of power: ``"never"`` (when the system likes to), ``"always"``
    (before ``append`` returns), or a number of seconds or timedelta: in the background, so that what a loss
    of power takes was appended within this time. An append that comes while a sync is late waits for it. The
    death of a process never costs a record that was appended.

    ``segment_bytes`` is the size of a file of a journal that is made, a multiple of 64 KiB;
    ``record_bytes_max`` the longest record that is appended. ``exclusive`` keeps other openings that could
    write away. ``retain_bytes``, ``retain_age`` and ``retain_for_cursors`` remove old records as new ones
    come; see :meth:`prune`. ``busy_timeout`` is how many seconds an append waits for another process that
    does not end its own.

    Records are read by iterating, by number, and by slices of numbers; negative numbers count from the end:

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

    A record has ``sequence``, ``time_ns``, ``time``, ``body`` (bytes of its own) and ``view``, a memoryview
    of the mapped file: nothing is copied, and it stays valid as long as anybody has it.

    >>> journal[42].view
    <memory at 0x...>
    >>> journal[42].view.tobytes()
    b'order 42'

    A cursor is a named position that outlives the process:

    >>> with journal.cursor("billing") as cursor:
    ...     for record in journal.read(cursor.position, 3):
    ...         cursor.position = record.sequence + 1
    >>> journal.cursors()
    {'billing': 3}
    >>> journal.close()
    """

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
        if mode not in ("a", "r", "x"):
            raise JournalUsageError(f'mode is "a", "r" or "x", not {mode!r}')
        for name, value in (("segment_bytes", segment_bytes), ("record_bytes_max", record_bytes_max)):
            if not 0 <= value < 1 << 32:
                raise JournalUsageError(f"{name} = {value}: a number of bytes from 0 to 4 GiB")
        retain = retain_bytes, _seconds("retain_age", retain_age), retain_for_cursors
        return super().__new__(
            cls,
            os.fspath(path),
            mode,
            _sync(sync),
            segment_bytes,
            record_bytes_max,
            exclusive,
            retain,
            _seconds("busy_timeout", busy_timeout) or 0.0,
        )

    def tail(
        self,
        start: int | None = None,
        *,
        timeout: Seconds | None = None,
        wait: Literal["block", "backoff", "spin"] = "block",
    ) -> _millstream.JournalReader:
        """The records from ``start`` on, and then each one that is appended, by any process.

        Without ``start`` only those that come. Ends when none has come for ``timeout`` seconds, and when the
        journal or the tail itself is closed; without ``timeout`` it waits for ever. Other threads run
        meanwhile.

        ``wait`` says how: ``"block"`` sleeps until a writer wakes it; ``"backoff"`` looks again and again,
        less and less often; ``"spin"`` never stops looking, for the shortest latency and a core of its own.

        >>> import millstream as ms
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder, ms.Journal(folder) as journal:
        ...     _ = journal.append_many(["a", "b", "c"])
        ...     [record.body for record in journal.tail(1, timeout=0)]
        [b'b', b'c']
        """
        return self._tail(start, _seconds("timeout", timeout), wait)

    def wait_follower(self, sequence: int, *, timeout: Seconds | None = None, followers: int = 1) -> None:
        """Wait until this many followers on other machines have acknowledged the record ``sequence``.

        A follower is a ``millstream journal follow`` of this journal; what its acknowledgement means is said
        by its ``--sync``. All earlier records are acknowledged with it. After ``timeout`` seconds it is a
        :class:`RecordNotFollowedError`, which is a :class:`TimeoutError`; the record stays in the journal.
        Without ``timeout`` it waits for ever. Other threads run meanwhile.

        >>> import millstream as ms
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder, ms.Journal(folder) as journal:
        ...     try:
        ...         journal.wait_follower(journal.append("order"), timeout=0)
        ...     except TimeoutError as error:
        ...         print(error)
        record 0 is in the journal, but 0 of 1 follower(s) had acknowledged it after 0ns
        """
        self._wait_follower(sequence, _seconds("timeout", timeout), followers)

    def seek(self, *, time: datetime | float) -> int:
        """The number of the first record of this time or later; ``next`` when all are earlier.

        ``time`` is a datetime with a time zone, an int of nanoseconds since 1970 (as ``record.time_ns`` and
        ``time.time_ns()``), or a float of seconds since 1970 (as ``time.time()``).

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
        """Remove old records, whole segments at a time, and return the number of the first one that is left.

        Until all segments have ``bytes`` at most, and those whose last record is older than ``age``. What a
        cursor has not passed stays if ``keep_for_cursors`` is set; with no other limit, all that every cursor
        has passed is removed.
        """
        return self._prune(bytes, _seconds("age", age), keep_for_cursors)


def _seconds(name: str, value: Seconds | None) -> float | None:
    from datetime import timedelta

    if isinstance(value, timedelta):
        value = value.total_seconds()
    if value is None or 0 <= value < 1e12:
        return value
    raise JournalUsageError(f"{name} is a number of seconds from 0 on, not {value!r}")


def _sync(sync: Sync) -> float | None:
    """None for never, 0 for always, or seconds."""
    if sync == "never":
        return None
    if sync == "always":
        return 0.0
    if isinstance(sync, str) or not (seconds := _seconds("sync", sync)):
        raise JournalUsageError(f'sync is "never", "always" or a number of seconds above 0, not {sync!r}')
    return seconds


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
    """Memory that `keeper` keeps mapped, as a read-only view, which keeps `keeper`."""
    import ctypes

    memory = (ctypes.c_ubyte * length).from_address(address)
    memory.keeper = keeper  # type: ignore[attr-defined]
    return memoryview(memory).cast("B").toreadonly()
