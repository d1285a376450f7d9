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
from collections import Counter
from pathlib import Path

import pytest
from flow_traffic import KILLS, PATIENCE, Killed, journal_length
from http_posters import Poster
from millstream._millstream import service_export
from servers import free_port

SEED = int(os.environ.get("MILLSTREAM_SEED", "0")) or random.randrange(1 << 31)

INTERFACE = """
from typing import Protocol


class Orders(Protocol):
    def place(self, id: str) -> None: ...
"""


class Caller(Poster):
    """Posts calls, and notes those that were answered, with the number of the record."""

    def __init__(self, port: int, name: int) -> None:
        self.answered: dict[str, int] = {}
        super().__init__(port, name)

    def post(self, connection: http.client.HTTPConnection, number: int) -> None:
        call = f"c{self.prefix}-{number}"
        connection.request("POST", "/Orders/place", json.dumps({"id": call}))
        answer = connection.getresponse()
        body = answer.read()
        assert answer.status == 200, f"{answer.status} {body!r}"
        self.answered[call] = json.loads(body)["sequence"]


@pytest.mark.parametrize("sync", ["always", "never"])
def test_answered_calls_are_recorded_once(tmp_path: Path, sync: str) -> None:
    print(f"seed {SEED}")
    (tmp_path / "shop.py").write_text(INTERFACE)
    port = free_port()
    orders = tmp_path / "orders"
    command = [sys.executable, "-m", "millstream", "service", "gateway", f"127.0.0.1:{port}"]
    command += ["--calls", f"{orders}={tmp_path / 'shop.py'}:Orders", "--sync", sync]
    killed = Killed(command, dict(os.environ), lambda: journal_length(orders), random.Random(SEED))
    posters = [Caller(port, name) for name in range(4)]
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
