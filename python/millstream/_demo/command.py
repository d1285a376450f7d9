"""The verb ``demo``: the flow in this process, the native generator and receiver in processes of their own.

Exit code 0 for a run that did what was ordered, also one that a signal ended; 1 for one that did not.
"""

from __future__ import annotations

import math
import sys

from .._errors.command import UsageError, failed, report_error
from .._errors.flow import FlowError
from .programs import Failed, Stop
from .report import as_text, disagreement

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace

    from .._run.parser import Parser


NOTHING = "interrupted before there was anything to measure"


def demo(arguments: list[str]) -> int:
    """The verb ``demo``."""
    try:
        options = parse(arguments)
    except UsageError as error:
        return report_error(f"{error} (see millstream demo --help)", 2, "demo")
    from .. import market_spread

    if not options.json:
        print(
            "Quotes and orders go over TCP into a flow that keeps the last quote of each of 350 symbols; "
            "orders for symbols with a wide spread are rejected, to a receiver. "
            f"The state of a symbol is Python: {market_spread.__file__}",
            file=sys.stderr,
        )
    with Stop() as stop:
        return run(options, stop)


def run(options: Namespace, stop: Stop) -> int:
    """Runs it once, and reports."""
    import json

    from .drive import measure

    try:
        report = measure(options.rate or None, options.seconds, options.spin, options.http, stop)
    except (Failed, FlowError, OSError) as error:
        if stop.requested:
            # Processes that are interrupted while they start miss each other in many ways.
            return report_error(NOTHING, 0, "demo")
        if isinstance(error, Failed):
            return report_error(str(error), 1, "demo")
        return failed(error, "market-spread", "demo")
    if stop.requested and report["messages"] == 0:
        return report_error(NOTHING, 0, "demo")
    print(json.dumps(report) if options.json else as_text(report))
    found = disagreement(report["counts"])
    return 0 if found is None else report_error(found, 1, "demo")


def parser() -> Parser:
    """The parser of ``millstream demo``."""
    from .._run.parser import Parser

    made = Parser(
        prog="millstream demo",
        description="Market Spread, the flow with which Wallaroo published its figures: from generated data "
        "to a report of throughput, latencies, and whether each result is right.",
        epilog="examples: millstream demo; millstream demo --http --seconds 60",
    )
    made.add_argument(
        "--rate",
        type=float,
        default=200_000.0,
        metavar="N",
        help="messages per second over both streams (default: 200000); 0 for as many as go through",
    )
    made.add_argument(
        "--seconds", type=float, default=5.0, metavar="T", help="length of the run (default: 5)"
    )
    made.add_argument("--spin", action="store_true", help="the worker of the flow never sleeps")
    made.add_argument(
        "--http",
        nargs="?",
        const="127.0.0.1:8080",
        metavar="ADDR",
        help="show the flow on a page, at 127.0.0.1:8080 or another address of this machine",
    )
    made.add_argument("--json", action="store_true", help="report as JSON")
    return made


def parse(arguments: list[str]) -> Namespace:
    """The options."""
    options = parser().parse_args(arguments)
    if not (options.rate >= 0 and math.isfinite(options.rate)):
        raise UsageError(f"--rate {options.rate:g}: a number of messages, or 0")
    if not 0 < options.seconds <= 3600:
        raise UsageError(f"--seconds {options.seconds:g}: more than 0, at most 3600")
    return options
