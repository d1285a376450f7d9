"""``ms.report_lag``: how much of its input a generator source has not read yet."""

from __future__ import annotations

from contextvars import ContextVar

from ..._errors.flow import FlowUsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


REPORTER: ContextVar[Callable[..., None]] = ContextVar("millstream_lag_reporter")
"""What reports the lag of the partition that the generator of this context reads."""


def reporter() -> Callable[..., None]:
    """Returns what reports the lag of the partition of the running generator, for any thread; outside of
    generators it does nothing.

    >>> reporter()(records=1)
    """
    return REPORTER.get(_nothing)


def _nothing(**_: object) -> None:
    pass


def report_lag(records: int | None = None, bytes: int | None = None, seconds: float | None = None) -> None:
    """Reports how much of its input a generator source has not read yet, as far as it knows.

    ``Report.lags`` has what was reported last for each partition. Call this in a function with
    :func:`millstream.source`, or in what it calls.

    Args:
        records: the number of records.
        bytes: their bytes.
        seconds: the time since the last record that was read was made; 0 if there are no more.

    Raises:
        FlowUsageError: it is not called by a generator source.
        ValueError: ``seconds`` is negative or not a number.
        OverflowError: a number is negative or too large.

    Example:
        >>> import millstream as ms
        >>> @ms.source
        ... def countdown(start: int):
        ...     for number in range(start, 0, -1):
        ...         ms.report_lag(records=number - 1)
        ...         yield number
        >>> flow = ms.Flow("countdown")
        >>> flow.source("numbers", countdown(3)).sink("out", ms.testing.discard())
        >>> [lag] = ms.run(flow).lags
        >>> lag["source"], lag["partition"], lag["records"], lag["bytes"]
        ('numbers', '0', 0, None)
    """
    report = REPORTER.get(None)
    if report is None:
        raise FlowUsageError("report_lag is called by a function with ms.source, while it runs in a flow")
    report(records=records, bytes=bytes, seconds=seconds)
