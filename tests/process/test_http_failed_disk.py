"""An HTTP source on a disk that fails or is full: an acknowledged request is on the disk, others are refused.

Syncs fail by a library that is loaded before Python, see `failing_sync.c`.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from flow_traffic import PATIENCE, journal_items, journal_length
from small_disk import small_disk

FLOW = """
import os
import millstream as ms

flow = ms.Flow("posts")
source = ms.http.listen(f"127.0.0.1:{os.environ['PORT']}", body="bytes", max_body=2 << 20)
flow.source("in", source).map(lambda body: body[:20]).sink("out", ms.journals.append(os.environ["OUT"]))
"""


def wait_for(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


class Posts:
    """A flow that nothing commits before its end: what is acknowledged is in the journal of the requests."""

    def __init__(self, folder: Path, state: Path) -> None:
        (folder / "flow.py").write_text(FLOW)
        with socket.create_server(("127.0.0.1", 0)) as server:
            self.port = server.getsockname()[1]
        self.out = folder / "out"
        self.command = [sys.executable, "-m", "millstream", "run", str(folder / "flow.py")]
        self.command += ["--state", str(state), "--epoch", "3600s"]
        self.environment = os.environ | {"PORT": str(self.port), "OUT": str(self.out)}

    def start(self) -> subprocess.Popen[str]:
        process = subprocess.Popen(self.command, env=self.environment, stderr=subprocess.PIPE, text=True)
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), PATIENCE).close()
                return process
            except OSError:
                assert process.poll() is None, process.communicate()[1]
                assert time.monotonic() < deadline
                time.sleep(0.02)

    def post(self, body: bytes) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/", body, PATIENCE) as answer:
                return answer.status, ""
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def failed(self, process: subprocess.Popen[str]) -> str:
        """The error of a flow that has failed."""
        _, errors = process.communicate(timeout=PATIENCE)
        assert process.returncode == 1, errors
        return errors.partition("\nsee https:")[0].splitlines()[-1]

    def resume(self, more: bytes, complete: Callable[[list[bytes]], bool]) -> list[bytes]:
        """Starts the flow again, posts one more item, and returns all output."""
        process = self.start()
        deadline = time.monotonic() + PATIENCE
        # The flow has to process what was recorded first.
        while (answer := self.post(more))[0] == 429:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert answer == (200, "")
        while not complete(journal_items(self.out)):
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, errors
        return journal_items(self.out)


def test_a_request_whose_sync_fails_is_not_acknowledged(failing: Path, tmp_path: Path) -> None:
    posts = Posts(tmp_path, tmp_path / "state")
    process = posts.start()
    assert posts.post(b"a") == (200, "")
    # What becomes of the first item is over, so that the next sync is that of the second request.
    wait_for(lambda: journal_length(posts.out) == 1)
    failing.touch()
    status, line = posts.post(b"b")
    assert status == 500 and line.startswith("the request cannot be recorded: "), line
    # The syncs of the sink fail, too.
    assert "Input/output error" in posts.failed(process)
    failing.unlink()
    # The record of "b" may be there: its client does not know.
    items = posts.resume(b"c", lambda items: items[-1:] == [b"c"])
    assert items in ([b"a", b"c"], [b"a", b"b", b"c"])


def test_a_full_disk_refuses_and_loses_nothing(tmp_path: Path) -> None:
    with small_disk("tmpfs", 120, tmp_path / "small") as disk:
        posts = Posts(tmp_path, disk.path / "state")
        process = posts.start()
        acknowledged: list[bytes] = []
        while True:
            item = b"%d" % len(acknowledged)
            status, line = posts.post(item.ljust(1 << 20))
            if status != 200:
                break
            acknowledged.append(item.ljust(20))
            assert len(acknowledged) < 200
        assert status == 500 and "space" in line, line
        assert acknowledged
        assert "space" in posts.failed(process)
        subprocess.run(["mount", "-o", "remount,size=400m", str(disk.path)], check=True)
        last = b"last".ljust(20)
        items = posts.resume(last, lambda items: items[-1:] == [last])
        assert items == [*acknowledged, last]
