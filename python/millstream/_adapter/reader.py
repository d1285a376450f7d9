"""One partition of a generator source, as the worker reads it."""

from __future__ import annotations

import asyncio
import inspect
from collections import deque

from .buffer import Buffer
from .loop import event_loop
from .pumps import CLOSE_SECONDS, AsyncPump, ThreadPump

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from contextvars import Context
    from typing import Any

    from .._millstream import SourceIo
    from .options import Options

    Ack = Callable[[], object]

__all__ = ["Reader"]


class Reader:
    """Reads the buffer of one generator.

    Batches are numbered over all runs; the position of the partition is the number of the last batch with the
    position of the generator. A commit of that position releases the acknowledgements up to that number. In
    runs without commits of the source's own, the next call of ``next_batch`` releases them: the batch before
    is recorded then, if the source is durable.
    """

    def __init__(
        self,
        make: Callable[[Any], Any],
        options: Options,
        position: tuple[int, Any] | None,
        io: SourceIo,
        context: Context,
        commits: bool,
    ) -> None:
        self.number, at = position or (0, None)
        self.at = at
        self.commits = commits
        self.buffer = Buffer(options, at, io.wake)
        self.unreleased: deque[tuple[int, list[Ack]]] = deque()
        self.acks: deque[Ack] = deque()
        self.acking: asyncio.Task[None] | None = None
        pump = AsyncPump if options.asynchronous else ThreadPump
        self.pump: AsyncPump | ThreadPump = pump(make, self.buffer, context)

    def next_batch(self) -> list[Any] | None:
        if not self.commits and self.unreleased:
            self.release(self.number)
        items, at, acks = self.buffer.take()
        self.at = at
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
        """Calls the acknowledgements of the batches up to ``number``, on the event loop, in their order."""
        released: list[Ack] = []
        while self.unreleased and self.unreleased[0][0] <= number:
            released += self.unreleased.popleft()[1]
        if released:
            event_loop().call_soon_threadsafe(self.begin_acks, released)

    def begin_acks(self, acks: list[Ack]) -> None:
        self.acks += acks
        if self.acking is None or self.acking.done():
            self.acking = event_loop().create_task(self.call_acks())

    async def call_acks(self) -> None:
        while self.acks:
            ack = self.acks.popleft()
            try:
                called = ack()
                if inspect.isawaitable(called):
                    await called
            except Exception as error:
                self.buffer.fault(f"an acknowledgement failed: {type(error).__name__}: {error}")

    async def wait_for_acks(self) -> None:
        if self.acking is not None:
            await asyncio.wait({self.acking}, timeout=CLOSE_SECONDS)

    def _faults(self) -> list[str]:
        return self.buffer.take_faults()

    def _close(self) -> None:
        """The worker reads no more. Acknowledgements may follow the last commit, and need the generator."""
        if not self.commits:
            self.close()

    def close(self) -> None:
        self.pump.close(self.wait_for_acks)
