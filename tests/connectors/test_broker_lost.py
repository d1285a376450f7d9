"""A consumer or group that is gone is an error, and each way out that it names leads to the right result."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import millstream as ms
import pytest
from brokers import PATIENCE, Broker, Nats, Redis

MADE: dict[str, tuple[type[Broker], str]] = {"nats": (Nats, "nats_port"), "redis": (Redis, "redis_port")}


@pytest.fixture(params=list(MADE))
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    made, fixture = MADE[request.param]
    broker = made(request.getfixturevalue(fixture), f"lost{time.time_ns()}")
    broker.publish([b"0", b"1", b"2"])
    yield broker
    broker.close()


def read(broker: Broker, state: Path, expected: list[int], **options: Any) -> list[int]:
    """What a run reads until it has what is expected."""
    flow = ms.Flow("lost")
    out = state.with_name("out")
    there = len(numbers_in(out))
    messages = flow.source("in", eval(broker.read(broker.port, "None"), {"ms": ms}))
    body = eval(f"lambda message: int({broker.body})")
    messages.map(body, name="body").sink("out", ms.files.write(out))
    with flow.start(state=state, epoch=0.05, sync=False, **options) as running:
        until = time.monotonic() + PATIENCE
        # The last acknowledgement follows the last commit.
        while len(numbers_in(out)) - there < len(expected) or broker.unacknowledged():
            assert time.monotonic() < until, numbers_in(out)
            try:
                running.wait(timeout=0.02)
            except TimeoutError:
                continue
    return numbers_in(out)[there:]


def numbers_in(path: Path) -> list[int]:
    return [int(line) for line in path.read_text().split("\n")[:-1]] if path.exists() else []


def lose(broker: Broker) -> None:
    if isinstance(broker, Nats):
        broker.loop.result(broker.streams.delete_consumer(broker.name, "flow"))
    if isinstance(broker, Redis):
        broker.client.xgroup_destroy(broker.name, "flow")


def create_again(broker: Broker, done: int) -> None:
    """Creates what was lost, after so many messages."""
    if isinstance(broker, Nats):
        options = {"durable_name": "flow", "ack_policy": "explicit", "deliver_policy": "by_start_sequence"}
        broker.loop.result(broker.streams.add_consumer(broker.name, opt_start_seq=done + 1, **options))
    if isinstance(broker, Redis):
        ids: Any = broker.client.xrange(broker.name)
        broker.client.xgroup_create(broker.name, "flow", id=ids[done - 1][0])


def fail(broker: Broker, state: Path) -> None:
    with pytest.raises(
        ms.FlowError, match="is missing, and the flow has read by it: create it again"
    ) as raised:
        read(broker, state, [0])
    assert broker.name in str(raised.value) and "--drop-state" in str(raised.value)


def test_it_is_created_again_where_it_was(broker: Broker, tmp_path: Path) -> None:
    assert read(broker, tmp_path / "state", [0, 1, 2]) == [0, 1, 2]
    lose(broker)
    broker.publish([b"3", b"4"])
    fail(broker, tmp_path / "state")
    create_again(broker, 3)
    assert read(broker, tmp_path / "state", [3, 4]) == [3, 4]


def test_its_position_is_forgotten(broker: Broker, tmp_path: Path) -> None:
    """The flow reads by ``start=`` then: all that the stream has."""
    assert read(broker, tmp_path / "state", [0, 1, 2]) == [0, 1, 2]
    lose(broker)
    broker.publish([b"3"])
    fail(broker, tmp_path / "state")
    assert read(broker, tmp_path / "state", [0, 1, 2, 3], drop_state=["in"]) == [0, 1, 2, 3]


def test_a_stream_that_was_made_anew_is_read_from_its_beginning(broker: Broker, tmp_path: Path) -> None:
    """Its numbers begin at 1 again: they are not those of messages that the flow has."""
    assert read(broker, tmp_path / "state", [0, 1, 2]) == [0, 1, 2]
    if isinstance(broker, Redis):
        broker.client.delete(broker.name)
    else:
        broker.remove()
        broker.create()
    broker.publish([b"7", b"8", b"9"])
    with pytest.raises(ms.FlowError, match="is missing, and the flow has read by it"):
        read(broker, tmp_path / "state", [7])
    assert read(broker, tmp_path / "state", [7, 8, 9], drop_state=["in"]) == [7, 8, 9]
