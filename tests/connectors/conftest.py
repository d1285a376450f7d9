"""A test of each connector and state; see ``conformance.py``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conformance import Connector, Continues, Missing
from s3_server import S3Server, s3_server


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "connector" not in metafunc.fixturenames:
        return
    needs_wait = "waiting" in metafunc.fixturenames
    cases = []
    for made in metafunc.module.CONNECTORS:
        states = [
            (state, expected)
            for state, expected in made.states.items()
            # A flow that ends at once cannot be interrupted before it ends.
            if not isinstance(expected, Missing) and (isinstance(expected, Continues) or not needs_wait)
        ]
        # It recovers from each state; `make test` interrupts and kills it in one.
        often = "slow" if "slow" in made.states else states[-1][0] if states else ""
        for state, expected in states:
            marks = pytest.mark.soak if needs_wait and state != often else []
            cases.append(pytest.param(made, state, expected, id=f"{made.__name__}-{state}", marks=marks))
    names = ["connector", "state", "waiting" if needs_wait else "expected"]
    metafunc.parametrize(names, cases, indirect=["connector"])


@pytest.fixture
def connector(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Connector]:
    """The connector, whose flow and link are ended after the test."""

    def servers(name: str) -> Any:
        return request.getfixturevalue(name)

    made: Connector = request.param(tmp_path, servers)
    yield made
    if made.process is not None:
        made.kill()
    made.close()


@pytest.fixture(scope="session")
def own_s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """An S3 server of this process: its check of keys is switched while tests run."""
    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        yield server
