"""The options of a run: each is written here, and nowhere else.

From these come the arguments of ``ms.run`` and ``Flow.start``, the options of ``millstream run``, and what
the native half reads.
"""

from __future__ import annotations

from collections.abc import Iterable

from .._errors.flow import FlowUsageError
from .._values.durations import of_text, seconds
from .option import Options, number, option

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from os import PathLike
    from typing import Any

    from .. import _millstream
    from .._values.durations import Seconds
    from .cluster import Cluster
    from .replica import Replica


WORKERS_MAX = 256
SHARDS_MAX = 32_768


# How values are checked.


def from_zero(name: str, value: Any) -> float:
    return seconds(name, value, 0)


def directory(name: str, value: Any) -> str | None:
    import os

    if value is None:
        return None
    if not isinstance(value, (str, os.PathLike)):
        raise FlowUsageError(f"{name} is a directory, not {value!r}")
    return os.fspath(value)


def texts(name: str, value: Any) -> list[str]:
    found = [value] if isinstance(value, str) else value
    if not isinstance(found, Iterable) or not all(isinstance(each, str) for each in found):
        raise FlowUsageError(f"{name} is a name, or a list of names, not {value!r}")
    return list(found)


def address(name: str, value: Any) -> str | None:
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if value is not None and not isinstance(value, str):
        raise FlowUsageError(f"{name} is an address like 8080 or 127.0.0.1:8080, not {value!r}")
    return value


def text(name: str, value: Any) -> str | None:
    if value is not None and not isinstance(value, str):
        raise FlowUsageError(f"{name} is a text, not {value!r}")
    return value


def virtual_clock(name: str, value: Any) -> Any:
    from .._millstream import VirtualClock

    if value is not None and not isinstance(value, VirtualClock):
        raise FlowUsageError(f"{name} is a clock of ms.testing.clock, not {value!r}")
    return value


def function(name: str, value: Any) -> Any:
    if value is not None and not callable(value):
        raise FlowUsageError(f"{name} is a function, not {value!r}")
    return value


def division(name: str, value: Any) -> int | None:
    is_one = isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= SHARDS_MAX
    if value is not None and (not is_one or value & (value - 1)):
        raise FlowUsageError(f"{name} is a power of two from 1 to {SHARDS_MAX}, not {value!r}")
    return value  # type: ignore[no-any-return]


def cluster(name: str, value: Any) -> Any:
    from .cluster import Cluster

    if value is not None and not isinstance(value, Cluster):
        raise FlowUsageError(f"{name} is a millstream.Cluster, not {value!r}")
    return value


def replica(name: str, value: Any) -> Any:
    from .replica import Replica

    if value is not None and not isinstance(value, Replica):
        raise FlowUsageError(f"{name} is a millstream.Replica, not {value!r}")
    return value


# How values are read from the command line.


def length(text: str) -> float:
    """A length of time in seconds: ``1s``, ``100ms``, ``2m``, ``0.5``."""
    import argparse

    found = of_text(text if text[-1:].isalpha() else f"{text}s")
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no length of time like 1s or 100ms")
    return found


def token(path: str) -> str:
    """The token in a file, without the line end."""
    import argparse

    try:
        with open(path, encoding="utf-8") as file:
            found = file.read().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise argparse.ArgumentTypeError(f"{path}: {error}") from None
    if not found:
        raise argparse.ArgumentTypeError(f"{path}: the file is empty")
    return found


# The options.

PYTHON: tuple[str, ...] = ()
"""The flags of an option that only Python has."""
WORK = "the work"
STATE = "the state"
PAGE = "the page"
"""Headings."""


class RunOptions(Options):
    """The options of ``ms.run`` and ``Flow.start``."""

    workers: int = option(
        default=1,
        help=f"the number of worker threads, from 1 to {WORKERS_MAX}",
        kw_only=False,
        check=number(1, WORKERS_MAX),
        metavar="N",
        read=int,
        group=WORK,
    )
    spin: bool = option(
        default=False,
        help="never sleep: the shortest latency, a core for each worker",
        kw_only=False,
        group=WORK,
    )
    clock: _millstream.VirtualClock | None = option(
        default=None,
        help="the clock of processing time",
        more="; tests pass one that they move themselves (``ms.testing.clock``)",
        check=virtual_clock,
        flags=PYTHON,
    )
    state: str | PathLike[str] | None = option(
        default=None,
        help="save state in this directory, and resume from it after a crash",
        more=". Every ``epoch`` the flow commits the positions of its sources, the changes of its states and "
        "the output of its sinks; a later run resumes from the last commit. A directory with the state of "
        "another flow is an error, and is not changed",
        check=directory,
        noun="the directory that holds the state",
        metavar="DIR",
        group=STATE,
    )
    epoch: Seconds = option(
        default=1.0,
        help="the time between two commits",
        check=from_zero,
        metavar="TIME",
        read=length,
        group=STATE,
    )
    sync: bool = option(
        default=True,
        help="whether a commit waits until it survives a loss of power",
        more="; False leaves it to the system when it does",
        words={"always": True, "never": False},
        group=STATE,
    )
    drop_state: Iterable[str] = option(
        default=(),
        help="drop the saved state of this step",
        more=", of one or several in a list",
        check=texts,
        needs=("state",),
        metavar="STEP",
        repeats=True,
        group=STATE,
        passed="once",
    )
    fresh: bool = option(
        default=False,
        help="drop all saved state of this flow in the state directory, and start again",
        needs=("state",),
        group=STATE,
        passed="once",
    )
    reset_clock: bool = option(
        default=False,
        help="set saved times that are ahead of the clock back to it, after a run whose clock was wrong",
        more=": processing time stands still otherwise, until the clock has reached them",
        needs=("state",),
        group=STATE,
        passed="once",
    )
    http: str | int | None = option(
        default=None,
        help="show the flow on a page at this address, like 8080 or 127.0.0.1:8080",
        more=", until it has ended; ``/metrics`` has its figures for Prometheus. Port 0 lets the system "
        "choose; the log has the address",
        check=address,
        noun="the address of the page",
        metavar="ADDR",
        group=PAGE,
    )
    http_token: str | None = option(
        default=None,
        help="the token that readers of the page must have; required where other machines can read, unless "
        "``http_open``",
        check=text,
        needs=("http",),
        flags=("--http-token-file",),
        shown="a file with the token of the readers of the page; required where other machines can read",
        metavar="FILE",
        read=token,
        group=PAGE,
    )
    http_open: bool = option(
        default=False,
        help="let other machines read the page without a token",
        needs=("http",),
        group=PAGE,
    )
    keep_page: bool = option(
        default=False,
        help="when the flow has failed, show its last figures and its error until Ctrl-C",
        more=", before the error is raised; with ``Flow.start`` until the program ends",
        needs=("http",),
        group=PAGE,
        passed="never",
    )
    on_metrics: Callable[[_millstream.Report], object] | None = option(
        default=None,
        help="is called with a report every ``metrics_interval``, and at the end",
        check=function,
        flags=PYTHON,
    )
    metrics_interval: Seconds = option(
        default=1.0, help="the time between two reports", check=seconds, flags=PYTHON
    )
    cluster: Cluster | None = option(
        default=None,
        help="the place of this process among several that run the flow together",
        more="; ``workers`` is then the number of each, and the state of process I is in the subdirectory "
        "``pI`` of ``state``",
        check=cluster,
        flags=PYTHON,
    )
    shards: int | None = option(
        default=None,
        help="into how many parts the keys are divided: a power of two up to 32768, at least one for each "
        "worker of all processes; chosen at the first start and kept with the state (default 256)",
        check=division,
        metavar="N",
        read=int,
        group=STATE,
    )
    replica: Replica | None = option(
        default=None,
        help="where followers on other machines get the state while the flow runs",
        more=", so that it can be started there when this machine is lost",
        check=replica,
        needs=("state",),
        noun="the address where followers get the state",
        shown="serve the state here for `millstream state follow` on another machine; with --processes N "
        "process I adds I to the port. Other machines need --secret-file, or --tls-cert, --tls-key, --tls-ca",
        metavar="HOST:PORT",
        group=STATE,
    )
    commit_on_replica: bool = option(
        default=False,
        help="let a commit wait until a follower has it: the loss of this machine loses nothing committed",
        more=". While none is connected nothing is committed, and the sources pause",
        needs=("state", "replica"),
        group=STATE,
    )
