"""A gateway of services that is killed with -9 while clients post calls.

Each call that was answered is in the journal once. A call without an answer is there once or not at all: each
is posted once. A failure prints the seed.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import re
import signal
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from flow_traffic import KILLS, PATIENCE, Killed, journal_length
from millstream._millstream import service_export
from servers import free_port

SEED = int(os.environ.get("MILLSTREAM_SEED", "0")) or random.randrange(1 << 31)

INTERFACE = """
from typing import Protocol


class Orders(Protocol):
    def place(self, id: str) -> None: ...
"""


class Poster(threading.Thread):
    """Posts calls, each once, and notes those that were answered, with the number of the record."""

    def __init__(self, port: int, name: int) -> None:
        super().__init__(daemon=True)
        self.port, self.prefix = port, name
        self.answered: dict[str, int] = {}
        self.posted = 0
        self.stopping = threading.Event()
        self.failure: str | None = None
        self.start()

    def run(self) -> None:
        while not self.stopping.is_set():
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
            try:
                while not self.stopping.is_set():
                    call = f"c{self.prefix}-{self.posted}"
                    self.posted += 1
                    connection.request("POST", "/Orders/place", json.dumps({"id": call}))
                    answer = connection.getresponse()
                    body = answer.read()
                    if answer.status != 200:
                        self.failure = f"{answer.status} {body!r}"
                        return
                    self.answered[call] = json.loads(body)["sequence"]
            except (OSError, http.client.HTTPException):
                time.sleep(0.01)
            finally:
                connection.close()

    def stop(self) -> None:
        self.stopping.set()
        self.join(PATIENCE)
        assert not self.is_alive()
        assert self.failure is None, self.failure


@pytest.mark.parametrize("sync", ["always", "never"])
def test_answered_calls_are_recorded_once(tmp_path: Path, sync: str) -> None:
    print(f"seed {SEED}")
    (tmp_path / "shop.py").write_text(INTERFACE)
    port, orders = free_port(), tmp_path / "orders"
    command = [sys.executable, "-m", "millstream", "service", "gateway", f"127.0.0.1:{port}"]
    command += ["--calls", f"{orders}={tmp_path / 'shop.py'}:Orders", "--sync", sync]
    killed = Killed(command, dict(os.environ), lambda: journal_length(orders), random.Random(SEED))
    posters = [Poster(port, name) for name in range(4)]
    killed.kill(KILLS)
    last = killed.start()
    killed.go_on(last)
    for poster in posters:
        poster.stop()
    last.send_signal(signal.SIGTERM)
    _, told = last.communicate(timeout=PATIENCE)
    assert last.returncode == 0, told
    recorded = re.findall(r"^# record (\d+)\nat: .*\nplace:\s+(?:id: )?(\S+)$", export(orders), re.MULTILINE)
    found = Counter(call for _, call in recorded)
    answered = {call: number for poster in posters for call, number in poster.answered.items()}
    print(json.dumps({"calls": len(found), "answered": len(answered)} | killed.figures()))
    assert answered
    assert max(found.values()) == 1
    numbers = {call: int(number) for number, call in recorded}
    assert {call: numbers.get(call) for call in answered} == answered


def export(journal: Path) -> str:
    return service_export(str(journal), 0, None)
