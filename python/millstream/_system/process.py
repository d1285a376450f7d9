"""One process of a system on the supervisor's side: its order on standard input, its output in the log."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from .._run.supervisor import Child, End, Unit, describe_exit
from .file import Process, System


class Running(Unit[Child]):
    """A process of the file, whether it runs at the moment or not.

    Args:
        process: the process.
        system: the system that it is of.
        keep: the lock of the state directory, which it keeps as long as it lives.
        log: logs a line of it, at a level.
    """

    def __init__(
        self, process: Process, system: System, keep: int, log: Callable[[str, str, str], None]
    ) -> None:
        super().__init__(process.restart)
        self.process = process
        self.system = system
        self.keep = keep
        self.log = log
        #: Why its last stop was not a clean one, such as a call that did not end.
        self.broken_off: str | None = None
        self.last_line = ""

    @property
    def name(self) -> str:
        return self.process.name

    @property
    def pid(self) -> int | None:
        return self.children[0].popen.pid if self.children else None

    def is_same(self, process: Process, system: System) -> bool:
        """Whether a process of a newer file is the running one."""
        now = (self.process.command, self.process.environment, self.process.order(self.system))
        return now == (process.command, process.environment, process.order(system))

    def launch(self) -> None:
        command = list(self.process.command) or [sys.executable, "-m", "millstream._system.child"]
        if os.path.dirname(command[0]):
            command[0] = os.path.join(self.system.folder, command[0])
        self.last_line = ""
        child = Child(
            command,
            self.log_line,
            cwd=self.system.folder,
            env=os.environ | dict(self.process.environment) | {"PYTHONUNBUFFERED": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=[self.keep],
        )
        self.children.append(child)
        order = json.dumps(self.process.order(self.system)).encode() + b"\n"
        stdin = child.popen.stdin
        assert stdin is not None
        try:
            stdin.write(order)
            stdin.flush()
        except BrokenPipeError:
            pass  # it has died, which is handled elsewhere

    def log_line(self, line: bytes) -> None:
        """Logs a line of its output."""
        self.last_line = line.decode(errors="replace").rstrip()
        self.log("info", self.name, self.last_line)

    def request_end(self) -> None:
        """Closes its standard input; kills it after a limit."""
        for child in self.children:
            child.kill_after(self.system.stop_s + 1.0)
            assert child.popen.stdin is not None
            try:
                child.popen.stdin.close()
            except BrokenPipeError:
                pass

    def judge(self, ended: list[Child]) -> End:
        child = ended[0]
        code = child.code or 0
        if self.state == "stopping":
            if code == 0:
                return End()
            if child.was_overdue:
                return End("it did not stop, and was killed", code)
        text = describe_exit(code) if code < 0 else self.last_line or describe_exit(code)
        # A start again does not repair bad usage.
        return End(text, code, is_death=code != 2)

    def on_stopped(self, end: End) -> None:
        if end.text:
            self.broken_off = end.text.removeprefix("millstream service up: ")
            self.log("error", self.name, f"broken off: {self.broken_off}")
        else:
            self.log("info", self.name, "stopped")

    def on_failed(self, end: End, often: str) -> None:
        more = f" (died {often})" if often else ""
        self.log("error", self.name, f"failed and stays down{more}: {end.text}")

    def on_restart(self, end: End, pause_s: float) -> None:
        text = f"{describe_exit(end.code)}; it is started again in {pause_s:g} s"
        self.log("error", self.name, text)

    def status(self) -> dict[str, Any]:
        return {
            "state": self.state,
            "pid": self.pid,
            "restarts": self.restarts,
            "error": self.error,
            "broken_off": self.broken_off,
        }
