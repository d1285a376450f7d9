"""The event loop on which the asynchronous generators of a process run."""

from __future__ import annotations

import asyncio
import os
import threading

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None


def event_loop() -> asyncio.AbstractEventLoop:
    """Returns the loop; the first call starts its thread, which lasts as long as the process."""
    global _loop
    with _lock:
        if _loop is None:
            _loop = asyncio.new_event_loop()
            thread = threading.Thread(target=_loop.run_forever, name="millstream sources", daemon=True)
            thread.start()
        return _loop


def _forget() -> None:
    """A forked process has no thread that runs the loop."""
    global _lock, _loop
    _lock = threading.Lock()
    _loop = None


os.register_at_fork(after_in_child=_forget)
