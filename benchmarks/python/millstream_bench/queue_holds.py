"""How long the work that one client asks of a queue server holds another.

``python -m millstream_bench.queue_holds millstream``: another client sets and gets one item again and again
meanwhile. Its longest request and its 99.9th percentile, in milliseconds, are the medians of several runs.
``nothing`` is the floor: this process then computes beside it, and asks for nothing. With ``--first`` server
and other client go before all other programs (``chrt``, as root).
"""

from __future__ import annotations

import argparse
import contextlib
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

REPLY_BYTES = 100


class Client:
    """A connection to the server."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._replies = self._socket.makefile("rb")

    def ask(self, request: bytes, reply: bytes) -> None:
        """Sends a request whose last line of the answer is `reply`."""
        self._socket.sendall(request)
        line = self._replies.readline()
        while line != reply:
            if not line or line.startswith((b"SERVER_ERROR", b"CLIENT_ERROR", b"ERROR")):
                raise AssertionError(f"{request[:80]!r} was answered {line!r}")
            line = self._replies.readline()

    def put(self, queue: bytes, items: int, bytes_: int = 5, expiry: int = 0) -> None:
        request = b"set %s 0 %d %d\r\n%s\r\n" % (queue, expiry, bytes_, b"x" * bytes_)
        at_once = max(1, min(500, (1 << 19) // bytes_))
        for first in range(0, items, at_once):
            count = min(at_once, items - first)
            self._socket.sendall(request * count)
            for _ in range(count):
                assert self._replies.readline() == b"STORED\r\n"


def until(begun: float, seconds: float) -> None:
    time.sleep(max(0.0, begun + seconds - time.monotonic()))


def delays(client: Client) -> None:
    begun = time.monotonic()
    client.put(b"d/delay=8000", 300_000)
    until(begun, 7)


def expiries(client: Client) -> None:
    begun = time.monotonic()
    client.put(b"d", 500_000, expiry=10)
    until(begun, 9)


def queues(client: Client) -> None:
    for number in range(1_000):
        client.put(b"q%d" % number, 1)


def compute(_: Client) -> None:
    end = time.monotonic() + 1.5
    while time.monotonic() < end:
        pass


def ask_often(request: bytes, reply: bytes, times: int) -> Callable[[Client], None]:
    def ask(client: Client) -> None:
        for number in range(times):
            client.ask(request.replace(b"#", b"%d" % number), reply)

    return ask


class Case(NamedTuple):
    """Work, what comes before it, for how many seconds the other client asks, and the configuration."""

    act: Callable[[Client], None]
    prepare: Callable[[Client], None] = lambda client: None
    seconds: float = 3.0
    config: str = ""


SMALL_MEMORY = "memory_bytes = 1_000_000\n"
CASES = {
    "nothing": Case(compute),
    "300,000 delays end": Case(lambda client: time.sleep(3), delays, 4.5),
    "500,000 items expire": Case(lambda client: time.sleep(3), expiries, 4.5),
    "stats of 1,000 queues, 5 times": Case(ask_often(b"stats\r\n", b"END\r\n", 5), queues),
    "flush_all of 1,000 queues": Case(ask_often(b"flush_all\r\n", b"OK\r\n", 1), queues, 5.0),
    "200 new queues": Case(ask_often(b"set n# 0 0 1\r\n1\r\n", b"STORED\r\n", 200)),
    "100 new fan-out queues": Case(
        ask_often(b"get p+#\r\n", b"END\r\n", 100), lambda client: client.put(b"p", 1)
    ),
    "delete of 600 MB": Case(
        ask_often(b"delete big\r\n", b"DELETED\r\n", 1),
        lambda client: client.put(b"big", 3_000, 200_000),
        config=SMALL_MEMORY,
    ),
    "redrive of 1,000 items of 200 KB": Case(
        ask_often(b"redrive dead work\r\n", b"1000\r\n", 1),
        lambda client: client.put(b"dead", 1_000, 200_000),
        config=SMALL_MEMORY,
    ),
    "sets of 50 KB, sync = 50ms": Case(
        lambda client: client.put(b"timed", 3_000, 50_000), config="[queue.timed]\nsync = '50ms'\n"
    ),
}


@contextlib.contextmanager
def server(command: list[str], config: str) -> Iterator[int]:
    """Starts a server in a new directory, and ends it. Gives its port."""
    with tempfile.TemporaryDirectory() as directory, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        free.close()
        settings = Path(directory, "queues.toml")
        settings.write_text("[defaults]\nsync = 'never'\n" + config)
        arguments = ["queue", "serve", "--dir", f"{directory}/queues", "--listen", f"127.0.0.1:{port}"]
        process = subprocess.Popen(
            [*command, *arguments, "--config", str(settings)], stderr=subprocess.DEVNULL
        )
        try:
            while True:
                with contextlib.suppress(ConnectionRefusedError):
                    socket.create_connection(("127.0.0.1", port)).close()
                    break
                assert process.poll() is None, "the server does not start"
                time.sleep(0.05)
            yield port
        finally:
            process.kill()
            process.wait()


def other(port: int, seconds: float) -> None:
    """The other client: prints its longest request and the 99.9th percentile, in milliseconds."""
    client = Client(port)
    took = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for request, reply in ((b"set o 0 0 1\r\n1\r\n", b"STORED\r\n"), (b"get o\r\n", b"END\r\n")):
            begun = time.monotonic()
            client.ask(request, reply)
            took.append(time.monotonic() - begun)
        time.sleep(0.0002)
    took.sort()
    print(took[-1] * 1e3, took[int(len(took) * 0.999)] * 1e3)


def measure(case: Case, program: str, first: list[str]) -> tuple[float, float]:
    with server([*first, program], case.config) as port:
        client = Client(port)
        case.prepare(client)
        asked = [*first, sys.executable, "-m", __spec__.name, "--other", str(port), str(case.seconds)]
        with subprocess.Popen(asked, stdout=subprocess.PIPE, text=True) as process:
            time.sleep(0.6)
            case.act(client)
            output, _ = process.communicate()
    longest, high = output.split()
    return float(longest), float(high)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("programs", nargs="*", help="the programs `millstream` to compare, alternating")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--only", default="", help="cases whose names have this in them")
    parser.add_argument("--first", action="store_true", help="go before all other programs")
    parser.add_argument("--other", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.other:
        return other(int(arguments.other[0]), float(arguments.other[1]))
    first = ["chrt", "--fifo", "50"] if arguments.first else []
    for name, case in CASES.items():
        if arguments.only not in name:
            continue
        runs = [
            [measure(case, program, first) for program in arguments.programs] for _ in range(arguments.runs)
        ]
        for program, results in zip(arguments.programs, zip(*runs, strict=True), strict=True):
            longest, high = (statistics.median(values) for values in zip(*results, strict=True))
            print(f"{name:34} {program}: longest {longest:.1f} ms, 99.9% {high:.2f} ms", flush=True)


if __name__ == "__main__":
    main()
