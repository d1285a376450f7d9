"""The supervisor of a system of services: the command ``millstream service up``.

Its state directory, ``NAME.state`` beside ``NAME.toml``, holds ``lock``, which it and its processes hold
while they live; ``control``, a socket for requests of a later ``up`` or ``down``; ``status.json``, the state
of its processes; and for each service ``SERVICE.json``, which the process of that service writes.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import socket
import sys
import time
from typing import Any

from .. import _millstream
from .._errors.command import UsageError
from .._errors.journal import JournalError
from .._run.supervisor import Supervisor
from .._stores.journal import Journal
from .file import System, read
from .process import Running

#: How often inputs that no service of the system writes are pruned, in seconds.
PRUNE_S = 10.0


def acquire_lock(state: str) -> int | None:
    """Opens the lock of a state directory; None while a process of another run lives."""
    os.makedirs(state, mode=0o700, exist_ok=True)
    lock = os.open(os.path.join(state, "lock"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    return lock


def address(folder: int) -> str:
    """The socket by a short name: the path of a socket has 107 bytes at most."""
    return f"/proc/self/fd/{folder}/control"


def send_request(state: str, what: str) -> dict[str, Any] | None:
    """Sends a request to the supervisor; None when none runs."""
    try:
        folder = os.open(state, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        return None
    try:
        with socket.socket(socket.AF_UNIX) as link:
            link.connect(address(folder))
            link.sendall(what.encode() + b"\n")
            with link.makefile("rb") as reply:
                line = reply.readline()
    except (FileNotFoundError, ConnectionError):
        return None
    finally:
        os.close(folder)
    answer: dict[str, Any] = json.loads(line) if line else {"error": "the supervisor has ended"}
    return answer


class SystemSupervisor(Supervisor):
    """Keeps the processes of a system running until it is stopped."""

    def __init__(self, system: System, lock: int, level: int = logging.INFO, format: str = "text") -> None:
        super().__init__()
        self.system = system
        self.lock = lock
        #: The lowest level of lines that are logged, and how they are.
        self.level = level
        self.format = format
        #: The address of the page that shows the system.
        self.page: str | None = None
        self.running: dict[str, Running] = {}
        #: Processes that are being stopped, in the order in which they are requested to.
        self.leaving: list[Running] = []
        #: Processes that are started when those have ended.
        self.coming: list[Running] = []
        self.waiting: list[tuple[socket.socket, dict[str, Any]]] = []
        self.ending = False
        self.drain_until_s = 0.0
        self.prune_s = 0.0

    # The log.

    def log(self, level: str, name: str, text: str) -> None:
        """Logs a line of a process, or of the supervisor."""
        if logging.getLevelName(level.upper()) < self.level:
            return
        try:
            line = _millstream.log_line(time.time_ns(), level, name, text, [], self.format == "json")
            print(line, flush=True)
        except BrokenPipeError:
            # The reader of the log has gone; the services continue.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

    def write_status(self) -> None:
        known = {name: running.status() for name, running in self.running.items()}
        status = {"pid": os.getpid(), "processes": known, **described(self.system)}
        _millstream.write_system_status(self.system.state, json.dumps(status))

    # Actions.

    def begin(self) -> None:
        listener = self.listen()
        self.on_readable(listener, lambda: self.answer(listener.accept()[0]))
        self.apply(self.system)

    def on_signal(self) -> None:
        self.end()

    def turn(self) -> int | None:
        """Ends after a signal or ``down``, or when no process is left that could run."""
        if self.ending and not self.leaving:
            self.write_status()
            return 1 if any(running.broken_off for running in self.running.values()) else 0
        self.check()
        if not self.ending and self.is_lost():
            self.log("error", self.title, "nothing is left that could run")
            self.write_status()
            return 1
        return None

    @property
    def title(self) -> str:
        return os.path.basename(self.system.path)

    def is_lost(self) -> bool:
        busy = self.leaving or self.coming
        services = [running for running in self.running.values() if not running.process.is_gateway]
        return not busy and all(running.state == "failed" for running in services)

    def listen(self) -> socket.socket:
        folder = os.open(self.system.state, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.unlink("control", dir_fd=folder)
        except FileNotFoundError:
            pass
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(address(folder))
        listener.listen()
        os.close(folder)
        return listener

    def check(self) -> None:
        changed = [running.check() for running in self.running.values()]
        changed += [running.check() for running in self.leaving]
        if self.leaving:
            self.leave()
        elif self.coming and not self.ending:
            for running in self.coming:
                running.start()
            self.coming.clear()
            changed.append(True)
        if not self.leaving and not self.coming:
            for link, plan in self.waiting:
                reply(link, plan)
            self.waiting.clear()
        if any(changed):
            self.write_status()
        if time.monotonic() >= self.prune_s:
            self.prune_s = time.monotonic() + PRUNE_S
            self.prune()

    def leave(self) -> None:
        """Stops retiring processes one after the other, when they have processed their inputs."""
        while self.leaving and self.leaving[0].state == "stopped":
            self.leaving.pop(0)
            self.drain_until_s = time.monotonic() + self.system.drain_s
        if self.leaving and self.leaving[0].state != "stopping":
            first = self.leaving[0]
            if first.state != "running" or self.has_drained(first) or time.monotonic() > self.drain_until_s:
                first.stop()

    def has_drained(self, running: Running) -> bool:
        """Whether its services have processed all outputs of the others of the system."""
        writers = running.system.writers
        for service in running.process.services:
            known = service_status(running.system, service.name)
            # One that is starting has processed nothing yet.
            is_known = known.get("pid") == running.pid
            positions = known["positions"] if is_known else {}
            for path in service.inputs:
                end = next_of(os.path.join(running.system.folder, path)) if path in writers else None
                if end is not None and positions.get(path, 0) < end:
                    return False
        return True

    def end(self) -> None:
        """Stops all, in the order of their inputs."""
        if not self.ending:
            self.ending = True
            self.coming.clear()
            self.log("info", self.title, "stopping")
            self.drain_until_s = time.monotonic() + self.system.drain_s
            leaving = [running for running in self.running.values() if running not in self.leaving]
            self.leaving.extend(leaving)

    def apply(self, system: System) -> dict[str, Any]:
        """Applies the file to the running processes; returns which of them change, and how."""
        plan: dict[str, Any] = {"unchanged": [], "started": [], "restarted": [], "stopped": []}
        before = self.running
        self.running = {}
        self.system = system
        for process in system.processes:
            old = before.pop(process.name, None)
            if old is not None and old.is_same(process, system) and old.state == "running":
                old.process = process
                old.system = system
                self.running[process.name] = old
                plan["unchanged"].append(process.name)
                continue
            self.running[process.name] = Running(process, system, self.lock, self.log)
            self.coming.append(self.running[process.name])
            plan["started" if old is None else "restarted"].append(process.name)
            if old is not None:
                self.leaving.append(old)
        plan["stopped"] = list(before)
        self.leaving.extend(before.values())
        self.drain_until_s = time.monotonic() + system.drain_s
        return plan

    def answer(self, link: socket.socket) -> None:
        """Handles the request of a later ``up`` or ``down``."""
        link.settimeout(1.0)
        try:
            with link.makefile("rb") as stream:
                what = stream.readline().strip()
        except OSError:
            link.close()
            return
        if what == b"down":
            self.end()
            reply(link, {"pid": os.getpid()})
        elif what == b"page":
            reply(link, {"page": self.page})
        elif self.ending:
            reply(link, {"error": "the system is stopping"})
        elif what != b"apply":
            reply(link, {"error": "this supervisor is of another version"})
        elif self.leaving or self.coming:
            reply(link, {"error": "the last change is still being applied"})
        else:
            try:
                plan = self.apply(read(self.system.path))
            except UsageError as error:
                reply(link, {"error": str(error)})
                return
            self.log("info", self.title, "applied")
            self.waiting.append((link, plan))

    def prune(self) -> None:
        """Prunes the inputs that no service of the system writes."""
        for path, options in self.system.journals.items():
            if path in self.system.writers or not options.retains:
                continue
            place = os.path.join(self.system.folder, path)
            try:
                Journal(place, "r").close()  # a missing journal is not created
                with Journal(place) as journal:
                    journal.prune(
                        bytes=options.retain_bytes,
                        age=options.retain_age_s,
                        keep_for_cursors=options.retain_for_cursors,
                    )
            except JournalError as error:
                if os.path.isdir(place):
                    self.log("error", self.title, f"cannot prune: {error}")


def reply(link: socket.socket, answer: dict[str, Any]) -> None:
    try:
        link.sendall(json.dumps(answer).encode() + b"\n")
    except OSError:
        pass  # the client has gone
    link.close()


def described(system: System) -> dict[str, Any]:
    """What a reader of the status must know of the file of the system, to find its journals."""
    names = ("name", "process", "inputs", "out", "dead_letters")
    services = [{name: getattr(service, name) for name in names} for service in system.services]
    return {"folder": os.path.abspath(system.folder), "services": services}


def service_status(system: System, name: str) -> dict[str, Any]:
    """The last output of the process of a service; ``status`` is that of the supervisor."""
    try:
        with open(os.path.join(system.state, f"{name}.json"), encoding="utf-8") as file:
            found: dict[str, Any] = json.load(file)
            return found
    except (OSError, ValueError):
        return {}


def next_of(path: str) -> int | None:
    """The number that the next record of a journal gets; nothing when there is no journal."""
    try:
        with Journal(path, "r") as journal:
            return journal.next
    except JournalError:
        return None
