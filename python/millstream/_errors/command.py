"""The output of commands that fail: the traceback of the user's code, and one line."""

from __future__ import annotations

import os
import sys

from .flow import FlowError, FlowUsageError, MemberLostError
from .pages import page

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType


LOST = 75
"""The exit code when another process of a flow was lost: a start again resumes it (EX_TEMPFAIL)."""
BY_SIGPIPE = 141
"""The exit code of a program that has written to a pipe which nobody reads, as shells count."""
INTERRUPTED = 130
"""The exit code of a process that Ctrl-C has ended, as shells count."""
PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
"""The directory of this package: frames below it are not the user's."""


class UsageError(Exception):
    """Bad usage: exit code 2."""


_is_json = False
"""Whether what a command prints on standard error is lines of a log that is JSON."""


def write_errors_as(format: str) -> None:
    """Writes the errors that end a command as ``text`` or as ``json``, as its log is written."""
    global _is_json
    _is_json = format == "json"


def report_error(message: str, code: int, verb: str = "run", see: str | None = None) -> int:
    """Prints an error on one line of standard error, with the control characters of names escaped; and on the
    next one the address of a page about it. Bad usage is one line."""
    see = None if code == 2 else see
    from .._millstream import plain_text

    message = " ".join(message.split())
    if _is_json:
        link: list[tuple[str, object]] = [] if see is None else [("see", see)]
        print_line("error", message, [("verb", verb), ("exit_code", code), *link])
    else:
        print(plain_text(f"millstream {verb}: {message}"), file=sys.stderr)
        if see is not None:
            print(f"see {see}", file=sys.stderr)
    return code


def announce(message: str) -> None:
    """Prints a line for the person or the program that has started a server, as the log is printed."""
    if _is_json:
        print_line("info", message, [])
    else:
        print(message, file=sys.stderr, flush=True)


def print_line(level: str, message: str, fields: list[tuple[str, object]]) -> None:
    """Prints a line of a log that is JSON."""
    from time import time_ns

    from .._millstream import log_line

    print(log_line(time_ns(), level, "millstream", message, fields, True), file=sys.stderr, flush=True)


def plain_lines(text: str) -> str:
    """A text of several lines, of which other control characters are escaped."""
    from .._millstream import plain_text

    return "\n".join(map(plain_text, text.split("\n")))


def discard_output() -> None:
    """Discards what is still buffered for standard output, whose reader has ended: Python would fail to
    write it at the end of the program."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)


def failed(error: BaseException, what: str, verb: str = "run") -> int:
    """Prints the traceback of the user's code, and one line with the error; returns the exit code."""
    print_traceback(error)
    return report_error(*describe(error, what), verb, page(error))


def frames_of(error: BaseException) -> TracebackType | None:
    """The frames of the user's code that are shown: none for an error whose text says all."""
    cause = error.__cause__ or error
    # An error of a connector of ours says what is wrong without the frames of libraries that it has passed.
    ours = error is not cause and isinstance(cause, FlowError) and not isinstance(cause, FlowUsageError)
    return None if ours else users_frames(cause.__traceback__)


def print_traceback(error: BaseException) -> None:
    """Prints the traceback of the user's code."""
    text = traceback_of(error)
    if text is not None:
        print_text(text)


def traceback_of(error: BaseException) -> str | None:
    """The traceback of the user's code.

    After Ctrl-C there is none: the line that was interrupted is not the cause.
    """
    if isinstance(error, KeyboardInterrupt):
        return None
    cause = error.__cause__ or error
    frames = frames_of(error)
    if frames is None and not isinstance(error, SyntaxError):
        return None
    return text_of(cause, frames)


def print_frames(error: BaseException, frames: TracebackType | None) -> None:
    """Prints an exception with these frames."""
    print_text(text_of(error, frames))


def text_of(error: BaseException, frames: TracebackType | None) -> str:
    """An exception with these frames, as Python prints it."""
    import traceback

    shown = traceback.TracebackException(type(error), error, frames, compact=True)
    return "".join(shown.format(chain=error.__context__ is not None))


def print_text(text: str) -> None:
    """Prints a traceback, as the log is printed."""
    if _is_json:
        print_line("error", "the traceback of the error", [("exception", text)])
    else:
        print(plain_lines(text), file=sys.stderr, end="")


def describe(error: BaseException, what: str) -> tuple[str, int]:
    """The line that reports an error, and the exit code."""
    if isinstance(error, KeyboardInterrupt):
        return f"{what}: interrupted", INTERRUPTED
    try:
        text = str(error)
    except Exception:
        text = "(its text cannot be shown)"
    # The text of our own errors is clear without the name of their type.
    if not isinstance(error, (RuntimeError, OSError, FlowUsageError)) or frames_of(error) is not None:
        text = text if error.__cause__ is not None else f"{type(error).__name__}: {text}"
    # Errors of the engine name the flow themselves.
    message = text if text.startswith(what) else f"{what}: {text}"
    code = 2 if isinstance(error, FlowUsageError) else LOST if isinstance(error, MemberLostError) else 1
    return message, code


def users_frames(frames: TracebackType | None) -> TracebackType | None:
    """The traceback without the frames of this package and of ``runpy``."""
    kept = []
    while frames is not None:
        file = frames.tb_frame.f_code.co_filename
        if not (os.path.abspath(file).startswith(PACKAGE) or "runpy" in os.path.basename(file)):
            kept.append(frames)
        frames = frames.tb_next
    built: TracebackType | None = None
    for frame in reversed(kept):
        if frame.tb_frame.f_code.co_filename == "<frozen runpy>":
            continue
        from types import TracebackType as Link

        built = Link(built, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    return built
