"""What the thread of a worker or a service does that has been inside one call for seconds, for the page."""

from __future__ import annotations

import sys
import threading
import traceback

FRAMES_MAX = 12
"""The number of the innermost frames that are shown."""

_idents: dict[int, int] = {}
"""The identifier of each such thread in the interpreter, by its number in the operating system."""


def begin() -> None:
    """Notes the calling thread, which is that of a worker or a service from now on."""
    _idents[threading.get_native_id()] = threading.get_ident()


def end() -> None:
    """Forgets the calling thread."""
    _idents.pop(threading.get_native_id(), None)


def of(thread: int) -> str | None:
    """The innermost frames of a worker thread; None if it runs no Python or is none.

    Args:
        thread: The number of the thread in the operating system.
    """
    frame = sys._current_frames().get(_idents.get(thread, 0))
    if frame is None:
        return None
    return "".join(traceback.format_stack(frame)[-FRAMES_MAX:])
