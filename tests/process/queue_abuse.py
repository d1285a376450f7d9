"""One badly behaved program: `queue_abuse.py KIND PORT SECONDS SEED` does to the queue server what KIND
says, for so long.

It shrugs at whatever the server does to it: being closed is what it deserves.
"""

import random
import socket
import sys
import time
from collections.abc import Callable

CONNECTIONS = 250


class Abuser:
    def __init__(self, port: int, seconds: float, seed: str) -> None:
        self.port, self.until, self.rng = port, time.monotonic() + seconds, random.Random(seed)

    def goes_on(self) -> bool:
        return time.monotonic() < self.until

    def connect(self) -> socket.socket | None:
        try:
            return socket.create_connection(("127.0.0.1", self.port), timeout=1)
        except OSError:
            return None

    def several(self, count: int = CONNECTIONS) -> list[socket.socket]:
        return [made for _ in range(count) if (made := self.connect())]


def say(to: socket.socket, text: bytes) -> bool:
    try:
        to.sendall(text)
    except OSError:
        return False
    return True


def hear(from_: socket.socket) -> bytes:
    try:
        return from_.recv(1 << 16)
    except OSError:
        return b""


def half_values(abuser: Abuser) -> None:
    """The line and half of the block, then gone, or there and silent."""
    silent = []
    while abuser.goes_on():
        if one := abuser.connect():
            say(one, b"set half 0 0 60000\r\n" + bytes(30_000))
            if abuser.rng.random() < 0.1:
                silent.append(one)
            else:
                one.close()


def drips(abuser: Abuser) -> None:
    """250 connections, each with a byte a second of a long item."""
    dripping = abuser.several()
    text = b"set drip 0 0 60000\r\n" + bytes(60_000)
    begin = time.monotonic()
    sent = 0
    while abuser.goes_on():
        while sent < (time.monotonic() - begin) * len(dripping):
            which = sent % len(dripping)
            at = sent // len(dripping)
            say(dripping[which], text[at : at + 1])
            sent += 1
        time.sleep(0.002)


def wrong_lengths(abuser: Abuser) -> None:
    """Blocks that are longer or shorter than declared, and invalid lengths."""
    one = None
    while abuser.goes_on():
        said = abuser.rng.choice(
            [b"-1", b"3", b"2147483647", b"99999999999999999999", b"0x10", b"1e3", b"", b"70000"]
        )
        if one is None or not say(
            one, b"set wrong 0 0 %s\r\n%s\r\n" % (said, b"x" * abuser.rng.randrange(100))
        ):
            one = abuser.connect()


def huge_keys(abuser: Abuser) -> None:
    """Keys and lines far beyond every limit, with and without an end."""
    one = abuser.connect()
    while abuser.goes_on():
        key = b"k" * abuser.rng.choice([251, 1_000, 100_000, 3_000_000])
        line = abuser.rng.choice(
            [b"get %s\r\n", b"set %s 0 0 1\r\nx\r\n", b"%s", b"get " + b"a " * 50_000 + b"%s\r\n"]
        )
        if one is None or not say(one, line % key) or not hear(one):
            one = abuser.connect()


def random_bytes(abuser: Abuser) -> None:
    """Noise, some of it made of the protocol's own words."""
    words = [
        b"set ",
        b"get ",
        b"q ",
        b"q/open ",
        b"0 ",
        b"5 ",
        b"\r\n",
        b"\n",
        b"\0",
        b"noreply",
        b"delete ",
        b"monitor q 1",
    ]
    while abuser.goes_on():
        if one := abuser.connect():
            noise = b"".join(abuser.rng.choice([*words, abuser.rng.randbytes(9)]) for _ in range(200))
            say(one, noise)
            one.close()


def other_protocols(abuser: Abuser) -> None:
    """Binary memcache, TLS, HTTP."""
    binary_get = bytes([0x80, 0, 0, 1]) + bytes(7) + b"\x01" + bytes(12) + b"q"
    tls_hello = bytes.fromhex("160301007a010000760303") + abuser.rng.randbytes(115)
    http = b"POST / HTTP/1.1\r\nHost: localhost\r\n\r\nset http 0 0 1\r\nx\r\n"
    while abuser.goes_on():
        if one := abuser.connect():
            say(one, abuser.rng.choice([binary_get, tls_hello, http]))
            one.close()


def never_reads(abuser: Abuser) -> None:
    """Requests large items on many connections, and reads no answer."""
    if one := abuser.connect():
        say(one, b"set unread 0 0 60000\r\n%s\r\n" % bytes(60_000))
        hear(one)
    asking = abuser.several(100)
    for one in asking:
        one.settimeout(0.01)
    while abuser.goes_on():
        for one in asking:
            say(one, b"get unread/peek\r\nstats\r\n" * 100)


def floods(abuser: Abuser) -> None:
    """More connections than the server takes, again and again."""
    while abuser.goes_on():
        for one in abuser.several(400):
            one.close()


def opens_and_disconnects(abuser: Abuser) -> None:
    """Takes items it will never confirm, waits where nothing comes, and goes."""
    while abuser.goes_on():
        waiting = abuser.several(50)
        for one in waiting:
            say(one, b"set open 0 0 1\r\nx\r\nget open/open\r\nget open-nothing/t=100000\r\n")
        for one in waiting:
            one.close()


KINDS: dict[str, Callable[[Abuser], None]] = {
    kind.__name__: kind
    for kind in (
        half_values,
        drips,
        wrong_lengths,
        huge_keys,
        random_bytes,
        other_protocols,
        never_reads,
        floods,
        opens_and_disconnects,
    )
}

if __name__ == "__main__":
    kind, port, seconds, seed = sys.argv[1:]
    KINDS[kind](Abuser(int(port), float(seconds), seed))
