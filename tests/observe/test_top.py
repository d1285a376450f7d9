"""``millstream top``: the figures of a flow in a terminal."""

import fcntl
import os
import pty
import select
import shlex
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path

import servers
from observed import PATIENCE, SLOW, Observed, until

TOP = [sys.executable, "-m", "millstream", "top"]


def once(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([*TOP, *arguments], capture_output=True, text=True, timeout=PATIENCE)


def test_the_figures_once(tmp_path: Path) -> None:
    secret = tmp_path / "token"
    secret.write_text("abc123")
    with Observed(tmp_path, SLOW, "--http-token-file", str(secret)) as flow:
        token = ["--token-file", str(secret)]
        until("the bottleneck", lambda: "enrich limits the flow" in once(flow.url, "--once", *token).stdout)
        shown = once(f"{flow.host}:{flow.port}", "--once", *token).stdout.splitlines()
        assert shown[0].startswith("flow orders <b>: running for ")
        enrich = next(line for line in shown if line.startswith("enrich "))
        assert "limits the flow" in enrich
        refused = once(flow.url, "--once")
        assert refused.returncode == 1 and "401" in refused.stderr and refused.stderr.count("\n") == 1
        no_terminal = once(flow.url, *token)
        assert no_terminal.returncode == 0 and no_terminal.stdout.startswith("flow orders <b>: ")
        by_port = once(str(flow.port), "--once", *token)
        assert by_port.returncode == 0 and by_port.stdout.startswith("flow orders <b>: ")
        line = f"{shlex.join([*TOP, flow.url, '--once', *token])} | true; exit ${{PIPESTATUS[0]}}"
        closed = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=PATIENCE)
        assert (closed.returncode, closed.stderr) == (0, "")


def test_an_address_without_a_flow() -> None:
    done = once(f"127.0.0.1:{servers.free_port()}", "--once")
    assert done.returncode == 1 and done.stderr.count("\n") == 1, done.stderr


class Terminal:
    """``top`` in a terminal of 30 lines of 120 characters."""

    def __init__(self, *arguments: str) -> None:
        self.ours, self.theirs = pty.openpty()
        self.before = termios.tcgetattr(self.theirs)
        self.resize(30, 120)
        self.shown = b""
        self.process = subprocess.Popen(
            [*TOP, *arguments],
            stdin=self.theirs,
            stdout=self.theirs,
            stderr=self.theirs,
            env=os.environ | {"TERM": "xterm"},
            start_new_session=True,
        )

    def resize(self, lines: int, columns: int) -> None:
        fcntl.ioctl(self.theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def read_until(self, condition: Callable[[], object]) -> None:
        end = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < end, self.shown
            if select.select([self.ours], [], [], 0.1)[0]:
                self.shown += os.read(self.ours, 65536)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.ours)
        os.close(self.theirs)


def judge_end(top: Terminal, end: bytes | signal.Signals) -> None:
    """It shows the flow, also at another size, until a key or a signal, and the terminal is as before."""
    top.read_until(lambda: b"enrich limits the flow" in top.shown)
    assert top.process.poll() is None and termios.tcgetattr(top.theirs) != top.before
    # Another size, and a key without a meaning: it goes on.
    top.shown = b""
    top.resize(3, 20)
    top.process.send_signal(signal.SIGWINCH)
    os.write(top.ours, b"\x1b[A")
    top.read_until(lambda: top.shown.count(b"\x1b[H") >= 2)
    assert top.process.poll() is None
    if isinstance(end, bytes):
        os.write(top.ours, end)
    else:
        top.process.send_signal(end)
    top.read_until(lambda: top.process.poll() is not None)
    top.read_until(lambda: top.shown.endswith(b"\x1b[?25h\x1b[?1049l"))
    assert top.process.returncode == 0, end
    assert termios.tcgetattr(top.theirs) == top.before


def test_a_terminal_shows_the_flow_until_a_key_or_a_signal(tmp_path: Path) -> None:
    with Observed(tmp_path, SLOW) as flow:
        until("the flow", lambda: flow.snapshot()["steps"])
        for end in (b"q", b"\x03", b"\x1b", signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            top = Terminal(flow.url)
            try:
                judge_end(top, end)
            finally:
                top.close()
