"""Fixtures that every test may use: the program, a way to run it, a free port, a server of queues."""

import os
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="session")
def millstream_bin() -> Path:
    """Path of the release build of the Rust program, which is built when it is missing."""
    program = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release" / "millstream"
    if not program.exists():
        subprocess.run(["cargo", "build", "--release", "-p", "millstream"], cwd=ROOT, check=True)
    return program


@pytest.fixture(scope="session")
def run(millstream_bin: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs the program to its end: `run("send", path, timeout=10).stdout`. The caller checks `returncode`."""

    def run(*args: object, timeout: float = 60, **options: Any) -> subprocess.CompletedProcess[str]:
        command = [str(millstream_bin), *map(str, args)]
        done: subprocess.CompletedProcess[str] = subprocess.run(
            command, capture_output=True, text=True, timeout=timeout, **options
        )
        return done

    return run


@pytest.fixture(scope="session")
def free_port() -> Callable[[], int]:
    """Gives, at each call, the number of a TCP port of 127.0.0.1 on which nothing listens."""

    def free_port() -> int:
        with socket.create_server(("127.0.0.1", 0)) as server:
            return int(server.getsockname()[1])

    return free_port


class QueueServer:
    """`millstream queue serve` on a folder that outlives it, so that it can be killed and started again."""

    def __init__(self, program: Path, folder: Path, port: int, options: tuple[str, ...]) -> None:
        self.folder = folder
        self.port = port
        self._command = [
            str(program),
            "queue",
            "serve",
            "--dir",
            str(folder),
            "--listen",
            f"127.0.0.1:{port}",
            *options,
        ]
        self.start()

    def start(self) -> None:
        """Start, and wait until it listens."""
        self.process = subprocess.Popen(self._command, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr
        self.log = ""
        for line in self.process.stderr:
            if line.startswith("listening on "):
                return
            self.log += line
        raise AssertionError(f"the server did not start: {self.log}")

    def kill(self) -> None:
        """As a power cut of the process: no handler runs."""
        self.process.kill()
        self.process.wait()

    def stop(self, signal_number: int = signal.SIGTERM) -> int:
        """Ask it to stop, for which it has 5 seconds and a loaded machine some more; its exit code."""
        self.process.send_signal(signal_number)
        return self.process.wait(timeout=10)

    def connect(self) -> socket.socket:
        """A connection that gives up after some seconds."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=10)

    def ask(self, request: bytes) -> bytes:
        """What a connection gets that sends this, then `quit`. `|` is CR LF, both ways."""
        with self.connect() as connection:
            connection.sendall(request.replace(b"|", b"\r\n") + b"quit\r\n")
            return b"".join(iter(lambda: connection.recv(65536), b"")).replace(b"\r\n", b"|")


@pytest.fixture
def serve_queues(
    millstream_bin: Path, tmp_path: Path, free_port: Callable[[], int]
) -> Iterator[Callable[..., QueueServer]]:
    """Starts servers of queues, which end with the test."""
    servers: list[QueueServer] = []

    def serve(*options: str) -> QueueServer:
        servers.append(QueueServer(millstream_bin, tmp_path / f"queues-{len(servers)}", free_port(), options))
        return servers[-1]

    yield serve
    for server in servers:
        if server.process.poll() is None:
            server.kill()
