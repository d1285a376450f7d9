"""Keys that come and go, in Python: memory is that of the keys that are there.

Each flow runs in a process of its own, through waves of other keys, each of which ends before the next
begins. `MILLSTREAM_KEYS` and `MILLSTREAM_WAVES` are the keys of a wave and the number of waves.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from soak import variations

KEYS = int(os.environ.get("MILLSTREAM_KEYS", "300_000"))
WAVES = int(os.environ.get("MILLSTREAM_WAVES", "3"))

SOAK = """
import json
import sys
import millstream as ms

step, keys, waves = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])


class Brief:
    # Forgets itself when its timer fires.
    def on_item(self, key, n, ctx):
        self.last = n
        ctx.set_timer(ctx.time + 0.25)

    def on_timer(self, key, at, ctx):
        ctx.discard()


class Silent:
    def on_item(self, key, n):
        self.last = n


STEPS = {
    "timers": lambda keyed: keyed.stateful("brief", Brief),
    "time to live": lambda keyed: keyed.stateful("silent", Silent, ttl=0.25),
    "windows": lambda keyed: keyed.window("counts", ms.windows.tumbling(1)).count(),
    "windows of Python's own": lambda keyed: keyed.window("folds", ms.windows.tumbling(1)).fold(
        list, lambda seen, n: [*seen, n]
    ),
}

resident = []


def look(numbers):
    if numbers[-1] // keys > len(resident):
        with open("/proc/self/statm") as pages:
            resident.append(int(pages.read().split()[1]) * 4096)
    return numbers


flow = ms.Flow("waves")
numbers = flow.source("numbers", ms.generate(lambda: range(keys * waves + 1), batch_size=1000))
timed = numbers.map_batch(look).event_time(lambda n: n // keys + n % keys / keys / 10)
out = STEPS[step](timed.key_by(lambda n: n)).items().filter(lambda pair: False)
out.sink("out", ms.testing.collect())
ms.run(flow)
print(json.dumps(resident))
"""


STEPS = ["timers", "time to live", "windows", "windows of Python's own"]


@pytest.mark.parametrize("step", variations(STEPS, lambda step: step in ("timers", "windows")))
def test_memory_returns_when_keys_go(step: str) -> None:
    command = [sys.executable, "-c", SOAK, step, str(KEYS), str(WAVES)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    resident = json.loads(done.stdout)
    print(json.dumps({"promise": 12, "step": step, "keys": KEYS, "resident_bytes": resident}))
    assert len(resident) == WAVES
    # Keys of two waves at once would be about twice the first.
    assert resident[-1] < 1.5 * resident[0], resident
