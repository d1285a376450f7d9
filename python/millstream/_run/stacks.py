"""What the thread of a worker or a service does that has been inside one call for seconds, for the page."""

from __future__ import annotations

import sys
import threading
import traceback
from itertools import dropwhile

from .._errors.command import PACKAGE

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
    """The innermost frames of a worker thread, without our own; None if it runs no Python or is none.

    Args:
        thread: The number of the thread in the operating system.
    """
    frame = sys._current_frames().get(_idents.get(thread, 0))
    if frame is None:
        return None
    frames = traceback.extract_stack(frame)
    # What comes before our first frame has started the thread.
    called = dropwhile(lambda each: not is_own(each), frames)
    users = [each for each in called if not is_own(each)]
    return "".join(traceback.format_list((users or frames)[-FRAMES_MAX:]))


def is_own(frame: traceback.FrameSummary) -> bool:
    return frame.filename.startswith(PACKAGE)
