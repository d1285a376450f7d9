"""The output of commands that fail: the traceback of the user's code, and one line."""

from __future__ import annotations

import os
import sys

from ._errors import FlowError, FlowUsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["INTERRUPTED", "UsageError", "failed", "report_error", "users_frames"]

INTERRUPTED = 130
"""The exit code of a process that Ctrl-C has ended, as shells count."""
OURS = os.path.dirname(os.path.abspath(__file__))


class UsageError(Exception):
    """Bad usage: exit code 2."""


def report_error(message: str, code: int, verb: str = "run") -> int:
    """Prints an error on one line of standard error."""
    print(f"millstream {verb}: {' '.join(message.split())}", file=sys.stderr)
    return code


def failed(error: BaseException, what: str, verb: str = "run") -> int:
    """Prints the traceback of the user's code, and one line with the error; returns the exit code.

    After Ctrl-C there is no traceback: the line that was interrupted is not the cause.
    """
    if isinstance(error, KeyboardInterrupt):
        return report_error(f"{what}: interrupted", INTERRUPTED, verb)
    cause = error.__cause__ or error
    # An error of a connector of ours says what is wrong without the frames of libraries that it has passed.
    ours = error is not cause and isinstance(cause, FlowError) and not isinstance(cause, FlowUsageError)
    frames = None if ours else users_frames(cause.__traceback__)
    if frames is not None or isinstance(error, SyntaxError):
        import traceback

        shown = traceback.TracebackException(type(cause), cause, frames, compact=True)
        print("".join(shown.format(chain=cause.__context__ is not None)), file=sys.stderr, end="")
    try:
        text = str(error)
    except Exception:
        text = "(its text cannot be shown)"
    # The text of our own errors is clear without the name of their type.
    if not isinstance(error, (RuntimeError, OSError, FlowUsageError)) or frames is not None:
        text = text if error.__cause__ is not None else f"{type(error).__name__}: {text}"
    # Errors of the engine name the flow themselves.
    message = text if text.startswith(what) else f"{what}: {text}"
    return report_error(message, 2 if isinstance(error, FlowUsageError) else 1, verb)


def users_frames(frames: TracebackType | None) -> TracebackType | None:
    """The traceback without the frames of this package and of ``runpy``."""
    kept = []
    while frames is not None:
        file = frames.tb_frame.f_code.co_filename
        if not (os.path.abspath(file).startswith(OURS) or "runpy" in os.path.basename(file)):
            kept.append(frames)
        frames = frames.tb_next
    built: TracebackType | None = None
    for frame in reversed(kept):
        if frame.tb_frame.f_code.co_filename == "<frozen runpy>":
            continue
        from types import TracebackType as Link

        built = Link(built, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    return built
