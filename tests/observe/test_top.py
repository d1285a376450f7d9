"""``millstream top``: the figures of a flow in a terminal."""

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
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


def test_an_address_without_a_flow() -> None:
    done = once(f"127.0.0.1:{servers.free_port()}", "--once")
    assert done.returncode == 1 and done.stderr.count("\n") == 1, done.stderr


def test_a_terminal_shows_the_flow_until_q(tmp_path: Path) -> None:
    with Observed(tmp_path, SLOW) as flow:
        until("the flow", lambda: flow.snapshot()["steps"])
        ours, theirs = pty.openpty()
        os.set_blocking(ours, False)
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 120, 0, 0))
        size = os.environ | {"TERM": "xterm"}
        process = subprocess.Popen(
            [*TOP, flow.url], stdin=theirs, stdout=theirs, stderr=theirs, env=size, start_new_session=True
        )
        os.close(theirs)
        shown = b""
        end = time.monotonic() + PATIENCE
        try:
            while b"enrich limits the flow" not in shown:
                assert time.monotonic() < end and process.poll() is None, shown
                if select.select([ours], [], [], 1)[0]:
                    shown += os.read(ours, 65536)
            os.write(ours, b"q")
            while process.poll() is None:
                assert time.monotonic() < end, shown
                if select.select([ours], [], [], 0.1)[0]:
                    try:
                        shown += os.read(ours, 65536)
                    except OSError:
                        break  # the terminal is closed: the process has ended
            assert process.wait(PATIENCE) == 0
        finally:
            process.kill()
            process.wait()
            os.close(ours)
