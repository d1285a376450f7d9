"""The options that verbs which serve have in common: the page with its readers, and the log."""

from __future__ import annotations

from .._errors.command import UsageError
from .option import option
from .options import RunOptions
from .parser import add_option

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping


LOG = "the log"
"""A heading."""


def log_levels(text: str) -> dict[str, int]:
    """The levels of the loggers."""
    import argparse

    from .logs import read_levels

    try:
        return read_levels(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


class LoggedOptions(RunOptions):
    """The options of ``ms.run``, and those of the log of a command."""

    log_level: Mapping[str, int] = option(
        default="info",  # type: ignore[arg-type]  # as it is written
        help="what is logged on standard error: error, warning, info, debug, trace or off (default info); "
        "and of single modules, as in info,flow=debug",
        metavar="LEVEL[,MODULE=LEVEL...]",
        read=log_levels,
        group=LOG,
    )
    log_format: str = option(
        default="text",
        help="how: text, or JSON objects with the fields flow, step, key",
        flags=("--log", "--log-format"),
        words={"text": "text", "json": "json"},
        group=LOG,
    )


def add_http(parser: argparse.ArgumentParser, shown: str) -> None:
    """Adds the options of the page of ``shown`` to a verb."""
    for name in ("http", "http_token", "http_open"):
        add_option(parser, RunOptions.ALL[name], shown)


def add_log(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the log."""
    for name in ("log_level", "log_format"):
        add_option(parser, LoggedOptions.ALL[name])


def check_http(options: argparse.Namespace) -> None:
    """Refuses options that contradict each other."""
    if options.http is None and (options.http_token is not None or options.http_open):
        raise UsageError("--http-token-file and --http-open need --http")
    if options.http is not None and getattr(options, "replay", None):
        raise UsageError("--http shows a run, not a replay")
