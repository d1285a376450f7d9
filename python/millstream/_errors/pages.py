"""The pages of the documents that say more about an error, by its class."""

from __future__ import annotations

DOCUMENTS = "https://github.com/millstream/millstream/blob/main/docs"

PAGES = {
    "FlowError": "troubleshooting.md#while-a-flow-runs",
    "FlowUsageError": "troubleshooting.md#at-the-start-of-a-flow",
    "FutureTimeError": "guide/time-and-windows.md#event-time",
    "JournalError": "guide/keeping-journals.md#errors",
    "MemberLostError": "guide/state-on-several-machines.md#failures",
    "NoAnswerError": "guide/services.md#answers-and-queries",
    "ObjectError": "guide/objects.md#failures",
    "PostgresError": "guide/postgres.md#failures-of-the-sink",
    "QueueError": "troubleshooting.md#queues",
    "RecordLostError": "guide/journal.md#when-a-journal-has-lost-its-end",
    "Refused": "guide/outbox.md#refused-records",
    "RetryLater": "guide/outbox.md#failures",
    "SchemaRegistryError": "guide/schema-registry.md",
    "SchemaRegistryUnavailable": "guide/schema-registry.md",
    "ServiceError": "troubleshooting.md#services",
    "SqliteError": "guide/outbox.md#sqlite",
    "StepError": "guide/errors.md",
}
"""A class that is not here has the page of the class that it derives from."""


def page(error: BaseException) -> str | None:
    """Returns the address of the page about errors of this class, which commands print after the error.

    Args:
        error: the error.

    Returns:
        The address; None for an error that is not Millstream's.

    Example:
        >>> import millstream as ms
        >>> ms.errors.page(ms.StepError("no number"))
        'https://github.com/millstream/millstream/blob/main/docs/guide/errors.md'
        >>> ms.errors.page(KeyError())
    """
    for cls in type(error).__mro__:
        if cls.__name__ in PAGES and cls.__module__.partition(".")[0] == "millstream":
            return f"{DOCUMENTS}/{PAGES[cls.__name__]}"
    return None
