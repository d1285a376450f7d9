"""Steps that go by processing time: lists of values, and calls to the outside that take their time.

The engine calls ``take`` with the keys and values of a batch, ``tick`` when the moment ``wake`` has come, and
``end``; each gives keys (None in a stream without) and values to send on. ``bad`` holds what failed. At last,
however the flow has ended, ``close`` is called.
"""

# ruff: noqa: B905 - keys and values are equally many.
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


class Collect:
    """Lists of at most ``most`` values; ``wait`` seconds after its first value a list is given as it is."""

    def __init__(self, most: int, wait: float | None) -> None:
        self.most = most
        self.wait = wait
        self.bad: list[Any] = []
        # The lists in the order of their first values, each with when it has to be given.
        self.open: dict[Any, tuple[float, list[Any]]] = {}
        self.keyed = False

    @property
    def wake(self) -> float | None:
        """When the oldest list has to be given."""
        if self.wait is None or not self.open:
            return None
        return next(iter(self.open.values()))[0]

    def take(self, keys: Keys, values: list[Any], now: float) -> Lists:
        self.keyed = keys is not None
        due = now + (self.wait or 0)
        full: list[tuple[Any, list[Any]]] = []
        for key, value in zip([None] * len(values) if keys is None else keys, values):
            if key not in self.open:
                self.open[key] = due, []
            collected = self.open[key][1]
            collected.append(value)
            if len(collected) >= self.most:
                del self.open[key]
                full.append((key, collected))
        return self.lists(full)

    def tick(self, now: float) -> Lists:
        due = []
        while self.wake is not None and self.wake <= now:
            key = next(iter(self.open))
            due.append((key, self.open.pop(key)[1]))
        return self.lists(due)

    def end(self) -> Lists:
        rest = [(key, collected) for key, (_, collected) in self.open.items()]
        self.open.clear()
        return self.lists(rest)

    def close(self) -> None:
        """There is nothing to close."""

    def lists(self, given: list[tuple[Any, list[Any]]]) -> Lists:
        return [key for key, _ in given] if self.keyed else None, [collected for _, collected in given]


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
        self.done = threading.Condition()
        # Calls in the order in which they began, and those that have ended in the order of their ends.
        self.calls: deque[_Call] = deque()
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
        for key, item in zip([None] * len(values) if keys is None else keys, values):
            call = _Call(key, item)
            with self.done:
                # Results in order are held back by the first: they count as long as they wait.
                while (len(self.calls) if self.ordered else self.running) >= self.concurrency:
                    if self.ordered and self.calls[0].over:
                        self.collect()
                        continue
                    self.done.wait()
                self.running += 1
                if self.ordered:
                    self.calls.append(call)
            asyncio.run_coroutine_threadsafe(self.attempt(call), self.loop)
        return self.tick(now)

    def collect(self) -> None:
        """Moves what may be sent on to ``ready``; with the lock held."""
        if self.ordered:
            while self.calls and self.calls[0].over:
                self.ready.append(self.calls.popleft())
            self.ended.clear()
        else:
            self.ready += self.ended
            self.ended.clear()

    def tick(self, now: float) -> Lists:
        with self.done:
            self.collect()
            self.wake = now + LOOK_AGAIN if self.running else None
        return self.results()

    def results(self) -> Lists:
        ready, self.ready = self.ready, []
        good = [call for call in ready if call.error is None]
        self.bad += [(call.key, call.item, call.error) for call in ready if call.error is not None]
        return [call.key for call in good] if self.keyed else None, [call.result for call in good]

    def end(self) -> Lists:
        with self.done:
            while self.running:
                self.done.wait()
            self.collect()
        self.wake = None
        return self.results()

    def close(self) -> None:
        """Gives up the calls that are still on their way, if the flow has failed, and ends the thread."""
        thread, self.thread = self.thread, None
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
