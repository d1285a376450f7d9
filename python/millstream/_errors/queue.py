"""The exceptions of queues. Each class is a :class:`QueueError` and the builtin exception that fits.

>>> import millstream as ms
>>> from tempfile import TemporaryDirectory
>>> with TemporaryDirectory() as folder, ms.Queues(folder) as queues:
...     try:
...         queues["a/b"]
...     except ValueError as error:
...         error
QueueUsageError('"a/b": queue name has a character that is not allowed: ...)
"""

from __future__ import annotations

import queue

__all__ = [
    "QueueDamageError",
    "QueueError",
    "QueueFullError",
    "QueueIOError",
    "QueueItemReturnedError",
    "QueueItemTooLargeError",
    "QueueUsageError",
    "QueuesBusyError",
    "QueuesClosedError",
    "QueuesForkedError",
]


class QueueError(Exception):
    """An error of queues.

    ``stored`` is how many items of a ``put_many`` are in the queue nevertheless. Those that are an
    ``OSError`` have the system's ``errno``, if there is one.
    """

    def __init__(self, message: str, errno: int | None = None, stored: int = 0) -> None:
        super().__init__(message)
        self.errno = errno
        self.stored = stored

    def __str__(self) -> str:
        # An OSError would show its number and name once more.
        return str(self.args[0])

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"


class QueueUsageError(QueueError, ValueError):
    """A name, an option or a configuration that is not valid."""


class QueuesClosedError(QueueError, ValueError):
    """The queues were closed."""


class QueueFullError(QueueError, queue.Full):
    """The queue is at its limit of items or bytes."""


class QueueItemTooLargeError(QueueError, ValueError):
    """The item is larger than an item of this queue may be."""


class QueueItemReturnedError(QueueError, TimeoutError):
    """The time of an open item was over before it was confirmed: it is back in its queue."""


class QueuesBusyError(QueueError, BlockingIOError):
    """Another process has the folder open, a server for instance."""


class QueueIOError(QueueError, OSError):
    """An error of the system, or a full disk."""


class QueueDamageError(QueueError, OSError):
    """The queue stays closed because it is damaged."""


class QueuesForkedError(QueueError, RuntimeError):
    """The queues were opened before a fork. The child must open them again."""


# Tracebacks name what users import.
for _name in __all__:
    globals()[_name].__module__ = "millstream"
