"""What each worker thread of a flow does first and last in the interpreter, whatever has started the flow.

Workers run at the same time in a free-threaded interpreter: what they share here is behind one lock.
"""

from __future__ import annotations

import gc
import threading

from . import stacks

DEFAULT_THRESHOLDS = (700, 10, 10), (2000, 10, 0), (2000, 10, 10)
"""The default of ``gc.get_threshold()``, by version of Python."""
CALM_THRESHOLDS = (50_000, 20, 100)
"""How often reference cycles are collected while a flow runs.

A flow keeps a state for each key and makes few cycles. With the default thresholds the collector traverses
all states repeatedly: at a million keys that takes half of the time, in pauses of milliseconds.
"""

_lock = threading.Lock()
_count = 0
_before: tuple[int, int, int] | None = None
_pauses = 0
_was_enabled = False


def begin() -> None:
    """Notes the calling thread, which is a worker from now on. The first calms the collector."""
    global _count, _before
    stacks.begin()
    with _lock:
        _count += 1
        thresholds = gc.get_threshold()
        if _count == 1 and thresholds in DEFAULT_THRESHOLDS:
            _before = thresholds
            gc.set_threshold(*CALM_THRESHOLDS)


def end() -> None:
    """Forgets the calling thread. The last restores the collector, unless a program has set it meanwhile."""
    global _count, _before
    stacks.end()
    with _lock:
        _count -= 1
        if _count == 0 and _before is not None:
            if gc.get_threshold() == CALM_THRESHOLDS:
                gc.set_threshold(*_before)
            _before = None


def pause_collector() -> None:
    """Turns the collector off until each worker that has called this has called :func:`resume_collector`."""
    global _pauses, _was_enabled
    with _lock:
        _pauses += 1
        if _pauses == 1:
            _was_enabled = gc.isenabled()
            gc.disable()


def resume_collector() -> None:
    """Ends a pause; the end of the last one turns the collector on, if it was on before the first."""
    global _pauses
    with _lock:
        _pauses -= 1
        if _pauses == 0 and _was_enabled:
            gc.enable()
