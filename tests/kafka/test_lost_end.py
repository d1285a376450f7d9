"""Partitions that lose their end and grow again, and positions that must not be lost."""

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import millstream as ms
import pytest
from broker import Broker
from clients import put, transaction, until

FAILURE = (ms.FlowError, OSError)


def reading(broker: Broker, topic: str, out: Path, **options: Any) -> ms.Flow:
    """A flow that appends the values of a topic to a file."""
    flow = ms.Flow("reading")
    source = ms.kafka.read(broker.servers, topic, decode=str, **options)
    flow.source("in", source).sink("out", ms.files.write(out))
    return flow


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def numbers(*parts: range) -> list[str]:
    return [str(number) for part in parts for number in part]


def test_a_log_that_lost_its_end_and_grew_again(own_broker: Callable[..., Broker], tmp_path: Path) -> None:
    """The position is before the end of the log, and the messages before it are others."""
    broker = own_broker()
    topic = broker.create("lost-end")
    out = tmp_path / "out"
    state = tmp_path / "state"
    put(broker, topic, range(30))
    kept = broker.log_of(topic).stat().st_size
    put(broker, topic, range(30, 50))
    ms.run(reading(broker, topic, out, end="latest"), state=state)
    broker.kill()
    broker.lose_end(topic, kept)
    broker.start()
    put(broker, topic, range(100, 140))
    with pytest.raises(FAILURE) as failed:
        ms.run(reading(broker, topic, out, end="latest"), state=state)
    said = str(failed.value)
    for part in (topic, "partition 0", "offset 50", "leader epoch 0", "from offset 30 on", "drop_state="):
        assert part in said, said
    assert lines(out) == numbers(range(50))
    # The way out reads what was written in place of the lost messages.
    again = reading(broker, topic, out, end="latest", start={topic: {0: 30}})
    ms.run(again, state=state, drop_state=["in"])
    assert lines(out) == numbers(range(50), range(100, 140))
    ms.run(reading(broker, topic, out, end="latest"), state=state)
    assert lines(out) == numbers(range(50), range(100, 140))


def test_a_log_that_lost_its_end_and_has_not_grown_as_long(
    own_broker: Callable[..., Broker], tmp_path: Path
) -> None:
    """The message names where the others begin, and not only where the log ends."""
    broker = own_broker()
    topic = broker.create("shorter")
    out = tmp_path / "out"
    state = tmp_path / "state"
    put(broker, topic, range(30))
    kept = broker.log_of(topic).stat().st_size
    put(broker, topic, range(30, 50))
    ms.run(reading(broker, topic, out, end="latest"), state=state)
    broker.kill()
    broker.lose_end(topic, kept)
    broker.start()
    put(broker, topic, range(100, 110))
    with pytest.raises(FAILURE, match=r"the partition ends at 40: .*from offset 30 on.*drop_state="):
        ms.run(reading(broker, topic, out, end="latest"), state=state)
    again = reading(broker, topic, out, end="latest", start={topic: {0: 30}})
    ms.run(again, state=state, drop_state=["in"])
    assert lines(out) == numbers(range(50), range(100, 110))


@pytest.mark.parametrize("grown", [5, 60])
def test_a_log_that_lost_only_what_was_not_read(
    own_broker: Callable[..., Broker], tmp_path: Path, grown: int
) -> None:
    """The position is after messages of an aborted transaction, and these are gone."""
    broker = own_broker()
    topic = broker.create("aborted")
    out = tmp_path / "out"
    state = tmp_path / "state"
    put(broker, topic, range(30))
    kept = broker.log_of(topic).stat().st_size
    with transaction(broker, "aborted", commit=False) as producer:
        for number in range(20):
            producer.produce(topic, str(number).encode(), partition=0)
    ms.run(reading(broker, topic, out, end="latest"), state=state)
    assert lines(out) == numbers(range(30))
    broker.kill()
    broker.lose_end(topic, kept)
    broker.start()
    ms.run(reading(broker, topic, out, end="latest"), state=state)
    put(broker, topic, range(100, 100 + grown))
    ms.run(reading(broker, topic, out, end="latest"), state=state)
    assert lines(out) == numbers(range(30), range(100, 100 + grown))


def test_a_log_that_loses_its_end_while_the_flow_runs(
    own_broker: Callable[..., Broker], tmp_path: Path
) -> None:
    broker = own_broker()
    topic = broker.create("lost-end")
    out = tmp_path / "out"
    put(broker, topic, range(30))
    kept = broker.log_of(topic).stat().st_size
    put(broker, topic, range(30, 50))
    running = reading(broker, topic, out).start(state=tmp_path / "state", epoch=0.05)
    until(lambda: lines(out) == numbers(range(50)))
    broker.kill()
    broker.lose_end(topic, kept)
    broker.start()
    put(broker, topic, range(100, 140))
    # Whether the client asks before the log has grown again decides on the words.
    with pytest.raises(FAILURE, match=f'topic "{topic}", partition 0: the flow continues at offset 50'):
        running.wait()
    assert lines(out) == numbers(range(50))


def test_a_log_that_grows_under_another_leader_epoch_is_no_error(
    own_broker: Callable[..., Broker], tmp_path: Path
) -> None:
    """Also where the position is after the end of a transaction, which is no message."""
    broker = own_broker()
    topic = broker.create("epochs")
    out = tmp_path / "out"
    state = tmp_path / "state"
    expected: list[str] = []
    for number in range(2):
        with transaction(broker, "epochs") as producer:
            producer.produce(topic, str(number).encode(), partition=0)
        expected.append(str(number))
        with transaction(broker, "epochs", commit=False) as producer:
            producer.produce(topic, b"aborted", partition=0)
        running = reading(broker, topic, out).start(state=state, epoch=0.05)
        until(lambda: lines(out) == expected)
        running.stop()
        broker.stop()
        broker.start()
    ms.run(reading(broker, topic, out, end="latest"), state=state)
    assert lines(out) == expected


def test_a_message_after_the_end_of_a_run_is_read_by_the_next(broker: Broker, tmp_path: Path) -> None:
    """Where the messages before the end were aborted, the client passes on the one after it."""
    topic = broker.create("after-end")
    out = tmp_path / "out"
    state = tmp_path / "state"
    put(broker, topic, ["a"], timestamp=1_000_000)
    with transaction(broker, "after-end", commit=False) as producer:
        producer.produce(topic, b"aborted", partition=0, timestamp=1_500_000)
    put(broker, topic, ["b"], timestamp=2_000_000)
    ms.run(reading(broker, topic, out, end=2000.0), state=state)
    assert lines(out) == ["a"]
    ms.run(reading(broker, topic, out, end="latest"), state=state)
    assert lines(out) == ["a", "b"]


LATEST = """
import os
import millstream as ms


def note(value: str) -> str:
    with open(os.environ["SEEN"], "a") as seen:
        seen.write(value + "\\n")
    return value


flow = ms.Flow("latest")
source = ms.kafka.read(os.environ["SERVERS"], os.environ["TOPIC"], start="latest", decode=str)
source = source.durable() if os.environ["DURABLE"] else source
flow.source("in", source).map(note).sink("out", ms.files.write(os.environ["OUT"]))
"""


@pytest.mark.parametrize(("durable", "processes"), [(False, 1), (True, 1), (False, 2)])
def test_latest_is_the_end_at_the_first_start(
    broker: Broker, tmp_path: Path, durable: bool, processes: int
) -> None:
    """A flow that is killed before its first commit begins again where it began."""
    topic = broker.create(f"latest-{durable}-{processes}".lower())
    put(broker, topic, ["before"])
    seen = tmp_path / "seen"
    out = tmp_path / "out"
    program = tmp_path / "flow.py"
    program.write_text(LATEST)
    names = {"SERVERS": broker.servers, "TOPIC": topic, "SEEN": seen, "OUT": out}
    environment = os.environ | {name: str(value) for name, value in names.items()}
    environment["DURABLE"] = "1" if durable else ""
    command = [sys.executable, "-m", "millstream", "run", str(program), "--state", str(tmp_path / "state")]
    command += ["--processes", str(processes)] if processes > 1 else []
    with open(tmp_path / "log", "wb") as log:
        killed = subprocess.Popen(
            [*command, "--epoch", "3600s"], env=environment, stderr=log, start_new_session=True
        )
        sent: list[str] = []

        def arrives() -> bool:
            assert killed.poll() is None, (tmp_path / "log").read_text()
            sent.append(f"m{len(sent)}")
            put(broker, topic, sent[-1:])
            return bool(lines(seen))

        until(arrives)
        os.killpg(killed.pid, signal.SIGKILL)
        killed.wait()
        first = sent.index(lines(seen)[0])
        sent.append("after")
        put(broker, topic, sent[-1:])
        running = subprocess.Popen([*command, "--epoch", "50ms"], env=environment, stderr=log)
        try:
            found = until(lambda: "after" in (found := written(tmp_path, out)) and found)
        finally:
            running.send_signal(signal.SIGINT)
            running.wait(60)
    assert sorted(found) == sorted(sent[first:])


def written(folder: Path, out: Path) -> list[str]:
    """What the processes of a flow have written."""
    return [line for path in folder.glob(f"{out.name}*") for line in lines(path)]


def page(running: Any, name: str) -> str:
    with urllib.request.urlopen(f"http://{running.address}/{name}", timeout=60) as answer:
        text: str = answer.read().decode()
    return text


def test_a_transaction_that_is_open_shows_in_the_lag(broker: Broker) -> None:
    topic = broker.create("open", partitions=2)
    flow = ms.Flow("open")
    flow.source("in", ms.kafka.read(broker.servers, topic)).sink("out", ms.testing.discard())

    def withheld() -> dict[str, int]:
        lags = running.report().lags
        return {lag["partition"]: lag["withheld"] for lag in lags}

    with transaction(broker, "open") as producer:
        producer.produce(topic, b"open", partition=1)
        producer.flush()
        put(broker, topic, range(9), partition=1)
        put(broker, topic, range(3), partition=0)
        running = flow.start(http="127.0.0.1:0")
        try:
            until(lambda: withheld() == {f"{topic}/0": 0, f"{topic}/1": 10})
            assert "10 records in open transactions" in str(running.report())
            sample = re.compile(rf"millstream_source_withheld_records.*{topic}/1.* 10(\.0)?\n")
            until(lambda: sample.search(page(running, "metrics")))
            until(
                lambda: json.loads(page(running, "api/snapshot.json"))["sources"][0]["withheld_records"] == 10
            )
        except BaseException:
            running.stop()
            raise
    until(lambda: withheld() == {f"{topic}/0": 0, f"{topic}/1": 0})
    running.stop()
