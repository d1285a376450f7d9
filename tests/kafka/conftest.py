"""One broker for the tests of a session, and brokers of their own for tests that kill them."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from broker import VERSIONS, Broker


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A running broker of the newest version, which no test may stop."""
    started = Broker(tmp_path_factory.mktemp("kafka")).start()
    yield started
    started.kill()


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
