"""The page of a flow that has failed: its last figures and its error.

The process of the flow shows it with ``keep_page``. A supervisor shows it at the address of the flow while no
process of the flow runs; process 0 keeps its last figures in a file for that.
"""

from __future__ import annotations

import os
import time

from .._errors.command import INTERRUPTED, describe, traceback_of
from .._errors.flow import FlowUsageError, MemberLostError
from .logs import supervisor_log
from .restarted import Restarted, show_restarts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from .._millstream import Observer
    from .arguments import CommandOptions
    from .options import RunOptions


class KeptPage:
    """The page of a flow between two starts.

    Args:
        options: those of the run, which has a page.
        folder: the private directory of the supervisor.
    """

    def __init__(self, options: CommandOptions, folder: str) -> None:
        self.options = options
        self.file = os.path.join(folder, "last")
        #: Its address, which the first process has chosen where it has port 0.
        self.address = options.http
        self.observer: Observer | None = None

    def arguments(self) -> list[str]:
        """The arguments of ``millstream run`` for the process whose page it is."""
        return ["--http", str(self.address), "--kept", self.file]

    def show(
        self,
        flow: str,
        error: str,
        traceback: str | None,
        missing: Sequence[int],
        restarted: Restarted,
        *,
        is_restarted: bool,
    ) -> None:
        """Shows that the flow has failed, until it is hidden."""
        from .page import page_of

        try:
            self.observer = page_of(self.options.but(http=self.address))
        except (OSError, FlowUsageError) as error_of_page:
            # The flow matters more than its page.
            supervisor_log.warning("the page is not shown until the next start: %s", error_of_page)
            return
        if self.observer is None:
            return
        show_restarts(self.observer, restarted.path)
        self.observer.show_down(flow, error, traceback, now_ms(), is_restarted, missing, self.file)

    def hide(self) -> None:
        """Frees the address for the next process."""
        if self.observer is not None:
            self.observer.stop()
            self.observer = None


def show_failed(options: RunOptions, observer: Observer | None, flow: str, error: BaseException) -> bool:
    """Shows on the page of a flow that it has failed; returns whether it has a page that stays for that."""
    text, code = describe(error, f'flow "{flow}"')
    if observer is None or not options.keep_page or code in (2, INTERRUPTED):
        return False
    observer.show_down(flow, text, traceback_of(error), now_ms(), False, missing_of(error))
    return True


def missing_of(error: BaseException) -> Sequence[int]:
    """The processes without which a flow has failed, as far as its end names them."""
    return error.missing if isinstance(error, MemberLostError) else ()


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def wait_for_signal() -> None:
    """Waits for Ctrl-C or SIGTERM; in threads other than the main one, which get no signals, not at all."""
    import signal
    import threading

    if threading.current_thread() is not threading.main_thread():
        return
    asked = threading.Event()

    def note(*_: Any) -> None:
        asked.set()

    before = [(number, signal.signal(number, note)) for number in (signal.SIGINT, signal.SIGTERM)]
    # The handler runs on this thread, between two waits.
    while not asked.wait(0.2):
        pass
    for number, handler in before:
        signal.signal(number, handler)
