"""Servers of queues and journals with a page, as processes that tests start, read and kill."""

from __future__ import annotations

import http.client
import json
import queue
import re
import signal
import subprocess
import threading
from pathlib import Path
from typing import Any
from urllib.parse import quote

from observed import PATIENCE


class StoreServer:
    """A process of the program with ``--http``."""

    def __init__(self, program: Path, *arguments: str, address: str = "127.0.0.1:0") -> None:
        self.command = [str(program), *arguments, "--http", address]
        self.process = subprocess.Popen(
            self.command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        self.lines: list[str] = []
        said: queue.Queue[str | None] = queue.Queue()
        self.reader = threading.Thread(target=self._read, args=[said], daemon=True)
        self.reader.start()
        self.host, self.port = self._address(said, r"page: http://([\d.]+):(\d+)/")
        self.url = f"http://{self.host}:{self.port}"
        self.serves: tuple[str, int] | None = None
        if "serve" in arguments:
            self.serves = self._address(said, r"listening on ([\d.]+):(\d+)")

    def _address(self, said: queue.Queue[str | None], pattern: str) -> tuple[str, int]:
        while True:
            line = said.get(timeout=PATIENCE)
            assert line is not None, "".join(self.lines)
            if found := re.search(pattern, line):
                return found[1], int(found[2])

    def _read(self, said: queue.Queue[str | None]) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line)
            said.put(line)
        said.put(None)

    def get(self, path: str, **headers: str) -> tuple[int, str]:
        client = http.client.HTTPConnection(self.host, self.port, timeout=PATIENCE)
        try:
            client.request("GET", path, headers=headers)
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

    def metrics(self) -> dict[str, float]:
        """The values of /metrics by name and labels."""
        lines = self.get("/metrics")[1].splitlines()
        pairs = [line.rsplit(" ", 1) for line in lines if not line.startswith("#")]
        return {name: float(value) for name, value in pairs}

    def detail(self, what: str, name: str) -> Any:
        return self.json(f"/api/{what}.json?name={quote(name)}")

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(PATIENCE) == 0, "".join(self.lines)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def __enter__(self) -> StoreServer:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.kill()
