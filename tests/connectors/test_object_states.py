"""Object stores in the states of ``conformance.py``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from conformance import (
    Connector,
    Continues,
    Ends,
    SinkConnector,
    SourceConnector,
    test_ctrl_c_ends_it,
    test_it_is_killed,
    test_it_recovers,
)
from object_places import InBucket, items_of
from s3_server import Bucket, S3Server
from tcp_link import Link

__all__ = ["test_ctrl_c_ends_it", "test_it_is_killed", "test_it_recovers"]

RETRY = "retry=ms.Backoff(first=0.05, most=0.2), timeout=1"


class InStore(Connector):
    """What the sink and the source have in common: a bucket of a server, with a link between."""

    def prepare(self, servers: Callable[[str], Any]) -> None:
        server: S3Server = servers("own_s3")
        self.bucket: Bucket = server.create_bucket()
        self.thing = self.bucket.name
        self.link = Link(server.port)

    def arguments(self) -> str:
        assert self.link is not None
        config = self.bucket.server.config(self.link.port, "wrong" if self.state == "login" else None)
        missing = "-missing" if self.state == "unknown" else ""
        return f'"s3://{self.bucket.name}{missing}/numbers", "lines", config={config!r}, {RETRY}'

    def enter(self, state: str) -> None:
        super().enter(state)
        if state == "login":
            self.bucket.server.check_keys(True)

    def leave(self) -> None:
        if self.state == "login":
            self.bucket.server.check_keys(False)
        super().leave()


class ObjectsWrite(InStore, SinkConnector):
    title = "ms.objects.write"
    steps = ".map(str)"
    states = {
        "absent": Continues("{address}", "{thing}"),
        "away": Continues("{address}", "{thing}"),
        "login": Ends("{address}", "{thing}", "SignatureDoesNotMatch"),
        "unknown": Ends("{address}", "{thing}-missing", "NoSuchBucket"),
        "slow": Continues("{address}", "{thing}", "timed out"),
        "rubbish": Continues("{address}", "{thing}"),
    }

    def flow(self) -> str:
        self.sink = f"ms.objects.write({self.arguments()}, batch_age=0.05)"
        return super().flow()

    def delivered(self) -> list[int]:
        return [int(item) for item in items_of(InBucket(self.bucket, "numbers").contents())]


class ObjectsRead(InStore, SourceConnector):
    title = "ms.objects.read"
    states = {
        "absent": Continues("{address}", "{thing}", "the next attempt is in"),
        "away": Continues("{address}", "{thing}", "the next attempt is in"),
        "login": Ends("{address}", "{thing}", "SignatureDoesNotMatch"),
        "unknown": Ends("{address}", "{thing}-missing", "NoSuchBucket"),
        "slow": Continues("{address}", "{thing}", "timed out", "the next attempt is in"),
        "rubbish": Continues("{address}", "{thing}", "the next attempt is in"),
    }

    def flow(self) -> str:
        self.source = f"ms.objects.read({self.arguments()}, follow=0.05)"
        return super().flow()

    def feed(self, numbers: range) -> None:
        self.bucket.put(f"numbers/{numbers.start:05}", b"".join(b"%d\n" % number for number in numbers))


CONNECTORS = [ObjectsWrite, ObjectsRead]
