"""A local directory on a full disk: items wait, and are written once there is room."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from flow_traffic import PATIENCE
from object_places import Directory, items_of
from small_disk import small_disk

FLOW = """
import os
import millstream as ms

flow = ms.Flow("numbers")
numbers = flow.source("in", ms.generate(lambda: range(3000), batch_size=50)).map(lambda n: str(n).rjust(999))
retry = ms.Backoff(first=0.02, most=0.1)
numbers.sink("out", ms.objects.write(os.environ["TO"], "lines", batch=100, retry=retry))
"""


def test_a_full_disk(tmp_path: Path) -> None:
    flow = tmp_path / "flow.py"
    errors = tmp_path / "errors"
    flow.write_text(FLOW)
    command = [sys.executable, "-m", "millstream", "run", str(flow), "--state", str(tmp_path / "state")]
    with small_disk("tmpfs", 4, tmp_path / "small") as disk:
        filler = disk.path / "filler"
        filler.write_bytes(bytes(3 << 20))
        place = Directory(disk.path / "objects")
        with errors.open("wb") as output:
            environment = os.environ | {"TO": place.url}
            running = subprocess.Popen(command, env=environment, stderr=output)
        try:
            until = time.monotonic() + PATIENCE
            while "No space left on device" not in errors.read_text():
                assert running.poll() is None and time.monotonic() < until, errors.read_text()
                time.sleep(0.02)
            filler.unlink()
            assert running.wait(PATIENCE) == 0, errors.read_text()
        finally:
            running.kill()
            running.wait()
        assert list(map(int, items_of(place.contents()))) == list(range(3000))
    (warning,) = [line for line in errors.read_text().splitlines() if "No space left on device" in line]
    assert str(place.path) in warning
