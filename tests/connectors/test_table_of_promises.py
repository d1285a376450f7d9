"""The table "What each promises" in ``connectors-compared.md`` says what the code and the tests do."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import millstream as ms
import pytest
import test_broker_ledger
import test_broker_states

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "guide" / "connectors-compared.md"
# With parts of a login that each of these functions has.
OTHERS: dict[str, Callable[[], Any]] = {
    "ms.kafka.read": lambda: ms.kafka.read("localhost:1", "t"),
    "ms.kafka.write": lambda: ms.kafka.write("localhost:1", "t"),
    "ms.postgres.changes": lambda: ms.postgres.changes("host=localhost", "s", tables="t"),
    "ms.postgres.write": lambda: ms.postgres.write("host=localhost", "t"),
    "ms.sqlite.write": lambda: ms.sqlite.write("shop.db", "t"),
    "ms.objects.read": lambda: ms.objects.read("s3://bucket/t", "lines"),
    "ms.objects.write": lambda: ms.objects.write("s3://bucket/t", "lines"),
    "ms.objects.iceberg": lambda: ms.objects.iceberg("shop.t"),
    "ms.http.listen": lambda: ms.http.listen("127.0.0.1:0"),
    "ms.http.post": lambda: ms.http.post("http://localhost:1/"),
}
# The tests under kills that count what the table promises.
COUNTED = {
    "ms.kafka": "tests/kafka/test_kafka_kills.py",
    "ms.postgres.changes": "tests/postgres/test_changes_kills.py",
    "ms.postgres.write": "tests/postgres/test_write_kills.py",
    "ms.sqlite": "tests/process/test_sqlite_kills.py",
    "ms.objects.iceberg": "tests/objects/test_iceberg.py",
    "ms.objects.read": "tests/objects/test_object_kills.py",
    "ms.objects.write": "tests/objects/test_object_kills.py",
    "ms.http.listen": "tests/process/test_http_kills.py",
    "ms.http.post": "tests/process/test_http_post_kills.py",
}
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


def section() -> str:
    return GUIDE.read_text().partition("## What each promises\n")[2].partition("\n## ")[0]


def rows() -> dict[str, list[str]]:
    """The cells after the name, by the name of the connector: promise, login."""
    lines = [line.strip("|").split("|") for line in section().splitlines() if line.startswith("| `ms.")]
    return {cells[0].strip(" `"): [cell.strip() for cell in cells[1:]] for cells in lines}


def decoded_by_steps() -> list[str]:
    """The sources whose items a step decodes."""
    (names,) = re.findall("of messages of (.+?) by that of the step", " ".join(section().split()))
    return re.findall("`(.+?)`", names)


def test_each_connector_has_its_row() -> None:
    assert list(rows()) == [*OTHERS, *MADE]
    assert sorted(MADE) == sorted(made.title for made in test_broker_states.CONNECTORS)


@pytest.mark.parametrize("name", OTHERS)
def test_the_promise_is_counted_under_kills(name: str) -> None:
    assert rows()[name][0].startswith("exactly once")
    (file,) = [ROOT / file for begin, file in COUNTED.items() if name.startswith(begin)]
    assert re.search(r"^def test_.*(kill|once|count|lost)", file.read_text(), re.MULTILINE)


@pytest.mark.parametrize("made", test_broker_states.CONNECTORS)
def test_the_promise_is_what_is_counted(made: type[test_broker_states.OfBroker]) -> None:
    """By the tests under kills, and by those of a broker that goes away."""
    promise = rows()[made.title][0]
    _, name, verb = made.title.split(".")
    counted = test_broker_ledger.READ_ONCE if verb == "read" else test_broker_ledger.WRITTEN_ONCE
    assert promise.startswith("exactly once" if name in counted else "at least once")
    assert made.is_once == (name in counted)


POLICIES = ("fail", "skip", ms.dead_letter([]))


@pytest.mark.parametrize("name", [*OTHERS, *MADE])
def test_the_policy_is_that_of_the_step_the_source_or_the_sink(name: str) -> None:
    made: Any = (OTHERS | MADE)[name]
    if name in decoded_by_steps():
        source = ms.Flow("step").source("in", made())
        source.map(str, on_error="skip").sink("out", ms.testing.discard())
        return

    def described(on_error: Any) -> None:
        flow = ms.Flow("policies")
        if name.endswith((".read", ".changes", ".listen")):
            flow.source("in", made(), on_error=on_error)
        else:
            flow.source("in", ms.testing.items([1])).sink("out", made(), on_error=on_error)

    for each in POLICIES:
        described(each)
    with pytest.raises(ms.FlowUsageError, match='on_error is "fail", "skip" or dead_letter'):
        described("ignore")


@pytest.mark.parametrize("name", OTHERS)
def test_the_login_is_an_option(name: str) -> None:
    function = getattr(getattr(ms, name.split(".")[1]), name.split(".")[2])
    for option in re.findall("`(.+?)`", rows()[name][1]):
        assert option in inspect.signature(function).parameters


@pytest.mark.parametrize("name", MADE)
def test_the_login_is_what_it_takes(name: str) -> None:
    known = rows()[name][1].split(", ")
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
