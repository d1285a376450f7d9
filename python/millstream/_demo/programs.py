"""The native programs of the demo: ``millstream generate``, ``send`` and ``receive``."""

from __future__ import annotations

import signal
import subprocess
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType, TracebackType
    from typing import Any


class Failed(Exception):
    """A program that could not do its work, in its own words."""


class Stop:
    """Ctrl-C and SIGTERM: the first ends the run early, and what has been sent is handled and reported."""

    def __init__(self) -> None:
        self.requested = False
        self._sender: subprocess.Popen[str] | None = None
        self._before: list[tuple[int, Any]] = []

    def __enter__(self) -> Stop:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before.append((number, signal.signal(number, self._on_signal)))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, frames: TracebackType | None
    ) -> None:
        for number, handler in self._before:
            signal.signal(number, handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
        self._interrupt()

    def _interrupt(self) -> None:
        if self._sender is not None:
            self._sender.send_signal(signal.SIGINT)

    def communicate(self, program: subprocess.Popen[str]) -> tuple[str, str]:
        """Waits for the end of a program, which is interrupted when the run ends early."""
        self._sender = program
        if self.requested:
            self._interrupt()
        try:
            return program.communicate()
        finally:
            self._sender = None


def start(*arguments: object) -> subprocess.Popen[str]:
    """Starts a verb of the native program."""
    command = [sys.executable, "-m", "millstream", *map(str, arguments)]
    # Ctrl-C on a terminal reaches a whole group; the order in which a run ends is ours.
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def run_json(stop: Stop, *arguments: object) -> dict[str, Any]:
    """Runs a verb to its end, which is early if a signal comes; returns its report."""
    with start(*arguments, "--json") as program:
        try:
            output, errors = stop.communicate(program)
        except BaseException:
            program.kill()
            raise
    return report_of(program, output, errors)


def report_of(program: subprocess.Popen[str], output: str, errors: str) -> dict[str, Any]:
    """The report of a program that has ended."""
    import json

    if program.returncode != 0:
        raise Failed(errors.strip() or f"the program ended with {program.returncode}")
    found: dict[str, Any] = json.loads(output)
    return found


SEED = 14
"""A seed with which a short run has results: orders 5,226 and 24,957 are for symbols with a wide spread."""


def generate(kind: str, path: str) -> None:
    """Writes a file of test data."""
    with start("generate", f"market-spread-{kind}", "--out", path, "--seed", SEED) as program:
        _, errors = program.communicate()
    if program.returncode != 0:
        raise Failed(errors.strip())


class Receiver:
    """A receiver of results, which writes them to a file. Leaving its context ends it."""

    def __init__(self, path: str) -> None:
        self._program = start(
            *("receive", "--listen", "127.0.0.1:0", "--expect-length", 55, "--out", path, "--json")
        )
        self.address = ""

    def __enter__(self) -> Receiver:
        said = []
        for line in self._program.stderr or ():
            said.append(line)
            if line.startswith("listening on "):
                self.address = line.removeprefix("listening on ").strip()
                return self
        self.__exit__(None, None, None)
        raise Failed(f"receive did not start: {''.join(said).strip()}")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, frames: TracebackType | None
    ) -> None:
        self._program.kill()
        self._program.communicate()

    def report(self) -> dict[str, Any]:
        """Waits until the flow has closed its connection; returns what was received."""
        return report_of(self._program, *self._program.communicate())
