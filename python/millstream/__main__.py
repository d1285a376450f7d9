"""``python -m millstream`` and the command ``millstream``: ``run``, ``diff``, ``service`` and ``demo`` are
Python, all else is the native program."""

from __future__ import annotations

import signal
import sys

__all__ = ["main"]


def main(argv: list[str] | None = None) -> int:
    """Runs the program with these arguments (without its name); returns its exit code."""
    from ._millstream import name_options_of_command_line

    arguments = sys.argv[1:] if argv is None else argv
    before = name_options_of_command_line(True)
    try:
        return verb(arguments)
    except KeyboardInterrupt:
        from ._errors.command import INTERRUPTED, report_error

        return report_error("interrupted", INTERRUPTED, " ".join(arguments[:1]))
    finally:
        name_options_of_command_line(before)


def verb(arguments: list[str]) -> int:
    """Runs one verb; returns the exit code."""
    if arguments[:1] == ["run"]:
        from ._run.command import run_file

        return run_file(arguments[1:])
    if arguments[:1] == ["diff"]:
        from ._run.replay_command import diff_files

        return diff_files(arguments[1:])
    if arguments[:1] == ["service"]:
        from ._service.command import service

        return service(arguments[1:])
    if arguments[:1] == ["demo"]:
        from ._demo.command import demo

        return demo(arguments[1:])
    return native(arguments)


def native(arguments: list[str]) -> int:
    """Runs a verb of the native program."""
    import os

    from ._millstream import cli_main

    # Processes that the program starts run in this interpreter too.
    os.environ.setdefault("MILLSTREAM_PYTHON", sys.executable)
    before = signal.getsignal(signal.SIGINT)
    # Ctrl-C is the native program's: Python would raise KeyboardInterrupt after its orderly end.
    is_ours = before is signal.default_int_handler
    if is_ours:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        code: int = cli_main(["millstream", *arguments])
    finally:
        if is_ours:
            signal.signal(signal.SIGINT, before)
    return code


if __name__ == "__main__":
    sys.exit(main())
