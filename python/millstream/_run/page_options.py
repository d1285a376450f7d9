"""The options of the page of a running flow: its address and its readers."""

from __future__ import annotations

from .._errors.command import UsageError
from .options import StartOptions
from .parser import add_option

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

__all__ = ["add_http", "check_http"]


def add_http(parser: argparse.ArgumentParser, shown: str) -> None:
    """Adds the options of the page of ``shown`` to a verb."""
    for name in ("http", "http_token", "http_open"):
        add_option(parser, StartOptions.ALL[name], shown)


def check_http(options: argparse.Namespace) -> None:
    """Refuses options that contradict each other."""
    if options.http is None and (options.http_token is not None or options.http_open):
        raise UsageError("--http-token-file and --http-open need --http")
    if options.http is not None and getattr(options, "replay", None):
        raise UsageError("--http shows a run, not a replay")
