"""Generator sources that read a server over TCP, killed with -9 at random.

With ``resume`` each item is in the output once. With acknowledgements, durable or not, each acknowledged
item is in the output, and no item is missing between others; with ``dedupe`` each is there once. A failure
prints the seed.
"""

from __future__ import annotations

import json
import os
import random
import signal
import socketserver
import sys
import threading
import time
from pathlib import Path

import pytest
from flow_traffic import KILLS, PATIENCE, Killed, journal_items, journal_length

SEED = int(os.environ.get("MILLSTREAM_SEED", "0")) or random.randrange(1 << 31)

FLOW = """
import asyncio
import os
import millstream as ms

MODE = os.environ["MODE"]


async def connect(first):
    reader, writer = await asyncio.open_connection("127.0.0.1", int(os.environ["PORT"]))
    writer.write(b"%s\\n" % first)
    return reader, writer


@ms.source(resume=True)
async def resuming(resume=None):
    reader, writer = await connect(b"%d" % (resume or 0))
    async for line in reader:
        yield ms.At(int(line) + 1, line.strip())


dedupe = ms.Dedupe(lambda line: line) if "dedupe" in MODE else None


@ms.source(ack=True, durable="durable" in MODE, dedupe=dedupe)
async def delivered():
    reader, writer = await connect(b"unacknowledged")
    async for line in reader:
        yield ms.At(None, line.strip(), ack=lambda line=line: writer.write(line))


flow = ms.Flow("numbers")
source = resuming if MODE == "resume" else delivered
flow.source("in", source).sink("out", ms.journals.append(os.environ["OUT"]))
"""


class Broker(socketserver.ThreadingTCPServer):
    """Sends numbers from one that the client chooses, or from the first that is not acknowledged."""

    daemon_threads = True

    def __init__(self) -> None:
        self.acknowledged: set[int] = set()
        super().__init__(("127.0.0.1", 0), Client)
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Client(socketserver.StreamRequestHandler):
    server: Broker

    def handle(self) -> None:
        first = self.rfile.readline().strip()
        acknowledged = self.server.acknowledged
        number = max(acknowledged, default=-1) + 1 if first == b"unacknowledged" else int(first)
        threading.Thread(target=self.read_acks, daemon=True).start()
        try:
            while True:
                self.wfile.write(b"".join(b"%d\n" % n for n in range(number, number + 20)))
                number += 20
                time.sleep(0.002)
        except OSError:
            return

    def read_acks(self) -> None:
        try:
            for line in self.rfile:
                if line.endswith(b"\n"):
                    self.server.acknowledged.add(int(line))
        except (OSError, ValueError):
            return


@pytest.mark.parametrize("mode", ["resume", "ack", "durable", "dedupe", "durable dedupe"])
def test_numbers_of_a_server(tmp_path: Path, mode: str) -> None:
    print(f"seed {SEED}")
    flow, state, out = (tmp_path / name for name in ("flow.py", "state", "out"))
    flow.write_text(FLOW)
    with Broker() as broker:
        environment = os.environ | {"MODE": mode, "PORT": str(broker.server_address[1]), "OUT": str(out)}
        options = ["--state", str(state), "--epoch", "20ms"]
        command = [sys.executable, "-m", "millstream", "run", str(flow), *options]
        killed = Killed(command, environment, lambda: journal_length(out), random.Random(SEED))
        killed.kill(KILLS)
        last = killed.start()
        killed.go_on(last)
        last.send_signal(signal.SIGTERM)
        _, told = last.communicate(timeout=PATIENCE)
        broker.shutdown()
        acknowledged = set(broker.acknowledged)
    assert last.returncode == 0, told
    found = [int(body) for body in journal_items(out)]
    print(json.dumps({"mode": mode, "items": len(found), "acks": len(acknowledged)} | killed.figures()))
    if mode == "resume" or "dedupe" in mode:
        assert found == list(range(len(found)))
    if mode == "resume":
        return
    assert acknowledged
    assert not acknowledged - set(found)
    assert set(found) == set(range(max(found) + 1))
