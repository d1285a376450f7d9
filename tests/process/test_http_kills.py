"""An HTTP source that is killed with -9 while clients post, and stopped while clients are connected.

Each acknowledged item is in the output once. An item without an answer is there at most as often as it was
posted: its client does not know, and this one posts each item once. A failure prints the seed.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from flow_traffic import KILLS, PATIENCE, Killed, journal_items, journal_length
from http_posters import Poster
from servers import free_port

SEED = int(os.environ.get("MILLSTREAM_SEED", "0")) or random.randrange(1 << 31)

FLOW = """
import os
import millstream as ms

flow = ms.Flow("posts")
source = ms.http.listen(f"127.0.0.1:{os.environ['PORT']}", body="bytes")
flow.source("in", source).sink("out", ms.journals.append(os.environ["OUT"]))
"""


class Sender(Poster):
    """Posts items, and notes those that were acknowledged."""

    def __init__(self, port: int, name: int) -> None:
        self.acknowledged: list[bytes] = []
        super().__init__(port, name)

    def post(self, connection: http.client.HTTPConnection, number: int) -> None:
        item = b"%d-%d" % (self.prefix, number)
        connection.request("POST", "/", item)
        answer = connection.getresponse()
        answer.read()
        if answer.status == 200:
            self.acknowledged.append(item)
        else:
            assert answer.status in (429, 503)


@pytest.mark.parametrize(("workers", "sync"), [(1, "epoch"), (3, "epoch"), (1, "never")])
def test_acknowledged_items_are_there_once(tmp_path: Path, workers: int, sync: str) -> None:
    print(f"seed {SEED}")
    flow, state, out = (tmp_path / name for name in ("flow.py", "state", "out"))
    flow.write_text(FLOW)
    port = free_port()
    options = ["--state", str(state), "--epoch", "20ms", "--workers", str(workers)]
    options += ["--sync", "never"] if sync == "never" else []
    command = [sys.executable, "-m", "millstream", "run", str(flow), *options]
    environment = os.environ | {"PORT": str(port), "OUT": str(out)}
    killed = Killed(command, environment, lambda: journal_length(out), random.Random(SEED))
    posters = [Sender(port, name) for name in range(4)]
    killed.kill(KILLS)
    last = killed.start()
    killed.go_on(last)
    for poster in posters:
        poster.stop()
    acknowledged = [item for poster in posters for item in poster.acknowledged]
    deadline = time.monotonic() + PATIENCE
    while not set(acknowledged) <= set(journal_items(out)):
        assert time.monotonic() < deadline, "acknowledged items are missing"
        time.sleep(0.05)
    last.send_signal(signal.SIGTERM)
    _, told = last.communicate(timeout=PATIENCE)
    assert last.returncode == 0, told
    found = Counter(journal_items(out))
    print(json.dumps({"items": len(found), "acknowledged": len(acknowledged)} | killed.figures()))
    assert acknowledged
    assert not set(acknowledged) - set(found)
    assert max(found.values()) == 1


def started(tmp_path: Path, state: bool) -> tuple[subprocess.Popen[str], int]:
    flow = tmp_path / "flow.py"
    flow.write_text(FLOW)
    port = free_port()
    command = [sys.executable, "-m", "millstream", "run", str(flow)]
    command += ["--state", str(tmp_path / "state")] if state else []
    environment = os.environ | {"PORT": str(port), "OUT": str(tmp_path / "out")}
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), PATIENCE).close()
            return process, port
        except OSError:
            assert time.monotonic() < deadline and process.poll() is None
            time.sleep(0.02)


BEGUN = {
    "idle": b"",
    "header": b"POST / HTTP/1.1\r\nHost: x",
    "body": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nabc",
    "kept alive": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\n1",
}


@pytest.mark.parametrize("state", [True, False])
@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_flow_with_clients_in_each_state(tmp_path: Path, sign: int, state: bool) -> None:
    process, port = started(tmp_path, state)
    clients = [socket.create_connection(("127.0.0.1", port), PATIENCE) for _ in BEGUN]
    for client, text in zip(clients, BEGUN.values(), strict=True):
        client.sendall(text)
    answer = clients[-1].recv(1000)
    assert answer.startswith(b"HTTP/1.1 200 "), answer
    process.send_signal(sign)
    _, told = process.communicate(timeout=PATIENCE)
    assert process.returncode in (0, 130), told
    for client in clients:
        client.close()
    assert journal_items(tmp_path / "out") in ([b"1"], [])
