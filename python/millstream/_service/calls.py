"""Calls that wait for an answer: the first output of a service that a call causes."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any, NamedTuple

from .._errors.flow import NoAnswerError, ServiceError
from .._values.checked import checked_as
from .options import checked_timeout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .._values.durations import Seconds

#: The attribute of a publisher's method with its number and the function that completes its arguments.
CALL = "__millstream_call__"


class Answer(NamedTuple):
    """The first output of a service that a call caused.

    Args:
        sequence: the number of its record in the output journal.
        method: the method of the output's interface.
        arguments: the arguments by name, as plain values: as the gateway shows them in JSON.

    Example:
        >>> from millstream.service import Answer
        >>> Answer(1, "accepted", {"id": "A-1"}).arguments["id"]
        'A-1'
    """

    sequence: int
    method: str
    arguments: dict[str, Any]


@checked_as(ServiceError)
def call(
    method: Callable[..., None],
    /,
    *arguments: Any,
    out: str | os.PathLike[str],
    timeout: Seconds = 10.0,
) -> Answer | None:
    """Makes a call, and waits for the first output that it causes.

    The service that reads the journal of the publisher must run, and write to ``out``. Only an output with
    the call as its direct cause is an answer: neither what another service makes of it, nor what a timer
    calls later.

    Args:
        method: a method of a :func:`publisher`.
        arguments: its arguments.
        out: the output journal of the service.
        timeout: for how long to wait.

    Returns:
        The answer. None if the call caused no output: the service has taken a later call.

    Raises:
        NoAnswerError: (a ``TimeoutError``) there was no output in time. The call is recorded all the same;
            repeating it records it twice.
        ServiceError: ``method`` is no method of a publisher, the journal ``out`` does not exist, or the call
            cannot be recorded.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> from threading import Thread
        >>> from typing import Protocol
        >>> import millstream as ms
        >>> class Orders(Protocol):
        ...     def place(self, price: float) -> None: ...
        >>> class Totals(Protocol):
        ...     def total(self, value: float) -> None: ...
        >>> class Desk(Orders):
        ...     def __init__(self, totals: Totals) -> None:
        ...         self.totals, self.value = totals, 0.0
        ...     def place(self, price: float) -> None:
        ...         self.value += price
        ...         self.totals.total(self.value)
        >>> with TemporaryDirectory() as folder:
        ...     orders = ms.publisher(Orders, f"{folder}/orders")
        ...     ms.Journal(f"{folder}/totals").close()
        ...     inputs, out = [f"{folder}/orders"], f"{folder}/totals"
        ...     desk = Thread(target=ms.serve, args=(Desk, inputs), kwargs={"out": out, "until": 1})
        ...     desk.start()
        ...     answer = ms.call(orders.place, 3.0, out=out)
        ...     desk.join()
        >>> answer.method, answer.arguments
        ('total', {'value': 3.0})
    """
    limit = checked_timeout(timeout)
    made = getattr(method, CALL, None)
    if made is None:
        shown = getattr(method, "__qualname__", repr(method))
        raise ServiceError(f"{shown}: call takes a method of a publisher, as in call(publisher.place, 1.0)")
    number, complete = made
    publisher = method.__self__  # type: ignore[attr-defined]
    answered = publisher._outlet.call_answered(number, complete(publisher, arguments), os.fspath(out), limit)
    journal, sequence, in_time, text = answered
    if not in_time:
        where = f"{journal}, record {sequence}"
        raise NoAnswerError(f"{where}: no answer in {os.fspath(out)} after {limit:g} s; the call is recorded")
    return None if text is None else Answer(**json.loads(text))
