"""``millstream redrive FILE FLOW.py --state DIR``: dead letters go through the flow again.

The flow runs as with ``millstream run`` meanwhile, and is stopped when the last letter is committed. The
state has the positions in FILE: a redrive that was killed, or whose file has grown, sends what is left.
"""

from __future__ import annotations

import os

from .. import _millstream
from .._connectors.io import ReaderEnded
from .._errors.command import BY_SIGPIPE, UsageError, announce, failed, report_error, write_errors_as
from .arguments import CommandOptions, add_flow, parse
from .flow_file import load
from .page import page_of
from .parser import Parser
from .redrive import Letters, adding

TYPE_CHECKING = False
if TYPE_CHECKING:
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
        return redriven(Letters(options.letters, options.state), options)
    except UsageError as error:
        return report_error(str(error), 2, "redrive")
    except ReaderEnded:
        return BY_SIGPIPE
    except (Exception, KeyboardInterrupt, SystemExit) as error:
        return failed(error, options.file, "redrive")


def check_state(state: str | os.PathLike[str]) -> None:
    """Raises if there is nothing in the directory of the state: a flow would begin anew."""
    if not (os.path.isdir(state) and os.listdir(state)):
        raise UsageError(
            f"{state}: there is no state of a flow; --state names the directory with which it ran"
        )


def redriven(letters: Letters, options: CommandOptions) -> int:
    """Sends the letters."""
    from .logs import configure

    if not letters.lines:
        announce(f"{letters.path}: all letters have been redriven")
        return 0
    with adding(letters) as added:
        flow = load(options.file, options.arguments)
    check(letters, flow.name, added, options.file)
    letters.decode()
    configure(options.log_level, options.log_format)
    letters.stopper = _millstream.Stopper()
    run_until_stopped(flow, options, letters.stopper)
    if not letters.is_committed():
        announce(f"{letters.path}: stopped; run it again for the rest of the letters")
        return 0
    counts = {step: len(items) for step, items in letters.items.items()}
    steps = ", ".join(f"{step} {count}" for step, count in counts.items())
    removed = sum(map(len, letters.lines.values())) - sum(counts.values())
    left_out = f"; without {removed} that no commit had: the flow processes their items again"
    announce(f"{letters.path}: {sum(counts.values())} redriven ({steps}){left_out if removed else ''}")
    return 0


def check(letters: Letters, flow: str, added: dict[tuple[str, str], bool], file: str) -> None:
    """Raises for letters of steps that the flow does not have, or that cannot get them."""
    for step in letters.lines:
        if not added.get((flow, step), True):
            raise UsageError(
                f'{file}: step "{step}" comes after event_time, and dead letters have no times: they cannot '
                "be redriven"
            )
        if (flow, step) not in added:
            raise UsageError(
                f'{file}: flow "{flow}" has no step of the name "{step}", of which {letters.path} has '
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
