"""Gateways of services that are killed with -9 while clients repeat calls with keys.

A plain model: each key is one call. Clients post calls with the header ``Idempotency-Key`` to two gateways of
one journal, at random the next one or one that they have posted before, while one of the gateways is killed.
Each key is in the journal at most once, with its own arguments, and each answer has the number of its record.
A failure prints the seed.
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
from flow_traffic import KILLS, PATIENCE, Killed
from http_posters import Poster
from millstream._millstream import service_export
from servers import free_port
from test_gateway_kills import INTERFACE

SEED = int(os.environ.get("MILLSTREAM_SEED", "0")) or random.randrange(1 << 31)


class Repeater(Poster):
    """Posts keys, old and new ones, and notes the number in each answer."""

    def __init__(self, port: int, name: int, keys: range) -> None:
        self.random = random.Random(SEED + name)
        self.keys = keys
        self.begun = 0
        #: The numbers of the records with which each key was answered.
        self.answered: dict[str, set[int]] = {}
        self.answers = 0
        self.repeats = 0
        super().__init__(port, name)

    def post(self, connection: http.client.HTTPConnection, number: int) -> None:
        is_new = self.begun == 0 or self.random.random() < 0.5
        self.begun += is_new
        # Also the last one, which may have had no answer; keys of other clients are among them.
        at = self.begun - 1 if is_new else self.random.randrange(max(0, self.begun - 8), self.begun)
        key = f"k{self.keys.start + at * self.keys.step}"
        connection.request("POST", "/Orders/place", json.dumps({"id": key}), {"Idempotency-Key": key})
        answer = connection.getresponse()
        body = answer.read()
        assert answer.status == 200, f"{answer.status} {body!r}"
        self.answered.setdefault(key, set()).add(json.loads(body)["sequence"])
        self.answers += 1
        self.repeats += answer.headers["Idempotent-Replayed"] == "true"


@pytest.mark.parametrize("sync", ["always", "never"])
def test_a_key_is_one_call(tmp_path: Path, sync: str) -> None:
    print(f"seed {SEED}")
    (tmp_path / "shop.py").write_text(INTERFACE)
    ports = (free_port(), free_port())
    orders = tmp_path / "orders"

    posters: list[Repeater] = []

    def gateway(port: int) -> Killed:
        def answers() -> int:
            return sum(poster.answers for poster in posters if poster.port == port)

        command = [sys.executable, "-m", "millstream", "service", "gateway", f"127.0.0.1:{port}"]
        command += ["--calls", f"{orders}={tmp_path / 'shop.py'}:Orders", "--sync", sync]
        return Killed(command, dict(os.environ), answers, random.Random(SEED))

    killed = gateway(ports[0])
    other = gateway(ports[1])
    beside = other.start()
    # Two clients of each gateway; the keys of the first and the last are the same.
    keys = [range(0, 1 << 62, 2), range(1, 1 << 62, 2), range(1 << 40, 1 << 62, 2), range(0, 1 << 62, 2)]
    posters += [Repeater(ports[name // 2], name, keys[name]) for name in range(4)]
    killed.kill(KILLS)
    last = killed.start()
    killed.go_on(last)
    for poster in posters:
        poster.stop()
    for process in (last, beside):
        process.send_signal(signal.SIGTERM)
        _, told = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, told
    text = service_export(str(orders), 0, None)
    recorded = re.findall(r"^# record (\d+)\nat: .*\nplace:\s+(?:id: )?(\S+)$", text, re.MULTILINE)
    found = Counter(key for _, key in recorded)
    numbers = {key: {int(number)} for number, key in recorded}
    repeats = sum(poster.repeats for poster in posters)
    print(json.dumps({"keys": len(found), "repeats": repeats} | killed.figures()))
    assert repeats
    assert max(found.values()) == 1
    for poster in posters:
        assert poster.answered
        assert {key: numbers.get(key) for key in poster.answered} == poster.answered
