"""``millstream service run|up|down|status|gateway|test|replay|diff|export|history``.

Exit code 0 when done or stopped by Ctrl-C, 2 for bad usage, 1 for a failure or a difference, with one line
on standard error; if the component raised, its traceback is printed above that line.
"""

from __future__ import annotations

import argparse
import os
import sys
from bdb import BdbQuit
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from .._errors.command import UsageError, report_error, write_errors_as
from .._run.logs import configure
from .._run.page_options import add_http, add_log, check_http
from .failures import failed
from .load import load
from .options import arguments


def service(arguments: Sequence[str]) -> int:
    """The verb ``service``."""
    verb = "service"
    try:
        options = parser().parse_args(arguments)
        verb = f"service {options.verb}"
        write_errors_as(getattr(options, "log_format", "text"))
        return int(options.run(options))
    except UsageError as error:
        return report_error(str(error), 2, verb)
    except (KeyboardInterrupt, BdbQuit):
        return 0  # the user has left the debugger
    except BrokenPipeError:
        raise  # the reader of the output has ended
    except Exception as error:
        return failed(verb, error)


def parser() -> argparse.ArgumentParser:
    """The options of all verbs."""

    class Parser(argparse.ArgumentParser):
        def error(self, message: str) -> NoReturn:
            raise UsageError(f"{message} (see {self.prog} --help)")

    top = Parser(prog="millstream service", description="Run, test and replay services.", allow_abbrev=False)
    verbs = top.add_subparsers(dest="verb", required=True, metavar="VERB")

    def verb(name: str, run: Callable[[Any], int], text: str, example: str) -> argparse.ArgumentParser:
        made = verbs.add_parser(
            name, help=text, description=text, epilog=f"example: millstream service {name} {example}"
        )
        made.set_defaults(run=run)
        return made

    run_options(verb)
    test = verb("test", test_verb, "Compare what components do with YAML files.", "tests/* --agitate")
    test.add_argument(
        "folders", metavar="DIR", nargs="+", help="holds in.yaml, out.yaml and perhaps setup.yaml"
    )
    test.add_argument("--component", metavar="MODULE:CLASS", help="default: read from the file `component`")
    test.add_argument("--update", action="store_true", help="rewrite what is expected; comments are kept")
    test.add_argument("--agitate", action="store_true", help="run variants with wrong calls too")

    again = verb(
        "replay", replay_verb, "Show what a component does with recorded calls.", "desk:Desk --in orders"
    )
    component(again)
    inputs(again)
    recorded_by(again)
    again.add_argument("--until", type=count, metavar="N", help="end after N calls")
    on_error(again)

    text = "Show which outputs differ between two components."
    diff = verb("diff", diff_verb, text, "desk:Old desk:New --in orders")
    diff.add_argument("a", metavar="A", help="MODULE:CLASS, or FILE.py:CLASS")
    diff.add_argument("b", metavar="B", help="the same")
    inputs(diff)
    recorded_by(diff)
    on_error(diff)

    export = verb("export", export_verb, "Show the calls of a journal as YAML.", "orders --from 10 --to 20")
    export.add_argument("journal", metavar="DIR")
    export.add_argument("--from", dest="first", type=count, default=0, metavar="SEQ", help="the first record")
    export.add_argument("--to", dest="last", type=count, metavar="SEQ", help="the last record")

    history_options(verb)
    from .._system.command import add_verbs
    from .gateway import add_verb

    add_verb(verb)
    add_verbs(verb)
    return top


Verb = Callable[[str, Callable[[Any], int], str, str], argparse.ArgumentParser]


def run_options(verb: Verb) -> None:
    run = verb("run", run_verb, "Run a component until Ctrl-C.", "desk:Desk --in orders --out replies")
    component(run)
    inputs(run)
    run.add_argument("--out", metavar="DIR", help="the output journal; one service only may write to it")
    run.add_argument(
        "--wait-for-inputs", action="store_true", help="wait for input journals that are not there yet"
    )
    run.add_argument(
        "--wait", choices=["block", "back-off", "spin"], default="block", help="how to wait for input"
    )
    on_error(run)
    run.add_argument("--dead-letters", metavar="DIR", help="a journal for bad records")
    state(run)
    run.add_argument("--drain", action="store_true", help="end when all inputs are taken")
    run.add_argument("--until", type=count, metavar="N", help="end after N calls")
    past(run)
    run.add_argument(
        "--sync",
        default="never",
        metavar="S",
        help="when outputs survive a loss of power: never, always, or a time like 10ms (default never)",
    )
    run.add_argument(
        "--wait-follower",
        type=count,
        default=0,
        metavar="N",
        help="stay within 256 inputs of N followers of the output (default 0)",
    )
    add_http(run, "the service")
    add_log(run)


def history_options(verb: Verb) -> None:
    history = verb("history", history_verb, "Show what led to a record, or how long it took.", "replies 7")
    history.add_argument("journal", metavar="DIR")
    history.add_argument("sequence", type=count, metavar="SEQ", nargs="?")
    history.add_argument(
        "--journals",
        action="append",
        default=[],
        metavar="DIR",
        help="a folder to look for the journals in that led to it",
    )
    history.add_argument(
        "--latency", action="store_true", help="percentiles of each hop, for a range of records"
    )
    history.add_argument("--from", dest="first", type=count, metavar="SEQ", help="the first record")
    history.add_argument("--to", dest="last", type=count, metavar="SEQ", help="the last record")
    history.add_argument("--json", action="store_true", help="with --latency, for programs")


def component(to: argparse.ArgumentParser) -> None:
    to.add_argument("component", metavar="MODULE:CLASS", help="a module or FILE.py, and the class in it")


def inputs(to: argparse.ArgumentParser) -> None:
    to.add_argument(
        "--in", dest="inputs", action="append", required=True, metavar="DIR", help="an input journal"
    )


def recorded_by(to: argparse.ArgumentParser) -> None:
    to.add_argument(
        "--out",
        metavar="DIR",
        help="the output journal of the service, whose schedule says the order of inputs and timers",
    )


def on_error(to: argparse.ArgumentParser) -> None:
    to.add_argument("--on-error", choices=["fail", "skip"], default="fail", help="what a bad record does")


def state(to: argparse.ArgumentParser) -> None:
    to.add_argument(
        "--rebuild",
        choices=["inputs", "outputs", "snapshot", "nothing"],
        default="inputs",
        help="where the component's state comes from at a start",
    )
    to.add_argument(
        "--snapshot-every", type=count, default=100_000, metavar="N", help="keep the state every N calls"
    )
    to.add_argument(
        "--on-difference",
        choices=["fail", "warn", "recorded"],
        default="fail",
        help="when a start finds that the component makes other calls than are recorded: fail, say so, "
        "or do not compare (default fail)",
    )
    to.add_argument(
        "--accept-differences",
        type=count,
        default=0,
        metavar="N",
        help="accept other calls than are recorded for N inputs; the recorded ones stay (default 0)",
    )


def past(to: argparse.ArgumentParser) -> None:
    to.add_argument(
        "--skip-pruned", action="store_true", help="do without input records that were pruned and are needed"
    )


def count(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is no number")
    return int(text)


# Finding components.


def component_of(folder: str) -> type:
    """The class that the nearest file ``component`` above a test names; its path starts at that file."""
    at = os.path.abspath(folder)
    while True:
        path = os.path.join(at, "component")
        if os.path.isfile(path):
            with open(path, encoding="utf-8") as file:
                return load(file.read().strip(), at)
        if os.path.dirname(at) == at:
            raise UsageError(
                f"{folder}: no file `component` here or above says MODULE:CLASS; give --component"
            )
        at = os.path.dirname(at)


# The verbs.


def run_verb(options: Any) -> int:
    from ..service import serve

    check_http(options)
    configure(options.log_level, options.log_format)
    report = serve(load(options.component), **arguments(serve, vars(options)))
    print(", ".join(f"{name.replace('_', ' ')} {value}" for name, value in report._asdict().items()))
    return 0


def test_verb(options: Any) -> int:
    from ..service import check

    passed = 0
    bad = 0
    for folder in options.folders:
        # A wildcard of a shell includes the file that names the component.
        if os.path.basename(folder) == "component" and os.path.isfile(folder):
            continue
        if not os.path.isdir(folder):
            raise UsageError(f"{folder}: no such folder")
        made = load(options.component) if options.component else component_of(folder)
        outcome = check(made, folder, update=options.update, agitate=options.agitate)
        passed = passed + outcome.passed
        bad = bad + len(outcome.failed)
        for path, difference in outcome.failed:
            print(f"{os.fspath(path)}:\n{difference}")
        for path in outcome.updated:
            print(f"{os.fspath(path)}: rewritten")
        if outcome.left_out:
            print(f"{folder}: {outcome.left_out} variants left out, there are too many")
    print(f"passed {passed}, failed {bad}")
    return 1 if bad else 0


def replay_verb(options: Any) -> int:
    from ..service import replay

    component = load(options.component)
    tell_order(options, component)
    calls = replay(component, options.inputs, out=options.out, until=options.until, on_error=options.on_error)
    print("---\n".join(calls), end="")
    return 0


def tell_order(options: Any, *components: type) -> None:
    """Warns if the order of calls is not recorded, but derived from the times of records."""
    from ..service import has_order

    if all(has_order(component, options.inputs, options.out) for component in components):
        return
    where = f"{options.out} has no schedule" if options.out else "no output journal is given (--out)"
    rule = "inputs are merged by the times of their records, and timers fire by these times"
    print(f"millstream service {options.verb}: {where}: {rule}", file=sys.stderr, flush=True)


def diff_verb(options: Any) -> int:
    """Compares call by call: both components had the same inputs."""
    from ..service import effects
    from .diff import differences

    components = [load(place) for place in (options.a, options.b)]
    tell_order(options, *components)
    a, b = (
        effects(component, options.inputs, out=options.out, on_error=options.on_error)
        for component in components
    )
    shown, count = differences(a, b)
    if not shown:
        print(f"no difference in {count} calls")
        return 0
    print(f"--- {options.a}\n+++ {options.b}")
    sys.stdout.writelines(shown)
    print(f"{len(shown)} of {count} calls have other outputs")
    return 1


def export_verb(options: Any) -> int:
    from .._millstream import service_export

    print(service_export(options.journal, options.first, options.last), end="")
    return 0


def history_verb(options: Any) -> int:
    from .._millstream import service_history

    if options.latency:
        if options.sequence is not None:
            raise UsageError("--latency takes a range, --from and --to, not a record")
        return latency(options)
    if options.sequence is None or options.json or (options.first, options.last) != (None, None):
        raise UsageError("either a record, SEQ, or --latency [--from SEQ] [--to SEQ] [--json]")

    for journal, sequence, time, call in service_history(options.journal, options.sequence, options.journals):
        print(f"{time}  {journal}, record {sequence}")
        print("".join(f"    {line}\n" for line in (call or "timer").splitlines()), end="")
    return 0


def latency(options: Any) -> int:
    """Shows the latencies of the calls of a journal, hop by hop."""
    import json

    from .._millstream import service_latency

    text = service_latency(options.journal, options.first or 0, options.last, options.journals)
    if options.json:
        print(text)
        return 0
    found = json.loads(text)
    rows = [("hop", "part", "count", "measured", "p50", "p90", "p99", "p99.9", "max", "in us")]
    for hop in found["hops"]:
        times = (f"{hop[name]:,.1f}" for name in ("p50_us", "p90_us", "p99_us", "p999_us", "max_us"))
        counts = (f"{hop[name]:,}" for name in ("count", "measured"))
        rows.append((f"{hop['from']} -> {hop['to']}", hop["part"], *counts, *times, ""))
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    for row in rows:
        left = (cell.ljust(width) for cell, width in zip(row[:2], widths[:2], strict=True))
        right = (cell.rjust(width) for cell, width in zip(row[2:], widths[2:], strict=True))
        print("  ".join([*left, *right]).rstrip())
    print(f"{found['calls']:,} calls, {found['origins']:,} of them from outside")
    if found["pruned"]:
        print(f"{found['pruned']:,} have causes that have been pruned")
    if found["backwards"]:
        print(f"{found['backwards']:,} effects are older than their cause: the clock was set back")
    return 0
