"""The options of ``millstream run``: those of ``ms.run``, and those of the command line alone."""

from __future__ import annotations

from .._errors.command import UsageError
from .._errors.flow import FlowUsageError
from .option import Option, option
from .options import PAGE, PYTHON, WORK, length
from .page_options import LoggedOptions, check_http
from .parser import HIDDEN, Parser
from .replay_command import check_replay, moment

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


PROCESSES_MAX = 64
OF_MACHINES = ("hosts", "listen", "secret_file", "tls_cert", "tls_key", "tls_ca", "tls_name")
"""Options of a process among several machines."""
OF_PROCESSES = ("restarts", "dead_after", "meet_within")
"""Options of a process among several, of which all but the first are times."""
OF_REPLICA = ("secret_file", "tls_cert", "tls_key", "tls_ca")
"""Those of them that followers of the state are authenticated by, too."""
PROCESSES = "several processes"
RECORDED = "a replay"
"""Headings."""


def restarts(text: str) -> tuple[int, float]:
    """A number of deaths in a length of time: ``10/10m``."""
    import argparse

    count, slash, time = text.partition("/")
    if not slash or not count.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no number of deaths in a time like 10/10m")
    return int(count), length(time)


def supervisor(text: str) -> tuple[int, str]:
    """The connection to the supervisor: ``DESCRIPTOR:DIR``."""
    descriptor, _, folder = text.partition(":")
    return int(descriptor), folder


class CommandOptions(LoggedOptions):
    """All options of ``millstream run``."""

    metrics: bool = option(default=False, help="print the metrics of each step at the end", group=WORK)
    profile: str | None = option(
        default=None,
        help="write where the time went, as a profile for www.speedscope.app",
        metavar="FILE",
        group=WORK,
    )
    processes: int | None = option(
        default=None,
        help="run on N processes of this machine, which are started again when one dies; "
        "with --process: the number of processes",
        metavar="N",
        read=int,
        group=PROCESSES,
        passed="never",
    )
    restarts: tuple[int, float] | None = option(
        default=None,
        help="how many deaths in this time are tolerated (default 10/10m); with --process: start this "
        "process again when it or another one has died",
        metavar="N/TIME",
        read=restarts,
        group=PROCESSES,
        passed="never",
    )
    process: str | None = option(
        default=None,
        help="run as process I of --hosts, from 0; auto: the number at the end of the host name",
        metavar="I|auto",
        group=PROCESSES,
    )
    hosts: str | None = option(
        default=None,
        help="the addresses of all processes: a list, a file with one a line, or the pods of a StatefulSet",
        metavar="FILE|dns:NAME:PORT|H1:P,H2:P,...",
        group=PROCESSES,
    )
    listen: str | None = option(
        default=None,
        help="where this process listens (default: with a secret or certificates all addresses of the "
        "machine, with its port in --hosts)",
        metavar="HOST:PORT",
        group=PROCESSES,
    )
    secret_file: str | None = option(
        default=None,
        help="a secret of all processes, which encrypts their connections",
        metavar="FILE",
        group=PROCESSES,
    )
    tls_cert: str | None = option(
        default=None, help="the certificate of this process, in PEM", metavar="FILE", group=PROCESSES
    )
    tls_key: str | None = option(
        default=None, help="its private key, in PEM", metavar="FILE", group=PROCESSES
    )
    tls_ca: str | None = option(
        default=None,
        help="the authorities that sign for the processes, in PEM",
        metavar="FILE",
        group=PROCESSES,
    )
    tls_name: str | None = option(
        default=None,
        help="the name in the certificates of the others (default: their hosts)",
        metavar="NAME",
        group=PROCESSES,
    )
    dead_after: float | None = option(
        default=None,
        help="when a process without a sign of life is taken for dead (default 10s)",
        metavar="TIME",
        read=length,
        group=PROCESSES,
    )
    meet_within: float | None = option(
        default=None,
        help="how long a process waits for the others at its start (default 5m)",
        metavar="TIME",
        read=length,
        group=PROCESSES,
    )
    ready_file: str | None = option(
        default=None,
        help="a file that exists while the flow runs here, for probes; of --processes the first process",
        metavar="FILE",
        group=PROCESSES,
        passed="never",
    )
    supervised: tuple[int, str] | None = option(
        default=None,
        help="the descriptor of the connection to the supervisor, and the directory of its sockets",
        read=supervisor,
        group=HIDDEN,
    )
    restarted: str | None = option(
        default=None, help="a file with the restarts so far, by the supervisor", group=HIDDEN
    )
    kept: str | None = option(
        default=None, help="a file for the last figures, for the page of the supervisor", group=HIDDEN
    )
    open: bool = option(
        default=False,
        help="open the page in a browser",
        needs=("http",),
        group=PAGE,
        passed="once",
    )
    replay: list[str] = option(
        default=[],
        help="feed recorded input with its times and change no external system: a state directory, "
        "or a journal for a source",
        metavar="DIR|SOURCE=DIR",
        repeats=True,
        group=RECORDED,
    )
    begin: Any = option(
        default=None,
        help="begin with this record, or this time: 2026-11-21T16:42:40Z, a date, or how long ago (10m, 7d)",
        flags=("--from",),
        metavar="SEQ|TIME",
        read=moment,
        group=RECORDED,
    )
    end: Any = option(
        default=None,
        help="end before this record, or this time",
        flags=("--to",),
        metavar="SEQ|TIME",
        read=moment,
        group=RECORDED,
    )
    out: str | None = option(
        default=None,
        help="where a replay writes its lines (default: standard output)",
        metavar="FILE",
        group=RECORDED,
    )
    letters: str = option(default="", help="the file of dead letters to redrive", flags=PYTHON)
    file: str = option(default="", help="the file of the flow", flags=PYTHON)
    arguments: list[str] = option(default=[], help="those of the function that makes it", flags=PYTHON)

    @classmethod
    def named(cls, each: Option) -> str:
        return each.flag

    @classmethod
    def lacks(cls, each: Option, other: Option) -> str:
        return f"{each.flag} needs {other.flag}"


def parser() -> Parser:
    """The parser of ``millstream run``."""
    made = Parser(
        prog="millstream run",
        description="Run the flow that a Python file describes, until its sources end or Ctrl-C drains it.",
        epilog="example: millstream run word_count.py --workers 2; "
        "millstream run orders.py:make eu --limit 5 calls make('eu', limit=5), "
        "and what follows -- is for it alone",
    )
    add_flow(made)
    # What only runs of several processes need comes last.
    made.add_options(sorted(CommandOptions.ALL.values(), key=lambda each: each.group == PROCESSES))
    return made


def add_flow(made: Parser) -> None:
    """Adds the argument that names a flow."""
    made.add_argument(
        "file",
        metavar="FILE.py[:NAME]|MODULE:NAME",
        help="the file or module, and the variable of the flow when there are several, "
        "or the function that makes it",
    )


def parse(arguments: list[str], of_verb: Parser | None = None) -> CommandOptions:
    """Reads the options of ``run``, or of a verb that has some of them.

    Raises:
        UsageError: an option is unknown or out of range, or two contradict each other.
    """
    of_verb = of_verb or parser()
    own, of_factory = before_dashes(arguments)
    found, more = of_verb.parse_known_args(own)
    found.arguments = [*more, *of_factory]
    if more and ":" not in found.file:
        of_verb.error(f"unrecognized arguments: {' '.join(more)}{of_verb.meant(more[0])}")
    if not hasattr(found, "processes"):
        return checked(found)
    check_replay(found)
    check_processes(found)
    found.replica = replica(found)
    check_profile(found)
    return checked(found)


def checked(found: Any) -> CommandOptions:
    """The options, each of which is in range."""
    check_http(found)
    try:
        return CommandOptions(**vars(found))
    except FlowUsageError as error:
        raise UsageError(str(error)) from None


def check_profile(options: Any) -> None:
    """Raises for a profile of what is no run; adds the number of the process to the name of its file."""
    if options.profile is None:
        return
    if options.replay:
        raise UsageError("--profile measures a run, not a replay")
    if options.cluster is not None:
        options.profile = f"{options.profile}.p{options.cluster.process}"


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
    from .replica import Replica

    if options.replica is None:
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


def flags_passed(*passed: str) -> dict[str, int]:
    """The flags of the options that a supervisor passes so, and how many values each has."""
    found = [each for each in CommandOptions.ALL.values() if each.passed in passed]
    return {flag: int(each.has_value) for each in found for flag in each.flags or (each.flag,)}


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
    kept = []
    taken = []
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
