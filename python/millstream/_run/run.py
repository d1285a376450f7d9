"""Running a flow: signals, and the wait for the end."""

from __future__ import annotations

import atexit
import os
import sys

from .. import _millstream
from .._errors.command import INTERRUPTED, LOST, announce, describe
from .._errors.flow import FlowUsageError, MemberLostError
from .._streams.flow import Flow
from .cells import in_notebook
from .option import takes
from .options import RunOptions
from .page import page_of
from .programs import was_used
from .version import version_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType
    from typing import Any


@takes(RunOptions)
def run(flow: Flow, options: RunOptions) -> _millstream.Report:
    """Runs a flow until its sources have ended.

    SIGINT and SIGTERM end the flow: its sources read no more, items in its steps are processed and flushed,
    and ``run`` returns as usual. Work that is not finished within a second is abandoned after the current
    item of each worker: with ``state`` the next start repeats it from the last commit, without it is
    dropped, and standard error reports how many items that were. A second signal raises KeyboardInterrupt
    at once. In IPython and Jupyter an interrupt ends the flow in the same way and then raises
    KeyboardInterrupt, so that no further cell runs. In threads other than the main one Python receives no
    signals.

    While a flow runs, the collector of reference cycles runs less often, unless ``gc.set_threshold`` was
    used before.

    Args:
        flow: the flow.

    Returns:
        The metrics of the steps; with ``cluster`` those of this process.

    Raises:
        StepError: a step failed; its ``__cause__`` is the exception of the step.
        FlowUsageError: the flow has a mistake, or an option is out of range.
        OSError: a connector cannot be opened, or the address of the page is in use.
        MemberLostError: another process of ``cluster`` was lost.
        KeyboardInterrupt: a second signal came, or a step raised it. A SystemExit of a step is raised, too.

    Example:
        >>> import millstream as ms
        >>> flow, out = ms.Flow("tens"), ms.testing.collect()
        >>> flow.source("in", ms.testing.items([1, 2])).map(lambda n: n * 10, name="tens").sink("out", out)
        >>> report = ms.run(flow)
        >>> out, report.step("tens")["items_in"]
        ([10, 20], 2)
    """
    if not isinstance(flow, Flow):
        raise FlowUsageError(f"run takes a Flow, not {flow!r}")
    observer = page_of(options)
    try:
        return run_with(flow, options, observer=observer)
    except BaseException as error:
        from .kept_page import show_failed, wait_for_signal

        if show_failed(options, observer, flow.name, error):
            text, _ = describe(error, f'flow "{flow.name}"')
            announce(f"{text}; its page stays until Ctrl-C")
            wait_for_signal()
        raise
    finally:
        if observer is not None:
            observer.stop()


def run_with(
    flow: Flow,
    options: RunOptions,
    *,
    rehearsal: _millstream.Rehearsal | None = None,
    crash: int | tuple[str, int] | None = None,
    on_start: Callable[[], object] | None = None,
    stopper: _millstream.Stopper | None = None,
    observer: _millstream.Observer | None = None,
) -> _millstream.Report:
    """Runs a flow; a rehearsal with one worker on this thread.

    ``on_start`` is called when the flow runs: all processes have met, and the changes of the state that the
    options ask for are committed. ``crash`` is the commit after which a test crashes the run, or a moment of
    it and the commit. ``stopper`` stops the run besides signals, and has an ``on_start`` of its own.
    """
    was_used(flow)
    if options.cluster is not None:
        flow._flow.version(version_of(flow))
    stopper = stopper or _millstream.Stopper(on_start)
    # On this thread Ctrl-C reaches the user's code as it always does.
    here = rehearsal is not None and options.workers == 1
    restore_signals = _leave_signals if here else hook_signals(stopper)
    try:
        report = _millstream.run(flow._flow, options, stopper, rehearsal, observer, crash)
    except BaseException as error:
        if not stopper.ended:
            _abandoned.append((stopper, LOST if isinstance(error, MemberLostError) else INTERRUPTED))
        raise
    finally:
        restore_signals()
    if stopper.stopped and in_notebook():
        raise KeyboardInterrupt
    return report


_abandoned: list[tuple[_millstream.Stopper, int]] = []
"""Flows that are not waited for after a second signal or the loss of another process, each with the exit code
for that."""


@atexit.register
def _leave() -> None:
    """Ends a process whose abandoned workers are still inside a step: an interpreter cannot be finalized
    meanwhile. It was registered early, so that this runs after the functions of others."""
    codes = [code for stopper, code in _abandoned if not stopper.ended]
    if not codes:
        return
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:
            # Nothing is left that could report the error.
            pass
    os._exit(codes[-1])


def _leave_signals() -> None:
    """Does nothing."""


def hook_signals(stopper: _millstream.Stopper) -> Callable[[], None]:
    """Makes signals end a flow or a service cleanly; returns the function that undoes that."""
    import signal
    import threading

    if threading.current_thread() is not threading.main_thread():
        return lambda: None
    asked = 0

    def on_signal(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        asked += 1
        stopper.stop()
        # The first signal drains; a second one does not wait.
        if asked > 1:
            raise KeyboardInterrupt

    before: list[tuple[int, Any]] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        # A handler that was not set from Python cannot be restored, and is not replaced.
        if signal.getsignal(number) is not None:
            before.append((number, signal.signal(number, on_signal)))

    def restore() -> None:
        for number, handler in before:
            signal.signal(number, handler)

    return restore
