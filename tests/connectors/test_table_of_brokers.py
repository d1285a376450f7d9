"""The table in ``docs/guide/brokers.md`` says what the code and the tests of brokers do."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import millstream as ms
import pytest
import test_broker_ledger
import test_broker_states

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "brokers.md"
MADE: dict[str, Callable[..., Any]] = {
    "ms.nats.read": lambda **more: ms.nats.read("tls://localhost", "s", "c", **more),
    "ms.nats.write": lambda **more: ms.nats.write("tls://localhost", "s", **more),
    "ms.redis.read": lambda **more: ms.redis.read("rediss://localhost", "s", "g", **more),
    "ms.redis.write": lambda **more: ms.redis.write("rediss://localhost", "s", **more),
    "ms.rabbitmq.read": lambda **more: ms.rabbitmq.read("amqps://localhost", "q", **more),
    "ms.rabbitmq.write": lambda **more: ms.rabbitmq.write("amqps://localhost", "q", **more),
    "ms.mqtt.read": lambda **more: ms.mqtt.read("mqtts://localhost", "t", "s", **more),
    "ms.mqtt.write": lambda **more: ms.mqtt.write("mqtts://localhost", "t", **more),
    "ms.clickhouse.write": lambda **more: ms.clickhouse.write("https://localhost", "t", **more),
}


def rows() -> dict[str, list[str]]:
    """The cells after the name, by the name of the connector."""
    lines = [
        line.strip("|").split("|") for line in GUIDE.read_text().splitlines() if line.startswith("| `ms.")
    ]
    return {cells[0].strip(" `"): [cell.strip() for cell in cells[1:]] for cells in lines}


def test_each_connector_has_its_row() -> None:
    assert list(rows()) == list(MADE)
    assert sorted(MADE) == sorted(made.title for made in test_broker_states.CONNECTORS)


@pytest.mark.parametrize("made", test_broker_states.CONNECTORS)
def test_the_promise_is_what_is_counted(made: type[test_broker_states.OfBroker]) -> None:
    """By the tests under kills, and by those of a broker that goes away."""
    promise = rows()[made.title][0]
    _, name, verb = made.title.split(".")
    counted = test_broker_ledger.READ_ONCE if verb == "read" else test_broker_ledger.WRITTEN_ONCE
    assert promise.startswith("exactly once" if name in counted else "at least once")
    assert made.is_once == (name in counted)


@pytest.mark.parametrize("name", MADE)
def test_the_policies_are_those_that_it_takes(name: str) -> None:
    policy = rows()[name][1]
    function = getattr(getattr(ms, name.split(".")[1]), name.split(".")[2])
    if "on_error" not in inspect.signature(function).parameters:
        assert policy == "the step that decodes it"
        return
    for each in policy.split(", "):
        MADE[name](on_error=each)
    with pytest.raises(ms.FlowUsageError, match=" or ".join(f'"{each}"' for each in policy.split(", "))):
        MADE[name](on_error="ignore")


@pytest.mark.parametrize("name", MADE)
def test_the_login_is_what_it_takes(name: str) -> None:
    known = rows()[name][3].split(", ")
    if known[-1] == "certificates":
        known[-1:] = ["ca", "certificate", "key"]
    for part in (field.name for field in fields(ms.Login)):
        try:
            MADE[name](login=ms.Login(**{part: "no such file"}))
            takes = True
        except ms.FlowUsageError as error:
            takes = "cannot be read" in str(error) or "a key needs a certificate" in str(error)
            assert takes or f"and no {part}" in str(error)
        assert takes == (part in known), part
