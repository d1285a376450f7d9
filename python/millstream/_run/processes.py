"""The processes of a flow on one machine: ``millstream run FLOW.py --processes N``.

They meet over Unix sockets in a private directory; what they print on standard error gets their number, and
all are started again when one has died. Each start has a directory of its own.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from .._errors.command import BY_SIGPIPE, INTERRUPTED, LOST, report_error
from .kept_page import KeptPage
from .logs import supervisor_log
from .process_reports import merged
from .ready_file import set_ready
from .restarted import Restarted
from .supervisor import Child, End, Restart, Supervisor, Unit, describe_exit

if TYPE_CHECKING:
    from .arguments import CommandOptions


#: How long all have to end after a second signal, in seconds.
LEAVE_S = 2.0
#: How long the others have to end after the death of one before they have met: they wait for it, in seconds.
END_ALONE_S = 0.2
#: After how many seconds of work a start was healthy.
HEALTHY_S = 10.0
#: The bytes of the path of a Unix socket, with the name and a zero.
PATH_BYTES_MAX = 107 - len("/1000000/p511.http")
#: Exit codes of a flow that has failed by itself: a start again would fail again.
FAILURES = (1, 2, 130)


class Member(Child):
    """A process of one start, and the messages that it sends.

    Args:
        number: its number.
        command: the program and its arguments; the descriptor of its connection is added.
        more: arguments after that.
        folder: the directory of the supervisor's sockets.
        raw_lines: whether its lines are printed as they are, without its number.
    """

    def __init__(
        self, number: int, command: list[str], more: list[str], folder: str, raw_lines: bool
    ) -> None:
        self.number = number
        self.prefix = b"" if raw_lines else b"p%d | " % number
        self.is_loaded = False
        self.is_running = False
        self.error = ""
        self.flow = ""
        self.traceback: str | None = None
        self.missing: list[int] = []
        self.page: str | None = None
        self.reports: list[dict[str, Any]] = []
        self.message = b""
        self.link, theirs = socket.socketpair()
        self.link.setblocking(False)
        with theirs:
            super().__init__(
                [*command, "--supervised", f"{theirs.fileno()}:{folder}", *more],
                self.print_line,
                stdin=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                pass_fds=[theirs.fileno()],
            )

    def print_line(self, line: bytes) -> None:
        """Prints a line of its standard error; one that cannot be written is lost, and the flow runs on."""
        with suppress(OSError):
            os.write(sys.stderr.fileno(), self.prefix + line + b"\n")

    def check(self) -> None:
        if self.code is None:
            super().check()
            self.read_messages()
            if self.code is not None:
                self.link.close()

    def read_messages(self) -> None:
        while True:
            try:
                data = self.link.recv(65536)
            except (BlockingIOError, ConnectionError):
                return
            *lines, self.message = (self.message + data).split(b"\n")
            for line in lines:
                self.receive(json.loads(line))
            if not data:
                return

    def receive(self, message: dict[str, Any]) -> None:
        self.is_loaded |= "loaded" in message
        self.is_running |= "running" in message
        self.error = message.get("error", self.error)
        self.flow = message.get("flow", self.flow)
        self.traceback = message.get("traceback", self.traceback)
        self.missing = message.get("missing", self.missing)
        self.page = message.get("page", self.page)
        self.reports = message.get("reports", self.reports)

    def describe(self) -> str:
        """How it ended, in words."""
        if self.error:
            return self.error if self.code == LOST else f"process {self.number}: {self.error}"
        return f"process {self.number} died first: {describe_exit(self.code or 0)}"


class Processes(Unit[Member]):
    """The processes of a flow.

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
        shows: the options of its page, if it has one.
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
        shows: CommandOptions | None,
    ) -> None:
        super().__init__(Restart(0.1, 30.0, limit[0], limit[1], HEALTHY_S))
        self.arguments = arguments
        self.numbers = numbers
        self.ready_file = ready_file
        self.meet = meet
        self.resumes = resumes
        self.once = once
        self.json_log = json_log
        self.of_factory = of_factory
        self.requests = 0
        self.code = 0
        self.folder = socket_folder()
        self.restarted = Restarted(os.path.join(self.folder, "restarted"))
        self.page = None if shows is None else KeptPage(shows, self.folder)
        self.stays = shows is not None and shows.keep_page
        self.flow = ""
        self.traceback: str | None = None
        self.missing: list[int] = []

    def launch(self) -> None:
        """Starts the processes. The first time the others wait until the first one has loaded the file, so
        that a mistake in it is reported once."""
        if self.page is not None:
            self.page.hide()
        self.start_folder = os.path.join(self.folder, str(self.restarts))
        os.mkdir(self.start_folder, mode=0o700)
        self.launch_more(self.numbers[: None if self.restarts else 1])

    def launch_more(self, numbers: range) -> None:
        for number in numbers:
            self.children.append(self.started(number))

    def check(self) -> bool:
        changed = super().check()
        if self.page is not None and self.children:
            self.page.address = self.children[0].page or self.page.address
        missing = self.numbers[len(self.children) :]
        if self.state == "running" and missing:
            first = self.children[0]
            if first.is_loaded and first.code is None:
                self.launch_more(missing)
        return changed

    def started(self, number: int) -> Member:
        hosts = ",".join(f"{self.start_folder}/p{each}" for each in self.numbers)
        place = ["--process", str(number), "--hosts", hosts] if self.meet else []
        if self.ready_file is not None and not self.children:
            place += ["--ready-file", self.ready_file]
        place += self.restarted.arguments()
        if self.page is not None and not self.children:
            place += self.page.arguments()
        command = [sys.executable, "-m", "millstream", "run", *self.arguments, *self.once, *place]
        return Member(number, command, ["--", *self.of_factory], self.folder, raw_lines=self.json_log)

    def end_s(self) -> float:
        has_met = any(member.is_running for member in self.children)
        return super().end_s() if has_met else END_ALONE_S

    def request_end(self) -> None:
        for member in self.children:
            member.popen.send_signal(signal.SIGTERM)
            if self.requests > 1:
                member.kill_after(LEAVE_S)

    def judge(self, ended: list[Member]) -> End:
        if any(member.is_running for member in ended):
            # Their first commit has the changes that these arguments ask for.
            self.once = []
        shutil.rmtree(self.start_folder, ignore_errors=True)
        set_ready(self.ready_file, False)
        if self.requests > 1:
            return End("interrupted", INTERRUPTED)
        first = first_cause(ended)
        self.flow = ended[0].flow
        self.traceback = None if first is None else first.traceback
        self.missing = [] if first is None else first.missing
        if first is None:
            print_reports(ended)
            return End()
        if self.requests and first.code == -signal.SIGTERM:
            return End()
        if first.code == BY_SIGPIPE:
            return End(code=BY_SIGPIPE)
        if first.code in FAILURES:
            return End(first.describe(), first.code or 1)
        if self.resumes or self.requests:
            return End(first.describe(), LOST, is_death=True)
        return End(f"{first.describe()}; without --state the flow is not started again", LOST)

    def on_stopped(self, end: End) -> None:
        self.code = report_error(end.text, end.code) if end.text else end.code

    def on_failed(self, end: End, often: str) -> None:
        more = f"; the flow has died {often} (--restarts)" if often else ""
        self.code = report_error(end.text + more, end.code)
        if self.stays:
            self.show_page(end.text + more, is_restarted=False)

    def on_restart(self, end: End, pause_s: float) -> None:
        supervisor_log.error("%s; all are started again from the last commit in %g s", end.text, pause_s)
        self.restarted.note(end.text)
        self.show_page(end.text, is_restarted=True)

    def show_page(self, error: str, *, is_restarted: bool) -> None:
        """Shows the page of the flow, which does not run, if it has one."""
        if self.page is not None:
            lost = self.missing
            self.page.show(self.flow, error, self.traceback, lost, self.restarted, is_restarted=is_restarted)

    def kill(self) -> None:
        """Ends them at once, and removes the directory of their sockets."""
        for member in self.children:
            member.popen.kill()
            member.popen.wait()
        if self.page is not None:
            self.page.hide()
        shutil.rmtree(self.folder, ignore_errors=True)


class FlowSupervisor(Supervisor):
    """Keeps the processes of a flow running until it has ended or is stopped.

    Args:
        processes: the processes.
    """

    def __init__(self, processes: Processes) -> None:
        super().__init__()
        self.processes = processes

    def begin(self) -> None:
        self.processes.start()

    def on_signal(self) -> None:
        """Drains at the first signal; ends at once at the second."""
        self.processes.requests += 1
        if self.processes.state == "stopping":
            self.processes.request_end()
        else:
            self.processes.stop()

    def turn(self) -> int | None:
        self.processes.check()
        stays = self.processes.stays and not self.processes.requests
        if self.processes.state == "stopped" or (self.processes.state == "failed" and not stays):
            return self.processes.code
        return None

    def run(self) -> int:
        try:
            return super().run()
        finally:
            self.processes.kill()


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
