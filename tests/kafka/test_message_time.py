"""Event time from the times of messages, without a call of Python for each."""

import millstream as ms
import pytest
from broker import Broker
from clients import put

MINUTES = [(1_000_000, b"a"), (1_061_000, b"a"), (1_062_000, b"b"), (1_010_000, b"late"), (1_200_000, b"a")]


def test_windows_by_the_times_of_messages(broker: Broker) -> None:
    topic = broker.create("times")
    for time_ms, value in MINUTES:
        put(broker, topic, [value], timestamp=time_ms)
    flow = ms.Flow("times")
    out = ms.testing.collect()
    messages = flow.source("in", ms.kafka.read(broker.servers, topic, end="latest"))
    timed = messages.event_time(ms.kafka.message_time, lateness=5).key_by(lambda message: "all")
    counts = timed.window("minutes", ms.windows.tumbling(60)).count()
    counts.values().map(lambda minute: (minute.start, minute.value)).sink("out", out)
    report = ms.run(flow)
    assert list(out) == [(960.0, 1), (1020.0, 2), (1200.0, 1)]
    assert report.step("minutes")["late"] == 1


def test_the_times_are_those_of_a_function(broker: Broker) -> None:
    """The native step and a function of the user differ in nothing."""
    topic = broker.create("same-times")
    for time_ms, value in MINUTES:
        put(broker, topic, [value], timestamp=time_ms)

    def windows(time: object) -> list[object]:
        flow = ms.Flow("times")
        out = ms.testing.collect()
        messages = flow.source("in", ms.kafka.read(broker.servers, topic, end="latest"))
        timed = messages.event_time(time).key_by(lambda message: message.value)  # type: ignore[arg-type]
        counts = timed.window("minutes", ms.windows.tumbling(60)).count().items()
        counts.map(lambda pair: (pair[0], pair[1].start, pair[1].value)).sink("out", out)
        ms.run(flow)
        return list(out)

    assert windows(ms.kafka.message_time) == windows(lambda message: message.time)


def test_an_item_without_a_time_is_handled_by_the_policy() -> None:
    made = [ms.kafka.Message("a", time=1.5), ms.kafka.Message("b"), "text", ms.kafka.Message("c", time=2.0)]

    def values(on_error: str) -> list[bytes | None]:
        flow = ms.Flow("policy")
        out = ms.testing.collect()
        timed = flow.source("in", ms.testing.items(made)).event_time(
            ms.kafka.message_time,
            name="times",
            on_error=on_error,  # type: ignore[arg-type]
        )
        timed.map(lambda message: message.value).sink("out", out)
        report = ms.run(flow)
        assert report.step("times")["skipped"] == 2
        return list(out)

    assert values("skip") == [b"a", b"c"]
    with pytest.raises(ms.StepError, match="a message has no time"):
        values("fail")
    assert ms.kafka.message_time(made[0]) == 1.5  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="message_time is for messages, not for 'text'"):
        ms.kafka.message_time("text")  # type: ignore[arg-type]
