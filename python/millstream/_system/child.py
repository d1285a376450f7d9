"""A process of a system of services whose components are Python: a thread for each of its services.

It reads one line of JSON from standard input, which names the services to run, and ends at the end of that
input: so it ends also when the supervisor is killed. It writes the status of each service to a file of the
state directory, ``SERVICE.json``. Programs in Rust do the same (``millstream::service::system``).
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

from .. import _millstream
from .._errors.command import UsageError, report_error
from .._errors.flow import ServiceError
from .._service.failures import failed
from .._service.load import load
from .._service.options import Hooks, Retention, arguments
from .gateway import GatewayPart

#: The time between two looks at the services, in seconds.
EVERY_S = 0.2


class Part(threading.Thread):
    """One service, on its thread."""

    def __init__(self, order: dict[str, Any], state: str) -> None:
        super().__init__(name=order["name"], daemon=True)
        self.order = order
        self.component = load(order["component"])
        self.stopper = _millstream.Stopper()
        self.meter = _millstream.Meter()
        self.code: int | None = None
        self.reporter = _millstream.Reporter(order["name"], order["inputs"], state, self.meter)

    def run(self) -> None:
        try:
            self.serve()
            self.code = 0
        except BaseException as error:  # a component may end by SystemExit too
            self.code = 1
            if isinstance(error, Exception):
                failed(f"service {self.name}", error)
            else:
                report_error(f"ended by {type(error).__name__}", 1, f"service {self.name}")

    def serve(self) -> None:
        from ..service import serve

        order = self.order
        retention = Retention(order["retain_bytes"], order["retain_age_s"], order["retain_for_cursors"])
        hooks = Hooks(self.stopper, self.meter, retention, order["cores"], self.note_missing)
        serve(self.component, **arguments(serve, order), hooks=hooks, wait_for_inputs=True)

    def note_missing(self, missing: Sequence[str]) -> None:
        """Notes which input the service waits for, for its status."""
        self.meter.wait_for(missing[0] if missing else None)

    def stop(self) -> None:
        self.stopper.stop()


class Log:
    """Standard output or standard error, which goes to the supervisor. After that was killed, output
    is lost; it is no fault of the component, whose call is not skipped."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        try:
            self._stream.write(text)
        except BrokenPipeError:
            pass
        return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except BrokenPipeError:
            pass

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def main() -> int:
    """Runs the orders of standard input until it ends."""
    with open(0, "rb", buffering=0, closefd=False) as stdin:
        line = stdin.readline()
    if not line:
        return report_error("this program is started by `millstream service up`", 2, "service up")
    order = json.loads(line)
    sys.stdout, sys.stderr = Log(sys.stdout), Log(sys.stderr)
    try:
        services = [Part(each, order["state"]) for each in order["services"]]
        parts: list[Part | GatewayPart] = [*services]
        if "gateway" in order:
            parts.append(GatewayPart(order["gateway"]))
    except UsageError as error:
        return report_error(str(error), 2, "service up")
    except ServiceError as error:
        return failed("service up", error)
    asked = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: asked.set())
    for part in parts:
        part.start()
    deadline: float | None = None
    while any(part.is_alive() for part in parts):
        readable, _, _ = select.select([] if asked.is_set() else [0], [], [], EVERY_S)
        if readable and not os.read(0, 4096):
            asked.set()
        if any(part.code is not None for part in parts):
            asked.set()  # services of one process end together
        if asked.is_set() and deadline is None:
            deadline = time.monotonic() + order["stop_s"]
            for part in parts:
                part.stop()
        if deadline is not None:
            for part in parts:
                part.join(0.01)
        for service in services:
            service.reporter.check()
        if deadline is not None and time.monotonic() > deadline:
            busy = ", ".join(part.name for part in parts if part.is_alive())
            limit = f"{order['stop_s']:g} s"
            text = f"the call of {busy} has not ended within {limit} (stop); the next start makes it again"
            report_error(text, 1, "service up")
            sys.stdout.flush()
            os._exit(1)
    for service in services:
        service.reporter.end()
    return max(part.code or 0 for part in parts)


if __name__ == "__main__":
    sys.exit(main())
