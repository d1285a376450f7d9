"""A fixture that starts queue servers."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from queue_server import Serve, serving


@pytest.fixture
def serve(millstream_bin: Path, tmp_path: Path) -> Iterator[Serve]:
    """Starts `millstream queue serve`: `serve("--sync=never", config="[limits]...").connect()`."""
    yield from serving(millstream_bin, tmp_path)
