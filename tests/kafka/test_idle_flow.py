"""A flow that waits for messages sleeps: its threads are woken a few times a second."""

import re
import time
from pathlib import Path

import millstream as ms
from broker import Broker

SECONDS = 4
# Without traffic librdkafka asks the broker ten times a second (`fetch.wait.max.ms`), which wakes several of
# its threads, and the worker looks once a second. A thread that polls is woken thousands of times.
WAKE_UPS = 300


def threads() -> set[str]:
    return {path.name for path in Path("/proc/self/task").iterdir()}


def wake_ups(of: set[str]) -> int:
    """How often threads have slept and were woken."""
    counts = 0
    for thread in of:
        status = Path(f"/proc/self/task/{thread}/status").read_text()
        found = re.search(r"^voluntary_ctxt_switches:\s*(\d+)$", status, re.MULTILINE)
        assert found is not None, status
        counts += int(found[1])
    return counts


def test_an_idle_flow_sleeps(broker: Broker) -> None:
    topic = broker.create("idle", partitions=4)
    before = threads()
    flow = ms.Flow("idle")
    flow.source("in", ms.kafka.read(broker.servers, topic)).sink("out", ms.testing.discard())
    running = flow.start()
    try:
        time.sleep(2)
        own = threads() - before
        began = wake_ups(own)
        time.sleep(SECONDS)
        woken = (wake_ups(own) - began) / SECONDS
        print(f"{len(own)} threads, {woken:.0f} wake-ups a second")
        assert len(own) >= 2
        assert woken < WAKE_UPS
    finally:
        running.stop()
