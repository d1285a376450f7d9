"""``millstream run FILE.py[:name]``: runs the flow that a Python file describes, or replays input through it.

``name`` may be a function that makes the flow, and takes the arguments that no option is (``_factory``).

Exit code 0 when the flow has ended or was stopped by a signal, 2 for bad usage and for a mistake in the
description of the flow, 1 for a failure, 75 when another process of the flow was lost (a start again resumes
it), 130 where a signal does not end it in an orderly way, with one line on standard error; if the user's code
raised, its traceback is printed above that line, without our frames.
"""

from __future__ import annotations

import sys

from .._connectors.io import ReaderEnded
from .._errors.command import BY_SIGPIPE, UsageError, describe, print_traceback, report_error
from .arguments import before_dashes, parse, split
from .flow_file import divided, load
from .ready_file import set_ready

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .._streams.flow import Flow
    from .profile import Profile
    from .supervised import Link

__all__ = ["run_file"]

#: Options of the supervisor, which its processes do not get.
OF_SUPERVISOR = {"--processes": 1, "--restarts": 1}
#: Options that change the state, which only the processes of the first start get.
ONCE = {"--fresh": 0, "--reset-clock": 0, "--drop-state": 1}


def run_file(arguments: list[str]) -> int:
    """The verb ``run``."""
    try:
        options = parse(arguments)
    except UsageError as error:
        return report_error(f"{error} (see millstream run --help)", 2)
    if options.supervised is None and (options.restarts or (options.processes and not options.cluster)):
        return supervise(arguments, options)
    if options.supervised is None:
        return run_process(options, None, report_error)
    from .supervised import Link

    link = Link(options.supervised)

    def report(message: str, code: int) -> int:
        link.send(error=message)
        return code

    return run_process(options, link, report)


def supervise(arguments: list[str], options: Any) -> int:
    """Runs the flow on several processes of this machine."""
    from .processes import Supervisor

    try:
        divided(options.file)
    except UsageError as error:
        return report_error(str(error), 2)
    own, of_factory = before_dashes(arguments)
    kept, _ = split(own, {"--restarts": 1} if options.cluster else OF_SUPERVISOR)
    kept, once = split(kept, ONCE)
    kept, _ = split(kept, {"--ready-file": 1})
    first = options.cluster.process if options.cluster else 0
    supervisor = Supervisor(
        kept,
        range(first, first + (1 if options.cluster else options.processes)),
        ready_file=options.ready_file,
        meet=options.cluster is None and options.processes > 1,
        resumes=options.state is not None,
        once=once,
        limit=options.restarts or (10, 600.0),
        json_log=options.log_format == "json",
        of_factory=of_factory,
    )
    return supervisor.run()


def run_process(options: Any, link: Link | None, report: Callable[[str, int], int]) -> int:
    """Runs the flow in this process; ``report`` reports the error of one that has failed."""
    try:
        flow = load(options.file, options.arguments)
    except UsageError as error:
        return report(str(error), 2)
    except (Exception, KeyboardInterrupt, SystemExit) as error:
        print_traceback(error)
        return report(*describe(error, f"{options.file}: cannot be loaded"))
    if link is not None:
        link.send(loaded=True)
    from .logs import configure

    configure(options.log_level, options.log_format, log_process(options))
    try:
        if options.replay:
            from .replay_command import replay_file

            return replay_file(flow, options)
        ended = run_flow(flow, options, link)
    except ReaderEnded:
        return BY_SIGPIPE
    except (Exception, KeyboardInterrupt, SystemExit) as error:
        print_traceback(error)
        return report(*describe(error, f'flow "{flow.name}"'))
    finally:
        set_ready(options.ready_file, False)
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


def log_process(options: Any) -> int | None:
    """The number of this process in lines of the log; as text a supervisor adds it to each line."""
    if options.cluster is None or (options.supervised is not None and options.log_format == "text"):
        return None
    number: int = options.cluster.process
    return number


def run_flow(flow: Flow, options: Any, link: Link | None) -> Any:
    """Runs the flow; returns its report."""
    from .options import checked
    from .page_options import observer_of
    from .run import run_saving

    set_ready(options.ready_file, False)

    def on_start() -> None:
        set_ready(options.ready_file, True)
        if link is not None:
            link.send(running=True)

    saving = checked(
        options.workers,
        options.state,
        options.epoch,
        options.sync == "always",
        options.drop_state,
        options.fresh,
        options.reset_clock,
        options.replica,
        options.commit_on_replica,
    )
    profile, report = profile_of(options), None
    observer = observer_of(options)
    try:
        report = run_saving(
            flow,
            options.workers,
            saving,
            options.spin,
            cluster=options.cluster,
            on_start=on_start,
            observer=observer,
            shards=options.shards,
        )
        return report
    finally:
        if profile is not None:
            profile.end(flow.name, report)
        if observer is not None:
            observer.stop()


def profile_of(options: Any) -> Profile | None:
    """The profile of the run, which has begun, if it has one."""
    if options.profile is None:
        return None
    from .profile import Profile

    profile = Profile(options.profile)
    profile.begin()
    return profile
