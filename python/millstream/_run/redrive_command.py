"""``millstream redrive FILE FLOW.py --state DIR``: dead letters go through the flow again.

The flow runs as with ``millstream run`` meanwhile, and is stopped when the last letter is committed. Then the
positions in FILE are removed from the state, so that the flow continues without them. A run that is killed is
repeated: until it is done the state is refused by ``millstream run``, which would lose the rest.
"""

from __future__ import annotations

import os
import sys

from .. import _millstream
from .._connectors.io import ReaderEnded
from .._errors.command import BY_SIGPIPE, UsageError, failed, report_error, write_errors_as
from .arguments import CommandOptions, add_flow, parse
from .flow_file import load
from .page import page_of
from .parser import Parser
from .redrive import Letters, adding, source_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from .._streams.flow import Flow


OPTIONS = (
    *("workers", "spin", "state", "epoch", "sync", "shards"),
    *("http", "http_token", "http_open", "log_level", "log_format"),
)
"""Those of ``run`` that it has."""


def parser() -> Parser:
    """The parser of ``millstream redrive``."""
    made = Parser(
        prog="millstream redrive",
        description="Send the dead letters of a file through the steps that failed on them, after the flow "
        "was mended. The flow runs meanwhile, and is stopped when the last one is committed.",
        epilog="example: millstream redrive broken.jsonl flow.py --state state",
    )
    made.add_argument(
        "letters", metavar="FILE", help="the lines of JSON that a sink of dead letters has written"
    )
    add_flow(made)
    made.add_options(CommandOptions.ALL[name] for name in OPTIONS)
    return made


def redrive(arguments: list[str]) -> int:
    """The verb ``redrive``: 0 when all letters are committed, 1 when that failed, 2 for bad use."""
    try:
        options = parse(arguments, parser())
        if options.state is None:
            raise UsageError("it needs --state: without the state of the flow all input would be repeated")
    except UsageError as error:
        return report_error(f"{error} (see millstream redrive --help)", 2, "redrive")
    write_errors_as(options.log_format)
    try:
        check_state(options.state)
        return redriven(Letters(options.letters), options)
    except UsageError as error:
        return report_error(str(error), 2, "redrive")
    except ReaderEnded:
        return BY_SIGPIPE
    except (Exception, KeyboardInterrupt, SystemExit) as error:
        return failed(error, options.file, "redrive")


def check_state(state: str | os.PathLike[str]) -> None:
    """Raises if there is nothing in the directory of the state: a flow would begin anew."""
    if not os.path.isfile(state) and not (os.path.isdir(state) and os.listdir(state)):
        raise UsageError(
            f"{state}: there is no state of a flow; --state names the directory with which it ran"
        )


def redriven(letters: Letters, options: CommandOptions) -> int:
    """Sends the letters, and removes their positions from the state."""
    from .logs import configure

    if letters.unforgotten:
        forget(letters.unforgotten, options)
        letters.note_done(letters.done, forgotten=True)
    if not letters.lines:
        print(f"{letters.path}: all letters have been redriven", file=sys.stderr)
        return 0
    with adding(letters) as added:
        flow = load(options.file, options.arguments)
    check(letters, flow, added, options.file)
    letters.decode()
    configure(options.log_level, options.log_format)
    letters.stopper = _millstream.Stopper()
    run_until_stopped(flow, options, letters.stopper)
    if not letters.is_committed():
        return report_error("interrupted: run it again for the rest of the letters", 1, "redrive")
    letters.note_done(letters.end, forgotten=False)
    forget(letters.lines, options)
    letters.note_done(letters.end, forgotten=True)
    steps = ", ".join(f"{step} {len(lines)}" for step, lines in letters.lines.items())
    print(f"{letters.path}: {letters.count} redriven ({steps})", file=sys.stderr)
    return 0


def check(letters: Letters, flow: Flow, added: dict[tuple[str, str], bool], file: str) -> None:
    """Raises for letters of steps that the flow does not have, or that cannot get them."""
    for step in letters.lines:
        if not added.get((flow.name, step), True):
            raise UsageError(
                f'{file}: step "{step}" comes after event_time, and dead letters have no times: they cannot '
                "be redriven"
            )
        if (flow.name, step) not in added:
            raise UsageError(
                f'{file}: flow "{flow.name}" has no step of the name "{step}", of which {letters.path} has '
                "letters; a step without name= has none, and letters of a source are what its decoder refused"
            )


def run_until_stopped(flow: Flow, options: CommandOptions, stopper: _millstream.Stopper) -> None:
    """Runs the flow."""
    from .run import run_with

    observer = page_of(options)
    try:
        run_with(flow, options, stopper=stopper, observer=observer)
    finally:
        if observer is not None:
            observer.stop()


def forget(steps: Iterable[str], options: CommandOptions) -> None:
    """Removes the positions of the letters of these steps from the state, by a start of the flow as it is,
    which ends at once."""
    stopper = _millstream.Stopper(lambda: stopper.stop())
    flow = load(options.file, options.arguments)
    names = [source_of(step) for step in steps]
    run_until_stopped(flow, options.but(http=None, http_token=None, drop_state=names), stopper)
