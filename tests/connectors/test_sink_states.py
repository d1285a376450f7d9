"""A sink of a user, made with ``ms.sink`` for a list of Redis, in the states of ``conformance.py``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import redis
from conformance import (
    Continues,
    Ends,
    SinkConnector,
    test_ctrl_c_ends_it,
    test_it_is_killed,
    test_it_recovers,
)
from tcp_link import Link

__all__ = ["test_ctrl_c_ends_it", "test_it_is_killed", "test_it_recovers"]

SINK = """
import redis


@ms.sink(retry=ms.Backoff(first=0.05, most=0.2))
class Numbers:
    def __init__(self, port, password, name):
        self.address, self.name = f"127.0.0.1:{port}", name
        self.client = redis.Redis(
            port=port, password=password, protocol=2, retry=None, socket_timeout=1, socket_connect_timeout=1
        )

    def called(self, call):
        try:
            return call()
        except (redis.AuthenticationError, redis.ResponseError) as error:
            raise ms.FlowError(f"{self.address}, {self.name}: {error}") from None
        except redis.RedisError as error:
            raise ConnectionError(f"{self.address}, {self.name}: {error}") from None

    def write(self, batch, first, last):
        with self.client.pipeline(transaction=True) as pipe:
            pipe.rpush(self.name, *batch).set(self.name + " position", last)
            self.called(pipe.execute)

    def position(self):
        self.called(lambda: self.client.llen(self.name))
        found = self.called(lambda: self.client.get(self.name + " position"))
        return None if found is None else int(found)

    def close(self):
        self.client.close()


"""


class UserSink(SinkConnector):
    """Its authors decide which exceptions are tried again: here those of the connection."""

    title = "ms.sink"
    states = {
        "absent": Continues("{address}", "{thing}", "refused"),
        "away": Continues("{address}", "{thing}"),
        "login": Ends("{address}", "{thing}", "AUTH"),
        "unknown": Ends("{address}", "{thing}", "WRONGTYPE"),
        "slow": Continues("{address}", "{thing}", "Timeout"),
        "rubbish": Continues("{address}", "{thing}"),
    }

    def prepare(self, servers: Callable[[str], Any]) -> None:
        port = servers("redis_port")
        self.client = redis.Redis(port=port, decode_responses=True)
        self.thing = self.unique
        self.link = Link(port)

    def flow(self) -> str:
        assert self.link is not None
        password = "wrong" if self.state == "login" else None
        self.sink = f"Numbers({self.link.port}, {password!r}, {self.thing!r})"
        return SINK + super().flow()

    def enter(self, state: str) -> None:
        super().enter(state)
        if state == "unknown":
            self.client.set(self.thing, "no list")

    def leave(self) -> None:
        if self.state == "unknown":
            self.client.delete(self.thing)
        super().leave()

    def delivered(self) -> list[int]:
        if self.state == "unknown":
            return []
        found: Any = self.client.lrange(self.thing, 0, -1)
        return [int(number) for number in found]

    def close(self) -> None:
        super().close()
        self.client.close()


CONNECTORS = [UserSink]
