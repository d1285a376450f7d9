"""Durable queues in this process: those of ``millstream queue serve``, without a server and a socket.

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

from .. import _millstream
from .._errors.queue import QueueItemReturnedError, QueueUsageError
from .._values.checked import checked_as
from .._values.durations import Sync, seconds, seconds_or_none, sync_seconds

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from .._millstream import OpenItem
    from .._millstream_stores import _Body
    from .._values.durations import Seconds


class Queues(_millstream.Queues):
    """A directory of durable queues. All threads of a process may use it; another process may not open it
    meanwhile.

    The death of the process never loses an item that was put. ``queues["orders"]`` is a queue, which is
    created with its first item. ``queues["orders+audit"]`` is a fan-out queue: it receives a copy of each
    item that is put into ``orders`` after the fan-out queue was first used.

    Args:
        path: the directory.
        sync: when an item survives a loss of power: ``"always"`` (before ``put`` returns; concurrent puts
            share one sync), ``"never"`` (when the system writes it), or an interval such as ``"10ms"``.
        config: a TOML file with the options of the queues, as the server reads it.

    Raises:
        QueueUsageError: an option is out of range.
        QueuesBusyError: another process has the directory open.

    Example:
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

    @checked_as(QueueUsageError)
    def __new__(
        cls,
        path: str | os.PathLike[str],
        *,
        sync: Sync = "always",
        config: str | os.PathLike[str] | None = None,
    ) -> Queues:
        sync_s = sync_seconds(sync, QueueUsageError)
        return super().__new__(cls, os.fspath(path), sync_s, None if config is None else os.fspath(config))

    def __getitem__(self, name: str) -> Queue:
        return Queue(self, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())


class Queue(_millstream.Queue):
    """A durable queue, first in, first out. ``len`` is the number of its items; iterating takes items until
    it is empty.

    Args:
        queues: the directory of queues.
        name: the name of the queue.

    Example:
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
        """Puts an item at the end of the queue.

        Args:
            item: bytes, ``str`` (as UTF-8), a record, or another buffer.
            expires: the time after which the item is dropped. None: never.
            delay: the time that passes before the item is delivered.
            flags: a number of your own that is returned with the item.
            sync: whether the item survives a loss of power when this returns, whatever the policy of the
                queue is.

        Raises:
            QueueUsageError: an option is out of range.
            QueueFullError: the queue is at its limit.
            QueueItemTooLargeError: the item is too large.

        Example:
            >>> import millstream as ms
            >>> from tempfile import TemporaryDirectory
            >>> with TemporaryDirectory() as folder, ms.Queues(folder) as queues:
            ...     jobs = queues["jobs"]
            ...     jobs.put("resize 17.png", expires=60)
            ...     len(jobs)
            1
        """
        self._put(
            item,
            seconds_or_none("expires", expires, 0, QueueUsageError),
            seconds("delay", delay, 0, QueueUsageError),
            _flags(flags),
            sync,
        )

    def put_many(
        self,
        items: Iterable[_Body],
        *,
        expires: Seconds | None = None,
        delay: Seconds = 0.0,
        flags: int = 0,
        sync: bool = False,
    ) -> int:
        """Puts items at the end of the queue, in order. They share their syncs.

        If an item is refused, those before it are in the queue; ``stored`` of the error is their number.

        Args:
            items: the items, as for :meth:`put`.
            expires: the time after which an item is dropped. None: never.
            delay: the time that passes before an item is delivered.
            flags: a number of your own that is returned with each item.
            sync: whether the items survive a loss of power when this returns.

        Returns:
            The number of items.

        Raises:
            QueueUsageError: an option is out of range.
            QueueFullError: the queue is at its limit.
            QueueItemTooLargeError: an item is too large.

        Example:
            >>> import millstream as ms
            >>> from tempfile import TemporaryDirectory
            >>> with TemporaryDirectory() as folder, ms.Queues(folder) as queues:
            ...     jobs = queues["jobs"]
            ...     jobs.put_many(["a", "b"])
            2
        """
        return self._put_many(
            items,
            seconds_or_none("expires", expires, 0, QueueUsageError),
            seconds("delay", delay, 0, QueueUsageError),
            _flags(flags),
            sync,
        )

    def get(self, timeout: Seconds | None = 0.0) -> bytes | None:
        """Takes the next item and removes it.

        Waiting callers are served in FIFO order, and other threads run meanwhile. :meth:`open` returns the
        item to the queue if its reader fails.

        Args:
            timeout: the time to wait for an item. None waits without a limit.

        Returns:
            The bytes of the item; None if there is none in time.

        Raises:
            QueueUsageError: ``timeout`` is out of range.
            QueuesClosedError: the directory was closed.

        Example:
            >>> import millstream as ms
            >>> from tempfile import TemporaryDirectory
            >>> with TemporaryDirectory() as folder, ms.Queues(folder) as queues:
            ...     jobs = queues["jobs"]
            ...     jobs.put("a")
            ...     jobs.get(), jobs.get()
            (b'a', None)
        """
        return self._get(seconds_or_none("timeout", timeout, 0, QueueUsageError))

    @contextmanager
    def open(self, timeout: Seconds | None = 0.0) -> Iterator[OpenItem | None]:
        """Takes the next item for the duration of a ``with`` block.

        The item is confirmed at the end of the block, and returns to its position in the queue after an
        exception. It then counts as delivered in vain, but not after Ctrl-C or another exit.

        Args:
            timeout: the time to wait for an item. None waits without a limit.

        Returns:
            A context manager of the item, or of None if there is none in time.

        Raises:
            QueueUsageError: ``timeout`` is out of range.
            QueuesClosedError: the directory was closed.
            QueueItemReturnedError: at the end of the block: its time (``open_timeout``) was over before.

        Example:
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
        item = self._open(seconds_or_none("timeout", timeout, 0, QueueUsageError))
        try:
            yield item
        except BaseException as error:
            if item is not None:
                # Ctrl-C, an exit and the end of a loop are no failure of the item.
                item.abort(failed=isinstance(error, Exception))
            raise
        if item is not None and item.is_open and not item.close():
            raise QueueItemReturnedError(
                f"queue {self.name!r}: item {item.id} is not open any more, another reader may do it too: "
                "its open_timeout was over before the end of the block, which item.touch() prevents, or the "
                "queue was deleted"
            )

    def each(self, timeout: Seconds | None = None) -> Iterator[OpenItem]:
        """Iterates over the items; each is confirmed when the next one is asked for.

        The iteration ends when no item has come in time. An item at which the loop is left, by ``break`` or
        an exception, returns to the queue.

        Args:
            timeout: the time to wait for an item. None waits without a limit.

        Returns:
            An iterator of items.

        Raises:
            QueueUsageError: ``timeout`` is out of range.
            QueuesClosedError: the directory was closed.
            QueueItemReturnedError: when the next one is asked for: the time of the item was over before.

        Example:
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
