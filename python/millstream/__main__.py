"""``python -m millstream`` and the command ``millstream``: some verbs are Python, all others the native
program."""

from __future__ import annotations

import signal
import sys

VERBS = {
    "run": ("_run.command", "run_file"),
    "redrive": ("_run.redrive_command", "redrive"),
    "demo": ("_demo.command", "demo"),
    "diff": ("_run.diff_command", "diff_files"),
    "new": ("_new.command", "new_folder"),
    "service": ("_service.command", "service"),
}
"""The verbs that are Python, each with its module and function; the help of the native program lists them."""


def main(argv: list[str] | None = None) -> int:
    """Runs the program with these arguments (without its name); returns its exit code."""
    from ._millstream import name_options_of_command_line

    arguments = sys.argv[1:] if argv is None else argv
    open_streams()
    before = name_options_of_command_line(True)
    try:
        code = verb(arguments)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        from ._errors.command import discard_output

        # The reader of the output has ended, as `head` does.
        discard_output()
        return 0
    except KeyboardInterrupt:
        from ._errors.command import INTERRUPTED, report_error

        return report_error("interrupted", INTERRUPTED, " ".join(arguments[:1]))
    finally:
        name_options_of_command_line(before)


def open_streams() -> None:
    """Opens standard streams that were closed at the start as the null device: the next file that is opened
    would have their number, and be written to by what prints."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            import os

            null = os.open(os.devnull, os.O_RDWR)
            if null != number:
                os.dup2(null, number)
                os.close(null)
            setattr(sys, name, open(number, "r" if name == "stdin" else "w", closefd=False))


def verb(arguments: list[str]) -> int:
    """Runs one verb; returns the exit code."""
    home, function = VERBS.get(arguments[0] if arguments else "", ("", ""))
    if home:
        from importlib import import_module

        code: int = getattr(import_module(f"{__package__}.{home}"), function)(arguments[1:])
        return code
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
