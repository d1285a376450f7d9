"""The options of the page of a running flow: its address and its readers."""

from __future__ import annotations

import argparse

from .._errors.command import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .._millstream import Observer

__all__ = ["add_http", "check_http", "observer_of"]


def add_http(parser: argparse.ArgumentParser, shown: str = "the flow") -> None:
    """Adds the options to a verb."""
    parser.add_argument(
        "--http", metavar="ADDR", help=f"show {shown} on a page at this address, like 127.0.0.1:8080"
    )
    parser.add_argument(
        "--http-token-file",
        type=token,
        metavar="FILE",
        help="a file with the token of the readers of the page; required where other machines can read",
    )
    parser.add_argument(
        "--http-open", action="store_true", help="let other machines read the page without a token"
    )


def check_http(options: argparse.Namespace) -> None:
    """Refuses options that contradict each other."""
    if options.http is None and (options.http_token_file is not None or options.http_open):
        raise UsageError("--http-token-file and --http-open need --http")
    if options.http is not None and getattr(options, "replay", None):
        raise UsageError("--http shows a run, not a replay")


def observer_of(options: argparse.Namespace) -> Observer | None:
    """Binds the address of the page, if there is one.

    The page of process 0 shows all processes. On one machine the others have theirs at a Unix socket beside
    that at which they meet.
    """
    from .observed import observed
    from .restarted import show_restarts

    address = options.http
    cluster = options.cluster
    if address is not None and cluster is not None and options.supervised is not None and cluster.process:
        own = cluster.hosts[cluster.process]
        if "/" in own:
            address = f"unix:{own}.http"
    observer = observed(address, options.http_token_file, options.http_open)
    if observer is not None:
        show_restarts(observer, options.restarted)
    return observer


def token(path: str) -> str:
    """The token in a file, without the line end."""
    try:
        with open(path, encoding="utf-8") as file:
            found = file.read().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise argparse.ArgumentTypeError(f"{path}: {error}") from None
    if not found:
        raise argparse.ArgumentTypeError(f"{path}: the file is empty")
    return found
