"""Fixtures: queue servers, and a disk whose syncs fail."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from queue_server import Serve, serving


@pytest.fixture
def serve(millstream_bin: Path, tmp_path: Path) -> Iterator[Serve]:
    """Starts `millstream queue serve`: `serve("--sync=never", config="[limits]...").connect()`."""
    yield from serving(millstream_bin, tmp_path)


@pytest.fixture
def failing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """While the file of this path exists, each sync of a process started by the test fails."""
    source = Path(__file__).with_name("failing_sync.c")
    library = tmp_path / "failing_sync.so"
    options = ["-shared", "-fPIC", "-Wall", "-Werror", "-pthread"]
    subprocess.run(["cc", *options, "-o", library, source], check=True)
    switch = tmp_path / "fail"
    monkeypatch.setenv("LD_PRELOAD", str(library))
    monkeypatch.setenv("FAIL_SYNC_WHILE", str(switch))
    return switch
