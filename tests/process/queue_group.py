"""Machines of which an arbiter lets one serve the queues, and the address of the clients, for tests."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import threading
from pathlib import Path
from typing import Any

from queue_ledger import TIMEOUT, until
from queue_server import Line
from servers import pause
from tcp_link import Link

LEASE = "1500ms"


class Arbiter:
    """A directory that all machines share."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()

    def record(self) -> Any:
        """The newest record."""
        while True:
            names = sorted(self.folder.glob("lease.*"))
            try:
                return json.loads(names[-1].read_text()) if names else {"in_sync": {}, "holder": ""}
            except FileNotFoundError:
                pass

    def holder(self) -> str:
        return str(self.record()["holder"])

    def names(self, name: str) -> bool:
        """Whether the machine has all that is answered."""
        return name in self.record()["in_sync"]

    def wait_for(self, *names: str) -> None:
        """Until these have all that is answered."""
        until(lambda: set(self.record()["in_sync"]) == set(names), f"{names} in sync: {self.record()}")


def reserve() -> socket.socket:
    """A port on which a server may listen, and that no other process gets by chance, until this is closed."""
    reserved = socket.socket()
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reserved.bind(("127.0.0.1", 0))
    return reserved


class Member:
    """One machine: a directory, a process, its way to the others and to the arbiter.

    Args:
        program: Millstream.
        folder: the directory for its files.
        name: its name.
        arbiter: where it is decided which machine leads.
        options: more options of the server.
    """

    def __init__(self, program: Path, folder: Path, name: str, arbiter: Arbiter, *options: str) -> None:
        self.program = program
        self.folder = folder / name
        self.name = name
        # It does not listen for clients before it serves.
        self.reserved = reserve(), reserve()
        self.port, self.replica = (int(each.getsockname()[1]) for each in self.reserved)
        self.link = Link(self.replica)
        self.options = options
        self.log_path = folder / f"{name}.log"
        self.log_path.write_text("")
        self.arbiter = arbiter
        self.way = folder / f"arbiter-of-{name}"
        self.reach_arbiter(True)
        self.process: subprocess.Popen[bytes] | None = None

    def reach_arbiter(self, reaches: bool) -> None:
        """Cuts its way to the arbiter, or mends that."""
        if reaches and not self.way.is_symlink():
            self.way.symlink_to(self.arbiter.folder)
        elif not reaches:
            self.way.unlink(missing_ok=True)

    @property
    def by_arbiter(self) -> list[str]:
        return ["--arbiter", f"file:{self.way}", "--as", self.name]

    def command(self) -> list[str]:
        command = [str(self.program), "queue", "serve", "--dir", str(self.folder)]
        command += ["--listen", f"127.0.0.1:{self.port}", "--replica", f"127.0.0.1:{self.replica}"]
        command += ["--advertise", self.link.address, *self.by_arbiter, "--lease", LEASE]
        return [*command, *self.options]

    def start(self) -> None:
        assert self.process is None
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(self.command(), stderr=log, stdin=subprocess.DEVNULL)

    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    def wait_for(self, pattern: str, count: int = 1) -> None:
        """Until its log has the pattern so often."""
        until(lambda: len(re.findall(pattern, self.log())) >= count, f"{pattern!r} in {self.log()}")

    def run(self, verb: str, *options: object) -> subprocess.CompletedProcess[str]:
        command = [self.program, "queue", verb, self.folder, *options]
        return subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=TIMEOUT)

    def answers(self) -> bool:
        """Whether it answers, as a check of a proxy asks."""
        try:
            with Line(self.port, timeout=1) as line:
                return line.ask(b"version").startswith(b"VERSION")
        except OSError:
            return False

    def send(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def pause(self) -> None:
        assert self.process is not None
        pause(self.process)

    def end(self, how: signal.Signals = signal.SIGKILL) -> int:
        assert self.process is not None
        self.process.send_signal(how)
        code = self.process.wait(TIMEOUT)
        self.process = None
        return code

    def close(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
        self.link.close()
        for each in self.reserved:
            each.close()


class Front(Link):
    """The address of the clients: it leads to the machine that answers."""

    def __init__(self, members: list[Member]) -> None:
        super().__init__(0)
        self.members, self.ends = members, threading.Event()
        self.watcher = threading.Thread(target=self.watch, daemon=True)
        self.watcher.start()

    def watch(self) -> None:
        while not self.ends.wait(0.05):
            for member in self.members:
                if member.port != self.target and member.answers():
                    self.target = member.port
                    self.cut()

    def connect(self, client: socket.socket) -> None:
        if self.target:
            super().connect(client)
        else:
            client.close()

    def close(self) -> None:
        self.ends.set()
        self.watcher.join()
        super().close()
