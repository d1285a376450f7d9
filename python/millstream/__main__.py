"""``python -m millstream`` and the command ``millstream``: ``run``, ``diff`` and ``service`` are Python,
all else is the native program."""

from __future__ import annotations

import signal
import sys
from contextlib import contextmanager

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["main"]


def main(argv: list[str] | None = None) -> int:
    """Runs the program with these arguments (without its name); returns its exit code."""
    arguments = sys.argv[1:] if argv is None else argv
    try:
        return verb(arguments)
    except KeyboardInterrupt:
        from ._command_errors import INTERRUPTED, report_error

        return report_error("interrupted", INTERRUPTED, " ".join(arguments[:1]))


def verb(arguments: list[str]) -> int:
    """Runs one verb; returns the exit code."""
    if arguments[:1] == ["run"]:
        from ._run_command import run_file

        return run_file(arguments[1:])
    if arguments[:1] == ["diff"]:
        from ._replay_command import diff_files

        return diff_files(arguments[1:])
    if arguments[:1] == ["service"]:
        from ._service_command import service

        return service(arguments[1:])
    import os

    from ._millstream import cli_main

    # Processes that the program starts run in this interpreter too.
    os.environ.setdefault("MILLSTREAM_PYTHON", sys.executable)

    with native_signals():
        code: int = cli_main(["millstream", *arguments])
    return code


@contextmanager
def native_signals() -> Iterator[None]:
    """Leaves Ctrl-C to the native program: Python would raise KeyboardInterrupt after its orderly end."""
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


if __name__ == "__main__":
    sys.exit(main())
