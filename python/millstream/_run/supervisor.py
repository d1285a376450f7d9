"""The supervisor: it starts processes, watches them, starts them again with growing pauses, and stops them.

A unit is one or more processes that are started together and end together: all processes of a flow, or one
process of a system of services. A supervisor checks its units until it has nothing left to do.

Invariants:
- A child learns of the end of its supervisor, however that ends: it has one end of a pipe or a socket that
  closes with the supervisor's process.
- Of two deaths in a row the second never waits for less time than the first, unless what was started between
  them was healthy for a time.
"""

from __future__ import annotations

import os
import selectors
import signal
import socket
import subprocess
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import IO, Any, Generic, TypeVar

from .._values.backoff import Backoff

#: The most bytes of one line that are kept together.
LINE_BYTES_MAX = 1 << 20
#: The interval between two checks of the processes, in seconds.
CHECK_S = 0.05
#: How long the other processes of a unit have to end after the death of one, in seconds.
END_S = 5.0


@dataclass(frozen=True)
class Restart:
    """The policy: the first and the longest pause, and how many deaths in a time are tolerated.

    After ``healthy_s`` seconds of life the next pause is the first one again; with None all deaths within the
    time make it longer.
    """

    first_s: float = 0.1
    longest_s: float = 10.0
    limit: int = 5
    within_s: float = 60.0
    healthy_s: float | None = None


class Restarts:
    """The deaths so far.

    Args:
        policy: the limits.

    Example:
        >>> restarts = Restarts(Restart(limit=2, within_s=60.0))
        >>> [restarts.pause(now) for now in (1.0, 2.0, 3.0)]
        [0.1, 0.2, None]
        >>> restarts.pause(63.0)
        0.2
    """

    def __init__(self, policy: Restart) -> None:
        self.policy = policy
        self.deaths: deque[float] = deque()
        self.in_a_row = 0

    def pause(self, now_s: float, lived_s: float = 0.0) -> float | None:
        """Notes a death.

        Args:
            now_s: the time of the death, in seconds of any clock that does not jump.
            lived_s: for how many seconds it was healthy.

        Returns:
            The pause before the next start in seconds, or None when the limit is reached.
        """
        policy = self.policy
        self.deaths.append(now_s)
        while now_s - self.deaths[0] > policy.within_s:
            self.deaths.popleft()
        if policy.healthy_s is None:
            self.in_a_row = len(self.deaths)
        else:
            self.in_a_row = 1 if lived_s >= policy.healthy_s else self.in_a_row + 1
        if len(self.deaths) > policy.limit:
            return None
        return Backoff(min(policy.first_s, policy.longest_s), policy.longest_s).delay(self.in_a_row)


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
        options: those of ``subprocess.Popen``, of which ``stdout`` or ``stderr`` is a pipe.

    Raises:
        OSError: it cannot be started.
    """

    def __init__(self, command: Sequence[str], on_line: Callable[[bytes], None], **options: Any) -> None:
        self.on_line = on_line
        self.rest = b""
        self.kill_s: float | None = None
        #: Its exit code when it has ended, then when that was, and whether it was killed as overdue.
        self.code: int | None = None
        self.ended_s = 0.0
        self.was_overdue = False
        # Ctrl-C is for the supervisor.
        self.popen: subprocess.Popen[bytes] = subprocess.Popen(command, start_new_session=True, **options)
        output = self.popen.stdout or self.popen.stderr
        assert output is not None
        self.output: IO[bytes] = output
        os.set_blocking(self.output.fileno(), False)

    def read(self) -> None:
        """Reads what it has printed since the last call."""
        while True:
            try:
                data = os.read(self.output.fileno(), 65536)
            except (BlockingIOError, ValueError):
                return
            *lines, self.rest = (self.rest + data).split(b"\n")
            if self.rest and (not data or len(self.rest) > LINE_BYTES_MAX):
                lines = [*lines, self.rest]
                self.rest = b""
            for line in lines:
                self.on_line(line)
            if not data:
                return

    def kill_after(self, seconds: float) -> None:
        """Kills it when it still lives after this time."""
        if self.kill_s is None:
            self.kill_s = time.monotonic() + seconds

    def check(self) -> None:
        """Reads what it has printed, kills it when its time is over, and notes its end."""
        if self.code is not None:
            return
        self.read()
        code = self.popen.poll()
        now_s = time.monotonic()
        overdue = self.kill_s is not None and now_s > self.kill_s
        if code is None:
            if overdue:
                self.popen.kill()
            return
        self.code = code
        self.ended_s = now_s
        self.was_overdue = overdue
        self.close()

    def close(self) -> None:
        """Reads the rest of its output and closes the pipes; it has ended."""
        self.read()
        for pipe in (self.popen.stdin, self.popen.stdout, self.popen.stderr):
            if pipe is not None:
                try:
                    pipe.close()
                except BrokenPipeError:
                    pass


AnyChild = TypeVar("AnyChild", bound=Child)


@dataclass(frozen=True)
class End:
    """How the processes of a unit have ended: why, if that was not a good end, and the exit code for it."""

    text: str = ""
    code: int = 0
    is_death: bool = False
    """Whether a start again may repair it."""


class Unit(Generic[AnyChild]):
    """Processes that are started together, and end together.

    ``state`` is ``running``, ``restarting`` (they have died and will be started), ``failed`` (they died too
    often, cannot be started, or failed by themselves), ``stopping`` or ``stopped``.

    Args:
        restart: the policy of starts after a death.
    """

    def __init__(self, restart: Restart) -> None:
        self.state = "stopped"
        self.error: str | None = None
        self.restarts = 0
        self.deaths = Restarts(restart)
        self.began_s = 0.0
        self.due_s = 0.0
        self.children: list[AnyChild] = []

    # What a kind of unit defines.

    def launch(self) -> None:
        """Starts the processes, or the first of them."""
        raise NotImplementedError

    def request_end(self) -> None:
        """Asks the processes to end."""
        raise NotImplementedError

    def judge(self, ended: list[AnyChild]) -> End:
        """How the processes have ended, all of which have."""
        raise NotImplementedError

    def on_stopped(self, end: End) -> None:
        """They were asked to end, or have done their work."""
        raise NotImplementedError

    def on_failed(self, end: End, often: str) -> None:
        """They stay down. ``often`` says how often they have died, if that is the reason."""
        raise NotImplementedError

    def on_restart(self, end: End, pause_s: float) -> None:
        """They are started again after a pause."""
        raise NotImplementedError

    # What all do.

    def end_s(self) -> float:
        """How long the others have to end after the death of one, in seconds."""
        return END_S

    def start(self) -> None:
        """Starts the processes."""
        self.state, self.began_s = "running", time.monotonic()
        try:
            self.launch()
        except OSError as error:
            self.fail(End(f"cannot be started: {error}", 1))

    def stop(self) -> None:
        """Requests the end of the processes."""
        if not self.children:
            self.state = "stopped"
        elif self.state != "stopping":
            self.state = "stopping"
            self.request_end()

    def check(self) -> bool:
        """Performs actions that are due; true when the state has changed."""
        if self.state == "restarting" and time.monotonic() >= self.due_s:
            self.restarts += 1
            self.start()
            return True
        for child in self.children:
            child.check()
        if any(child.code for child in self.children):
            for child in self.children:
                child.kill_after(self.end_s())
        if not self.children or any(child.code is None for child in self.children):
            return False
        ended = self.children
        self.children = []
        self.conclude(self.judge(ended))
        return True

    def conclude(self, end: End) -> None:
        """All have ended: the next state."""
        now_s = time.monotonic()
        if self.state == "stopping" or not end.text:
            self.state = "stopped"
            self.on_stopped(end)
            return
        if not end.is_death:
            self.fail(end)
            return
        pause_s = self.deaths.pause(now_s, now_s - self.began_s)
        if pause_s is None:
            within = f"{self.deaths.policy.within_s:g} s"
            self.fail(end, f"{len(self.deaths.deaths)} times within {within}")
            return
        self.state = "restarting"
        self.due_s = now_s + pause_s
        self.error = end.text
        self.on_restart(end, pause_s)

    def fail(self, end: End, often: str = "") -> None:
        self.state = "failed"
        self.error = end.text
        self.on_failed(end, often)


class Supervisor:
    """Waits for signals, requests and the ends of processes."""

    def __init__(self) -> None:
        self.selector = selectors.DefaultSelector()
        self.signals = 0

    def begin(self) -> None:
        """Starts the first processes."""
        raise NotImplementedError

    def on_signal(self) -> None:
        """SIGINT or SIGTERM has come."""
        raise NotImplementedError

    def turn(self) -> int | None:
        """Does what is due; returns the exit code when nothing is left to do."""
        raise NotImplementedError

    def run(self) -> int:
        """Runs until nothing is left to do; returns the exit code."""
        wake, woken = socket.socketpair()
        for end in (wake, woken):
            end.setblocking(False)
        signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self.note_signal)
        self.on_readable(woken, lambda: woken.recv(4096))
        self.begin()
        answered = 0
        while True:
            # Not in the handler: a process may be about to start.
            while answered < self.signals:
                answered += 1
                self.on_signal()
            code = self.turn()
            if code is not None:
                return code
            for key, _ in self.selector.select(CHECK_S):
                key.data()

    def note_signal(self, *_: object) -> None:
        self.signals += 1

    def on_readable(self, link: socket.socket, call: Callable[[], object]) -> None:
        """Calls a function each time that a socket can be read."""
        self.selector.register(link, selectors.EVENT_READ, call)
