"""One suite for all connectors: what a flow does while the server of its connector does not serve.

A connector is a subclass of :class:`Connector`: how its flow is written, how input arrives and output is
read, and in ``states`` what is expected of it in each state. A test module lists its classes in
``CONNECTORS`` and imports the tests of this module; ``conftest.py`` makes a test of each class and state. A
state that a connector does not have is :class:`Missing`, with the reason. ``test_table_of_states.py``
compares the expectations with the table in ``docs/guide/connectors-compared.md``.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from tcp_link import Link

PATIENCE = 60.0
"""Seconds after which something that does not happen has failed."""

STATES = {
    "absent": "not there at the start",
    "away": "goes away and comes back",
    "login": "refuses the login",
    "unknown": "does not have the topic, table or path",
    "slow": "stalls",
    "rubbish": "sends bytes that are not its protocol",
}


@dataclass(frozen=True, init=False)
class Expected:
    """What a flow does in a state. One line of standard error has all ``parts``; ``{address}`` and
    ``{thing}`` in them are those of the connector."""

    parts: tuple[str, ...]

    def __init__(self, *parts: str) -> None:
        object.__setattr__(self, "parts", parts)


class Continues(Expected):
    """It tries again until the state is over. Without parts it writes nothing: it is the other side that
    notices."""


class Ends(Expected):
    """It fails with exit code 1, and its last line is the one that is expected."""


class Finishes(Expected):
    """The end of the connection is the end of the source: exit code 0."""


class Missing(Expected):
    """The connector does not have this state; the only part is the reason."""


class Connector:
    """A flow whose connector is tested. Numbers pass through it.

    Args:
        folder: the directory for its files.
        servers: starts and finds servers, by fixtures.
    """

    title: ClassVar[str]
    """The name in the table of the guide."""
    states: ClassVar[Mapping[str, Expected]]
    is_once: ClassVar[bool] = True
    """Whether each number arrives once. False: at least once."""
    later: ClassVar[tuple[str, ...]] = ("away", "slow")
    """The states that begin while the flow runs; the others are there at its start."""
    unconfirmed: ClassVar[range] = range(0)
    """Numbers that may be lost, since the protocol has no acknowledgements."""
    thing = ""
    """The topic, table or path."""

    def __init__(self, folder: Path, servers: Callable[[str], Any]) -> None:
        self.folder = folder
        # Other processes use the servers, too, and their folders have equal names.
        self.unique = re.sub(r"\W+", "-", f"{folder.name}-{os.getpid()}")
        self.out = folder / "out"
        self.there = folder / "there"
        self.errors = folder / "errors"
        self.state: str | None = None
        self.link: Link | None = None
        self.process: subprocess.Popen[bytes] | None = None
        self.prepare(servers)

    # What a class defines.

    def prepare(self, servers: Callable[[str], Any]) -> None:
        """Starts or finds the server, and connects ``link`` to it."""
        raise NotImplementedError

    def flow(self) -> str:
        """The text of the flow file, for the state that is entered."""
        raise NotImplementedError

    def feed(self, numbers: range) -> None:
        """Passes numbers on to the flow, past the link."""
        raise NotImplementedError

    def delivered(self) -> list[int]:
        """The numbers at the other end."""
        raise NotImplementedError

    def close(self) -> None:
        if self.link is not None:
            self.link.close()

    @property
    def address(self) -> str:
        assert self.link is not None
        return self.link.address

    def environment(self) -> dict[str, str]:
        return {}

    def enter(self, state: str) -> None:
        """Begins a state. ``login`` and ``unknown`` are read by ``flow`` as a rule."""
        self.state = state
        if self.link is not None:
            actions = {
                "absent": self.link.go_away,
                "away": self.link.go_away,
                "slow": self.link.stall,
                "rubbish": self.link.send_rubbish,
            }
            actions.get(state, lambda: None)()

    def leave(self) -> None:
        """Ends the state."""
        state = self.state
        self.state = None
        if self.link is not None:
            if state in ("absent", "away"):
                self.link.come_back()
            self.link.is_rubbish = False
            self.link.resume()

    # What all have.

    def start(self) -> None:
        path = self.folder / "flow.py"
        loaded = f"\nopen({str(self.loaded)!r}, 'w').close()\n"
        path.write_text("import os\nimport millstream as ms\n" + self.flow() + loaded)
        self.loaded.unlink(missing_ok=True)
        command = [sys.executable, "-m", "millstream", "run", str(path), "--sync", "never"]
        command += ["--state", str(self.folder / "state"), "--epoch", "30ms"]
        with self.errors.open("wb") as errors:
            self.process = subprocess.Popen(command, env=os.environ | self.environment(), stderr=errors)
        wait(lambda: self.loaded.exists() or self.ended(), self.text)

    @property
    def loaded(self) -> Path:
        return self.folder / "loaded"

    def text(self) -> str:
        """What this run has written to standard error."""
        return self.errors.read_text(errors="replace")[-20_000:]

    def ended(self) -> bool:
        assert self.process is not None
        return self.process.poll() is not None

    def finish(self) -> int:
        """Waits for the end of the process; returns its exit code."""
        assert self.process is not None
        try:
            return self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it does not end:\n{self.text()}") from None

    def expected(self, parts: Sequence[str]) -> bool:
        """Whether one line has all the parts."""
        found = [part.format(address=self.address, thing=self.thing) for part in parts]
        return any(all(part in line for part in found) for line in self.text().splitlines())

    def wait_for_line(self, expected: Expected) -> None:
        """Waits until the line is there; without one, until the state has lasted for a while."""
        if expected.parts:
            wait(lambda: self.expected(expected.parts) or self.ended(), self.text)
            assert self.expected(expected.parts), f"{expected} is not in:\n{self.text()}"
        else:
            time.sleep(0.5)
        assert not self.ended(), self.text()

    def wait_for(self, numbers: range) -> None:
        needed = set(numbers) - set(self.unconfirmed)
        wait(lambda: needed <= set(self.delivered()) or self.ended(), self.report)
        assert needed <= set(self.delivered()), self.report()

    def report(self) -> str:
        return f"delivered {self.delivered()[-50:]}\n{self.text()[-2000:]}"

    def interrupt(self) -> None:
        """Ends it as Ctrl-C does."""
        assert self.process is not None and not self.ended(), self.text()
        self.process.send_signal(signal.SIGINT)
        assert self.finish() == 0, self.text()
        self.check_lines()

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def check_lines(self) -> None:
        text = self.text()
        assert "Traceback" not in text and "panicked" not in text, text

    def judge(self, numbers: range) -> None:
        """Each number is there, and once if that is promised."""
        found = self.delivered()
        if self.is_once:
            assert len(found) == len(set(found)), self.report()
        assert set(found) | set(self.unconfirmed) == set(numbers), self.report()


class SourceConnector(Connector):
    """A connector that is a source: what it reads is in a file."""

    source = ""
    """The expression of the source in the flow file."""

    def flow(self) -> str:
        sink = f"ms.files.write({str(self.out)!r})"
        return f'flow = ms.Flow("conformance")\nflow.source("in", {self.source}).sink("out", {sink})\n'

    def delivered(self) -> list[int]:
        lines = self.out.read_text().split("\n")[:-1] if self.out.exists() else []
        return [int(line) for line in lines]


SINK_FLOW = """
import asyncio


@ms.source(resume=True)
async def numbers(resume=None):
    number = resume or 0
    while True:
        with open({there!r}) as file:
            there = int(file.read())
        while number < there:
            number += 1
            yield ms.At(number, number - 1)
        await asyncio.sleep(0.01)


flow = ms.Flow("conformance")
flow.source("in", numbers){steps}.sink("out", {sink})
"""


class SinkConnector(Connector):
    """A connector that is a sink: a file says up to which number its flow has input."""

    steps = ""
    """Steps before the sink, in the flow file."""
    sink = ""
    """The expression of the sink in the flow file."""

    def flow(self) -> str:
        if not self.there.exists():
            self.feed(range(0))
        return SINK_FLOW.format(there=str(self.there), steps=self.steps, sink=self.sink)

    def feed(self, numbers: range) -> None:
        new = self.there.with_name("there.new")
        new.write_text(str(numbers.stop))
        new.rename(self.there)


class Listener(SourceConnector):
    """A source to which clients connect: it is their connections that fail. ``absent``: its port is taken."""

    later = ("away", "login", "unknown", "slow", "rubbish")

    def prepare(self, servers: Callable[[str], Any]) -> None:
        # Without SO_REUSEADDR no other process binds the port, and connections are refused.
        self.blocker = socket.socket()
        self.blocker.bind(("127.0.0.1", 0))
        self.port = int(self.blocker.getsockname()[1])
        self.blocker.close()
        self.clients: list[socket.socket] = []
        self.stopping = threading.Event()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def send(self, numbers: range) -> None:
        """Sends the numbers on a new connection.

        Raises:
            OSError: they may not have arrived.
        """
        raise NotImplementedError

    def feed(self, numbers: range) -> None:
        threading.Thread(target=self.try_to_send, args=(numbers,), daemon=True).start()

    def try_to_send(self, numbers: range) -> None:
        while not self.stopping.is_set():
            try:
                return self.send(numbers)
            except OSError:
                time.sleep(0.05)

    def connect(self) -> socket.socket:
        """A connection that stays open until the state is left."""
        self.clients.append(socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE))
        return self.clients[-1]

    def enter(self, state: str) -> None:
        super().enter(state)
        if state == "absent":
            self.blocker = socket.socket()
            self.blocker.bind(("127.0.0.1", self.port))

    def leave(self) -> None:
        super().leave()
        self.blocker.close()
        while self.clients:
            self.clients.pop().close()

    def close(self) -> None:
        self.stopping.set()
        self.leave()


def wait(condition: Callable[[], object], report: Callable[[], str], seconds: float = PATIENCE) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, f"nothing after {seconds:g} seconds:\n{report()}"
        time.sleep(0.02)


def begin(connector: Connector, state: str) -> None:
    """Starts the flow and brings it into the state, with input that waits."""
    if state in connector.later:
        connector.start()
        connector.feed(range(10))
        connector.wait_for(range(10))
        connector.enter(state)
        connector.feed(range(10, 15))
        # A connection that is gone is noticed by the second write to it.
        time.sleep(0.2)
        connector.feed(range(15, 20))
    else:
        connector.enter(state)
        connector.start()
        connector.feed(range(20))


def end(connector: Connector) -> None:
    """Ends the state, and judges all that was in it and comes after it."""
    connector.leave()
    if connector.process is None or connector.ended():
        connector.start()
    connector.feed(range(20, 30))
    connector.wait_for(range(30))
    connector.interrupt()
    connector.judge(range(30))


def test_it_recovers(connector: Connector, state: str, expected: Expected) -> None:
    """A line names the address and the thing. The flow continues by itself or ends, and nothing is lost."""
    begin(connector, state)
    if isinstance(expected, Continues):
        connector.wait_for_line(expected)
    else:
        assert connector.finish() == (1 if isinstance(expected, Ends) else 0), connector.text()
        assert not expected.parts or connector.expected(expected.parts), f"{expected}:\n{connector.text()}"
        connector.check_lines()
        lines = [line for line in connector.text().splitlines() if line.startswith("millstream run: ")]
        assert len(lines) == isinstance(expected, Ends), connector.text()
    end(connector)


def test_ctrl_c_ends_it(connector: Connector, state: str, waiting: Expected) -> None:
    """The process ends with code 0 and without a traceback; the next run has everything."""
    begin(connector, state)
    connector.wait_for_line(waiting)
    connector.interrupt()
    end(connector)


def test_it_is_killed(connector: Connector, state: str, waiting: Expected) -> None:
    """The next run has everything."""
    begin(connector, state)
    connector.wait_for_line(waiting)
    connector.kill()
    end(connector)
