"""What an installed package can do: each part once, by the standard library alone. release/try.py runs it."""

from __future__ import annotations

import platform
import re
import socket
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Protocol

import millstream as ms
from millstream.service import Recorder

COMMAND = str(Path(sysconfig.get_path("scripts")) / "millstream")


class Orders(Protocol):
    def new_order(self, id: str, quantity: float) -> None: ...


class Replies(Protocol):
    def accepted(self, id: str, total: float) -> None: ...


class Desk(Orders):
    def __init__(self, replies: Replies) -> None:
        self.replies = replies
        self.total = 0.0

    def new_order(self, id: str, quantity: float) -> None:
        self.total += quantity
        self.replies.accepted(id, self.total)


def flow(folder: Path) -> None:
    """Words counted by key on two workers, and with a crash around each commit; then from file to file."""
    words = ms.Flow("words")
    keyed = words.source("lines", ms.generate(list)).flat_map(str.split).key_by(lambda word: word)
    counts = keyed.stateful_map("count", lambda count, word: (count + 1, count + 1), state=int)
    counts.sink("out", ms.stdout())
    lines = {"lines": ["a b", "b c b"]}
    found = ms.testing.run_all(words, lines, workers=2)["out"]
    assert sorted(found) == [("a", 1), ("b", 1), ("b", 2), ("b", 3), ("c", 1)], found
    ms.testing.crash_everywhere(words, lines)
    (folder / "in.csv").write_text("name,size\na,1\nb,2\n")
    files = ms.Flow("files")
    rows = files.source("rows", ms.files.csv(str(folder / "in.csv")))
    rows.map(lambda row: f"{row['name']} {row['size']}").sink("out", ms.files.write(str(folder / "out.txt")))
    ms.run(files, state=str(folder / "state"))
    assert (folder / "out.txt").read_text() == "a 1\nb 2\n"


def journal(folder: Path) -> None:
    with ms.Journal(str(folder / "orders")) as records:
        assert records.append(b"buy 100") == 0
        assert records.append_many(["sell 3", bytearray(b"buy 7")]) == range(1, 3)
        assert [record.body for record in records] == [b"buy 100", b"sell 3", b"buy 7"]
    shown = subprocess.run(
        [COMMAND, "journal", "cat", "orders"], cwd=folder, capture_output=True, text=True, check=True
    )
    assert "sell 3" in shown.stdout, shown
    subprocess.run([COMMAND, "journal", "verify", "orders"], cwd=folder, check=True, capture_output=True)


def queue(folder: Path) -> None:
    """Through a socket, as any memcache client does it."""
    serve = [COMMAND, "queue", "serve", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(serve, cwd=folder, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        port = next(
            int(found[1]) for line in server.stderr if (found := re.search(r"127\.0\.0\.1:(\d+)", line))
        )
        with (
            socket.create_connection(("127.0.0.1", port), timeout=30) as client,
            client.makefile("rwb") as stream,
        ):
            stream.write(b"set work 0 0 5\r\nhello\r\nget work\r\n")
            stream.flush()
            answers = [stream.readline() for _ in range(4)]
        server.terminate()
    assert answers == [b"STORED\r\n", b"VALUE work 0 5\r\n", b"hello\r\n", b"END\r\n"], answers
    assert server.returncode == 0, server.returncode


def service(folder: Path) -> None:
    calls = Recorder()
    desk = Desk(calls.publisher(Replies))
    desk.new_order("A-1", 100)
    assert calls.take() == ["accepted:\n  id: A-1\n  total: 100.0\n"]


def kafka(folder: Path) -> None:
    """librdkafka reads its settings, those of TLS by the OpenSSL in it; there is no broker."""
    ms.kafka.read("localhost:1", "orders", settings={"security.protocol": "ssl"})


def command(folder: Path) -> None:
    version = subprocess.run([COMMAND, "--version"], capture_output=True, text=True, check=True).stdout
    assert ms.__version__ in version, version
    for name in ("alerts", "service"):
        subprocess.run([COMMAND, "new", name], cwd=folder, check=True, capture_output=True)


def main() -> None:
    parts = [flow, journal, queue, service, kafka, command]
    if sys.argv[1:] == ["--without-kafka"]:
        parts.remove(kafka)
    for part in parts:
        with tempfile.TemporaryDirectory() as folder:
            part(Path(folder))
        print(part.__name__, end=" ", flush=True)
    print(f"on {platform.python_implementation()} {platform.python_version()} {platform.machine()}")


if __name__ == "__main__":
    main()
