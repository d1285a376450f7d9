"""``Flow.start`` on two processes that serve their state to followers."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from shapes import TIMEOUT
from supervised import wait_for

PROGRAM = """
import itertools
import sys

import millstream as ms

process, hosts, replica = int(sys.argv[1]), sys.argv[2].split(","), sys.argv[3]
flow = ms.Flow("started")
numbers = flow.source("in", ms.generate(lambda: itertools.count(), rate=1000))
numbers.key_by(lambda n: n % 64).count("each").sink("out", ms.testing.discard())
running = flow.start(
    state="state", epoch=0.05, cluster=ms.Cluster(process, hosts), replica=ms.Replica(replica)
)
sys.stdin.read()
running.stop()
running.wait()
"""


def is_zero(command: list[str], folder: Path) -> bool:
    return subprocess.run(command, cwd=folder, capture_output=True).returncode == 0


def test_a_flow_is_started_on_two_processes_and_followed(
    tmp_path: Path, free_port: Callable[[], int]
) -> None:
    (tmp_path / "started.py").write_text(PROGRAM)
    hosts = ",".join(f"127.0.0.1:{free_port()}" for _ in range(2))
    replicas = [f"127.0.0.1:{free_port()}" for _ in range(2)]
    programs = [
        subprocess.Popen(
            [sys.executable, "started.py", str(process), hosts, replica], cwd=tmp_path, stdin=subprocess.PIPE
        )
        for process, replica in enumerate(replicas)
    ]
    verb = [sys.executable, "-m", "millstream", "state"]
    followers = [
        subprocess.Popen([*verb, "follow", replica, f"copy/p{process}", "--retry-max", "100ms"], cwd=tmp_path)
        for process, replica in enumerate(replicas)
    ]
    try:
        for process in range(2):
            keys = [*verb, "keys", f"copy/p{process}", "count"]
            wait_for(lambda keys=keys: is_zero(keys, tmp_path), f"a copy of process {process}")
    finally:
        for program in programs:
            program.communicate(timeout=TIMEOUT)
        for follower in followers:
            follower.terminate()
            follower.wait(TIMEOUT)
    assert [program.returncode for program in programs] == [0, 0]
    keys = subprocess.run([*verb, "keys", "state", "count"], cwd=tmp_path, capture_output=True, text=True)
    assert sorted(map(int, keys.stdout.split())) == list(range(64))
