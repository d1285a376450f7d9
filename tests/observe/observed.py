"""Flows that show themselves on a page, as processes that tests start, read and kill."""

from __future__ import annotations

import http.client
import json
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

PATIENCE = 60.0
"""Seconds after which what a test waits for has failed."""

HEALTHY = """
import itertools
import millstream as ms

flow = ms.Flow("healthy")
(flow.source("numbers", ms.generate(itertools.count, rate=500, batch_size=50))
     .map(lambda n: n + 1, name="one more")
     .key_by(lambda n: n % 7)
     .count()
     .items()
     .sink("out", ms.testing.discard()))
"""

SLOW = """
import itertools
import time
import millstream as ms

def wait(n):
    time.sleep(0.001)
    return n

flow = ms.Flow("orders <b>")
orders = flow.source("orders", ms.generate(itertools.count, batch_size=16))
parsed = orders.map(lambda n: n + 1, name="<script>1</script>")
(parsed.map(wait, name="enrich")
     .key_by(lambda n: n % 7, name="by customer")
     .filter(lambda n: n % 2 == 0, name="large ones")
     .values()
     .sink("out", ms.testing.discard()))
"""


def until(what: str, check: Callable[[], Any]) -> Any:
    """Waits for a true result and returns it."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if found := check():
            return found
        time.sleep(0.05)
    raise AssertionError(f"{what}: not within {PATIENCE} s")


class Observed:
    """A flow that runs with a page, as a process."""

    def __init__(self, folder: Path, program: str, *options: str, address: str = "127.0.0.1:0") -> None:
        file = folder / "observed_flow.py"
        file.write_text(program)
        command = [
            sys.executable,
            "-m",
            "millstream",
            "run",
            str(file),
            "--http",
            address,
            "--metrics",
            *options,
        ]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.lines: list[str] = []
        said: queue.Queue[str | None] = queue.Queue()
        self.reader = threading.Thread(target=self._read, args=[said], daemon=True)
        self.reader.start()
        while True:
            line = said.get(timeout=PATIENCE)
            assert line is not None, "".join(self.lines)
            if found := re.search(r"page: http://([\d.]+):(\d+)/", line):
                self.host, self.port = found[1], int(found[2])
                break
        self.url = f"http://{self.host}:{self.port}"

    def _read(self, said: queue.Queue[str | None]) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line)
            said.put(line)
        said.put(None)

    def get(self, path: str, method: str = "GET", **headers: str) -> tuple[int, str]:
        client = http.client.HTTPConnection(self.host, self.port, timeout=PATIENCE)
        try:
            client.request(
                method, path, headers={name.replace("_", "-"): value for name, value in headers.items()}
            )
            answer = client.getresponse()
            return answer.status, answer.read().decode()
        finally:
            client.close()

    def json(self, path: str) -> Any:
        status, body = self.get(path)
        assert status == 200, body
        return json.loads(body)

    def snapshot(self) -> Any:
        return self.json("/api/snapshot.json")

    def history(self, of: str, name: str) -> Any:
        return self.json(f"/api/history.json?of={of}&name={quote(name)}")

    def step(self, name: str) -> Any:
        """The figures of a step, as soon as the page shows the flow."""
        steps = until("the steps", lambda: self.snapshot()["steps"])
        return next(step for step in steps if step["name"] == name)

    def wait_running(self) -> None:
        until("the flow runs", lambda: self.get("/readyz")[0] == 200)

    def stop(self) -> str:
        """Ends the flow in an orderly way and returns its standard error."""
        self.process.send_signal(signal.SIGINT)
        return self.ended()

    def ended(self) -> str:
        assert self.process.wait(PATIENCE) == 0, "".join(self.lines)
        self.reader.join(PATIENCE)
        return "".join(self.lines)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def __enter__(self) -> Observed:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.kill()
