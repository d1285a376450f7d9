"""``millstream run FILE.py[:name]``: runs the flow that a Python file describes, or replays input through it.

``name`` may be a function that makes the flow, and takes the arguments that no option is (``_factory``).

Exit code 0 when the flow has ended or was stopped by a signal, 2 for bad usage and for a mistake in the
description of the flow, 1 for a failure, 75 when another process of the flow was lost (a start again resumes
it), 130 where a signal does not end it in an orderly way, with one line on standard error, and after it the
address of a page about the error; if the user's code raised, its traceback is printed before, without our
frames.
"""

from __future__ import annotations

import sys

from .._connectors.io import ReaderEnded
from .._errors.command import (
    BY_SIGPIPE,
    UsageError,
    describe,
    print_traceback,
    report_error,
    traceback_of,
    write_errors_as,
)
from .._errors.pages import page
from .arguments import before_dashes, flags_passed, parse, split
from .flow_file import divided, load
from .ready_file import set_ready

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .._millstream import Observer
    from .._streams.flow import Flow
    from .arguments import CommandOptions
    from .profile import Profile
    from .supervised import Link


def run_file(arguments: list[str]) -> int:
    """The verb ``run``."""
    try:
        options = parse(arguments)
    except UsageError as error:
        return report_error(f"{error} (see millstream run --help)", 2)
    write_errors_as(options.log_format)
    if options.supervised is None and (options.restarts or (options.processes and not options.cluster)):
        return supervise(arguments, options)
    if options.supervised is None:

        def report_own(message: str, code: int, see: str | None = None) -> int:
            return report_error(message, code, see=see)

        return run_process(options, None, report_own)
    from .supervised import Link

    link = Link(*options.supervised)

    def report(message: str, code: int, see: str | None = None) -> int:
        link.send(error=message)
        return code

    return run_process(options, link, report)


def supervise(arguments: list[str], options: CommandOptions) -> int:
    """Runs the flow on several processes of this machine."""
    from .logs import configure
    from .processes import FlowSupervisor, Processes

    try:
        divided(options.file)
    except UsageError as error:
        return report_error(str(error), 2)
    own, of_factory = before_dashes(arguments)
    of_supervisor = flags_passed("never")
    if options.cluster:
        # It says how many processes --hosts names.
        of_supervisor.pop("--processes")
    kept, _ = split(own, of_supervisor)
    kept, once = split(kept, flags_passed("once"))
    first = options.cluster.process if options.cluster else 0
    count = 1 if options.cluster else options.processes or 1
    configure(options.log_level, options.log_format)
    processes = Processes(
        kept,
        range(first, first + count),
        ready_file=options.ready_file,
        meet=count > 1,
        resumes=options.state is not None,
        once=once,
        limit=options.restarts or (10, 600.0),
        json_log=options.log_format == "json",
        of_factory=of_factory,
        shows=None if options.http is None else options,
    )
    return FlowSupervisor(processes).run()


def run_process(options: CommandOptions, link: Link | None, report: Callable[..., int]) -> int:
    """Runs the flow in this process; ``report`` reports the error of one that has failed."""
    try:
        flow = load(options.file, options.arguments)
    except UsageError as error:
        return report(str(error), 2)
    except (Exception, KeyboardInterrupt, SystemExit) as error:
        print_traceback(error)
        return report(*describe(error, f"{options.file}: cannot be loaded"), page(error))
    if link is not None:
        link.send(loaded=True, flow=flow.name)
    from .logs import configure

    configure(options.log_level, options.log_format, log_process(options))
    observer = None
    try:
        if options.replay:
            from .replay_command import replay_file

            return replay_file(flow, options)
        observer = observer_of(options)
        if link is not None and observer is not None:
            link.send(page=observer.address)
        ended = run_flow(flow, options, link, observer)
    except ReaderEnded:
        return BY_SIGPIPE
    except (Exception, KeyboardInterrupt, SystemExit) as error:
        from .kept_page import missing_of, show_failed, wait_for_signal

        print_traceback(error)
        if link is not None:
            link.send(traceback=traceback_of(error), missing=missing_of(error))
        code = report(*describe(error, f'flow "{flow.name}"'), page(error))
        if show_failed(options, observer, flow.name, error):
            wait_for_signal()
        return code
    finally:
        set_ready(options.ready_file, False)
        if observer is not None:
            observer.stop()
    if options.metrics:
        import json

        reports = [json.loads(ended.to_json()), *ended.others]
        if link is not None:
            link.send(reports=reports)
        elif len(reports) > 1:
            from .process_reports import merged

            print(merged(reports), file=sys.stderr, end="")
        else:
            print(ended, file=sys.stderr, end="")
    return 0


def log_process(options: CommandOptions) -> int | None:
    """The number of this process in lines of the log; as text a supervisor adds it to each line."""
    if options.cluster is None or (options.supervised is not None and options.log_format == "text"):
        return None
    number: int = options.cluster.process
    return number


def run_flow(flow: Flow, options: CommandOptions, link: Link | None, observer: Observer | None) -> Any:
    """Runs the flow; returns its report."""
    from .run import run_with

    set_ready(options.ready_file, False)

    def on_start() -> None:
        set_ready(options.ready_file, True)
        if link is not None:
            link.send(running=True)

    profile = profile_of(options)
    report = None
    try:
        report = run_with(flow, options, on_start=on_start, observer=observer)
        return report
    finally:
        if profile is not None:
            profile.end(flow.name, report)


def observer_of(options: CommandOptions) -> Observer | None:
    """Binds the address of the page, if there is one.

    The page of process 0 shows all processes. On one machine the others have theirs at a Unix socket beside
    that at which they meet.
    """
    from .page import page_of, url
    from .restarted import show_restarts

    cluster = options.cluster
    if options.http is not None and cluster is not None and options.supervised is not None:
        own = cluster.hosts[cluster.process]
        if cluster.process and "/" in own:
            options = options.but(http=f"unix:{own}.http")
    observer = page_of(options)
    if observer is not None:
        show_restarts(observer, options.restarted)
        if options.kept is not None:
            observer.keep_in(options.kept)
        if options.open and not observer.address.startswith("unix:"):
            import webbrowser

            webbrowser.open(url(observer) + (f"#token={options.http_token}" if options.http_token else ""))
    return observer


def profile_of(options: CommandOptions) -> Profile | None:
    """The profile of the run, which has begun, if it has one."""
    if options.profile is None:
        return None
    from .profile import Profile

    profile = Profile(options.profile)
    profile.begin()
    return profile
