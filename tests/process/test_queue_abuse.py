"""Broken and hostile clients against a real queue server, while a good one works.

Each kind of abuse runs as a process of its own. The good client must get the right answer to everything,
the server must stay up, log no panic and stay within the memory that its limits allow. How long the good
client waited, before and during, is printed as one line of JSON, not judged. `MILLSTREAM_SECONDS` makes the
abuse longer, `MILLSTREAM_SEED` repeats one.
"""

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from queue_abuse import CONNECTIONS, KINDS
from queue_server import Line, Serve

SECONDS = float(os.environ.get("MILLSTREAM_SECONDS", 1.5))
SEED = os.environ.get("MILLSTREAM_SEED", str(random.SystemRandom().randrange(1 << 32)))
ABUSE = Path(__file__).with_name("queue_abuse.py")

ITEM_BYTES = 64 << 10
OUTPUT_BYTES = 64 << 10
CONNECTIONS_MAX = 300
CONFIG = f"""
[limits]
connections = {CONNECTIONS_MAX}
item_bytes = {ITEM_BYTES}
output_bytes = {OUTPUT_BYTES}
line_bytes = 2048

[defaults]
memory_bytes = {1 << 20}
"""
# For each connection: an item that is half there, pipelined requests, replies that wait, and twice as much
# for buffers that have grown. And what a server needs in any case.
MEMORY_BYTES_MAX = (64 << 20) + CONNECTIONS_MAX * 2 * (ITEM_BYTES + (64 << 10) + OUTPUT_BYTES)


def work(line: Line, seconds: float) -> list[float]:
    """Sets and gets, one at a time, for so long; how long each took, in seconds."""
    times = []
    begin = now = time.perf_counter()
    number = 0
    while now < begin + seconds:
        number += 1
        item = b"%d " % number * 8
        assert line.set("good", item) == b"STORED"
        times.append(time.perf_counter() - now)
        now = time.perf_counter()
        assert line.get("good") == item
        times.append(time.perf_counter() - now)
        now = time.perf_counter()
    return times


def p99_us(times: list[float]) -> int:
    return round(sorted(times)[len(times) * 99 // 100] * 1e6)


@pytest.mark.parametrize("kind", KINDS)
def test_a_good_client_is_served_whatever_others_do(kind: str, serve: Serve) -> None:
    print(f"MILLSTREAM_SEED={SEED} MILLSTREAM_SECONDS={SECONDS}")
    server = serve("--sync=never", config=CONFIG)
    line = server.connect()
    before = work(line, SECONDS / 3)
    command = [sys.executable, "-I", str(ABUSE), kind, str(server.port), str(SECONDS), SEED]
    abuser = subprocess.Popen(command)
    during = []
    while abuser.poll() is None:
        during += work(line, 0.1)
    assert abuser.returncode == 0
    memory = server.resident_bytes("VmHWM")
    figures = {
        "promise": 11,
        "abuse": kind,
        "requests": len(during),
        "p99_us_before": p99_us(before),
        "p99_us_during": p99_us(during),
        "memory_max_mib": memory >> 20,
        "seed": SEED,
    }
    print(json.dumps(figures))
    assert memory < MEMORY_BYTES_MAX
    # And it still serves others, and ends as it should.
    assert server.connect().set("after", b"x") == b"STORED"
    assert server.stop() == 0
    assert "panicked" not in server.log()


def test_the_drips_are_within_the_limit() -> None:
    assert CONNECTIONS + 1 < CONNECTIONS_MAX


VERSION = b"version\r\n"
FORMAT = b"CLIENT_ERROR bad command line format\r\n"
SLIPS = {
    "get without a key": (b"get\r\n", b"ERROR\r\n"),
    "an unknown command": (b"fetch q\r\n", b"ERROR\r\n"),
    "a negative length": (b"set q 0 0 -1\r\n", FORMAT),
    "a length of 20 digits": (b"set q 0 0 99999999999999999999\r\n", FORMAT),
    "a length over the limit": (
        b"set q 0 0 70000\r\n%s\r\n" % bytes(70_000),
        b"SERVER_ERROR object too large for cache\r\n",
    ),
    "a block that is too long": (b"set q 0 0 5\r\nhello, world\r\n", b"CLIENT_ERROR bad data chunk\r\n"),
    "a key of 251 bytes": (
        b"get %s\r\n" % (b"k" * 251),
        b"CLIENT_ERROR queue name is longer than 250 bytes\r\n",
    ),
    "a line over the limit": (b"get %s\r\n" % (b"k" * 3_000), b"CLIENT_ERROR line too long\r\n"),
    "a path for a name": (
        b"set ../evil 0 0 1\r\nx\r\n",
        b"CLIENT_ERROR queue name must not begin with '.' nor have an empty part beside '+'\r\n",
    ),
    "a path behind a name": (b"set q/../../evil 0 0 1\r\nx\r\n", b"CLIENT_ERROR unknown option\r\n"),
    "an item of no bytes": (b"set q 7 0 0\r\n\r\nget q\r\n", b"STORED\r\nVALUE q 7 0\r\n\r\nEND\r\n"),
    "flags that do not fit": (b"set q 4294967296 0 1\r\nx\r\n", FORMAT),
    "a command of memcached's that means nothing here": (b"add q 0 0 1\r\nx\r\n", b"NOT_STORED\r\n"),
    "flush_all": (b"flush_all\r\n", b"OK\r\n"),
}


def answer(line: Line, sent: bytes) -> bytes:
    """The answer without that to a `version` after it, which shows that the connection still works."""
    line.send(sent + VERSION)
    lines: list[bytes] = []
    while not lines or not lines[-1].startswith(b"VERSION "):
        lines.append(line.file.readline())
        assert lines[-1], lines
    return b"".join(lines[:-1])


def test_a_slip_costs_its_client_an_error_and_nothing_else(serve: Serve) -> None:
    server = serve("--sync=never", config=CONFIG)
    before = sorted(server.folder.parent.iterdir())
    with server.connect() as line:
        for slip, (sent, expected) in SLIPS.items():
            assert answer(line, sent) == expected, slip
    assert sorted(server.folder.parent.iterdir()) == before


@pytest.mark.parametrize(
    "sent",
    [
        b"\x80\x00\x00\x01" + bytes(20),
        b"\x80" + b"\x00" * 20 + b"\n" + bytes(20),
        b"POST / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ],
    ids=["binary", "binary with a line end", "http"],
)
def test_another_protocol_is_closed_at_once(sent: bytes, serve: Serve) -> None:
    server = serve("--sync=never")
    with server.connect() as line:
        line.send(sent + b"set q 0 0 1\r\nx\r\n")
        assert line.file.read() == b""
    server.wait_for("not the memcache text protocol")
    with server.connect() as line:
        assert line.get("q") is None
