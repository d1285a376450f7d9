"""One client of a queue that is made to be killed: `queue_traffic.py produce|consume PORT QUEUE LOG NAME`.

It notes in LOG, a line each and by one system call, what it knows for certain: a producer each item whose
STORED came, a consumer each item that it was given, before it confirms it. Whatever kills it or the server,
the notes are true. It connects again for ever.

    producer: set QUEUE NAME:1, NAME:2, ...    one to sixteen in one write
    consumer: get QUEUE/close/open/t=50        confirm the last one, open the next one
"""

import os
import socket
import sys
import time
from collections.abc import Iterator

FAILED = (OSError, EOFError)


def item(name: str, number: int) -> bytes:
    """An item that shows when a byte of it is wrong: its length and its filling follow from its number."""
    length = 40_000 if number % 200 == 7 else number * 37 % 600
    return f"{name}:{number}:".encode() + bytes([97 + number % 26]) * length


def check(body: bytes) -> str:
    """`NAME:NUMBER`, or an AssertionError for an item that was not sent."""
    name, number, _ = body.decode().split(":", 2)
    assert body == item(name, int(number)), body[:80]
    return f"{name}:{number}"


class Connection:
    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        self.file = self.socket.makefile("rb")

    def line(self) -> bytes:
        line = self.file.readline()
        if not line.endswith(b"\r\n"):
            raise EOFError
        return line[:-2]

    def block(self, length: int) -> bytes:
        block = self.file.read(length + 2)
        if len(block) < length + 2:
            raise EOFError
        return block[:-2]


def connections(port: int) -> Iterator[Connection]:
    while True:
        try:
            yield Connection(port)
        except FAILED:
            time.sleep(0.002)


def produce(port: int, queue: str, note: int, name: str) -> None:
    number = 0
    for connection in connections(port):
        try:
            while True:
                burst = [number + 1 + i for i in range(1 + number * 7 % 16)]
                number = burst[-1]  # what is not answered is never sent again
                bodies = [item(name, number) for number in burst]
                connection.socket.sendall(
                    b"".join(
                        b"set %s 0 0 %d\r\n%s\r\n" % (queue.encode(), len(body), body) for body in bodies
                    )
                )
                for sent in burst:
                    answer = connection.line()
                    assert answer == b"STORED", answer
                    os.write(note, f"{name}:{sent}\n".encode())
        except FAILED:
            pass


def consume(port: int, queue: str, note: int, _name: str) -> None:
    for connection in connections(port):
        try:
            while True:
                connection.socket.sendall(f"get {queue}/close/open/t=50\r\n".encode())
                line = connection.line()
                if line != b"END":
                    body = connection.block(int(line.split()[3]))
                    assert connection.line() == b"END"
                    os.write(note, f"{check(body)}\n".encode())
        except FAILED:
            pass


if __name__ == "__main__":
    role, port, queue, log, name = sys.argv[1:]
    note = os.open(log, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    {"produce": produce, "consume": consume}[role](int(port), queue, note, name)
