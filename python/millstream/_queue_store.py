"""Durable queues in process: those of ``millstream queue serve``, without a server and a socket.

>>> import millstream as ms
>>> from tempfile import TemporaryDirectory
>>> with TemporaryDirectory() as folder, ms.Queues(folder) as queues:
...     jobs = queues["jobs"]
...     jobs.put("resize 17.png")
...     with jobs.open(timeout=5) as item:
...         print(item.body)
...     len(jobs)
b'resize 17.png'
0
"""

from __future__ import annotations

import os
from contextlib import contextmanager

from . import _millstream
from ._journal_errors import JournalUsageError
from ._journal_store import _seconds, _sync
from ._queue_errors import QueueUsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ._journal_store import Seconds, Sync
    from ._millstream import OpenItem, _Body

__all__ = ["Queue", "Queues"]


class Queues(_millstream.Queues):
    """A folder of durable queues. All threads of the process may use it; another process, or a server, may
    not have it at the same time.

    ``sync`` says when an item survives a loss of power: ``"always"`` (before ``put`` returns; puts at the
    same time share one sync), ``"never"`` (when the system likes to), or a number of seconds or timedelta.
    The death of the process never costs an item that was put. ``config`` is a TOML file as the server reads
    it, which may say more about each queue.

    ``queues["orders"]`` is a queue, which comes to be with its first item; ``queues["orders+audit"]`` is a
    fan-out queue, which gets a copy of all that is put into ``orders`` after it was first waited for or put
    into:

    >>> import millstream as ms
    >>> from tempfile import TemporaryDirectory
    >>> folder = TemporaryDirectory()
    >>> queues = ms.Queues(folder.name, sync=0.1)
    >>> queues["orders+audit"].get()
    >>> queues["orders"].put_many([b"one", b"two"])
    2
    >>> list(queues), len(queues["orders+audit"]), "other" in queues
    (['orders', 'orders+audit'], 2, False)
    >>> queues.close()
    """

    def __new__(
        cls,
        path: str | os.PathLike[str],
        *,
        sync: Sync = "always",
        config: str | os.PathLike[str] | None = None,
    ) -> Queues:
        try:
            seconds = _sync(sync)
        except JournalUsageError as error:
            raise QueueUsageError(str(error)) from None
        return super().__new__(cls, os.fspath(path), seconds, None if config is None else os.fspath(config))

    def __getitem__(self, name: str) -> Queue:
        return Queue(self, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())


class Queue(_millstream.Queue):
    """One durable queue: first in, first out. ``len`` is how many items wait in it.

    Iterating takes items until there are none left:

    >>> import millstream as ms
    >>> from tempfile import TemporaryDirectory
    >>> folder = TemporaryDirectory()
    >>> with ms.Queues(folder.name) as queues:
    ...     queue = queues["letters"]
    ...     queue.put_many(["a", "b", "c"]), queue.peek(), len(queue), list(queue)
    (3, b'a', 3, [b'a', b'b', b'c'])
    """

    def put(
        self,
        item: _Body,
        *,
        expires: Seconds | None = None,
        delay: Seconds = 0.0,
        flags: int = 0,
        sync: bool = False,
    ) -> None:
        """Put an item at the back: bytes, str (as UTF-8), a record, or another buffer.

        It expires after ``expires`` seconds, and nobody gets it before ``delay`` seconds have passed.
        ``flags`` is a number of your own, which comes back with the item. With ``sync`` it survives a loss
        of power when this returns, whatever the queue's policy is.
        """
        self._put(item, _time("expires", expires), _time("delay", delay) or 0.0, _flags(flags), sync)

    def put_many(
        self,
        items: Iterable[_Body],
        *,
        expires: Seconds | None = None,
        delay: Seconds = 0.0,
        flags: int = 0,
        sync: bool = False,
    ) -> int:
        """Put items in their order, which share their syncs; returns how many.

        If one is not taken, those before it are in the queue: the error's ``stored`` says how many.
        """
        return self._put_many(
            items, _time("expires", expires), _time("delay", delay) or 0.0, _flags(flags), sync
        )

    def get(self, timeout: Seconds | None = 0.0) -> bytes | None:
        """Take the next item; wait ``timeout`` seconds for it at most, without one (None) for ever.

        Who waits first is served first; other threads run meanwhile. The item has left the queue for good:
        with :meth:`open` it comes back if its reader fails.
        """
        return self._get(_time("timeout", timeout))

    @contextmanager
    def open(self, timeout: Seconds | None = 0.0) -> Iterator[OpenItem | None]:
        """Take the next item for as long as the block lasts: confirmed at its end, back in its place after an
        exception. None if there is no item within ``timeout`` seconds.

        >>> import millstream as ms
        >>> from tempfile import TemporaryDirectory
        >>> folder = TemporaryDirectory()
        >>> queues = ms.Queues(folder.name)
        >>> queues["jobs"].put("boil an egg")
        >>> try:
        ...     with queues["jobs"].open() as item:
        ...         raise RuntimeError("no fire")
        ... except RuntimeError:
        ...     pass
        >>> with queues["jobs"].open() as item:
        ...     item.body, item.deliveries
        (b'boil an egg', 1)
        >>> len(queues["jobs"])
        0
        >>> queues.close()
        """
        item = self._open(_time("timeout", timeout))
        try:
            yield item
        except BaseException:
            if item is not None:
                item.abort()
            raise
        if item is not None:
            item.close()

    def each(self, timeout: Seconds | None = None) -> Iterator[OpenItem]:
        """The items one by one, each confirmed when the next is asked for; ends when none has come for
        ``timeout`` seconds. The item at which the loop is left, by ``break`` or an exception, goes back.

        >>> import millstream as ms
        >>> from tempfile import TemporaryDirectory
        >>> folder = TemporaryDirectory()
        >>> with ms.Queues(folder.name) as queues:
        ...     _ = queues["jobs"].put_many(["a", "b", "c"])
        ...     for item in queues["jobs"].each(timeout=0):
        ...         if item.body == b"b":
        ...             break
        ...     len(queues["jobs"])
        2
        """
        while True:
            with self.open(timeout) as item:
                if item is None:
                    return
                yield item

    def __iter__(self) -> Iterator[bytes]:
        while (item := self.get()) is not None:
            yield item


def _flags(flags: int) -> int:
    if not isinstance(flags, int) or not 0 <= flags < 1 << 32:
        raise QueueUsageError(f"flags is a number from 0 to {(1 << 32) - 1}, not {flags!r}")
    return flags


def _time(name: str, value: Seconds | None) -> float | None:
    try:
        return _seconds(name, value)
    except JournalUsageError as error:
        raise QueueUsageError(str(error)) from None
    except TypeError:
        raise QueueUsageError(f"{name} is a number of seconds or a timedelta, not {value!r}") from None
