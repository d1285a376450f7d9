"""A leader that was elected without the last messages: flows that have read these end with an error.

One election of two topics serves several flows. The lost messages of one topic have the leader epoch of those
that are kept; in the other topic the leader changed between, and the elected one has never had their epoch.
"""

import re
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import millstream as ms
import pytest
from broker import Broker, Cluster
from clients import Judge, put, until
from proxy import Proxy
from test_lost_end import FAILURE, lines, numbers

# The first of the replicas is the first leader.
TOPICS = {"one-epoch": (2, 3), "two-epochs": (3, 2)}
BEFORE = numbers(range(50))
AFTER = numbers(range(50), range(100, 140))


@dataclass
class Reader:
    """A flow that appends the values of a topic to a file."""

    servers: str
    topic: str
    folder: Path

    def flow(self, **options: Any) -> ms.Flow:
        flow = ms.Flow("reading")
        source = ms.kafka.read(self.servers, self.topic, decode=str, **options)
        flow.source("in", source).sink("out", ms.files.write(self.folder / "out"))
        return flow

    def start(self) -> Any:
        return self.flow().start(state=self.folder / "state", epoch=0.05)

    def read_to_end(self) -> None:
        ms.run(self.flow(end="latest"), state=self.folder / "state")

    def read_again_from(self, offset: int) -> None:
        """The way out of the error."""
        flow = self.flow(end="latest", start={self.topic: {0: offset}})
        ms.run(flow, state=self.folder / "state", drop_state=["in"])

    def written(self) -> list[str]:
        return lines(self.folder / "out")


@dataclass
class Election:
    """An election that lost the messages from offset 30 on, and flows that have read up to offset 50."""

    cluster: Cluster
    folder: Path
    # The leader epoch of the lost messages of each topic.
    epochs: dict[str, int] = field(default_factory=dict)
    stopped: list[Reader] = field(default_factory=list)
    # These run when the leader changes: they see the next one as it is elected, or when it has more messages.
    early: list[tuple[Reader, Any]] = field(default_factory=list)
    late: list[tuple[Reader, Any]] = field(default_factory=list)

    def write(self) -> None:
        """Both brokers have the first 30 messages, and the one that is killed 20 more."""
        killed, elected = self.cluster.brokers
        for topic, replicas in TOPICS.items():
            killed.create(
                topic, replicas=replicas, unclean_leader_election_enable="true", min_insync_replicas="1"
            )
            wait_for_leader(killed, topic, replicas[0], [2, 3])
            put(killed, topic, range(30))
        elected.stop()
        for topic in TOPICS:
            wait_for_leader(killed, topic, 2, [2])
            put(killed, topic, range(30, 50), acks="1")
            judge = Judge(killed, topic)
            epochs = [message.leader_epoch() for message in judge.read()]
            judge.close()
            assert len(set(epochs[:30])) == len(set(epochs[30:])) == 1
            assert len(set(epochs)) == (1 if topic == "one-epoch" else 2)
            self.epochs[topic] = epochs[-1]

    def readers(self, name: str, servers: str) -> Iterator[Reader]:
        for topic in TOPICS:
            folder = self.folder / f"{topic}-{name}"
            folder.mkdir()
            yield Reader(servers, topic, folder)

    def read(self, running: ExitStack) -> None:
        """Starts the flows, and waits until all of them have read all messages."""
        self.stopped = list(self.readers("stopped", self.cluster.servers))
        for reader in self.stopped:
            reader.read_to_end()
        proxied = ",".join(broker.proxied for broker in self.cluster.brokers)
        self.early = [(reader, reader.start()) for reader in self.readers("early", self.cluster.servers)]
        self.late = [(reader, reader.start()) for reader in self.readers("late", proxied)]
        for _, flow in (*self.early, *self.late):
            running.callback(flow.stop)
        until(lambda: all(reader.written() == BEFORE for reader, _ in (*self.early, *self.late)))

    def happen(self, link: Proxy) -> None:
        """The broker with all messages is killed. Before late flows see the other one, it gets 40 others."""
        killed, elected = self.cluster.brokers
        link.cut()
        killed.kill()
        elected.start()
        for topic in TOPICS:
            wait_for_leader(elected, topic, 3, [3])
        until(lambda: all(flow.has_ended for _, flow in self.early))
        for topic in TOPICS:
            put(elected, topic, range(100, 140))
        link.heal()


def wait_for_leader(broker: Broker, topic: str, leader: int, in_sync: list[int]) -> None:
    until(lambda: broker.leader_and_in_sync(topic) == (leader, in_sync))


@pytest.fixture
def election(tmp_path: Path) -> Iterator[Election]:
    with ExitStack() as ended:
        cluster = Cluster(tmp_path / "cluster")
        ended.callback(cluster.kill)
        election = Election(cluster.start(), tmp_path)
        _, link = [ended.enter_context(Proxy(broker)) for broker in cluster.brokers]
        election.write()
        election.read(ended)
        election.happen(link)
        yield election


def test_flows_that_have_read_lost_messages_end_with_an_error(election: Election) -> None:
    """They resume after the election, or run when the leader changes, and then resume."""
    early = [(reader, failure_of(flow)) for reader, flow in election.early]
    late = [(reader, failure_of(flow)) for reader, flow in election.late]
    for reader in (*election.stopped, *(reader for reader, _ in (*early, *late))):
        resume(reader, election)
    for reader, said in late:
        assert lost_from(said, reader, election) == 30
    for reader, said in early:
        position = f'topic "{reader.topic}", partition 0: the flow continues at offset 50'
        for part in (position, "the partition ends at 30", "drop_state="):
            assert part in said, said


def failure_of(flow: Any) -> str:
    with pytest.raises(FAILURE) as failed:
        flow.wait(60)
    return str(failed.value)


def resume(reader: Reader, election: Election) -> None:
    """The flow finds what is lost, and reads what was written in its place when it begins there."""
    with pytest.raises(FAILURE) as failed:
        reader.read_to_end()
    assert reader.written() == BEFORE
    offset = lost_from(str(failed.value), reader, election)
    assert offset == 30
    reader.read_again_from(offset)
    assert reader.written() == AFTER
    reader.read_to_end()
    assert reader.written() == AFTER


def lost_from(said: str, reader: Reader, election: Election) -> int:
    """The offset that the error of a log that lost its end names."""
    epoch = f"leader epoch {election.epochs[reader.topic]},"
    for part in (f'topic "{reader.topic}", partition 0', "offset 50,", epoch, "drop_state="):
        assert part in said, said
    found = re.search(r"from offset (\d+) on", said)
    assert found, said
    return int(found[1])
