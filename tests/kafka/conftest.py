"""Brokers for tests that kill them; `broker`, that of the session, is in `tests/conftest.py`."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from broker import VERSIONS, Broker


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[Callable[..., Broker]]:
    """Starts a broker for one test, of the newest version or of another, with settings of its own."""
    started: list[Broker] = []

    def start(version: str = VERSIONS[-1], **settings: str) -> Broker:
        started.append(Broker(tmp_path / f"broker-{len(started)}", version, **settings).start())
        return started[-1]

    yield start
    for each in started:
        each.kill()
