"""All exceptions of Millstream; each is also where it is raised, such as ``ms.FlowError``.

The base classes are :class:`FlowError` (flows and connectors), :class:`JournalError`, :class:`QueueError` and
:class:`ServiceError`. Errors of the system are also the exceptions of Python that programs expect:
:class:`JournalNotFoundError` is a ``FileNotFoundError``.

Example:
    >>> import millstream as ms
    >>> issubclass(ms.errors.PostgresError, ms.FlowError), issubclass(ms.errors.JournalFullError, OSError)
    (True, True)
"""

from __future__ import annotations

from ._errors import (
    FlowError,
    FlowUsageError,
    FutureTimeError,
    MemberLostError,
    NoAnswerError,
    Refused,
    RetryLater,
    ServiceError,
    SimulatedCrash,
    StepError,
)
from ._journal_errors import (
    JournalBusyError,
    JournalClosedError,
    JournalDamageError,
    JournalError,
    JournalExistsError,
    JournalForkedError,
    JournalFullError,
    JournalIOError,
    JournalNotFoundError,
    JournalPermissionError,
    JournalPoisonedError,
    JournalReadOnlyError,
    JournalSupersededError,
    JournalUsageError,
    JournalVersionError,
    NotAJournalError,
    RecordLostError,
    RecordNotFollowedError,
    RecordNotYetError,
    RecordPrunedError,
    RecordTooLargeError,
)
from ._queue_errors import (
    QueueDamageError,
    QueueError,
    QueueFullError,
    QueueIOError,
    QueueItemReturnedError,
    QueueItemTooLargeError,
    QueuesBusyError,
    QueuesClosedError,
    QueuesForkedError,
    QueueUsageError,
)
from ._schemas.errors import SchemaRegistryError, SchemaRegistryUnavailable
from .objects.errors import ObjectError
from .postgres.errors import PostgresError
from .sqlite.errors import SqliteError

__all__ = [
    "FlowError",
    "FlowUsageError",
    "FutureTimeError",
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
    "MemberLostError",
    "NoAnswerError",
    "NotAJournalError",
    "ObjectError",
    "PostgresError",
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
    "RecordLostError",
    "RecordNotFollowedError",
    "RecordNotYetError",
    "RecordPrunedError",
    "RecordTooLargeError",
    "Refused",
    "RetryLater",
    "SchemaRegistryError",
    "SchemaRegistryUnavailable",
    "ServiceError",
    "SimulatedCrash",
    "SqliteError",
    "StepError",
]
