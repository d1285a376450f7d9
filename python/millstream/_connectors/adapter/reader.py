"""The partitions of a generator source, as the workers read them."""

from __future__ import annotations

import logging
from collections import deque
from time import monotonic

from ..._errors.flow import show
from .acks import Acks
from .buffer import Buffer
from .lag import REPORTER
from .pumps import AsyncPump, ThreadPump

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from contextvars import Context
    from typing import Any

    from ..._millstream import SourceIo
    from .acks import Ack
    from .options import Options


log = logging.getLogger("millstream.flow.source")


class Reader:
    """Reads the buffer of one generator.

    Batches are numbered over all runs; the position of the partition is the number of the last batch with the
    position of the generator. A commit of that position releases the acknowledgements up to that number. In
    runs in which commits do not notify the source, the next call of ``next_batch`` releases them: the batch
    before is recorded then, if the source is durable.
    """

    def __init__(
        self,
        make: Callable[[Any], Any],
        options: Options,
        position: Any,
        io: SourceIo,
        context: Context,
        commits: bool,
        closed: Callable[[Reader], None],
    ) -> None:
        self.number, self.at = read_position(options, position)
        self.commits = commits
        self.closed = closed
        self.buffer = Buffer(options, self.at, io.wake)
        self.unreleased: deque[tuple[int, list[Ack]]] = deque()
        self.acks = Acks(self.buffer.fault)
        context = context.copy()
        context.run(REPORTER.set, io.report_lag)
        pump = AsyncPump if options.asynchronous else ThreadPump
        self.pump: AsyncPump | ThreadPump = pump(make, self.buffer, context)

    def next_batch(self) -> list[Any] | None:
        if not self.commits and self.unreleased:
            self.release(self.number)
        items, self.at, acks = self.buffer.take()
        if items or acks:
            self.number += 1
            if acks:
                self.unreleased.append((self.number, acks))
        if items or not self.buffer.ended:
            return items
        # Items may have come between the two looks at the buffer.
        if self.buffer.items or self.buffer.acks:
            return self.next_batch()
        if self.buffer.error is not None:
            raise self.buffer.error
        return None

    def next_awake(self) -> None:
        return None

    def position(self) -> tuple[int, Any]:
        return self.number, self.at

    def release(self, number: int) -> None:
        """Calls the acknowledgements of the batches up to ``number``, in their order."""
        released: list[Ack] = []
        while self.unreleased and self.unreleased[0][0] <= number:
            released += self.unreleased.popleft()[1]
        if released:
            self.acks.call(released)

    def _faults(self) -> list[str]:
        return self.buffer.take_faults()

    def close(self) -> None:
        self.closed(self)


def read_position(options: Options, position: Any) -> tuple[int, Any]:
    """The number of the last batch and the position of the generator in a saved position."""
    if position is None:
        return 0, None
    if not (isinstance(position, tuple) and len(position) == 2 and isinstance(position[0], int)):
        raise ValueError(
            f"the saved position {show(position)} is that of another kind of source; forget it with "
            "--drop-state NAME (drop_state=), where NAME is that of the source in the flow"
        )
    number, at = position
    return number, at if options.resume else None


def close_readers(readers: Collection[Reader], seconds: float) -> bool:
    """Waits until released acknowledgements have been called, then ends the generators; returns whether all
    that took at most ``seconds`` each."""
    late = []
    until = monotonic() + seconds
    for reader in readers:
        if not reader.acks.wait(until - monotonic()):
            late.append(f"acknowledgements of {reader.buffer.options.name} have")
    for reader in readers:
        reader.pump.stop()
    until = monotonic() + seconds
    for reader in readers:
        if not reader.pump.ended.wait(max(0.0, until - monotonic())):
            late.append(f"{reader.buffer.options.name} has")
    for name in late:
        log.warning("%s not finished within %g s of the end of the flow", name, seconds)
    return not late
