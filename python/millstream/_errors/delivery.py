"""What an exception of a destination of ``ms.sink`` means: an outage, refused items, or neither; and the
items that a destination of this package leaves out because they are refused.

The usual clients of HTTP raise one class for an answer of the server whatever its status is, and some derive
it from OSError: so the status decides.
"""

from __future__ import annotations

from .flow import FlowError, Refused, RetryLater, show

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Literal

    from .._connectors.outbox import OutboxIdentity

    Verdict = Literal["retry", "refused", "failed"]


RETRIED = (OSError, RetryLater)

# The errors of connections that are no OSError, by the module of their class.
CONNECTION_ERRORS = {
    # In Python 3.10 it has one of its own.
    "asyncio": ("TimeoutError",),
    "aiohttp": ("ClientConnectionError", "ClientPayloadError"),
    "httpx": ("TransportError",),
    "httpcore": ("NetworkError", "TimeoutException", "ProtocolError"),
    "urllib3": ("HTTPError",),
    "http": ("HTTPException",),
}

RETRIED_STATUS = (408, 425, 429)
# They say nothing of the items: none would be taken.
GENERAL_STATUS = (401, 402, 403, 404, 405, 407, 410)


def verdict(error: BaseException) -> Verdict:
    """What an exception of a destination means.

    Args:
        error: the exception.

    Returns:
        ``"retry"``: the items may be taken later. ``"refused"``: some items of the batch are not taken
        because of what they are. ``"failed"``: anything else, which fails the flow.

    Example:
        >>> from urllib.error import HTTPError
        >>> [verdict(HTTPError("http://a", status, "", None, None)) for status in (503, 422, 401)]
        ['retry', 'refused', 'failed']
        >>> verdict(ConnectionResetError()), verdict(ValueError())
        ('retry', 'failed')
    """
    if isinstance(error, RetryLater):
        return "retry"
    if isinstance(error, Refused):
        return "refused"
    status = status_of(error)
    if status is not None:
        return of_status(status)
    if isinstance(error, RETRIED) or is_of_connection(error):
        return "retry"
    return "failed"


def status_of(error: BaseException) -> int | None:
    """The status of the answer for which requests, httpx, urllib or aiohttp has raised an exception.

    >>> status_of(OSError(2, "No such file"))
    """
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status is None and type(error).__module__.partition(".")[0] in ("aiohttp", "urllib"):
        status = getattr(error, "status", None) or getattr(error, "code", None)
    is_status = isinstance(status, int) and not isinstance(status, bool) and 300 <= status < 600
    return status if is_status else None


def of_status(status: int) -> Verdict:
    """What a status means that is no success.

    >>> [of_status(status) for status in (302, 400, 404, 429, 500)]
    ['failed', 'refused', 'failed', 'retry', 'retry']
    """
    if status >= 500 or status in RETRIED_STATUS:
        return "retry"
    return "refused" if status >= 400 and status not in GENERAL_STATUS else "failed"


def is_of_connection(error: BaseException) -> bool:
    """Whether an exception is one of a client for a connection that is lost or cannot be made.

    >>> from http.client import RemoteDisconnected, IncompleteRead
    >>> [is_of_connection(error) for error in (RemoteDisconnected(), IncompleteRead(b""), KeyError())]
    [True, True, False]
    """
    return any(
        known.__name__ in CONNECTION_ERRORS.get(known.__module__.partition(".")[0], ())
        for known in type(error).__mro__
    )


class Refusals:
    """The items of a delivery that cannot be written or that the server refuses, for a destination that knows
    which they are: its ``write`` writes the others.

    Args:
        outbox: the identity of the outbox.
        place: the server and what is written there.
        error: the class of the error for an item that fails the flow.

    Example:
        >>> import millstream as ms
        >>> outbox = ms.OutboxIdentity("orders", "out", "00" * 16, True, print)
        >>> Refusals(outbox, "nats://broker").made(int, ["1", "x"], 7)
        8 nats://broker: ValueError: invalid literal for int() with base 10: 'x'. The item is 'x'
        [(7, '1', 1)]
    """

    def __init__(
        self, outbox: OutboxIdentity, place: str, error: Callable[[str], Exception] = FlowError
    ) -> None:
        self.outbox = outbox
        self.place = place
        self.error = error

    def refuse(self, number: int, item: object, why: object) -> None:
        """Leaves out the item with this number.

        Raises:
            Exception: refused items are not skipped; the error names the item.
        """
        text = f"{why}. The item is {show(item)}"
        if not self.outbox.skips_refused:
            raise self.error(f"{self.place}: record {number} is refused: {text}")
        self.outbox.leave_out(number, f"{self.place}: {text}")

    def made(self, make: Callable[[Any], Any], batch: list[Any], first: int) -> list[tuple[int, Any, Any]]:
        """The number, the item and what ``make`` makes of it, without the items on which it fails."""
        found = []
        for number, item in enumerate(batch, first):
            try:
                found.append((number, item, make(item)))
            except Exception as error:
                self.refuse(number, item, f"{type(error).__name__}: {error}")
        return found
