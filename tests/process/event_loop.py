"""An event loop on a thread, for clients that are asynchronous only."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

__all__ = ["EventLoop"]

PATIENCE = 60.0
"""Seconds after which a call that does not end has failed."""
T = TypeVar("T")


class EventLoop:
    """An event loop on a thread, for clients that are asynchronous only."""

    def __enter__(self) -> EventLoop:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        return self

    def result(self, call: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(call, self.loop).result(PATIENCE)

    def __exit__(self, *_: object) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
