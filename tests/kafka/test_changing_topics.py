"""Topics that change while a flow runs or is stopped, and their lag."""

import time
from pathlib import Path
from typing import Any

import millstream as ms
import pytest
from broker import Broker
from clients import put, until
from confluent_kafka.admin import NewPartitions

FAILURE = (ms.FlowError, OSError)
# The connector looks for changes at this interval, a minute by default.
OFTEN = {"topic.metadata.refresh.interval.ms": 1000}


def add_partitions(broker: Broker, topic: str, count: int) -> None:
    admin = broker.admin()
    admin.create_partitions([NewPartitions(topic, count)])[topic].result(timeout=30)
    until(lambda: len(admin.list_topics(topic, timeout=10).topics[topic].partitions) == count)


def reading(broker: Broker, topic: str, out: Path, durable: bool = False, **options: Any) -> ms.Flow:
    """A flow that appends the values of a topic to a file."""
    options = {"decode": str, "settings": OFTEN, **options}
    flow = ms.Flow("reading")
    source = ms.kafka.read(broker.servers, topic, **options)
    flow.source("in", source.durable() if durable else source).sink("out", ms.files.write(out))
    return flow


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


@pytest.mark.parametrize("state", [False, True], ids=["without state", "with state"])
@pytest.mark.parametrize("workers", [1, 3])
def test_a_partition_that_is_added_is_read(broker: Broker, tmp_path: Path, workers: int, state: bool) -> None:
    """From its oldest message; the next run, with another number of workers, has its position."""
    topic = broker.create(f"added-{workers}-{state}")
    out = tmp_path / "out"
    kept = tmp_path / "state" if state else None
    flow = reading(broker, topic, out)
    running = flow.start(workers=workers, state=kept, epoch=0.1)
    put(broker, topic, ["0:0"])
    until(lambda: lines(out) == ["0:0"])
    add_partitions(broker, topic, 4)
    for partition in range(4):
        put(broker, topic, [f"{partition}:{number}" for number in range(1, 5)], partition)
    expected = {"0:0"} | {f"{partition}:{number}" for partition in range(4) for number in range(1, 5)}
    until(lambda: len(lines(out)) == len(expected))
    assert set(lines(out)) == expected
    running.stop()
    if kept is None:
        return
    for partition in range(4):
        put(broker, topic, [f"{partition}:5"], partition)
    ms.run(reading(broker, topic, out, end="latest"), state=kept, workers=workers % 3 + 1)
    expected |= {f"{partition}:5" for partition in range(4)}
    assert sorted(lines(out)) == sorted(expected)


def test_a_partition_that_is_added_begins_with_its_oldest_message(broker: Broker, tmp_path: Path) -> None:
    topic = broker.create("added-latest")
    out = tmp_path / "out"
    running = reading(broker, topic, out, start="latest").start()
    until(lambda: running.report().lags)
    add_partitions(broker, topic, 2)
    # They are there before the flow finds the partition.
    put(broker, topic, ["a", "b"], 1)
    until(lambda: lines(out) == ["a", "b"])
    running.stop()


def test_event_time_has_the_partitions_that_are_added(broker: Broker) -> None:
    topic = broker.create("added-times")
    put(broker, topic, [b"a"], timestamp=1_000_000)
    flow = ms.Flow("times")
    out = ms.testing.collect()
    messages = flow.source("in", ms.kafka.read(broker.servers, topic, settings=OFTEN))
    timed = messages.event_time(ms.kafka.message_time, idle=0.1).key_by(lambda message: message.value)
    counts = timed.window("tens", ms.windows.tumbling(10)).count().items()
    counts.map(lambda pair: (pair[0], pair[1].start, pair[1].value)).sink("out", out)
    running = flow.start()
    add_partitions(broker, topic, 2)
    put(broker, topic, [b"b"], 1, timestamp=1_100_000)
    put(broker, topic, [b"c", b"c"], 1, timestamp=1_200_000)
    try:
        until(lambda: {(b"a", 1000.0, 1), (b"b", 1100.0, 1)} <= set(out))
    finally:
        running.stop()


def test_a_durable_source_reads_added_partitions_from_its_next_start_on(
    broker: Broker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    topic = broker.create("added-durable")
    out = tmp_path / "out"
    state = tmp_path / "state"
    running = reading(broker, topic, out, durable=True).start(state=state, epoch=0.1)
    put(broker, topic, ["a"])
    until(lambda: lines(out) == ["a"])
    add_partitions(broker, topic, 2)
    put(broker, topic, ["b"], 1)
    until(lambda: "has 2 partitions, and this run reads 1" in caplog.text)
    running.stop()
    ms.run(reading(broker, topic, out, durable=True, end="latest"), state=state)
    assert sorted(lines(out)) == ["a", "b"]


def create_anew(broker: Broker, topic: str) -> None:
    broker.delete(topic)

    def created() -> bool:
        try:
            broker.create(topic)
        except Exception:
            return False  # The deletion is not complete.
        return True

    until(created)


def test_a_topic_that_was_created_anew_with_more_messages_is_an_error(broker: Broker, tmp_path: Path) -> None:
    topic = broker.create("anew-more")
    out = tmp_path / "out"
    state = tmp_path / "state"
    put(broker, topic, ["a", "b"])
    ms.run(reading(broker, topic, out, end="latest"), state=state)
    create_anew(broker, topic)
    put(broker, topic, ["c", "d", "e", "f"])
    with pytest.raises(FAILURE, match=f'topic "{topic}" was created anew: its identity is .*drop_state='):
        ms.run(reading(broker, topic, out, end="latest"), state=state)
    assert lines(out) == ["a", "b"]
    ms.run(reading(broker, topic, out, end="latest"), state=state, drop_state=["in"])
    assert lines(out) == ["a", "b", "c", "d", "e", "f"]


def test_a_topic_that_is_created_anew_during_a_run_is_an_error(broker: Broker, tmp_path: Path) -> None:
    topic = broker.create("anew-running")
    out = tmp_path / "out"
    put(broker, topic, ["a"])
    running = reading(broker, topic, out).start(state=tmp_path / "state", epoch=0.1)
    until(lambda: lines(out) == ["a"])
    create_anew(broker, topic)
    put(broker, topic, ["b", "c"])
    # Which one it is depends on whether the client asks for the topic before it exists again.
    with pytest.raises(FAILURE, match=topic):
        running.wait()


def test_the_lag_of_a_flow_that_does_not_keep_up(broker: Broker) -> None:
    topic = broker.create("lag", partitions=2)
    put(broker, topic, range(1000))
    put(broker, topic, range(100), 1)
    flow = ms.Flow("slow")
    source = ms.kafka.read(broker.servers, topic, values=True, settings={"queued.min.messages": 1})
    slow = flow.source("in", source).map(lambda value: time.sleep(0.02))
    slow.sink("out", ms.testing.discard())
    running = flow.start()

    def lags() -> dict[str, Any]:
        report = running.report()
        return {lag["partition"]: lag for lag in report.lags} if report is not None else {}

    try:
        first = until(lambda: len(found := lags()) == 2 and found)
        assert {lag["source"] for lag in first.values()} == {"in"}
        assert 0 < first[f"{topic}/0"]["records"] <= 1000
        assert 0 < first[f"{topic}/1"]["records"] <= 100
        assert first[f"{topic}/0"]["bytes"] is None
        assert first[f"{topic}/0"]["seconds"] > 0
        until(lambda: lags()[f"{topic}/1"]["records"] < first[f"{topic}/1"]["records"])
        put(broker, topic, range(5000), 1)
        until(lambda: lags()[f"{topic}/1"]["records"] > 1000)
    finally:
        running.stop()


def test_the_lag_is_none_at_the_end(broker: Broker) -> None:
    topic = broker.create("no-lag")
    put(broker, topic, range(1000))
    flow = ms.Flow("fast")
    flow.source("in", ms.kafka.read(broker.servers, topic)).sink("out", ms.testing.discard())
    running = flow.start()
    none = {
        "source": "in",
        "partition": f"{topic}/0",
        "records": 0,
        "bytes": None,
        "seconds": 0.0,
        "withheld": 0,
    }
    try:
        until(lambda: running.report().lags == [none])
        assert "lag of in: 0 records, 0.0 s (1 partitions)" in str(running.report())
    finally:
        running.stop()
