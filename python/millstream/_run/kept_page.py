"""The page of a flow that has failed: its last figures and its error.

A supervisor shows it at the address of the flow while no process of the flow runs. Process 0 keeps its last
figures in a file for that.
"""

from __future__ import annotations

import os
import time

from .._errors.flow import FlowUsageError
from .logs import supervisor_log
from .restarted import Restarted, show_restarts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .._millstream import Observer
    from .arguments import CommandOptions


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
        self, flow: str, error: str, traceback: str | None, restarted: Restarted, *, is_restarted: bool
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
        now_ms = time.time_ns() // 1_000_000
        self.observer.show_down(flow, error, traceback, now_ms, is_restarted, self.file)

    def hide(self) -> None:
        """Frees the address for the next process."""
        if self.observer is not None:
            self.observer.stop()
            self.observer = None


def wait_for_signal() -> None:
    """Waits for Ctrl-C or SIGTERM."""
    import signal
    import threading

    asked = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: asked.set())
    # The handler runs on this thread, between two waits.
    while not asked.wait(0.2):
        pass
