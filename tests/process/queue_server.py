"""A real `millstream queue serve` process and a plain connection to it, for tests.

The standard error of the server goes to a file beside its queues and is shown when a test fails. A
server listens on a free port, and keeps it when it is started again.
"""

import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

START_SECONDS_MAX = 60


class Line:
    """A connection that says and reads lines, as a person with `nc` would."""

    def __init__(self, port: int, timeout: float = 20, source: str = "") -> None:
        self.socket = socket.create_connection(
            ("127.0.0.1", port), timeout=timeout, source_address=(source, 0)
        )
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.file = self.socket.makefile("rb")

    def __enter__(self) -> "Line":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.file.close()
        self.socket.close()

    def send(self, text: bytes) -> None:
        self.socket.sendall(text)

    def read(self) -> bytes:
        """The next line without its end; empty at the end of the connection."""
        line = self.file.readline()
        assert not line or line.endswith(b"\r\n"), line
        return line[:-2]

    def ask(self, request: bytes) -> bytes:
        """The first line of the answer to one line."""
        self.send(request + b"\r\n")
        return self.read()

    def set(self, key: str, item: bytes, expiry: int = 0) -> bytes:
        self.send(b"set %s 0 %d %d\r\n%s\r\n" % (key.encode(), expiry, len(item), item))
        return self.read()

    def get(self, key: str) -> bytes | None:
        """The item, or None; an AssertionError for what is neither."""
        return self.value(self.ask(b"get " + key.encode()))

    def value(self, line: bytes) -> bytes | None:
        if line == b"END":
            return None
        assert line.startswith(b"VALUE "), line
        item = self.file.read(int(line.split()[3]) + 2)[:-2]
        assert self.read() == b"END"
        return item

    def stats(self) -> dict[str, str]:
        self.send(b"stats\r\n")
        lines = iter(self.read, b"END")
        return dict(line.decode().split(" ", 2)[1:] for line in lines)


class QueueServer:
    """One server and its folder. `start` may be called again after `kill` or `stop`."""

    def __init__(self, program: Path, folder: Path, *options: str, config: str | None = None) -> None:
        self.folder = folder
        self.log_path = folder.with_suffix(".log")
        self.log_path.write_text("")
        self.port = 0
        self.process: subprocess.Popen[bytes] | None = None
        self.command = [str(program), "queue", "serve", "--dir", str(folder), *options]
        self.config = folder.with_suffix(".toml")
        if config is not None:
            self.config.write_text(config)
            self.command += ["--config", str(self.config)]

    def start(self) -> None:
        assert self.process is None
        begin = self.log_path.stat().st_size
        with self.log_path.open("ab") as log:
            listen = f"--listen=127.0.0.1:{self.port}"
            self.process = subprocess.Popen([*self.command, listen], stderr=log, stdin=subprocess.DEVNULL)
        said = self.wait_for(r"listening on 127\.0\.0\.1:(\d+)", begin)
        self.port = int(said[1])

    def wait_for(self, pattern: str, begin: int = 0) -> re.Match[str]:
        """Waits until the log has the pattern after byte `begin`."""
        until = time.monotonic() + START_SECONDS_MAX
        while not (said := re.search(pattern, self.log(begin))):
            assert self.process is not None and self.process.poll() is None, self.log()
            assert time.monotonic() < until, f"no {pattern!r} in {self.log()}"
            time.sleep(0.005)
        return said

    def log(self, begin: int = 0) -> str:
        return self.log_path.read_bytes()[begin:].decode(errors="replace")

    def connect(self, timeout: float = 20) -> Line:
        return Line(self.port, timeout)

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self.wait()

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        self.signal(signal.SIGTERM)
        return self.wait()

    def wait(self, timeout: float = 20) -> int:
        assert self.process is not None
        code = self.process.wait(timeout)
        self.process = None
        return code

    def is_up(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def resident_bytes(self, which: str = "VmRSS") -> int:
        """Memory in use, or with "VmHWM" the most that ever was."""
        assert self.process is not None
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.findall(rf"{which}:\s+(\d+) kB", status)[0]) * 1024


Serve = Callable[..., QueueServer]


def serving(program: Path, folder: Path) -> Iterator[Serve]:
    """Makes servers, each with a folder of its own unless one is named, and ends them all."""
    servers: list[QueueServer] = []

    def serve(*options: str, config: str | None = None, name: str | None = None) -> QueueServer:
        server = QueueServer(program, folder / (name or f"queues-{len(servers)}"), *options, config=config)
        servers.append(server)
        server.start()
        return server

    yield serve
    for server in servers:
        if server.is_up():
            server.kill()
        print(server.log())
