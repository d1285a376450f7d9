"""A supervisor and its processes, as tests start, watch and kill them."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

from shapes import TIMEOUT


def wait_for(condition: Callable[[], bool], what: str, seconds: float = TIMEOUT) -> None:
    """Waits until a condition holds."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, f"waited for {what}"
        time.sleep(0.005)


def children(pid: int) -> list[int]:
    """The processes that a process has started and that live."""
    try:
        listed = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except (FileNotFoundError, ProcessLookupError):
        return []
    return [int(child) for child in listed if is_alive(int(child))]


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


class Supervised:
    """A running ``millstream run --processes``, whose standard error is collected.

    Args:
        command: its command.
        environment: its environment.
    """

    def __init__(self, command: list[str], environment: dict[str, str] | None = None) -> None:
        self.process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
        self.lines: list[str] = []
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line.rstrip("\n"))

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def said(self, what: str, times: int = 1) -> None:
        """Waits until a line with this text has come so often."""
        wait_for(lambda: self.text.count(what) >= times or self.process.poll() is not None, what)
        if self.text.count(what) < times:
            self.reader.join(TIMEOUT)
        assert self.text.count(what) >= times, self.text

    def members(self, count: int) -> list[int]:
        """Waits until it has so many processes; returns their ids, in the order of their start."""
        found: list[int] = []

        def are_there() -> bool:
            found[:] = sorted(children(self.process.pid))
            return len(found) == count or self.process.poll() is not None

        wait_for(are_there, f"{count} processes")
        assert self.process.poll() is None, self.text
        return found

    def kill(self, pid: int, number: int = signal.SIGKILL) -> None:
        """Sends a signal to one of its processes, if it lives."""
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass

    def is_ready(self, file: Path) -> bool:
        """Waits until the file of ``--ready-file`` exists, or the run has ended."""
        wait_for(lambda: file.exists() or self.process.poll() is not None, "the flow")
        return file.exists()

    def end(self, code: int = 0) -> str:
        """Waits for its end; returns what it has printed on standard error."""
        try:
            ended = self.process.wait(TIMEOUT)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise AssertionError(f"it does not end: {self.text}") from None
        self.reader.join(TIMEOUT)
        assert ended == code, self.text
        return self.text
