"""Asyncio calls of a step, for example to external systems.

The engine calls ``take`` with the keys and values of a batch, ``tick`` at the time ``wake``, and ``end``.
Each returns keys (None in a stream without) and values to send on. ``bad`` holds the failures. ``close`` is
called last, however the flow has ended. Values that were taken and have no result yet are saved
(``waiting``), and the next run takes them up again (``take_up``).
"""

# ruff: noqa: B905 - keys and values have the same number.
from __future__ import annotations

import asyncio
import threading
from collections import deque

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

    Keys = list[Any] | None
    Lists = tuple[Keys, list[Any]]


LOOK_LEAVES = 0.05
"""How often a worker that waits for a call checks whether the flow still waits for it, in seconds."""
LOOK_AGAIN = 0.001
"""How long a worker sleeps while calls are on their way, in seconds."""


class MapAsync:
    """Calls of an asyncio function on a thread of its own, at most ``concurrency`` at once."""

    def __init__(
        self,
        f: Callable[[Any], Coroutine[Any, Any, Any]],
        concurrency: int,
        ordered: bool,
        timeout: float | None,
        retries: int,
        pause: float,
    ) -> None:
        self.f = f
        self.concurrency = concurrency
        self.ordered = ordered
        self.timeout = timeout
        self.retries = retries
        self.pause = pause
        self.bad: list[Any] = []
        self.wake: float | None = None
        self.keyed = False
        #: Whether this number of calls is not waited for any longer; the engine sets it.
        self.leaves: Callable[[int], bool] = lambda calls: False
        self.again: list[tuple[Any, Any]] = []
        self.done = threading.Condition()
        # Calls in the order in which they began, and those that have ended in the order of their ends.
        self.calls: deque[_Call] = deque()
        self.under_way: dict[_Call, None] = {}
        self.ended: deque[_Call] = deque()
        self.ready: list[_Call] = []
        self.running = 0
        self.loop = asyncio.new_event_loop()
        thread = threading.Thread(target=self.loop.run_forever, name="millstream map_async", daemon=True)
        thread.start()
        self.thread: threading.Thread | None = thread

    async def attempt(self, call: _Call) -> None:
        """One call, with its retries."""
        pause = self.pause
        for left in range(self.retries, -1, -1):
            try:
                call.result = await asyncio.wait_for(self.f(call.item), self.timeout)
                call.error = None
                break
            except Exception as error:
                call.error = error
                if left:
                    await asyncio.sleep(pause)
                    pause *= 2
            except BaseException as error:
                call.error = error
                break
        with self.done:
            call.over = True
            self.running -= 1
            self.ended.append(call)
            self.done.notify()

    def take(self, keys: Keys, values: list[Any], now: float) -> Lists:
        self.keyed = keys is not None
        self.begin_again()
        for key, item in zip([None] * len(values) if keys is None else keys, values):
            self.begin(_Call(key, item))
        return self.tick(now)

    def begin(self, call: _Call) -> None:
        """Begins a call as soon as there is room for one more."""
        with self.done:
            # Results in order wait for the first one: they count until they are emitted.
            while (len(self.calls) if self.ordered else self.running) >= self.concurrency:
                if self.ordered and self.calls[0].over:
                    self.collect()
                    continue
                self.wait()
            self.running += 1
            self.under_way[call] = None
            if self.ordered:
                self.calls.append(call)
        asyncio.run_coroutine_threadsafe(self.attempt(call), self.loop)

    def wait(self) -> None:
        """Waits for the end of a call. The caller holds the lock."""
        if not self.done.wait(LOOK_LEAVES) and self.leaves(self.running):
            raise RuntimeError("the flow has ended without its calls")

    def waiting(self) -> list[tuple[Any, Any]]:
        """The values without a result, in their order of arrival."""
        return self.again + [(call.key, call.item) for call in self.under_way]

    def take_up(self, waiting: list[tuple[Any, Any]]) -> None:
        """Repeats the calls that were waiting at the last commit of the run before."""
        self.again += waiting

    def begin_again(self) -> None:
        again = self.again
        self.again = []
        for key, item in again:
            self.keyed |= key is not None
            self.begin(_Call(key, item))

    def collect(self) -> None:
        """Moves results that may be sent on to ``ready``. The caller holds the lock."""
        if self.ordered:
            while self.calls and self.calls[0].over:
                self.ready.append(self.calls.popleft())
            self.ended.clear()
        else:
            self.ready += self.ended
            self.ended.clear()

    def tick(self, now: float) -> Lists:
        self.begin_again()
        with self.done:
            self.collect()
            self.wake = now + LOOK_AGAIN if self.running else None
        return self.results()

    def results(self) -> Lists:
        ready = self.ready
        self.ready = []
        for call in ready:
            del self.under_way[call]
        good = [call for call in ready if call.error is None]
        self.bad += [(call.key, call.item, call.error) for call in ready if call.error is not None]
        return [call.key for call in good] if self.keyed else None, [call.result for call in good]

    def end(self) -> Lists:
        self.begin_again()
        with self.done:
            while self.running:
                self.wait()
            self.collect()
        self.wake = None
        return self.results()

    def close(self) -> None:
        """Cancels the calls in progress, if the flow has failed, and ends the thread."""
        thread = self.thread
        self.thread = None
        if thread is not None:
            asyncio.run_coroutine_threadsafe(_cancel(), self.loop).result()
            self.loop.call_soon_threadsafe(self.loop.stop)
            thread.join()
            self.loop.close()


class _Call:
    __slots__ = ("error", "item", "key", "over", "result")

    def __init__(self, key: Any, item: Any) -> None:
        self.key = key
        self.item = item
        self.over = False
        self.result: Any = None
        self.error: BaseException | None = None


async def _cancel() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
