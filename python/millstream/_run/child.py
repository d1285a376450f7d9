"""A child process of a supervisor: started, read line by line, ended, killed when it does not end.

Invariant: the child learns of the end of its supervisor, however that ends. It gets one end of a pipe or a
socket that closes with the supervisor's process.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from typing import IO

__all__ = ["Child", "describe_exit"]

#: The most bytes of one line that are kept together.
LINE_BYTES_MAX = 1 << 20


def describe_exit(code: int) -> str:
    """How a process ended, in words: ``describe_exit(-9)`` is ``killed by SIGKILL``."""
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"


class Child:
    """A process, and the pipe that its output goes to.

    Args:
        command: the program and its arguments.
        on_line: is called with each line that it prints, without the end of the line.
        stdin, stdout, stderr: as ``subprocess.Popen`` takes them; one of the last two is a pipe.
        pass_fds: descriptors that it inherits.

    Raises:
        OSError: it cannot be started.
    """

    def __init__(
        self,
        command: Sequence[str],
        on_line: Callable[[bytes], None],
        *,
        stdin: int | None,
        stdout: int | None,
        stderr: int | None,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        pass_fds: Sequence[int] = (),
    ) -> None:
        self.on_line = on_line
        self.rest = b""
        self.kill_s: float | None = None
        self.popen = subprocess.Popen(
            command,
            cwd=cwd,
            env=env,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,  # Ctrl-C is for the supervisor
            pass_fds=pass_fds,
        )
        output = self.popen.stdout or self.popen.stderr
        assert output is not None
        self.output: IO[bytes] = output
        os.set_blocking(self.output.fileno(), False)

    @property
    def pid(self) -> int:
        return self.popen.pid

    def read(self) -> None:
        """Reads what it has printed since the last call."""
        while True:
            try:
                data = os.read(self.output.fileno(), 65536)
            except (BlockingIOError, ValueError):
                return
            *lines, self.rest = (self.rest + data).split(b"\n")
            if self.rest and (not data or len(self.rest) > LINE_BYTES_MAX):
                lines, self.rest = [*lines, self.rest], b""
            for line in lines:
                self.on_line(line)
            if not data:
                return

    def send_signal(self, number: int) -> None:
        """Sends a signal to it, if it lives."""
        self.popen.send_signal(number)

    def kill_after(self, seconds: float) -> None:
        """Kills it when it still lives after this time."""
        if self.kill_s is None:
            self.kill_s = time.monotonic() + seconds

    def poll(self) -> int | None:
        """Returns its exit code when it has ended; kills it when its time is over."""
        code = self.popen.poll()
        if code is None and self.is_overdue():
            self.popen.kill()
        return code

    def is_overdue(self) -> bool:
        """Whether it lives longer than :meth:`kill_after` allows."""
        return self.kill_s is not None and time.monotonic() > self.kill_s

    def close(self) -> None:
        """Reads the rest of its output and closes the pipes; it has ended."""
        self.read()
        for pipe in (self.popen.stdin, self.popen.stdout, self.popen.stderr):
            if pipe is not None:
                try:
                    pipe.close()
                except BrokenPipeError:
                    pass
