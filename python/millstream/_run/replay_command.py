"""``millstream run FLOW.py --replay ...``.

A replay prints a line for each item: the name of the sink, a tab, and the item.
"""

from __future__ import annotations

import re
import sys
from datetime import datetime, timedelta, timezone

from .._connectors.io import Sink, StandardOutput
from .._values.durations import of_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import IO, Any

    from .._streams.flow import Flow
    from .replay import Place


def moment(text: str) -> Place:
    """A sequence number or a time."""
    import argparse

    if text.isdecimal():
        return int(text)
    now = datetime.now(timezone.utc)
    if (ago := of_text(text)) is not None:
        return now - timedelta(seconds=ago)
    try:
        at = datetime.fromisoformat(re.sub("[zZ]$", "+00:00", text))
    except ValueError:
        said = f"{text!r} is no sequence number, no time like 2026-11-21T16:42:40Z, and no 10m or 7d ago"
        raise argparse.ArgumentTypeError(said) from None
    return at if at.tzinfo is not None else at.replace(tzinfo=timezone.utc)


def check_replay(options: Any) -> None:
    """Raises for options that contradict each other."""
    from .._errors.command import UsageError

    given = {"--from": options.begin, "--to": options.end, "--out": options.out}
    beside = [name for name, value in given.items() if value is not None]
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

    def __init__(self, name: str, to: IO[str] | StandardOutput) -> None:
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
    to = StandardOutput() if options.out is None else open(options.out, "w", encoding="utf-8")
    try:
        start = options.begin
        end = options.end
        report = run_replay(flow, where, lambda name: Lines(name, to), start, end, options.workers)
    finally:
        to.close()
    if options.metrics:
        print(report, file=sys.stderr, end="")
    return 0
