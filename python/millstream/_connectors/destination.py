"""The connection to a destination: all its calls, on a thread of its own.

The forwarder of the engine makes one after each error. The thread is a daemon: a call that hangs does not
keep the process from ending. An asynchronous destination has an event loop, which runs between the calls too.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import sys
import threading
from concurrent.futures import Future
from queue import SimpleQueue

from .._errors.flow import FlowUsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .outbox import OutboxIdentity


logger = logging.getLogger("millstream")


class Connection:
    """A destination that is connected.

    Args:
        make: creates the destination.
        outbox: the identity of the outbox.
        is_async: whether some method is a coroutine function.
    """

    def __init__(self, make: Callable[[], Any], outbox: OutboxIdentity, is_async: bool) -> None:
        self.sink = outbox.sink
        self.caller: _LoopCaller | _ThreadCaller = (
            _LoopCaller(outbox.sink) if is_async else _ThreadCaller(outbox.sink)
        )
        self.destination: Any = None
        try:
            self.destination = self.caller.call(make)
            if hasattr(self.destination, "connect"):
                self.caller.call(lambda: self.destination.connect(outbox))
        except BaseException:
            self.close()
            raise

    def write(self, batch: list[Any], first: int, last: int) -> None:
        self.caller.call(lambda: self.destination.write(batch, first, last))

    def skip(self, number: int) -> None:
        """Makes a destination that remembers its position skip an item that it has refused."""
        if hasattr(self.destination, "skip"):
            self.caller.call(lambda: self.destination.skip(number))
        elif hasattr(self.destination, "position"):
            raise FlowUsageError(
                f'sink "{self.sink}" has a position, and no method skip(number): with on_error it needs one, '
                "which stores the number of an item that was refused as the position"
            )

    def position(self) -> object:
        return self.caller.call(lambda: self.destination.position())

    def close(self) -> None:
        """Closes the destination, if it has the method; records that it has taken do not depend on it."""
        if sys.is_finalizing():
            # No thread answers any more.
            return
        try:
            if hasattr(self.destination, "close"):
                self.caller.call(lambda: self.destination.close())
        except Exception as error:
            logger.warning('sink "%s": close failed: %s: %s', self.sink, type(error).__name__, error)
        finally:
            self.caller.end()


class _ThreadCaller:
    """Calls functions on a thread, one after the other."""

    def __init__(self, sink: str) -> None:
        self.requests: SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = SimpleQueue()
        name = f"millstream sink {sink}"
        threading.Thread(target=self.serve, name=name, daemon=True).start()

    def serve(self) -> None:
        while (request := self.requests.get()) is not None:
            work, answer = request
            try:
                result = work()
                if inspect.isawaitable(result):
                    result = asyncio.run(_awaited(result))
                answer.set_result(result)
            except BaseException as error:
                answer.set_exception(error)
            # Nothing of a batch is held while the next one is awaited.
            del request, work, answer

    def call(self, work: Callable[[], Any]) -> Any:
        answer: Future[Any] = Future()
        self.requests.put((work, answer))
        return answer.result()

    def end(self) -> None:
        self.requests.put(None)


class _LoopCaller:
    """The same in an event loop, which runs between the calls too."""

    def __init__(self, sink: str) -> None:
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.serve, name=f"millstream sink {sink}", daemon=True).start()

    def serve(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
            tasks = asyncio.all_tasks(self.loop)
            for task in tasks:
                task.cancel()
            self.loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        finally:
            self.loop.close()

    def call(self, work: Callable[[], Any]) -> Any:
        answer = asyncio.run_coroutine_threadsafe(_outcome(work), self.loop).result()
        result, error = answer
        if error is not None:
            raise error
        return result

    def end(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)


async def _awaited(result: Any) -> Any:
    return await result


async def _outcome(work: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    """The result, or the exception: KeyboardInterrupt and SystemExit would end the event loop."""
    try:
        result = work()
        return (await result if inspect.isawaitable(result) else result), None
    except BaseException as error:
        return None, error
