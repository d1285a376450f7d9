"""The examples in examples/objects: the archive is killed with -9 on its way, and the totals are right."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from ast import literal_eval
from collections import Counter
from pathlib import Path

from flow_traffic import PATIENCE
from object_places import InBucket, Place, items_of

EXAMPLES = Path(__file__).parents[2] / "examples" / "objects"


def environment(place: Place, folder: Path) -> dict[str, str]:
    mine = {"TO": place.url, "FROM": place.url, "ORDERS": str(folder / "orders.jsonl"), "ROWS": "500"}
    if isinstance(place, InBucket):
        mine |= {f"AWS_{name.upper()}": value for name, value in place.config.items()}
    return os.environ | mine | {"OUT": str(folder / "totals.txt")}


def test_an_archive_and_its_totals(place: Place, tmp_path: Path) -> None:
    orders = [{"id": n, "customer": f"c{n % 7}", "cents": n} for n in range(20_000)]
    (tmp_path / "orders.jsonl").write_text("".join(json.dumps(order) + "\n" for order in orders))

    def command(name: str) -> list[str]:
        command = [sys.executable, "-m", "millstream", "run", str(EXAMPLES / f"{name}.py")]
        return [*command, "--state", str(tmp_path / name), "--epoch", "20ms"]

    running = subprocess.Popen(command("archive"), env=environment(place, tmp_path))
    until = time.monotonic() + PATIENCE
    try:
        while running.poll() is None and not place.contents():
            assert time.monotonic() < until, "no object is written"
    finally:
        running.kill()
        running.wait()
    for name in ("archive", "totals", "totals"):
        done = subprocess.run(
            command(name), env=environment(place, tmp_path), capture_output=True, text=True, timeout=PATIENCE
        )
        assert done.returncode == 0, done.stderr
    assert items_of(place.contents()) == orders
    expected: Counter[str] = Counter()
    for order in orders:
        expected[f"c{order['id'] % 7}"] += order["id"]  # type: ignore[operator, call-overload]
    lines = (tmp_path / "totals.txt").read_text().splitlines()
    assert dict(map(literal_eval, lines)) == expected
