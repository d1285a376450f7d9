"""``millstream run FILE.py[:name]``: runs the flow that a Python file describes, or replays input through it.

Exit code 0 when the flow has ended or was stopped by a signal, 2 for bad usage and for a mistake in the
description of the flow, 1 for a failure, 130 where a signal does not end it in an orderly way, with one line
on standard error; if the user's code raised, its traceback is printed above that line, without our frames.
"""

from __future__ import annotations

import sys

from ._command_errors import UsageError, failed, report_error
from ._flow_file import load

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

__all__ = ["run_file"]


def run_file(arguments: list[str]) -> int:
    """The verb ``run``."""
    try:
        options = parse(arguments)
    except UsageError as error:
        return report_error(f"{error} (see millstream run --help)", 2)
    try:
        flow = load(options.file)
    except UsageError as error:
        return report_error(str(error), 2)
    except (Exception, KeyboardInterrupt, SystemExit) as error:
        return failed(error, f"{options.file}: cannot be loaded")
    from ._logs import configure
    from ._run import run

    configure(options.log_level, options.log_format)
    try:
        if options.replay:
            from ._replay_command import replay_file

            return replay_file(flow, options)
        report = run(
            flow,
            workers=options.workers,
            spin=options.spin,
            state=options.state,
            epoch=options.epoch,
            sync=options.sync == "always",
            drop_state=options.drop_state,
            fresh=options.fresh,
            http=options.http,
            http_token=options.http_token_file,
            http_open=options.http_open,
        )
    except (Exception, KeyboardInterrupt, SystemExit) as error:
        return failed(error, f'flow "{flow.name}"')
    if options.metrics:
        print(report, file=sys.stderr, end="")
    return 0


def parse(arguments: list[str]) -> Any:
    """Reads the options."""
    import argparse

    class Parser(argparse.ArgumentParser):
        def error(self, message: str) -> NoReturn:
            raise UsageError(message)

    parser = Parser(
        prog="millstream run",
        description="Run the flow that a Python file describes, until its sources end or Ctrl-C drains it.",
        epilog="example: millstream run word_count.py --workers 2",
        allow_abbrev=False,
    )
    parser.add_argument(
        "file", metavar="FILE.py[:NAME]", help="the file, and the variable of the flow when there are several"
    )
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="threads (default 1)")
    parser.add_argument("--spin", action="store_true", help="never sleep: a core for each worker")
    parser.add_argument("--metrics", action="store_true", help="print the metrics of each step at the end")
    parser.add_argument("--state", metavar="DIR", help="save state here, and resume from it after a crash")
    parser.add_argument(
        "--epoch", type=length, default=1.0, metavar="TIME", help="how often state is committed (default 1s)"
    )
    parser.add_argument(
        "--sync",
        choices=("always", "never"),
        default="always",
        help="whether a commit waits until it survives a loss of power (default always)",
    )
    parser.add_argument(
        "--drop-state", action="append", default=[], metavar="STEP", help="drop the saved state of a step"
    )
    parser.add_argument(
        "--fresh",
        action="store_true",
        help="drop all saved state of this flow in the state directory, and start again",
    )
    from ._logs import LEVELS

    parser.add_argument(
        "--log-level",
        choices=(*LEVELS, "off"),
        default="info",
        help="what is logged on standard error (default info)",
    )
    parser.add_argument(
        "--log-format",
        choices=("text", "json"),
        default="text",
        help="how: text, or JSON objects with the fields flow, step, key (default text)",
    )
    from ._page_options import add_http, check_http
    from ._replay_command import add_replay, check_replay

    add_http(parser)
    add_replay(parser)
    parser.add_argument(
        "--out", metavar="FILE", help="where a replay writes its lines (default: standard output)"
    )
    options = parser.parse_args(arguments)
    check_replay(options)
    if options.drop_state and options.state is None:
        raise UsageError("--drop-state needs --state")
    if options.fresh and options.state is None:
        raise UsageError("--fresh needs --state")
    check_http(options)
    if not 1 <= options.workers <= 256:
        raise UsageError(f"--workers is a number from 1 to 256, not {options.workers}")
    return options


def length(text: str) -> float:
    """A length of time in seconds: ``1s``, ``100ms``, ``2m``, ``0.5``."""
    import argparse
    import re

    found = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m)?", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no length of time like 1s or 100ms")
    return float(found[1]) * {"ms": 0.001, "m": 60.0}.get(found[2], 1.0)
