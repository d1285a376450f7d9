"""Fixtures that every test may use: the program, a way to run it, a free port."""

import os
import signal
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent

# A job that a shell runs in the background ignores SIGINT, and so would the processes that tests start and
# interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def millstream_bin() -> Path:
    """Path of the release build of the Rust program, which is built when it is missing."""
    program = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release" / "millstream"
    if not program.exists():
        subprocess.run(["cargo", "build", "--release", "-p", "millstream-cli"], cwd=ROOT, check=True)
    return program


@pytest.fixture(scope="session")
def rust_examples(millstream_bin: Path) -> Path:
    """The folder of the compiled Rust examples."""
    build = ["cargo", "build", "--profile", "checked", "-p", "millstream", "--examples"]
    subprocess.run(build, cwd=ROOT, check=True)
    return millstream_bin.parent.parent / "checked" / "examples"


@pytest.fixture(scope="session")
def run(millstream_bin: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs the program to its end: `run("send", path, timeout=10).stdout`. The caller checks `returncode`."""

    def run(*args: object, timeout: float = 60, **options: Any) -> subprocess.CompletedProcess[str]:
        command = [str(millstream_bin), *map(str, args)]
        done: subprocess.CompletedProcess[str] = subprocess.run(
            command, capture_output=True, text=True, timeout=timeout, **options
        )
        return done

    return run


@pytest.fixture(scope="session")
def free_port() -> Callable[[], int]:
    """Gives, at each call, the number of a TCP port of 127.0.0.1 on which nothing listens."""

    def free_port() -> int:
        with socket.create_server(("127.0.0.1", 0)) as server:
            return int(server.getsockname()[1])

    return free_port
