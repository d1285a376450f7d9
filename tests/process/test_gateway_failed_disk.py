"""A gateway of services on a disk whose syncs fail: an answered call is on the disk, others are refused.

Syncs fail by a library that is loaded before Python, see `failing_sync.c`.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import httpx
from flow_traffic import PATIENCE
from millstream._millstream import service_export

INTERFACE = """
from typing import Protocol


class Orders(Protocol):
    def place(self, id: str) -> None: ...
"""


def started(folder: Path) -> tuple[subprocess.Popen[str], httpx.Client]:
    command = [sys.executable, "-m", "millstream", "service", "gateway", "127.0.0.1:0"]
    command += ["--calls", "orders=shop.py:Orders"]
    process = subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    line = process.stderr.readline()
    assert line.startswith("listening on "), line
    return process, httpx.Client(base_url=f"http://{line.split()[-1]}", timeout=PATIENCE)


def placed(client: httpx.Client, call: str) -> httpx.Response:
    return client.post("/Orders/place", json={"id": call})


def test_a_call_whose_sync_fails_is_not_acknowledged(failing: Path, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(INTERFACE)
    process, client = started(tmp_path)
    with client:
        assert placed(client, "a").status_code == 200
        failing.touch()
        answer = placed(client, "b")
        assert answer.status_code == 500 and answer.text.startswith("the call cannot be recorded: ")
    _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1 and "Input/output error" in errors, errors
    assert errors.count("\n") == 1
    failing.unlink()
    process, client = started(tmp_path)
    with client:
        assert placed(client, "c").status_code == 200
    process.terminate()
    assert process.wait(PATIENCE) == 0
    # The call "b" may be there: its client does not know.
    recorded = re.findall(r"^place: (\w+)$", service_export(str(tmp_path / "orders"), 0, None), re.MULTILINE)
    assert recorded in (["a", "c"], ["a", "b", "c"])
