"""``python -m millstream_bench.http_post``: ``ms.http.post(body="each")`` to a server that is slow.

The server is a process of its own, and answers each request after 20 ms. The flow has a state directory, and
posts items of 1,000 keys, so many at a time. Each run is checked: the server must have had each item, under
one idempotency key each, and the items of each key in their order. Printed are the requests a second from the
first one to the last, of all runs, and how many connections the server has seen.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from multiprocessing import get_context
from statistics import median
from tempfile import TemporaryDirectory
from time import monotonic

import millstream as ms

TYPE_CHECKING = False
if TYPE_CHECKING:
    from multiprocessing.connection import Connection

__all__ = ["main"]

KEYS = 1000
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"


class Server(asyncio.Protocol):
    """A connection: requests one after the other, each answered after a delay."""

    def __init__(self, seen: Seen, delay: float) -> None:
        self.seen = seen
        self.delay = delay
        self.received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.seen.connections += 1

    def data_received(self, data: bytes) -> None:
        self.received += data
        head, end, body = self.received.partition(b"\r\n\r\n")
        fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:] if b": " in line)
        if not end or len(body) < int(fields[b"content-length"]):
            return
        self.received = b""
        self.seen.add(fields[b"idempotency-key"], json.loads(body))
        asyncio.get_running_loop().call_later(self.delay, self.transport.write, ANSWER)


class Seen:
    """What the server has had."""

    def __init__(self) -> None:
        self.connections = 0
        self.items: dict[int, bytes] = {}
        self.last_of_key: dict[int, int] = {}
        self.faults: list[str] = []
        self.first = self.last = 0.0

    def add(self, key: bytes, item: dict[str, int]) -> None:
        self.last = monotonic()
        self.first = self.first or self.last
        number = item["n"]
        if number in self.items:
            self.faults.append(f"item {number} has come twice, as {self.items[number]!r} and {key!r}")
        if self.last_of_key.get(item["key"], -1) >= number:
            self.faults.append(f"item {number} has come after {self.last_of_key[item['key']]}")
        self.items[number] = key
        self.last_of_key[item["key"]] = number

    def rate(self, count: int) -> float:
        """The requests a second; an error unless all is as it must be."""
        if self.items.keys() != set(range(count)):
            self.faults.append(f"{count - len(self.items)} items are missing")
        if len(set(self.items.values())) != count:
            self.faults.append("items share an idempotency key")
        if self.faults:
            raise SystemExit("; ".join(self.faults[:3]))
        return count / (self.last - self.first)


def serve(link: Connection, delay: float, count: int) -> None:
    """Serves until the other process says that the flow has ended."""

    async def run() -> None:
        seen = Seen()
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: Server(seen, delay), "127.0.0.1", 0, backlog=1024)
        link.send(server.sockets[0].getsockname()[1])
        await loop.run_in_executor(None, link.recv)
        try:
            link.send((seen.rate(count), seen.connections))
        except SystemExit as fault:
            link.send(str(fault))

    asyncio.run(run())


def measure(count: int, parallel: int, delay: float) -> tuple[float, int]:
    """One run: the requests a second, and the connections."""
    context = get_context("spawn")
    link, other = context.Pipe()
    process = context.Process(target=serve, args=(other, delay, count))
    process.start()
    url = f"http://127.0.0.1:{link.recv()}/"
    flow = ms.Flow("posts")
    items = flow.source("in", ms.testing.items([{"key": n % KEYS, "n": n} for n in range(count)]))
    sink = ms.http.post(url, body="each", key=lambda item: item["key"], parallel=parallel, batch=4096)
    items.sink("out", sink)
    with TemporaryDirectory() as state:
        ms.run(flow, state=state)
    link.send(None)
    found = link.recv()
    process.join()
    if isinstance(found, str):
        raise SystemExit(found)
    rate, connections = found
    return float(rate), int(connections)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--items", type=int, default=20_000)
    parser.add_argument("--parallel", type=int, default=128)
    parser.add_argument("--delay-ms", type=float, default=20.0)
    args = parser.parse_args()
    runs = [measure(args.items, args.parallel, args.delay_ms / 1000) for _ in range(args.runs)]
    rates = [rate for rate, _ in runs]
    most = args.parallel * 1000 / args.delay_ms
    print(
        f"{median(rates):,.0f} requests/s ({min(rates):,.0f} to {max(rates):,.0f}) of {most:,.0f} at most, "
        f"{args.parallel} at a time, {max(count for _, count in runs)} connections; "
        "each item came once, those of each key in order"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
