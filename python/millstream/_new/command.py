"""The command ``millstream new``."""

from __future__ import annotations

import shlex
import sys

from .._errors.command import PACKAGE, UsageError, report_error

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .._run.parser import Parser

__all__ = ["KINDS", "new_folder", "parser"]

KINDS = {
    "alerts": "a flow: readings of sensors in, alerts out; with data, a generator and tests",
    "queue": "jobs of a web shop in a durable queue: retries, an error queue, a worker",
    "service": "a bank whose calls are recorded and replayed, with tests as data",
}
"""Each is a folder beside this file, which is copied."""
LEFT_OUT = "__pycache__"


def parser() -> Parser:
    """The parser of ``millstream new``."""
    import argparse

    from .._run.parser import Parser

    made = Parser(
        prog="millstream new",
        description="Write a folder to begin with: a program that runs, data, tests and a README.",
        epilog="kinds:\n" + "".join(f"  {kind:9}{what}\n" for kind, what in KINDS.items()) + "\n"
        "example: millstream new alerts",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("kind", metavar="KIND", choices=list(KINDS), help=", ".join(KINDS))
    made.add_argument("directory", metavar="DIR", nargs="?", help="the new folder (default: the kind)")
    return made


def new_folder(arguments: list[str]) -> int:
    """The verb ``new``: 0, or 1 when the folder cannot be written, 2 for bad use."""
    try:
        options = parser().parse_args(arguments)
    except UsageError as error:
        return report_error(f"{error} (see millstream new --help)", 2, "new")
    directory = options.directory or options.kind
    try:
        return write(options.kind, directory)
    except OSError as error:
        return report_error(f"{directory}: {error.args[-1] if len(error.args) == 1 else error}", 1, "new")


def write(kind: str, directory: str) -> int:
    """Copies the folder of a kind; nothing that is there is overwritten."""
    import os
    import shutil

    source = os.path.join(PACKAGE, "_new", kind)
    names = sorted(name for name in os.listdir(source) if name != LEFT_OUT)
    if os.path.isdir(directory) and (there := sorted(set(names).intersection(os.listdir(directory)))):
        said = f"{directory} has {', '.join(there)} already: name another directory, or remove it first"
        return report_error(said, 1, "new")
    shutil.copytree(source, directory, ignore=shutil.ignore_patterns(LEFT_OUT), dirs_exist_ok=True)
    print(f"{directory}: {', '.join(names)}", file=sys.stderr)
    print(f"next: cd {shlex.quote(directory)}, and follow README.md", file=sys.stderr)
    return 0
