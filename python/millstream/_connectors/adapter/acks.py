"""Acknowledgements of items, which are called on the event loop one after the other."""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from concurrent.futures import CancelledError, TimeoutError as FutureTimeout

from .loop import event_loop

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    Ack: TypeAlias = "Callable[[], object]"


class Acks:
    """The acknowledgements of one partition, in the order in which they were released."""

    def __init__(self, fault: Callable[[str], None]) -> None:
        self.fault = fault
        self.any = False
        self.pending: deque[Ack] = deque()
        self.task: asyncio.Task[None] | None = None

    def call(self, acks: list[Ack]) -> None:
        """Calls them, after those of earlier calls, and does not wait."""
        self.any = True
        event_loop().call_soon_threadsafe(self.begin, acks)

    def begin(self, acks: list[Ack]) -> None:
        self.pending += acks
        if self.task is None or self.task.done():
            self.task = event_loop().create_task(self.call_pending())

    async def call_pending(self) -> None:
        while self.pending:
            try:
                called = self.pending.popleft()()
                if inspect.isawaitable(called):
                    await called
            except asyncio.CancelledError:
                raise
            except BaseException as error:
                # Also KeyboardInterrupt and SystemExit, which would end the event loop.
                self.fault(f"an acknowledgement failed: {type(error).__name__}: {error}")

    def wait(self, seconds: float) -> bool:
        """Waits until all have been called; cancels those that have not, and returns False then."""
        if not self.any:
            return True
        future = asyncio.run_coroutine_threadsafe(self.finish(), event_loop())
        try:
            future.result(max(0.0, seconds))
        except FutureTimeout:
            future.cancel()
            return False
        except CancelledError:
            # An acknowledgement was cancelled by its own client.
            pass
        return True

    async def finish(self) -> None:
        if self.task is not None:
            await self.task
