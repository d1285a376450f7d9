"""One process of a system on the supervisor's side: started, watched, restarted, stopped."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from .._run.child import Child, describe_exit
from .._run.restarts import Restarts
from .file import Process, System

__all__ = ["Running"]


class Running:
    """A process of the file, whether it runs at the moment or not.

    ``state`` is ``running``, ``restarting`` (it has died and will be started), ``failed`` (it died too often,
    or cannot be started), ``stopping`` or ``stopped``.
    """

    def __init__(self, process: Process, system: System, log: Callable[[str, str], None]) -> None:
        self.process = process
        self.system = system
        self.log = log
        self.state = "stopped"
        self.error: str | None = None
        #: Why its last stop was not a clean one, such as a call that did not end.
        self.broken_off: str | None = None
        self.restarts = 0
        self.deaths = Restarts(process.restart)
        self.due_s = 0.0
        self.child: Child | None = None
        self.last_line = ""

    @property
    def name(self) -> str:
        return self.process.name

    def is_same(self, process: Process, system: System) -> bool:
        """Whether a process of a newer file is the running one."""
        now = (self.process.command, self.process.environment, self.process.order(self.system))
        return now == (process.command, process.environment, process.order(system))

    def start(self, keep: int) -> None:
        """Starts it; it keeps the lock of the state directory, ``keep``, as long as it lives."""
        command = list(self.process.command) or [sys.executable, "-m", "millstream._system.child"]
        if os.path.dirname(command[0]):
            command[0] = os.path.join(self.system.folder, command[0])
        self.last_line = ""
        try:
            self.child = Child(
                command,
                self.log_line,
                cwd=self.system.folder,
                env=os.environ | dict(self.process.environment) | {"PYTHONUNBUFFERED": "1"},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=[keep],
            )
        except OSError as error:
            self.fail(f"cannot be started: {error}")
            return
        self.state = "running"
        order = json.dumps(self.process.order(self.system)).encode() + b"\n"
        stdin = self.child.popen.stdin
        assert stdin is not None
        try:
            stdin.write(order)
            stdin.flush()
        except BrokenPipeError:
            pass  # it has died, which is handled elsewhere

    def log_line(self, line: bytes) -> None:
        """Logs a line of its output."""
        self.last_line = line.decode(errors="replace").rstrip()
        self.log(self.name, self.last_line)

    def stop(self) -> None:
        """Requests its end; kills it after a limit."""
        if self.child is None:
            self.state = "stopped"
        elif self.state != "stopping":
            self.state = "stopping"
            self.child.kill_after(self.system.stop_s + 1.0)
            assert self.child.popen.stdin is not None
            try:
                self.child.popen.stdin.close()
            except BrokenPipeError:
                pass

    def check(self, keep: int) -> bool:
        """Performs actions that are due; true when its state has changed."""
        now = time.monotonic()
        if self.state == "restarting" and now >= self.due_s:
            self.restarts += 1
            self.start(keep)
            return True
        if self.child is None:
            return False
        self.child.read()
        code = self.child.poll()
        if code is None:
            if self.child.is_overdue():
                self.child.kill_s = None
                self.broken_off = "it did not stop, and was killed"
            return False
        self.child.close()
        self.child = None
        if self.state == "stopping":
            self.state = "stopped"
            if code != 0 and self.broken_off is None:
                self.broken_off = describe_exit(code) if code < 0 else self.last_line or describe_exit(code)
                self.broken_off = self.broken_off.removeprefix("millstream service up: ")
            self.log(self.name, "stopped" if self.broken_off is None else f"broken off: {self.broken_off}")
        else:
            self.died(code, now)
        return True

    def died(self, code: int, now: float) -> None:
        self.error = describe_exit(code) if code < 0 else self.last_line or describe_exit(code)
        if code == 2:  # bad usage, which a restart does not repair
            self.fail(self.error)
            return
        pause_s = self.deaths.pause(now)
        if pause_s is None:
            within = f"{self.process.restart.within_s:g} s"
            self.fail(self.error, f" (died {len(self.deaths.deaths)} times within {within})")
            return
        self.state, self.due_s = "restarting", now + pause_s
        self.log(self.name, f"{describe_exit(code)}; it is started again in {pause_s:g} s")

    def fail(self, error: str, more: str = "") -> None:
        self.state, self.error = "failed", error
        self.log(self.name, f"failed and stays down{more}: {error}")

    def status(self) -> dict[str, Any]:
        return {
            "state": self.state,
            "pid": None if self.child is None else self.child.pid,
            "restarts": self.restarts,
            "error": self.error,
            "broken_off": self.broken_off,
        }
