"""The exceptions of values that name a schema."""

from __future__ import annotations

from .._errors.flow import RetryLater


class SchemaRegistryError(ValueError):
    """A value does not name a schema of the registry, or an item does not match its schema.

    Example:
        >>> import millstream as ms
        >>> ms.kafka.json_schema("http://localhost:8081")(b"{}")
        Traceback (most recent call last):
        millstream.kafka.SchemaRegistryError: the value does not begin...
    """


class SchemaRegistryUnavailable(RetryLater, OSError):
    """The registry does not answer, or not now. A source or sink waits, and tries again; ``on_error`` does
    not apply.

    Example:
        >>> import millstream as ms
        >>> issubclass(ms.kafka.SchemaRegistryUnavailable, ms.RetryLater)
        True
    """


SchemaRegistryError.__module__ = SchemaRegistryUnavailable.__module__ = "millstream.kafka"
