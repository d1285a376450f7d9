"""The options of ``millstream run``."""

from __future__ import annotations

from .._errors.command import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping
    from typing import Any, NoReturn

__all__ = ["before_dashes", "parse", "split"]

WORKERS_MAX = 256
PROCESSES_MAX = 64
SHARDS_MAX = 32_768
OF_MACHINES = ("hosts", "listen", "secret_file", "tls_cert", "tls_key", "tls_ca", "tls_name")
"""Options of a process among several machines."""
OF_PROCESSES = ("restarts", "dead_after", "meet_within")
"""Options of a process among several, of which all but the first are times."""

OF_REPLICA = ("secret_file", "tls_cert", "tls_key", "tls_ca")
"""Those of them that followers of the state are authenticated by, too."""


def parse(arguments: list[str]) -> Any:
    """Reads the options.

    Raises:
        UsageError: an option is unknown or out of range, or two contradict each other.
    """
    import argparse

    class Parser(argparse.ArgumentParser):
        def error(self, message: str) -> NoReturn:
            raise UsageError(message)

    parser = Parser(
        prog="millstream run",
        description="Run the flow that a Python file describes, until its sources end or Ctrl-C drains it.",
        epilog="example: millstream run word_count.py --workers 2; "
        "millstream run orders.py:make eu --limit 5 calls make('eu', limit=5), "
        "and what follows -- is for it alone",
        allow_abbrev=False,
    )
    parser.add_argument(
        "file",
        metavar="FILE.py[:NAME]|MODULE:NAME",
        help="the file or module, and the variable of the flow when there are several, "
        "or the function that makes it",
    )
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="threads (default 1)")
    parser.add_argument("--spin", action="store_true", help="never sleep: a core for each worker")
    parser.add_argument("--metrics", action="store_true", help="print the metrics of each step at the end")
    parser.add_argument(
        "--profile", metavar="FILE", help="write where the time went, as a profile for www.speedscope.app"
    )
    add_state(parser)
    add_replica(parser)
    add_processes(parser)
    add_log(parser)
    from .page_options import add_http, check_http
    from .replay_command import add_replay, check_replay

    add_http(parser)
    add_replay(parser)
    parser.add_argument(
        "--out", metavar="FILE", help="where a replay writes its lines (default: standard output)"
    )
    own, of_factory = before_dashes(arguments)
    options, more = parser.parse_known_args(own)
    options.arguments = [*more, *of_factory]
    if more and ":" not in options.file:
        parser.error(f"unrecognized arguments: {' '.join(more)}{meant(more[0], parser.format_usage())}")
    check_replay(options)
    for name in ("drop_state", "fresh", "reset_clock", "replica", "commit_on_replica"):
        if getattr(options, name) and options.state is None:
            raise UsageError(f"--{name.replace('_', '-')} needs --state")
    if not 1 <= options.workers <= WORKERS_MAX:
        raise UsageError(f"--workers is a number from 1 to {WORKERS_MAX}, not {options.workers}")
    check_http(options)
    check_processes(options)
    options.replica = replica(options)
    check_profile(options)
    return options


def meant(option: str, usage: str) -> str:
    """The part of the error of an unknown option that names the known one which it resembles."""
    import re
    from difflib import get_close_matches

    near = get_close_matches(option.partition("=")[0], re.findall(r"--[a-z-]+", usage), n=1, cutoff=0.7)
    return f"; did you mean {near[0]}?" if near else ""


def add_state(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the state directory."""
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
        "--shards",
        type=shards,
        metavar="N",
        help="into how many parts the keys are divided: a power of two up to 32768, at least one for each "
        "worker of all processes; chosen at the first start and kept with the state (default 256)",
    )
    parser.add_argument(
        "--drop-state", action="append", default=[], metavar="STEP", help="drop the saved state of a step"
    )
    parser.add_argument(
        "--fresh",
        action="store_true",
        help="drop all saved state of this flow in the state directory, and start again",
    )
    parser.add_argument(
        "--reset-clock",
        action="store_true",
        help="set saved times that are ahead of the clock back to it, after a run whose clock was wrong",
    )


def add_replica(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the state on another machine."""
    parser.add_argument(
        "--replica",
        metavar="HOST:PORT",
        help="serve the state here for `millstream state follow` on another machine; with --processes N "
        "process I adds I to the port. Other machines need --secret-file, or --tls-cert, --tls-key, --tls-ca",
    )
    parser.add_argument(
        "--commit-on-replica",
        action="store_true",
        help="let a commit wait until a follower has it: the loss of this machine loses nothing committed",
    )


def add_processes(parser: argparse.ArgumentParser) -> None:
    """Adds the options of a run on several processes."""
    import argparse

    parser.add_argument(
        "--processes",
        type=int,
        metavar="N",
        help="run on N processes of this machine, which are started again when one dies; "
        "with --process: the number of processes",
    )
    parser.add_argument(
        "--restarts",
        type=restarts,
        metavar="N/TIME",
        help="how many deaths in this time are tolerated (default 10/10m); with --process: start this "
        "process again when it or another one has died",
    )
    parser.add_argument(
        "--process",
        metavar="I|auto",
        help="run as process I of --hosts, from 0; auto: the number at the end of the host name",
    )
    parser.add_argument(
        "--hosts",
        metavar="FILE|dns:NAME:PORT|H1:P,H2:P,...",
        help="the addresses of all processes: a list, a file with one a line, or the pods of a StatefulSet",
    )
    parser.add_argument(
        "--listen",
        metavar="HOST:PORT",
        help="where this process listens (default: with a secret or certificates all addresses of the "
        "machine, with its port in --hosts)",
    )
    parser.add_argument(
        "--secret-file", metavar="FILE", help="a secret of all processes, which encrypts their connections"
    )
    for name, what in (
        ("--tls-cert", "the certificate of this process"),
        ("--tls-key", "its private key"),
        ("--tls-ca", "the authorities that sign for the processes"),
    ):
        parser.add_argument(name, metavar="FILE", help=f"{what}, in PEM")
    parser.add_argument(
        "--tls-name", metavar="NAME", help="the name in the certificates of the others (default: their hosts)"
    )
    parser.add_argument(
        "--dead-after",
        type=length,
        metavar="TIME",
        help="when a process without a sign of life is taken for dead (default 10s)",
    )
    parser.add_argument(
        "--meet-within",
        type=length,
        metavar="TIME",
        help="how long a process waits for the others at its start (default 5m)",
    )
    parser.add_argument(
        "--ready-file",
        metavar="FILE",
        help="a file that exists while the flow runs here, for probes; of --processes the first process",
    )
    # A process of a supervisor: the descriptor of the connection to it, and a file with the restarts so far.
    parser.add_argument("--supervised", type=int, metavar="FD", help=argparse.SUPPRESS)
    parser.add_argument("--restarted", metavar="FILE", help=argparse.SUPPRESS)


def add_log(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the log."""
    parser.add_argument(
        "--log-level",
        type=log_levels,
        default="info",
        metavar="LEVEL[,MODULE=LEVEL...]",
        help="what is logged on standard error: error, warning, info, debug, trace or off (default info); "
        "and of single modules, as in info,flow=debug",
    )
    parser.add_argument(
        "--log",
        "--log-format",
        dest="log_format",
        choices=("text", "json"),
        default="text",
        help="how: text, or JSON objects with the fields flow, step, key (default text)",
    )


def check_profile(options: Any) -> None:
    """Raises for a profile of what is no run; adds the number of the process to the name of its file."""
    if options.profile is None:
        return
    if options.replay:
        raise UsageError("--profile measures a run, not a replay")
    if options.cluster is not None:
        options.profile = f"{options.profile}.p{options.cluster.process}"


def log_levels(text: str) -> dict[str, int]:
    """The levels of the loggers."""
    import argparse

    from .logs import read_levels

    try:
        return read_levels(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def check_processes(options: Any) -> None:
    """Raises for options of several processes that contradict each other; sets ``cluster``."""
    if options.replay and (options.process or options.processes):
        raise UsageError("--replay runs on one process: leave out --processes and --process")
    if options.process is None:
        given = [name for name in OF_MACHINES if getattr(options, name) is not None]
        if options.replica is not None:
            given = [name for name in given if name not in OF_REPLICA]
        if given:
            raise UsageError(f"--{given[0].replace('_', '-')} needs --process")
        given = [name for name in OF_PROCESSES if getattr(options, name) is not None]
        if options.processes is None and given:
            raise UsageError(f"--{given[0].replace('_', '-')} needs --processes or --process")
        if options.processes is not None and not 1 <= options.processes <= PROCESSES_MAX:
            raise UsageError(f"--processes is a number from 1 to {PROCESSES_MAX}, not {options.processes}")
    elif options.hosts is None:
        raise UsageError("--process needs --hosts")
    options.cluster = None if options.process is None else cluster(options)


def cluster(options: Any) -> Any:
    """The place of this process among the others, as ``ms.run`` takes it."""
    import socket

    from .._errors.flow import FlowUsageError
    from .cluster import Cluster
    from .hosts import own_number, read_hosts

    own = socket.gethostname().partition(".")[0]
    number = own_number(options.process, own)
    hosts = read_hosts(options.hosts, options.processes, own)
    if number >= len(hosts):
        raise UsageError(f"--process {number}: --hosts names the processes 0 to {len(hosts) - 1}")
    files = {name: getattr(options, name) for name in OF_MACHINES[1:]}
    if options.supervised is not None and all("/" in host for host in hosts):
        # Processes of one machine meet over sockets of their own: these are for followers of the state.
        files = {}
    given = {name: getattr(options, name) for name in OF_PROCESSES[1:]}
    limits = {name: seconds for name, seconds in given.items() if seconds is not None}
    try:
        return Cluster(number, hosts, **files, **limits)
    except FlowUsageError as error:
        raise UsageError(str(error)) from None


def replica(options: Any) -> Any:
    """Where the state is served, as ``ms.run`` takes it."""
    from .._errors.flow import FlowUsageError
    from .replica import Replica

    if options.replica is None:
        if options.commit_on_replica:
            raise UsageError("--commit-on-replica needs --replica")
        return None
    files = {name: getattr(options, name) for name in OF_REPLICA}
    try:
        served = Replica(options.replica, **files)
    except FlowUsageError as error:
        raise UsageError(f"--replica: {error}") from None
    host, _, port = served.address.rpartition(":")
    if (
        options.processes is not None
        and options.process is None
        and not 0 < int(port) <= 65536 - options.processes
    ):
        raise UsageError(f"--replica: process I serves at port {port} + I, which must be from 1 to 65535")
    if (
        options.supervised is not None
        and options.cluster is not None
        and all("/" in h for h in options.cluster.hosts)
    ):
        served.address = f"{host}:{int(port) + options.cluster.process}"
    return served


def length(text: str) -> float:
    """A length of time in seconds: ``1s``, ``100ms``, ``2m``, ``0.5``."""
    import argparse
    import re

    found = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m)?", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no length of time like 1s or 100ms")
    return float(found[1]) * {"ms": 0.001, "m": 60.0}.get(found[2], 1.0)


def restarts(text: str) -> tuple[int, float]:
    """A number of deaths in a length of time: ``10/10m``."""
    import argparse

    number, slash, time = text.partition("/")
    if not slash or not number.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no number of deaths in a time like 10/10m")
    return int(number), length(time)


def shards(text: str) -> int:
    """A number of shards."""
    import argparse

    number = int(text) if text.isdecimal() else 0
    if not 1 <= number <= SHARDS_MAX or number & (number - 1):
        raise argparse.ArgumentTypeError(f"{text!r} is no power of two from 1 to {SHARDS_MAX}")
    return number


def before_dashes(arguments: list[str]) -> tuple[list[str], list[str]]:
    """The arguments before ``--``, and those after it.

    >>> before_dashes(["a.py:make", "--workers", "2", "--", "--limit", "5"])
    (['a.py:make', '--workers', '2'], ['--limit', '5'])
    """
    at = arguments.index("--") if "--" in arguments else len(arguments)
    return arguments[:at], arguments[at + 1 :]


def split(arguments: list[str], values: Mapping[str, int]) -> tuple[list[str], list[str]]:
    """The arguments without these options, and these options.

    Args:
        arguments: the arguments.
        values: by the name of an option, how many values it has.

    Returns:
        Both lists, in order.

    Example:
        >>> split(["a.py", "--processes", "2", "--fresh"], {"--processes": 1})
        (['a.py', '--fresh'], ['--processes', '2'])
    """
    kept, taken = [], []
    rest = iter(arguments)
    for argument in rest:
        name, equals, _ = argument.partition("=")
        if name not in values:
            kept.append(argument)
            continue
        taken.append(argument)
        if not equals:
            taken += [value for _, value in zip(range(values[name]), rest, strict=False)]
    return kept, taken
