"""The example in examples/kafka, killed with -9 on its way."""

import json
import os
import signal
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

from broker import Broker
from clients import Judge, put, until

EXAMPLE = Path(__file__).parents[2] / "examples" / "kafka" / "totals.py"


def test_totals_by_customer(broker: Broker, tmp_path: Path) -> None:
    orders = broker.create("example-orders", partitions=2)
    totals = broker.create("example-totals")
    command = [sys.executable, "-m", "millstream", "run", str(EXAMPLE)]
    command += ["--state", str(tmp_path / "state"), "--epoch", "100ms"]
    environment = os.environ | {"SERVERS": broker.servers, "ORDERS": orders, "TOTALS": totals}
    expected: dict[str, list[int]] = defaultdict(list)

    def order(customer: str, cents: int) -> None:
        # The orders of a customer are in one partition, so that their order is known.
        put(broker, orders, [json.dumps({"cents": cents})], int(customer[-1]) % 2, key=customer)
        sums = expected[customer]
        sums.append((sums[-1] if sums else 0) + cents)

    def found() -> dict[str, list[int]]:
        sums: dict[str, list[int]] = defaultdict(list)
        for message in judge.read():
            sums[message.key().decode()].append(json.loads(message.value())["cents"])
        return sums

    judge = Judge(broker, totals)
    for kill in range(3):
        running = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
        for number in range(40):
            order(f"customer {number % 5}", 100 * kill + number)
        if kill == 1:
            running.kill()
            running.communicate()
            continue
        until(lambda: found() == expected)
        running.send_signal(signal.SIGINT)
        _, errors = running.communicate(timeout=60)
        assert running.returncode == 0, errors
