"""One process of a system on the supervisor's side: started, watched, restarted, stopped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from ._system_file import Process, System

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
        self.restarts = 0
        self.deaths: deque[float] = deque()
        self.due_s = 0.0
        self.kill_s: float | None = None
        self.child: subprocess.Popen[bytes] | None = None
        self.last_line = ""
        self.rest = b""

    @property
    def name(self) -> str:
        return self.process.name

    def is_same(self, process: Process, system: System) -> bool:
        """Whether a process of a newer file is the running one."""
        now = (self.process.command, self.process.environment, self.process.order(self.system))
        return now == (process.command, process.environment, process.order(system))

    def start(self, keep: int) -> None:
        """Starts it; it keeps the lock of the state directory, ``keep``, as long as it lives."""
        command = list(self.process.command) or [sys.executable, "-m", "millstream._system_child"]
        if os.path.dirname(command[0]):
            command[0] = os.path.join(self.system.folder, command[0])
        environment = os.environ | dict(self.process.environment) | {"PYTHONUNBUFFERED": "1"}
        self.last_line, self.rest, self.kill_s = "", b"", None
        try:
            self.child = subprocess.Popen(
                command,
                cwd=self.system.folder,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is for the supervisor
                pass_fds=[keep],
            )
        except OSError as error:
            self.fail(f"cannot be started: {error}")
            return
        assert self.child.stdin is not None and self.child.stdout is not None
        os.set_blocking(self.child.stdout.fileno(), False)
        self.state = "running"
        order = json.dumps(self.process.order(self.system)).encode() + b"\n"
        try:
            self.child.stdin.write(order)
            self.child.stdin.flush()
        except BrokenPipeError:
            pass  # it has died, which is handled elsewhere

    def stop(self) -> None:
        """Requests its end; kills it after a limit."""
        if self.child is None:
            self.state = "stopped"
        elif self.state != "stopping":
            self.state = "stopping"
            self.kill_s = time.monotonic() + self.system.stop_s + 1.0
            assert self.child.stdin is not None
            try:
                self.child.stdin.close()
            except BrokenPipeError:
                pass

    def read(self) -> None:
        """Reads its output."""
        if self.child is None or self.child.stdout is None:
            return
        while True:
            try:
                data = os.read(self.child.stdout.fileno(), 65536)
            except (BlockingIOError, ValueError):
                return
            *lines, self.rest = (self.rest + data).split(b"\n")
            if not data and self.rest:
                lines, self.rest = [self.rest], b""
            for line in lines:
                self.last_line = line.decode(errors="replace").rstrip()
                self.log(self.name, self.last_line)
            if not data:
                return

    def check(self, keep: int) -> bool:
        """Performs actions that are due; true when its state has changed."""
        now = time.monotonic()
        if self.state == "restarting" and now >= self.due_s:
            self.restarts += 1
            self.start(keep)
            return True
        if self.child is None:
            return False
        self.read()
        code = self.child.poll()
        if code is None:
            if self.kill_s is not None and now > self.kill_s:
                self.kill_s = None
                self.log(self.name, "does not stop; it is killed")
                self.child.kill()
            return False
        self.read()
        self.close()
        if self.state == "stopping":
            self.state = "stopped"
            self.log(self.name, "stopped")
        else:
            self.died(code, now)
        return True

    def close(self) -> None:
        assert self.child is not None
        for pipe in (self.child.stdin, self.child.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except BrokenPipeError:
                    pass
        self.child = None

    def died(self, code: int, now: float) -> None:
        policy = self.process.restart
        if code < 0:
            self.error = f"killed by {signal.Signals(-code).name}"
        else:
            self.error = self.last_line or f"ended with exit code {code}"
        if code == 2:  # bad usage, which a restart does not repair
            self.fail(self.error)
            return
        self.deaths.append(now)
        while self.deaths and now - self.deaths[0] > policy.within_s:
            self.deaths.popleft()
        if len(self.deaths) > policy.limit:
            self.fail(f"{self.error}", f" (died {len(self.deaths)} times within {policy.within_s:g} s)")
            return
        pause_s = min(policy.longest_s, policy.first_s * 2 ** (len(self.deaths) - 1))
        self.state, self.due_s = "restarting", now + pause_s
        how = self.error if code < 0 else f"ended with exit code {code}"
        self.log(self.name, f"{how}; it is started again in {pause_s:g} s")

    def fail(self, error: str, more: str = "") -> None:
        self.state, self.error = "failed", error
        self.log(self.name, f"failed and stays down{more}: {error}")

    def status(self) -> dict[str, Any]:
        return {
            "state": self.state,
            "pid": None if self.child is None else self.child.pid,
            "restarts": self.restarts,
            "error": self.error,
        }
