"""The exceptions of flows, and how items are shown in them.

``StepError`` is raised *from* the exception of the user's code, so that the traceback shows that code first.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from .._values.types import AnySink


class FlowError(RuntimeError):
    """A flow that could not be built or did not end well."""


class FlowUsageError(FlowError, ValueError):
    """A mistake in how a flow is described or run: a name used twice, a stream that is not used."""


class MemberLostError(FlowError):
    """Another process of the flow was lost, and this one ended with it; a start again resumes from the last
    commit. The text names the process and the cause, and ``missing`` has its number where the flow ran.

    A program that a supervisor starts again ends with exit code 75 then, as ``millstream run`` does.
    """

    missing: Sequence[int] = ()


class FutureTimeError(ValueError):
    """The time of an item is further ahead of the clock of the run than ``max_ahead`` of ``event_time``."""


class SimulatedCrash(FlowError):
    """A test ended the run at a commit, as if the process had died."""


class StepError(FlowError):
    """A step, source or sink failed; ``__cause__`` is the exception of the user's code, where there is one.

    ``step`` is the step's name; ``key`` and ``item`` are text (their ``repr``, shortened) or None.
    """

    def __init__(self, message: str, step: str = "", key: str | None = None, item: str | None = None) -> None:
        super().__init__(message)
        self.step = step
        self.key = key
        self.item = item


class RetryLater(Exception):
    """Raised by a destination of :func:`sink` that may take the same items later, as OSError is.

    A function for ``decode=`` of a source raises it when a server that it needs does not answer: the source
    waits, and calls it again.

    Example:
        >>> import millstream as ms
        >>> replies = iter([503, 200])
        >>> @ms.sink(retry=ms.Backoff(first=0.01))
        ... def post(batch: list[str], first: int, last: int) -> None:
        ...     status = next(replies)
        ...     print(status, batch)
        ...     if status == 503:
        ...         raise ms.RetryLater("busy")
        >>> flow = ms.Flow("posts")
        >>> flow.source("in", ms.testing.items(["a"])).sink("out", post)
        >>> _ = ms.run(flow)
        503 ['a']
        200 ['a']
    """


class Refused(Exception):
    """Raised by a destination of :func:`sink` that does not take some items of a batch because of what they
    are, and has written none of the batch.

    The batch is halved until the items that are refused are alone, so that they hold up no other one. What
    happens to each of them is what ``on_error`` of :meth:`Stream.sink` says.

    Example:
        >>> import millstream as ms
        >>> @ms.sink
        ... def numbers(batch: list[object], first: int, last: int) -> None:
        ...     if not all(isinstance(item, int) for item in batch):
        ...         raise ms.Refused("no number")
        ...     written.extend(batch)
        >>> flow, written = ms.Flow("numbers"), []
        >>> flow.source("in", ms.testing.items([1, 2, "x", 4])).sink("out", numbers, on_error="skip")
        >>> _ = ms.run(flow)
        >>> written
        [1, 2, 4]
    """


class ServiceError(RuntimeError):
    """A service that cannot start or continue; the text names journal, record, method and argument.

    ``__cause__`` is the exception of the component, where it raised one.
    """


class NoAnswerError(ServiceError, TimeoutError):
    """A service has not answered a call in time. The call is recorded all the same."""


class DeadLetter:
    """An item on which a step failed, as a dead-letter sink receives it.

    Its text, which sinks of files, journals and queues write, is a line of JSON: step, key, item and error,
    for people and for ``millstream redrive``. Sinks of JSON write the same.

    Args:
        step: the name of the step.
        key: the key of the item, or None.
        item: the item. Of a source that cannot decode its input, it is the input as it was read: bytes, or a
            :class:`millstream.kafka.Message` with its key and headers. Of a sink whose destination refuses
            it, it is the item, or the bytes that its ``encode`` has made.
        error: the exception. Of a sink whose destination refuses the item, :class:`Refused` with the reason.
        position: where a source has read it: file and line, topic, partition and offset, or journal and
            record. Of a sink whose destination refuses it, ``"record 7"``. None for a step.

    Example:
        >>> import millstream as ms
        >>> letter = ms.DeadLetter("ages", None, "x", ValueError("no number"))
        >>> letter
        DeadLetter(step='ages', key=None, item='x', error=ValueError: no number)
        >>> print(letter)
        {"step":"ages","key":null,"item":"x","error":"ValueError: no number"}
    """

    __slots__ = ("error", "item", "key", "position", "step")

    def __init__(
        self, step: str, key: Any, item: Any, error: BaseException, position: str | None = None
    ) -> None:
        self.step: str = step
        self.key: Any = key
        self.item: Any = item
        self.error: BaseException = error
        self.position: str | None = position

    def __repr__(self) -> str:
        where = f"step={self.step!r}, "
        if self.position is not None:
            where += f"position={self.position!r}, "
        where += f"key={show(self.key)}, item={show(self.item)}"
        return f"DeadLetter({where}, error={self.error_text()})"

    def __str__(self) -> str:
        from .._values.json import dump

        return dump(self)

    def _json_fields(self) -> dict[str, Any]:
        """What is written of it as JSON."""
        from .._values.letters import fields_of

        return fields_of(self.step, self.key, self.item, self.error_text(), self.position, show)

    def error_text(self) -> str:
        """Returns the type and text of the exception.

        Returns:
            The text.

        Example:
            >>> import millstream as ms
            >>> letter = ms.DeadLetter("ages", None, "x", ValueError("no number"))
            >>> letter.error_text()
            'ValueError: no number'
        """
        try:
            return f"{type(self.error).__name__}: {self.error}"
        except Exception:
            return type(self.error).__name__


class dead_letter:
    """An ``on_error`` that sends each item on which a step fails to a sink, as a :class:`DeadLetter`.

    Args:
        sink: the sink.

    Example:
        >>> import millstream as ms
        >>> flow, good, bad = ms.Flow("ages"), ms.testing.collect(), ms.testing.collect()
        >>> ages = flow.source("text", ms.testing.items(["31", "x", "27"]))
        >>> ages.map(int, on_error=ms.dead_letter(bad)).sink("out", good)
        >>> _ = ms.run(flow)
        >>> good, [letter.item for letter in bad]
        ([31, 27], ['x'])
    """

    def __init__(self, sink: AnySink[DeadLetter]) -> None:
        self._dead_letter_sink = sink


LONGEST = 200


def show(item: object) -> str:
    """``repr(item)`` on one line of at most 200 characters, even if ``repr`` fails or would be huge.

    >>> show("x" * 1000)[-7:]
    "xxx'..."
    >>> show(list(range(10_000)))
    '[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, ...]'
    """
    import reprlib

    if isinstance(item, (str, bytes, bytearray)) and len(item) > LONGEST:
        return repr(item[:LONGEST]) + "..."
    short = reprlib.Repr()
    short.maxlist = short.maxtuple = short.maxset = short.maxfrozenset = short.maxdict = short.maxdeque = 20
    short.maxstring = short.maxother = short.maxlong = LONGEST
    try:
        text = short.repr(item)
    except Exception:
        return f"<{type(item).__name__} object>"
    return text if len(text) <= 4 * LONGEST else text[: 4 * LONGEST] + "..."


# Tracebacks name what users import.
for _class in tuple(globals().values()):
    if isinstance(_class, type):
        _class.__module__ = "millstream"
NoAnswerError.__module__ = "millstream.service"
