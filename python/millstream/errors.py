"""All exceptions of Millstream; each is also where it is raised, such as ``ms.FlowError``.

The base classes are :class:`FlowError` (flows and connectors), :class:`JournalError`, :class:`QueueError` and
:class:`ServiceError`. Errors of the system are also the exceptions of Python that programs expect:
:class:`JournalNotFoundError` is a ``FileNotFoundError``. :func:`page` says where an error is explained.

Example:
    >>> import millstream as ms
    >>> issubclass(ms.errors.PostgresError, ms.FlowError), issubclass(ms.errors.JournalFullError, OSError)
    (True, True)
"""

from __future__ import annotations

from ._errors import journal as _journal_errors, queue as _queue_errors
from ._errors.flow import (
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
from ._errors.journal import *  # noqa: F403
from ._errors.pages import page
from ._errors.queue import *  # noqa: F403
from ._schemas.errors import SchemaRegistryError, SchemaRegistryUnavailable
from .objects.errors import ObjectError
from .postgres.errors import PostgresError
from .sqlite.errors import SqliteError

__all__ = [
    "FlowError",
    "FlowUsageError",
    "FutureTimeError",
    "MemberLostError",
    "NoAnswerError",
    "ObjectError",
    "PostgresError",
    "Refused",
    "RetryLater",
    "SchemaRegistryError",
    "SchemaRegistryUnavailable",
    "ServiceError",
    "SimulatedCrash",
    "SqliteError",
    "StepError",
    "page",
]
__all__ += _journal_errors.__all__
__all__ += _queue_errors.__all__
