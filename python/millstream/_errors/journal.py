"""The exceptions of journals. Each class is a :class:`JournalError` and the builtin exception that fits.

>>> import millstream as ms
>>> try:
...     ms.Journal("no/such/place", mode="r")
... except FileNotFoundError as error:
...     error
JournalNotFoundError('no/such/place: there is no journal here')
"""

from __future__ import annotations

import io

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

__all__ = [
    "JournalBusyError",
    "JournalClosedError",
    "JournalDamageError",
    "JournalError",
    "JournalExistsError",
    "JournalForkedError",
    "JournalFullError",
    "JournalIOError",
    "JournalNotFoundError",
    "JournalPermissionError",
    "JournalPoisonedError",
    "JournalReadOnlyError",
    "JournalSupersededError",
    "JournalUsageError",
    "JournalVersionError",
    "NotAJournalError",
    "RecordLostError",
    "RecordNotFollowedError",
    "RecordNotYetError",
    "RecordPrunedError",
    "RecordTooLargeError",
]


class JournalError(Exception):
    """An error of a journal.

    ``path`` is the file or directory that it is about, and ``offset`` the byte in it, where there is one.
    Those that are an ``OSError`` have the system's ``errno``, if there is one.
    """

    def __init__(
        self,
        message: str,
        errno: int | None = None,
        path: Path | None = None,
        offset: int | None = None,
    ) -> None:
        super().__init__(message)
        self.errno = errno
        self.path = path
        self.offset = offset

    def __str__(self) -> str:
        # An OSError would show its number and name once more.
        return str(self.args[0])

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"


class JournalNotFoundError(JournalError, FileNotFoundError):
    """There is no journal, and the call does not create one."""


class JournalExistsError(JournalError, FileExistsError):
    """There is a journal, and the call requires a new one."""


class NotAJournalError(JournalError, ValueError):
    """The directory or file holds something else."""


class JournalVersionError(JournalError, ValueError):
    """A newer version of Millstream has written the journal."""


class JournalUsageError(JournalError, ValueError):
    """An option or a name that is not valid."""


class JournalClosedError(JournalError, ValueError):
    """The journal was closed."""


class JournalReadOnlyError(JournalError, io.UnsupportedOperation):
    """The journal was opened to read."""


class JournalBusyError(JournalError, BlockingIOError):
    """Another opening holds the whole journal, a cursor, or the last slot for a writer."""


class JournalPermissionError(JournalError, PermissionError):
    """The system denies access."""


class JournalIOError(JournalError, OSError):
    """An error of the system."""


class JournalFullError(JournalError, OSError):
    """The disk is full. Appending works again when there is room."""


class JournalDamageError(JournalError, OSError):
    """Records were removed or changed after they were written; ``path`` and ``offset`` say where."""


class JournalPoisonedError(JournalError, OSError):
    """A sync has failed: no append is acknowledged until all processes have reopened the journal."""


class JournalSupersededError(JournalError, RuntimeError):
    """Another copy was promoted to leader: nothing is appended here any more."""


class JournalForkedError(JournalError, RuntimeError):
    """The journal was opened before a fork. A child must open it again."""


class RecordPrunedError(JournalError, IndexError):
    """The record has been removed by retention."""


class RecordLostError(JournalError, LookupError):
    """A record that was read is not in the journal any more, and another one may have its number.

    The journal has lost its end, in a loss of power or because an older copy was restored.
    """


class RecordNotYetError(JournalError, IndexError):
    """The record has not been written yet."""


class RecordNotFollowedError(JournalError, TimeoutError):
    """No follower has acknowledged the record in time. It is in the journal all the same."""


class RecordTooLargeError(JournalError, ValueError):
    """A record is over the limit."""


# Tracebacks name what users import.
for _name in __all__:
    globals()[_name].__module__ = "millstream"
