"""A process of a flow on the side of the supervisor: what it prints, and the messages that it sends."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time

from .._errors.command import LOST
from .child import Child, describe_exit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["Member"]

#: Exit codes of a flow that has failed by itself: a start again would fail again.
FAILURES = (1, 2, 130)


class Member:
    """A process of one start.

    Args:
        number: its number.
        command: the program and its arguments; the descriptor of its connection is added.
        more: arguments after that.
        raw_lines: whether its lines are printed as they are, without its number.
    """

    def __init__(self, number: int, command: list[str], more: list[str], raw_lines: bool) -> None:
        self.number = number
        self.prefix = b"" if raw_lines else b"p%d | " % number
        self.code: int | None = None
        self.ended_s = 0.0
        self.was_overdue = False
        self.is_loaded = False
        self.is_running = False
        self.error = ""
        self.reports: list[dict[str, Any]] = []
        self.rest = b""
        self.link, theirs = socket.socketpair()
        self.link.setblocking(False)
        with theirs:
            self.child = Child(
                [*command, "--supervised", str(theirs.fileno()), *more],
                self.print_line,
                stdin=subprocess.DEVNULL,
                stdout=None,
                stderr=subprocess.PIPE,
                pass_fds=[theirs.fileno()],
            )

    def print_line(self, line: bytes) -> None:
        """Prints a line of its standard error."""
        sys.stderr.buffer.write(self.prefix + line + b"\n")
        sys.stderr.flush()

    def check(self) -> None:
        """Reads what it has printed and sent, and notes its end."""
        if self.code is not None:
            return
        self.child.read()
        code = self.child.poll()
        self.read_messages()
        if code is None:
            return
        self.code, self.ended_s, self.was_overdue = code, time.monotonic(), self.child.is_overdue()
        self.child.close()
        self.link.close()

    def read_messages(self) -> None:
        while True:
            try:
                data = self.link.recv(65536)
            except (BlockingIOError, ConnectionError):
                return
            *lines, self.rest = (self.rest + data).split(b"\n")
            for line in lines:
                self.receive(json.loads(line))
            if not data:
                return

    def receive(self, message: dict[str, Any]) -> None:
        self.is_loaded |= "loaded" in message
        self.is_running |= "running" in message
        self.error = message.get("error", self.error)
        self.reports = message.get("reports", self.reports)

    @property
    def is_death(self) -> bool:
        """Whether it has ended in a way that a start again may repair."""
        return self.code not in FAILURES

    def describe(self) -> str:
        """How it ended, in words."""
        if self.error:
            return self.error if self.code == LOST else f"process {self.number}: {self.error}"
        return f"process {self.number} died first: {describe_exit(self.code or 0)}"

    def kill(self) -> None:
        """Ends it at once, if it lives."""
        self.child.popen.kill()
        self.child.popen.wait()
