"""What moves the items of a generator into its buffer: a task of the event loop, or a thread.

A pump calls its function again after a failure, if the source retries. ``stop`` asks the generator to end,
and does not wait; ``ended`` is set once it has.
"""

from __future__ import annotations

import asyncio
import logging
import threading

from ..._errors.flow import FlowError
from .buffer import Buffer, WrongItem
from .loop import event_loop

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Generator
    from contextvars import Context
    from typing import Any


log = logging.getLogger("millstream.flow.source")


class Attempts:
    """Counts the attempts that failed in a row: without an item between them."""

    def __init__(self, buffer: Buffer) -> None:
        self.buffer = buffer
        self.failed = 0

    def next_delay(self, error: Exception, yielded: bool) -> float | None:
        """Returns the delay before the next attempt, in seconds; None: the failure ends the flow."""
        self.failed = 1 if yielded else self.failed + 1
        retry = self.buffer.options.retry
        is_final = isinstance(error, (WrongItem, FlowError))
        if retry is None or is_final or retry.gives_up(self.failed):
            return None
        delay = retry.delay(self.failed)
        cause = f"{type(error).__name__}: {error}"
        self.buffer.fault(f"attempt {self.failed} failed, the next is in {delay:g} s: {cause}")
        log.debug("%s failed", self.buffer.options.name, exc_info=error)
        return delay


def warn_of_failure(name: str, error: BaseException) -> None:
    """Logs a failure after which there is no flow that could raise it."""
    log.warning("%s failed at the end of its flow: %s: %s", name, type(error).__name__, error)
    log.debug("%s failed", name, exc_info=error)


class AsyncPump:
    """An asynchronous generator on the event loop; ``make`` calls the function with a position."""

    def __init__(
        self, make: Callable[[Any], AsyncGenerator[Any, None]], buffer: Buffer, context: Context
    ) -> None:
        self.make = make
        self.buffer = buffer
        self.ended = threading.Event()
        self.stopped = False
        self.yielded = False
        self.loop = event_loop()
        self.room = asyncio.Event()
        self.task: asyncio.Task[None] | None = None
        buffer.make_room = self.make_room
        self.loop.call_soon_threadsafe(context.copy().run, self.start)

    def start(self) -> None:
        self.task = self.loop.create_task(self.run(), name=f"source {self.buffer.options.name}")
        # Also where the task is cancelled before it has begun.
        self.task.add_done_callback(lambda _: self.ended.set())

    def make_room(self) -> None:
        self.loop.call_soon_threadsafe(self.room.set)

    async def run(self) -> None:
        attempts = Attempts(self.buffer)
        try:
            while not self.stopped:
                try:
                    await self.read()
                    break
                except Exception as error:
                    delay = None if self.stopped else attempts.next_delay(error, self.yielded)
                    if delay is None:
                        raise
                await asyncio.sleep(delay)
        except BaseException as error:
            # Also KeyboardInterrupt and SystemExit, which would end the event loop: the flow raises them.
            if self.stopped and not isinstance(error, asyncio.CancelledError):
                warn_of_failure(self.buffer.options.name, error)
            self.buffer.end(error)
        else:
            self.buffer.end()

    async def read(self) -> None:
        """One attempt."""
        self.yielded = False
        put = self.buffer.put
        generator = self.make(self.buffer.position)
        try:
            async for item in generator:
                if self.stopped:
                    return
                self.yielded = True
                if put(item):
                    await self.wait_for_room()
        finally:
            await generator.aclose()

    async def wait_for_room(self) -> None:
        # The worker clears `full` before it sets `room`.
        while self.buffer.full:
            self.room.clear()
            if self.buffer.full:
                await self.room.wait()

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self.cancel)

    def cancel(self) -> None:
        self.stopped = True
        if self.task is not None:
            self.task.cancel()


class ThreadPump:
    """A generator on a thread of its own; ``make`` calls the function with a position."""

    def __init__(
        self, make: Callable[[Any], Generator[Any, None, None]], buffer: Buffer, context: Context
    ) -> None:
        self.make = make
        self.buffer = buffer
        self.ended = threading.Event()
        self.stopped = threading.Event()
        self.yielded = False
        self.room = threading.Event()
        buffer.make_room = self.room.set
        name = f"millstream source {buffer.options.name}"
        thread = threading.Thread(target=context.copy().run, args=(self.run,), name=name, daemon=True)
        thread.start()

    def run(self) -> None:
        attempts = Attempts(self.buffer)
        try:
            while not self.stopped.is_set():
                try:
                    self.read()
                    break
                except Exception as error:
                    delay = None if self.stopped.is_set() else attempts.next_delay(error, self.yielded)
                    if delay is None:
                        raise
                self.stopped.wait(delay)
        except BaseException as error:
            if self.stopped.is_set():
                warn_of_failure(self.buffer.options.name, error)
            self.buffer.end(error)
        else:
            self.buffer.end()
        self.ended.set()

    def read(self) -> None:
        """One attempt."""
        self.yielded = False
        put = self.buffer.put
        generator = self.make(self.buffer.position)
        try:
            for item in generator:
                if self.stopped.is_set():
                    return
                self.yielded = True
                if put(item):
                    self.wait_for_room()
        finally:
            generator.close()

    def wait_for_room(self) -> None:
        # `stop` sets `stopped` before `room`, the worker clears `full` before it does.
        while self.buffer.full and not self.stopped.is_set():
            self.room.clear()
            if self.buffer.full and not self.stopped.is_set():
                self.room.wait()

    def stop(self) -> None:
        self.stopped.set()
        self.room.set()
