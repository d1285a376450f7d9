"""Shared parts of tests that kill flows: a sender that reconnects, recorded input, random kills."""

from __future__ import annotations

import os
import random
import signal
import socket
import statistics
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import millstream as ms

PATIENCE = 120.0
"""Seconds after which a flow that makes no progress hangs."""
KILLS = int(os.environ.get("MILLSTREAM_KILLS", "3"))
"""How often each test kills."""
KILLING = 60.0 + 6 * KILLS
"""Seconds for which one test kills at most; how often it could is in its figures."""
PAUSE = 0.002 * max(1.0, KILLS / 20)
"""Seconds between two chunks that a sender sends: a run of many kills has no more to compare at its end."""


class Sender(threading.Thread):
    """Sends frames, their length in front, until it is stopped; connects again whenever the flow died."""

    def __init__(self, port: int, payloads: Iterator[bytes], chunk: int = 100, pause: float = PAUSE) -> None:
        super().__init__(daemon=True)
        self.address = ("127.0.0.1", port)
        self.payloads = payloads
        self.chunk = chunk
        self.pause = pause
        self.sent = 0
        self.connections = 0
        self.stopping = threading.Event()
        self.start()

    def run(self) -> None:
        while not self.stopping.is_set():
            try:
                with socket.create_connection(self.address, timeout=5) as connection:
                    self.connections += 1
                    self.feed(connection)
            except OSError:
                time.sleep(0.01)

    def feed(self, connection: socket.socket) -> None:
        while not self.stopping.is_set():
            frames = []
            for payload in self.payloads:
                frames.append(struct.pack(">I", len(payload)) + payload)
                if len(frames) == self.chunk:
                    break
            connection.sendall(b"".join(frames))
            self.sent += len(frames)
            self.stopping.wait(self.pause)

    def connected_after(self, connections: int) -> None:
        """Waits until there has been another connection than the first so many.

        New output alone does not say so: a flow also has recorded input to process.
        """
        started = time.monotonic()
        while self.connections <= connections:
            assert time.monotonic() < started + PATIENCE, "nobody listens"
            time.sleep(0.005)

    def stop(self) -> None:
        """Closes the connection after a complete frame."""
        self.stopping.set()
        self.join(PATIENCE)
        assert not self.is_alive()


def touch(port: int) -> None:
    """Connects and closes."""
    socket.create_connection(("127.0.0.1", port), timeout=PATIENCE).close()


def recorded(state: Path, source: str) -> list[bytes]:
    """The recorded input of a source of one partition, as docs/journal-format.md draws it."""
    items = []
    with ms.Journal(state / "inputs" / source, "r") as journal:
        for record in journal:
            body = record.body
            (frames,) = struct.unpack_from("<I", body, 4)
            (name,) = struct.unpack_from("<H", body, 24)
            spans = struct.unpack_from(f"<{2 * frames}I", body, 26 + name)
            data = body[26 + name + 8 * frames :]
            items += [data[start:end] for start, end in zip(spans[::2], spans[1::2], strict=True)]
    return items


def journal_items(path: Path) -> list[bytes]:
    """The records of a journal."""
    with ms.Journal(path, "r") as journal:
        return [record.body for record in journal]


def journal_length(path: Path) -> int:
    """How many records were ever appended to a journal that may not be there yet."""
    try:
        with ms.Journal(path, "r") as journal:
            return journal.next
    except ms.JournalError:
        return 0


class Killed:
    """A flow that is killed with -9 at random moments, some of them before it has restarted."""

    def __init__(
        self,
        command: list[str],
        environment: dict[str, str],
        progress: Callable[[], int],
        chance: random.Random,
    ) -> None:
        self.command = command
        self.environment = environment
        self.progress = progress
        self.chance = chance
        self.kills = 0
        self.resumed: list[float] = []

    def start(self, **more: str) -> subprocess.Popen[str]:
        return subprocess.Popen(self.command, env=self.environment | more, stderr=subprocess.PIPE, text=True)

    def go_on(self, running: subprocess.Popen[str]) -> None:
        """Waits until there is more output than ever before."""
        before = self.progress()
        started = time.monotonic()
        while self.progress() <= before:
            assert running.poll() is None, running.communicate()[1]
            assert time.monotonic() < started + PATIENCE, "the flow hangs"
            time.sleep(0.005)
        self.resumed.append(time.monotonic() - started)

    def kill(self, times: int) -> None:
        """Kills it so many times, or as often as there is time."""
        started = time.monotonic()
        while self.kills < times and time.monotonic() < started + KILLING:
            running = self.start()
            if self.chance.random() < 0.7:
                self.go_on(running)
                time.sleep(self.chance.random() * 0.3)
            else:
                time.sleep(self.chance.random() * 0.6)
            assert running.poll() is None, running.communicate()[1]
            running.send_signal(signal.SIGKILL)
            running.communicate(timeout=PATIENCE)
            self.kills += 1

    def figures(self) -> dict[str, object]:
        """How often it was killed, and how long it took from the start of the process to new output."""
        resumed = sorted(self.resumed) or [0.0]
        return {
            "kills": self.kills,
            "resumed_s_median": round(statistics.median(resumed), 3),
            "resumed_s_max": round(resumed[-1], 3),
        }
