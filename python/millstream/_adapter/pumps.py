"""What moves the items of a generator into its buffer: a task of the event loop, or a thread."""

from __future__ import annotations

import asyncio
import logging
import threading
from concurrent.futures import CancelledError
from concurrent.futures import TimeoutError as FutureTimeout

from .buffer import Buffer, WrongItem
from .loop import event_loop

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Generator
    from contextvars import Context
    from typing import Any

__all__ = ["CLOSE_SECONDS", "AsyncPump", "ThreadPump"]

CLOSE_SECONDS = 5.0
"""How long the end of a flow waits for a generator to finish."""

log = logging.getLogger("millstream.flow.source")


def retry_delay(buffer: Buffer, error: Exception, attempt: int) -> float | None:
    """How long to wait after the failed attempt, in seconds; None: the failure ends the flow."""
    retry = buffer.options.retry
    if retry is None or isinstance(error, WrongItem) or retry.gives_up(attempt):
        return None
    delay = retry.delay(attempt)
    buffer.fault(f"attempt {attempt} failed, the next is in {delay:g} s: {type(error).__name__}: {error}")
    log.info("%s failed", buffer.options.name, exc_info=error)
    return delay


def not_ended(name: str) -> None:
    log.warning("%s has not finished within %g s of the end of its flow", name, CLOSE_SECONDS)


def failed_at_end(name: str, error: BaseException) -> None:
    log.warning("%s failed at the end of its flow: %s: %s", name, type(error).__name__, error, exc_info=error)


class AsyncPump:
    """An asynchronous generator on the event loop; ``make`` calls the function with a position."""

    def __init__(
        self, make: Callable[[Any], AsyncGenerator[Any, None]], buffer: Buffer, context: Context
    ) -> None:
        self.make = make
        self.buffer = buffer
        self.closed = False
        self.loop = event_loop()
        self.room = asyncio.Event()
        self.task: asyncio.Task[None] | None = None
        buffer.make_room = self.make_room
        context = context.copy()
        self.loop.call_soon_threadsafe(lambda: context.run(self.start))

    def start(self) -> None:
        if not self.closed:
            self.task = self.loop.create_task(self.run(), name=f"source {self.buffer.options.name}")

    def make_room(self) -> None:
        self.loop.call_soon_threadsafe(self.room.set)

    async def run(self) -> None:
        try:
            attempt = 0
            while not self.closed:
                try:
                    await self.read()
                    break
                except Exception as error:
                    if self.closed:
                        raise
                    attempt = 1 if self.put_any else attempt + 1
                    delay = retry_delay(self.buffer, error, attempt)
                    if delay is None:
                        raise
                await asyncio.sleep(delay)
        except BaseException as error:
            # Also KeyboardInterrupt and SystemExit, which would end the event loop: the flow raises them.
            if self.closed and not isinstance(error, asyncio.CancelledError):
                failed_at_end(self.buffer.options.name, error)
            self.buffer.end(error)
        else:
            self.buffer.end()

    async def read(self) -> None:
        """One attempt."""
        self.put_any = False
        put = self.buffer.put
        generator = self.make(self.buffer.position)
        try:
            async for thing in generator:
                if self.closed:
                    return
                self.put_any = True
                if put(thing):
                    await self.wait_for_room()
        finally:
            await generator.aclose()

    async def wait_for_room(self) -> None:
        while self.buffer.full and not self.closed:
            self.room.clear()
            if self.buffer.full:
                await self.room.wait()

    def close(self, before: Callable[[], Any]) -> None:
        """Ends the generator and waits for it; ``before`` is awaited on the loop first."""
        future = asyncio.run_coroutine_threadsafe(self.shut_down(before), self.loop)
        try:
            finished = future.result(3 * CLOSE_SECONDS)
        except (FutureTimeout, CancelledError):
            finished = False
        if not finished:
            not_ended(self.buffer.options.name)

    async def shut_down(self, before: Callable[[], Any]) -> bool:
        await before()
        self.closed = True
        if self.task is None or self.task.done():
            return True
        self.task.cancel()
        done, _ = await asyncio.wait({self.task}, timeout=CLOSE_SECONDS)
        return bool(done)


class ThreadPump:
    """A generator on a thread of its own; ``make`` calls the function with a position."""

    def __init__(self, make: Callable[[Any], Generator[Any, None, None]], buffer: Buffer, context: Context):
        self.make = make
        self.buffer = buffer
        self.closing = threading.Event()
        self.room = threading.Event()
        buffer.make_room = self.room.set
        name = f"millstream source {buffer.options.name}"
        run = context.copy().run
        self.thread = threading.Thread(target=run, args=(self.run,), name=name, daemon=True)
        self.thread.start()

    def run(self) -> None:
        try:
            attempt = 0
            while not self.closing.is_set():
                try:
                    self.read()
                    break
                except Exception as error:
                    if self.closing.is_set():
                        raise
                    attempt = 1 if self.put_any else attempt + 1
                    delay = retry_delay(self.buffer, error, attempt)
                    if delay is None:
                        raise
                self.closing.wait(delay)
        except BaseException as error:
            if self.closing.is_set():
                failed_at_end(self.buffer.options.name, error)
            self.buffer.end(error)
        else:
            self.buffer.end()

    def read(self) -> None:
        """One attempt."""
        self.put_any = False
        put = self.buffer.put
        generator = self.make(self.buffer.position)
        try:
            for thing in generator:
                if self.closing.is_set():
                    return
                self.put_any = True
                if put(thing):
                    self.wait_for_room()
        finally:
            generator.close()

    def wait_for_room(self) -> None:
        while self.buffer.full and not self.closing.is_set():
            self.room.clear()
            if self.buffer.full and not self.closing.is_set():
                self.room.wait()

    def close(self, before: Callable[[], Any]) -> None:
        """Ends the generator and waits for it; ``before`` is awaited on the event loop first."""
        if self.buffer.options.ack:
            try:
                asyncio.run_coroutine_threadsafe(before(), event_loop()).result(2 * CLOSE_SECONDS)
            except (FutureTimeout, CancelledError):
                pass
        self.closing.set()
        self.room.set()
        self.thread.join(CLOSE_SECONDS)
        if self.thread.is_alive():
            not_ended(self.buffer.options.name)
