"""The table in ``docs/guide/connectors-compared.md`` says what the tests of connectors expect."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import test_adapter_states
import test_broker_states
import test_http_states
import test_kafka_states
import test_object_states
import test_postgres_states
import test_sink_states
import test_socket_states
from conformance import STATES, Connector, Continues, Ends, Expected, Finishes, Missing

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "connectors-compared.md"
MODULES = (
    test_adapter_states,
    test_broker_states,
    test_http_states,
    test_kafka_states,
    test_object_states,
    test_postgres_states,
    test_sink_states,
    test_socket_states,
)
CONNECTORS: list[type[Connector]] = [made for module in MODULES for made in module.CONNECTORS]


def word(expected: Expected) -> str:
    """The word of the table."""
    if isinstance(expected, Continues):
        return "retries" if expected.parts else "waits"
    return {Ends: "fails", Finishes: "ends", Missing: "—"}[type(expected)]


def rows() -> dict[str, list[str]]:
    """The cells after the names, by the name of each connector."""
    text = GUIDE.read_text().partition("## Servers that do not serve\n")[2]
    lines = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("| `")]
    return {
        name: [cell.strip() for cell in cells[1:]]
        for cells in lines
        for name in re.findall("`(.+?)`", cells[0])
    }


@pytest.mark.parametrize("made", CONNECTORS)
def test_each_connector_has_its_row(made: type[Connector]) -> None:
    assert list(made.states) == list(STATES)
    assert rows()[made.title] == [word(made.states[state]) for state in STATES]


def test_each_row_has_a_connector() -> None:
    assert sorted(rows()) == sorted(made.title for made in CONNECTORS)


def test_what_is_missing_has_a_reason() -> None:
    for made in CONNECTORS:
        for expected in made.states.values():
            assert not isinstance(expected, Missing) or expected.parts[0], made
