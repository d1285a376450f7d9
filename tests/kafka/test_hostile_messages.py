"""Messages that a decoder or a broker does not take go to the policy, and hold up no other."""

import logging
from pathlib import Path
from typing import Any

import millstream as ms
import pytest
from broker import Broker
from clients import Judge, put
from raw import produce

HEADERS: list[tuple[bytes, "bytes | None"]] = [(b"a", b"1"), (b"\xff\xfe", b"lost"), (b"c", None)]
READABLE = [("a", b"1"), ("c", None)]


def read(broker: Broker, topic: str, on_error: Any, state: Path | None = None, **options: Any) -> list[Any]:
    flow = ms.Flow("hostile")
    out = ms.testing.collect()
    source = ms.kafka.read(broker.servers, topic, end="latest", **options)
    flow.source("in", source, on_error=on_error).sink("out", out)
    ms.run(flow, state=state)
    return list(out)


def hostile_headers(broker: Broker, topic: str) -> str:
    topic = broker.create(topic)
    put(broker, topic, [b"before"])
    produce(broker, topic, b"value", key=b"key", headers=HEADERS)
    put(broker, topic, [b"after"])
    return topic


def test_the_name_of_a_header_that_is_no_text_is_handled_by_the_policy(broker: Broker, capfd: Any) -> None:
    topic = hostile_headers(broker, "header-names")
    place = f'topic "{topic}", partition 0, offset 1: the name of a header is not UTF-8'
    with pytest.raises(ms.StepError, match=place):
        read(broker, topic, "fail")
    assert [message.value for message in read(broker, topic, "skip")] == [b"before", b"after"]
    letters = ms.testing.collect()
    read(broker, topic, ms.dead_letter(letters))
    (letter,) = letters
    assert letter.position == f'topic "{topic}", partition 0, offset 1'
    message = letter.item
    assert (message.topic, message.partition, message.offset) == (topic, 0, 1)
    assert (message.key, message.value, message.time) == (b"key", b"value", 1_700_000_000.0)
    assert message.headers == READABLE
    assert "panicked" not in capfd.readouterr().err


def test_what_needs_no_headers_reads_such_a_message(broker: Broker) -> None:
    topic = hostile_headers(broker, "header-names-unread")
    assert read(broker, topic, "fail", values=True) == [b"before", b"value", b"after"]
    assert read(broker, topic, "fail", decode=str) == ["before", "value", "after"]


def test_the_dead_letter_of_a_decoder_is_the_message_that_was_read(broker: Broker, tmp_path: Path) -> None:
    topic = broker.create("undecoded", partitions=3)
    dead = broker.create("undecoded-dead")
    for number in range(30):
        put(broker, topic, [number], partition=number % 3)
    raw = {"key": b"k\xff", "timestamp": 1_700_000_000_123, "headers": [("h", b"\0"), ("h", None)]}
    put(broker, topic, [b"one\xff"], partition=2, **raw)
    letters = ms.testing.collect()
    assert len(read(broker, topic, ms.dead_letter(letters), tmp_path / "a", decode=int)) == 30
    (letter,) = letters
    assert letter.position == f'topic "{topic}", partition 2, offset 10'
    message = letter.item
    assert (message.key, message.value, message.offset) == (b"k\xff", b"one\xff", 10)
    with pytest.raises(ms.StepError, match=f'topic "{topic}", partition 2, offset 10: Message'):
        read(broker, topic, "fail", decode=int)
    # To a topic of dead letters it goes as it came.
    to = ms.kafka.write(broker.servers, dead, encode=lambda letter: letter.item)
    read(broker, topic, ms.dead_letter(to), tmp_path / "b", decode=int)
    judge = Judge(broker, dead)
    # The broker marks a transaction as committed a moment after it has accepted the commit.
    judge.wait_for(1)
    (copy,) = judge.read()
    assert (copy.key(), copy.value(), copy.timestamp()[1]) == (b"k\xff", b"one\xff", 1_700_000_000_123)
    assert copy.headers() == raw["headers"]


WAYS = ["exactly once", "at least once", "no state"]


def write(
    broker: Broker, topic: str, items: list[Any], way: str, folder: Path, on_error: Any = "fail"
) -> ms.Report:
    flow = ms.Flow("write")
    sink = ms.kafka.write(broker.servers, topic, exactly_once=way != "at least once")
    flow.source("in", ms.testing.items(items)).sink("out", sink, on_error=on_error)
    return ms.run(flow, state=None if way == "no state" else folder / "state")


@pytest.mark.parametrize("way", WAYS)
def test_a_message_that_the_broker_refuses_holds_up_only_itself(
    broker: Broker, tmp_path: Path, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    topic = broker.create(f"refused-{way.replace(' ', '-')}", max_message_bytes="2000")
    items = [ms.kafka.Message(b"%d" % n, key=b"k%d" % n) for n in range(200)]
    items[77] = ms.kafka.Message(b"x" * 3000, key=b"culprit")
    with caplog.at_level(logging.WARNING):
        write(broker, topic, items, way, tmp_path, "skip")
    values = sorted(int(value) for value in Judge(broker, topic).wait_for(199))
    assert values == [n for n in range(200) if n != 77]
    assert "culprit" in caplog.text
    # What was skipped is not tried again.
    write(broker, topic, items, way, tmp_path, "skip")
    if way == "exactly once":
        assert len(Judge(broker, topic).values()) == 199


@pytest.mark.parametrize("way", WAYS)
def test_a_message_that_the_broker_refuses_is_a_dead_letter(broker: Broker, tmp_path: Path, way: str) -> None:
    topic = broker.create(f"letters-{way.replace(' ', '-')}", max_message_bytes="2000")
    items = [ms.kafka.Message(b"%d" % n, key=b"k%d" % n) for n in range(50)]
    items[31] = ms.kafka.Message(b"x" * 3000, key=b"culprit", headers=[("a", b"\xff")])
    letters: list[ms.DeadLetter] = []
    write(broker, topic, items, way, tmp_path, ms.dead_letter(letters))
    [letter] = letters
    found = letter.item
    assert (found.key, found.value, found.headers) == (b"culprit", b"x" * 3000, [("a", b"\xff")])
    assert isinstance(letter.error, ms.Refused) and "culprit" in str(letter.error)
    assert letter.position == (None if way == "at least once" else "record 31")
    values = sorted(int(value) for value in Judge(broker, topic).wait_for(49))
    assert values == [n for n in range(50) if n != 31]


@pytest.mark.parametrize("way", WAYS)
def test_the_error_of_a_refused_message_names_it(broker: Broker, tmp_path: Path, way: str) -> None:
    topic = broker.create(f"named-{way.replace(' ', '-')}", max_message_bytes="2000")
    items = [ms.kafka.Message(b"%d" % n, key=b"k%d" % n) for n in range(50)]
    items[31] = ms.kafka.Message(b"x" * 3000, key=b"culprit")
    with pytest.raises(ms.FlowError, match="culprit") as failure:
        write(broker, topic, items, way, tmp_path)
    if way != "at least once":
        assert "record 31" in str(failure.value)


@pytest.mark.parametrize("way", WAYS)
def test_an_item_that_is_no_message_is_left_to_the_policy(broker: Broker, tmp_path: Path, way: str) -> None:
    topic = broker.create(f"no-message-{way.replace(' ', '-')}")
    letters = ms.testing.collect()
    items = ["a", 5, "\ud800", b"x" * 2_000_000, None, b"b"]
    write(broker, topic, items, way, tmp_path, ms.dead_letter(letters))
    assert sorted(Judge(broker, topic).values(), key=str) == [None, b"a", b"b"]
    assert [letter.item for letter in letters] == [5, "\ud800", b"x" * 2_000_000]
    assert {letter.step for letter in letters} == {"out"}
