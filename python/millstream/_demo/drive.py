"""The course of the demo: initial quotes, then both streams on their schedule, then the end of the flow."""

from __future__ import annotations

import os
import queue
import tempfile
import time

from .flow import Probe, describe
from .programs import Failed, Receiver, Stop, generate, run_json
from .report import measured
from .results import counted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .._run.running import Running


SENDER_START_SECONDS = 0.7
"""Time for the sender to start, read its files and connect."""
BIND_SECONDS = 10.0
"""How long the flow may take until it listens."""
LOOK_SECONDS = 0.05
"""How often a signal and the end of the flow are looked for."""
END_SECONDS = 1.0
"""How long an interrupted flow may take to end by itself, once it has handled all that was sent."""
STALL_SECONDS = 10.0
"""How long an interrupted flow may make no progress."""


def measure(rate: float | None, seconds: float, spin: bool, http: str | None, stop: Stop) -> dict[str, Any]:
    """Runs the flow once; returns the report."""
    with tempfile.TemporaryDirectory(prefix="millstream-demo-") as folder:
        files = {kind: os.path.join(folder, f"{kind}.msg") for kind in ("initial", "nbbo", "orders")}
        for kind, path in files.items():
            generate(kind, path)
        results = os.path.join(folder, "results.msg")
        with Receiver(results) as receiver:
            flow = Driven(receiver.address, spin, http, stop)
            try:
                sent = flow.drive(files, rate, seconds)
                report = flow.running.wait()
            except BaseException:
                flow.give_up()
                raise
            received = receiver.report()["messages"]
        counts = counted(files["initial"], files["orders"], results, sent)
        return measured(report, flow.probe, (rate, sent), received, counts)


class Driven:
    """The running flow of the demo."""

    def __init__(self, results_at: str, spin: bool, http: str | None, stop: Stop) -> None:
        self._stop = stop
        self._bound: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()
        self.probe = Probe()
        flow = describe(results_at, lambda name, address: self._bound.put((name, address)), self.probe)
        self.running: Running = flow.start(spin=spin, http=http)
        if self.running.address is not None:
            import sys

            print(f"The page of the flow is http://{self.running.address}/", file=sys.stderr, flush=True)

    def drive(self, files: dict[str, str], rate: float | None, seconds: float) -> dict[str, Any]:
        """Sends the initial quotes to their end, then both streams; returns the report of the sender."""
        at = self._addresses()
        run_json(self._stop, "send", files["initial"], "--to", at["quotes"])
        while not self.probe.initial.wait(LOOK_SECONDS):
            if self._stop.requested:
                self.running.stop()
            if self.running.has_ended:
                self.running.wait()
                raise Failed("the flow ended before it had handled the initial quotes")
        streams = [f"{files['nbbo']}@{at['quotes']}", f"{files['orders']}@{at['orders']}"]
        schedule: list[object] = []
        if rate is not None:
            start_ns = time.monotonic_ns() + int(SENDER_START_SECONDS * 1e9)
            self.probe.schedule(start_ns, 2e9 / rate)
            schedule = ["--rate", rate / 2, "--start-at", start_ns]
        args = [word for stream in streams for word in ("--stream", stream)]
        sent = run_json(self._stop, "send", *args, "--repeat", "--seconds", seconds, *schedule)
        self._await_end(sum(stream["messages"] for stream in sent["streams"]))
        self.probe.ended(sent)
        return sent

    def _addresses(self) -> dict[str, str]:
        """Where the flow takes quotes and orders."""
        try:
            return dict(self._bound.get(timeout=BIND_SECONDS) for _ in range(2))
        except queue.Empty:
            raise Failed("the flow does not listen") from None

    def _await_end(self, sent: int) -> None:
        """Waits until all that was sent is handled, and the flow has ended."""
        handled = -1
        since = time.monotonic()
        while not self.running.has_ended:
            if self.probe.handled != handled:
                handled = self.probe.handled
                since = time.monotonic()
            # A sender that was interrupted before it connected leaves the flow waiting for it.
            limit = END_SECONDS if handled == sent else STALL_SECONDS
            if self._stop.requested and time.monotonic() > since + limit:
                self.running.stop()
            time.sleep(LOOK_SECONDS)

    def give_up(self) -> None:
        """Ends the flow after a failure, which says more than what the flow says then."""
        self.running.stop()
        try:
            self.running.wait()
        except Exception:
            pass
