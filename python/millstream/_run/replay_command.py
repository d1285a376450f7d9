"""``millstream run FLOW.py --replay ...`` and ``millstream diff A.py B.py --replay ...``.

A replay prints a line for each item: the name of the sink, a tab, and the item.
"""

from __future__ import annotations

import re
import sys
from datetime import datetime, timedelta, timezone

from .._connectors.io import Sink

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from typing import IO, Any, NoReturn

    from .._streams.flow import Flow
    from .replay import Place

__all__ = ["add_replay", "check_replay", "diff_files", "replay_file"]

AGO = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def add_replay(parser: argparse.ArgumentParser) -> None:
    """Adds the options of replays."""
    parser.add_argument(
        "--replay",
        action="append",
        default=[],
        metavar="DIR|SOURCE=DIR",
        help="feed recorded input with its times and change no external system: a state directory, "
        "or a journal for a source",
    )
    for name, what in (("--from", "begin with"), ("--to", "end before")):
        parser.add_argument(
            name,
            type=moment,
            metavar="SEQ|TIME",
            help=f"{what} this record, or this time: 2026-11-21T16:42:40Z, a date, or how long ago (10m, 7d)",
        )


def moment(text: str) -> Place:
    """A sequence number or a time."""
    import argparse

    if text.isdecimal():
        return int(text)
    now = datetime.now(timezone.utc)
    if ago := AGO.fullmatch(text):
        return now - timedelta(seconds=float(ago[1]) * SECONDS[ago[2]])
    try:
        at = datetime.fromisoformat(re.sub("[zZ]$", "+00:00", text))
    except ValueError:
        said = f"{text!r} is no sequence number, no time like 2026-11-21T16:42:40Z, and no 10m or 7d ago"
        raise argparse.ArgumentTypeError(said) from None
    return at if at.tzinfo is not None else at.replace(tzinfo=timezone.utc)


def check_replay(options: Any) -> None:
    """Raises for options that contradict each other."""
    from .._errors.command import UsageError

    beside = [
        name
        for name, given in (
            ("--from", getattr(options, "from") is not None),
            ("--to", options.to is not None),
            ("--out", options.out is not None),
        )
        if given
    ]
    if beside and not options.replay:
        raise UsageError(f"{beside[0]} needs --replay")
    if options.replay:
        recorded(options.replay)
    if options.replay and (options.state is not None or options.spin):
        raise UsageError(
            f"--replay keeps no state and never waits: leave out {'--state' if options.state else '--spin'}"
        )


def recorded(given: list[str]) -> str | dict[str, str]:
    """The recorded inputs that ``--replay`` names."""
    from .._errors.command import UsageError

    pairs = dict(text.split("=", 1) for text in given if "=" in text)
    if len(pairs) == len(given):
        return pairs
    if len(given) > 1:
        raise UsageError("--replay names one state directory, or SOURCE=DIR for each of several sources")
    return given[0]


class Lines(Sink):
    """Writes an item on a line, after the name of its sink."""

    def __init__(self, name: str, to: IO[str]) -> None:
        self.name = name
        self.to = to

    def open(self, worker: int) -> Lines:
        return self

    def write_batch(self, items: list[Any]) -> None:
        """Writes them."""
        from .replay import text

        self.to.write("".join([f"{self.name}\t{text(item)}\n" for item in items]))

    def flush(self) -> None:
        """Does nothing: the file is flushed at the end of the replay."""

    close = flush


def replay_file(flow: Flow, options: Any) -> int:
    """The verb ``run`` with ``--replay``."""
    from .replay import run_replay

    where = recorded(options.replay)
    to = sys.stdout if options.out is None else open(options.out, "w", encoding="utf-8")
    try:
        start, end = getattr(options, "from"), options.to
        report = run_replay(flow, where, lambda name: Lines(name, to), start, end, options.workers)
    finally:
        to.flush()
        if to is not sys.stdout:
            to.close()
    if options.metrics:
        print(report, file=sys.stderr, end="")
    return 0


def diff_files(arguments: list[str]) -> int:
    """The verb ``diff``: 0 when all outputs are the same, 1 when they differ or it fails, 2 for bad use."""
    import argparse

    from .._errors.command import UsageError, failed, report_error
    from .flow_file import load
    from .replay import diff

    class Parser(argparse.ArgumentParser):
        def error(self, message: str) -> NoReturn:
            raise UsageError(message)

    parser = Parser(
        prog="millstream diff",
        description="Replay recorded input through two flows, and tell which outputs differ.",
        epilog="example: millstream diff old.py new.py --replay state/ --from 1h",
        allow_abbrev=False,
    )
    for name in "flow_a", "flow_b":
        parser.add_argument(name, metavar=f"{name.upper()}.py[:NAME]", help="the file of a flow")
    add_replay(parser)
    parser.add_argument("--json", action="store_true", help="report as JSON")
    try:
        options = parser.parse_args(arguments)
        if not options.replay:
            raise UsageError("--replay says which recorded input to compare the flows on")
        where = recorded(options.replay)
    except UsageError as error:
        return report_error(f"{error} (see millstream diff --help)", 2, "diff")
    file = options.flow_a
    try:
        flow_a = load(file)
        file = options.flow_b
        flow_b = load(file)
        file = f"{options.flow_a} and {options.flow_b}"
        found = diff(flow_a, flow_b, where, start=getattr(options, "from"), end=options.to)
    except UsageError as error:
        return report_error(str(error), 2, "diff")
    except (Exception, KeyboardInterrupt, SystemExit) as error:
        return failed(error, file, "diff")
    found.names = options.flow_a, options.flow_b
    print(found.to_json() if options.json else found)
    return 1 if found else 0
