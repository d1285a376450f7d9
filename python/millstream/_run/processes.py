"""The supervisor of a flow on several processes of one machine: ``millstream run FLOW.py --processes N``.

It starts the processes, which meet over Unix sockets in a private directory, prints what they print on
standard error with their number, and starts all again when one has died. Each start has a directory of its
own.
"""

from __future__ import annotations

import os
import selectors
import shutil
import signal
import socket
import sys
import time

from .._errors.command import BY_SIGPIPE, INTERRUPTED, LOST, report_error
from .member import Member
from .process_reports import merged
from .ready_file import set_ready
from .restarted import Restarted
from .restarts import Restart, Restarts

__all__ = ["Supervisor"]

#: The interval between two checks of the processes, in seconds.
CHECK_S = 0.05
#: How long the others have to end after a death, in seconds.
END_S = 5.0
#: How long all have to end after a second signal, in seconds.
LEAVE_S = 2.0
#: After how many seconds of work a start was healthy.
HEALTHY_S = 10.0
#: The bytes of the path of a Unix socket, with the name and a zero.
PATH_BYTES_MAX = 107 - len("/1000000/p511.http")


class Supervisor:
    """Keeps the processes of a flow running until it has ended or is stopped.

    Args:
        arguments: those of ``millstream run`` for each process, without the options of a supervisor.
        numbers: the numbers of the processes.
        ready_file: a file that exists while the first of them runs the flow.
        meet: whether they meet over Unix sockets; otherwise the arguments name where they meet others.
        resumes: whether a state directory was given: without one a flow that has died is not started again.
        once: arguments of the first start only, which change the state.
        limit: how many deaths in how many seconds are tolerated.
        json_log: whether lines of the log are JSON, which stay as they are.
        of_factory: the arguments after ``--``, for the function that makes the flow.
    """

    def __init__(
        self,
        arguments: list[str],
        numbers: range,
        *,
        ready_file: str | None,
        meet: bool,
        resumes: bool,
        once: list[str],
        limit: tuple[int, float],
        json_log: bool,
        of_factory: list[str],
    ) -> None:
        self.arguments = arguments
        self.numbers = numbers
        self.ready_file = ready_file
        self.meet = meet
        self.resumes = resumes
        self.once = once
        self.restarts = Restarts(Restart(0.1, 30.0, limit[0], limit[1], HEALTHY_S))
        self.json_log = json_log
        self.of_factory = of_factory
        self.signals = 0
        self.starts = 0
        self.members: list[Member] = []
        self.selector = selectors.DefaultSelector()

    def run(self) -> int:
        """Runs until the flow has ended; returns the exit code."""
        self.folder = socket_folder()
        self.restarted = Restarted(os.path.join(self.folder, "restarted"))
        wake, self.woken = socket.socketpair()
        for end in (wake, self.woken):
            end.setblocking(False)
        signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self.on_signal)
        self.selector.register(self.woken, selectors.EVENT_READ)
        try:
            while True:
                code = self.run_once()
                if code is not None:
                    return code
        finally:
            for member in self.members:
                member.kill()
            shutil.rmtree(self.folder, ignore_errors=True)

    def on_signal(self, number: int, frame: object) -> None:
        """Drains at the first signal; ends at once at the second."""
        self.signals += 1
        for member in self.members:
            member.child.send_signal(signal.SIGTERM)
            if self.signals > 1:
                member.child.kill_after(LEAVE_S)

    def run_once(self) -> int | None:
        """Starts the processes, and waits for their end; returns the exit code, or None to start again."""
        began = time.monotonic()
        self.start()
        while any(member.code is None for member in self.members):
            self.wait(CHECK_S)
            self.check()
        if any(member.is_running for member in self.members):
            # Their first commit has the changes that these arguments ask for.
            self.once = []
        shutil.rmtree(self.start_folder, ignore_errors=True)
        set_ready(self.ready_file, False)
        members, self.members = self.members, []
        if self.signals > 1:
            return report_error("interrupted", INTERRUPTED)
        first = first_cause(members)
        if first is None or (self.signals and first.code == -signal.SIGTERM):
            if first is None:
                print_reports(members)
            return 0
        if first.code == BY_SIGPIPE:
            return BY_SIGPIPE
        if not first.is_death:
            return report_error(first.describe(), first.code or 1)
        return self.after_death(first, time.monotonic() - began)

    def after_death(self, first: Member, lived_s: float) -> int | None:
        """Waits before the next start; returns an exit code if there is none."""
        if self.signals or not self.resumes:
            more = "" if self.signals else "; without --state the flow is not started again"
            return report_error(first.describe() + more, LOST)
        pause_s = self.restarts.pause(time.monotonic(), lived_s)
        policy = self.restarts.policy
        if pause_s is None:
            often = f"{len(self.restarts.deaths)} times within {policy.within_s:g} s"
            return report_error(f"{first.describe()}; the flow has died {often} (--restarts)", LOST)
        again = f"all are started again from the last commit in {pause_s:g} s"
        report_error(f"{first.describe()}; {again}", LOST)
        self.restarted.note(first.describe())
        due = time.monotonic() + pause_s
        while not self.signals and time.monotonic() < due:
            self.wait(due - time.monotonic())
        return 0 if self.signals else None

    def start(self) -> None:
        """Starts the processes. The first time the others wait until the first one has loaded the file, so
        that a mistake in it is reported once."""
        self.starts += 1
        self.start_folder = os.path.join(self.folder, str(self.starts))
        os.mkdir(self.start_folder, mode=0o700)
        waits = self.starts == 1
        for number in self.numbers:
            self.members.append(self.started(number))
            if self.signals:
                # It came before this process was there to be sent one.
                self.members[-1].child.send_signal(signal.SIGTERM)
            while waits and len(self.members) == 1 and not self.members[0].is_loaded:
                self.wait(CHECK_S)
                self.check()
                if self.members[0].code is not None or self.signals:
                    return

    def started(self, number: int) -> Member:
        hosts = ",".join(f"{self.start_folder}/p{each}" for each in self.numbers)
        place = ["--process", str(number), "--hosts", hosts] if self.meet else []
        if self.ready_file is not None and not self.members:
            place += ["--ready-file", self.ready_file]
        place += self.restarted.arguments()
        command = [sys.executable, "-m", "millstream", "run", *self.arguments, *self.once, *place]
        return Member(number, command, ["--", *self.of_factory], raw_lines=self.json_log)

    def wait(self, seconds: float) -> None:
        """Waits for this time, or until a signal comes."""
        if self.selector.select(max(seconds, 0.0)):
            self.woken.recv(4096)

    def check(self) -> None:
        """Reads what the processes have printed, and notes which have ended."""
        for member in self.members:
            member.check()
        if any(member.code for member in self.members):
            for member in self.members:
                member.child.kill_after(END_S)


def print_reports(members: list[Member]) -> None:
    """Prints the metrics of all processes, if each has sent its own; a single one has those of the others."""
    reports = [member.reports[:1] for member in members]
    if len(members) == 1:
        reports = [members[0].reports]
    if all(reports):
        print(merged([one for each in reports for one in each]), file=sys.stderr, end="")


def socket_folder() -> str:
    """A private directory whose sockets have paths that are short enough."""
    import tempfile

    folder = tempfile.mkdtemp(prefix="millstream-")
    if len(os.fsencode(folder)) > PATH_BYTES_MAX:
        os.rmdir(folder)
        folder = tempfile.mkdtemp(prefix="millstream-", dir="/tmp")
    return folder


def first_cause(members: list[Member]) -> Member | None:
    """The process whose end caused that of the others; None when all have ended well.

    A process that has failed or was killed comes before those that have lost another one.
    """
    ended = sorted((member for member in members if member.code), key=lambda member: member.ended_s)
    own = [member for member in ended if member.code != LOST and not member.was_overdue]
    return next(iter(own or ended), None)
