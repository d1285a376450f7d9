"""What is wrong in a call of a connector is an error of the call, which names the function and the argument.

The cases are made from the signatures: each argument is given a value of a type that its annotation does not
have. A connector that is added is a line in `GOOD`.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, Protocol

import millstream as ms
import pytest
from google.protobuf.wrappers_pb2 import StringValue
from millstream._values.checked import kinds_of

URL = "http://127.0.0.1:1"


class Calls(Protocol):
    def call(self, n: int) -> None: ...


class Component(Calls):
    def call(self, n: int) -> None: ...


GOOD: dict[str, dict[str, Any]] = {
    "ms.Backoff": {},
    "ms.Cluster": {"process": 0, "hosts": ["a:1"]},
    "ms.Dedupe": {"key": "id"},
    "ms.Journal": {"path": "f"},
    "ms.Login": {},
    "ms.Queues": {"path": "f"},
    "ms.Replica": {"address": "a:1"},
    "ms.ask": {"out": "f", "name": "q"},
    "ms.call": {"method": print, "out": "f"},
    "ms.clickhouse.write": {"url": URL, "table": "t"},
    "ms.files.csv": {"path": "f"},
    "ms.files.csv_directory": {"path": "f"},
    "ms.files.directory": {"path": "f"},
    "ms.files.frames": {"path": "f"},
    "ms.files.json_lines": {"path": "f"},
    "ms.files.json_lines_directory": {"path": "f"},
    "ms.files.lines": {"path": "f"},
    "ms.files.write": {"path": "f"},
    "ms.files.write_by_key": {"directory": "f"},
    "ms.files.write_csv": {"path": "f"},
    "ms.files.write_csv_by_key": {"directory": "f"},
    "ms.files.write_json_lines": {"path": "f"},
    "ms.generate": {"make": list},
    "ms.http.OAuth": {"url": URL, "id": "me", "secret": "s"},
    "ms.http.Signature.github": {"secret": "s"},
    "ms.http.Signature.hmac": {"header": "x", "secret": "s"},
    "ms.http.Signature.meta": {"secret": "s", "verify_token": "t"},
    "ms.http.Signature.slack": {"secret": "s"},
    "ms.http.Signature.stripe": {"secret": "s"},
    "ms.http.feed": {"address": "127.0.0.1:0"},
    "ms.http.listen": {"address": "127.0.0.1:0", "item": "request"},
    "ms.http.post": {"url": URL},
    "ms.http.reply": {"source": ms.http.listen("127.0.0.1:0", item="request", reply=1)},
    "ms.journals.append": {"path": "f"},
    "ms.journals.read": {"path": "f"},
    "ms.kafka.Token": {"value": "t", "ends": 1.0},
    "ms.kafka.avro": {"registry": URL},
    "ms.kafka.encode_avro": {"registry": URL, "schema": '"string"'},
    "ms.kafka.encode_json_schema": {"registry": URL, "schema": "{}"},
    "ms.kafka.encode_protobuf": {"registry": URL, "message": StringValue},
    "ms.kafka.json_schema": {"registry": URL},
    "ms.kafka.protobuf": {"registry": URL, "message": StringValue},
    "ms.kafka.read": {"servers": "a:1", "topics": "t"},
    "ms.kafka.write": {"servers": "a:1", "topic": "t"},
    "ms.mqtt.read": {"url": "mqtt://a", "topics": "t", "session": "s"},
    "ms.mqtt.write": {"url": "mqtt://a", "topic": "t"},
    "ms.nats.read": {"url": "nats://a", "stream": "s", "consumer": "c"},
    "ms.nats.write": {"url": "nats://a", "subject": "s"},
    "ms.objects.iceberg": {"table": "shop.orders"},
    "ms.objects.read": {"at": "f", "format": "lines"},
    "ms.objects.write": {"to": "f", "format": "lines"},
    "ms.postgres.changes": {"dsn": "host=a", "slot": "s", "tables": "t"},
    "ms.postgres.write": {"dsn": "host=a", "table": "t"},
    "ms.publisher": {"interface": Calls, "journal": "f"},
    "ms.queues.read": {"place": "f"},
    "ms.queues.write": {"place": "f", "name": "q"},
    "ms.rabbitmq.read": {"url": "amqp://a", "queue": "q"},
    "ms.rabbitmq.write": {"url": "amqp://a", "routing_key": "r"},
    "ms.redis.read": {"url": "redis://a", "stream": "s", "group": "g"},
    "ms.redis.write": {"url": "redis://a", "stream": "s"},
    "ms.serve": {"component": Component, "inputs": "f"},
    "ms.service.check": {"component": Component, "folder": "f"},
    "ms.service.every": {"seconds": 1},
    "ms.service.one_off": {},
    "ms.service.replay": {"component": Component, "inputs": "f"},
    "ms.sink": {},
    "ms.source": {},
    "ms.sqlite.write": {"path": "f", "table": "t"},
    "ms.tcp.connect": {"address": "a:1"},
    "ms.tcp.listen": {"address": "a:1"},
    "ms.tcp.send_to": {"address": "a:1"},
    "ms.testing.items": {"items": [1]},
    "ms.testing.partitions": {},
}
"""What each function takes."""
BY_PLACE = {
    "ms.call": ("method",),
    "ms.queues.read": ("place", "names"),
    "ms.sink": ("write",),
    "ms.source": ("function",),
    "ms.testing.partitions": ("scripts",),
}
"""Arguments without a name."""
NO_OPTIONS = {"ms.stdout"}
ABSENT = {"ms.ask", "ms.call", "ms.queues.read", "ms.serve", "ms.service.check", "ms.service.replay"}
"""Those that read what is not there."""
ERRORS = (ms.FlowUsageError, ms.JournalUsageError, ms.QueueUsageError, ms.ServiceError)
MODULES = "clickhouse files http journals kafka mqtt nats objects postgres queues rabbitmq redis sqlite tcp"


def named(name: str) -> Any:
    found: Any = ms
    for part in name.split(".")[1:]:
        found = getattr(found, part)
    return found


def arguments(name: str) -> Iterator[tuple[str, str, Any]]:
    """The arguments of a function that have a type: their names, annotations and kinds."""
    called = named(name)
    made = called
    if inspect.isclass(called):
        made = called.__new__ if called in (ms.Journal, ms.Queues) else called.__init__
    function = inspect.unwrap(made)
    for each in inspect.signature(called).parameters.values():
        if each.kind is each.VAR_POSITIONAL or isinstance(each.annotation, str):
            kinds = kinds_of(each.annotation, function.__globals__)
            if kinds is not None:
                yield each.name, each.annotation, kinds


class Odd:
    """An object of a type that no argument has."""

    def __repr__(self) -> str:
        return "<odd>"


WRONG: list[Any] = [Odd(), True, -1, 1.5, 1 << 70, float("nan"), "soon", [], [Odd()], {1: Odd()}, b"x", None]


def cases() -> list[tuple[str, str, Any]]:
    found = []
    for name in GOOD:
        for argument, _, kinds in arguments(name):
            values = [value for value in WRONG if not any(kind.fits(value) for kind in kinds)]
            assert values
            found += [(name, argument, value) for value in values]
    return found


CASES = cases()


def call(name: str, /, **more: Any) -> Any:
    given = {**GOOD[name], **more}
    called = named(name)
    places = [given.pop(each) for each in BY_PLACE.get(name, ()) if each in given]
    return called(*places, **given)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", GOOD)
def test_a_value_of_a_wrong_type_is_refused_with_its_name(name: str) -> None:
    for function, argument, value in CASES:
        if function == name:
            with pytest.raises(ERRORS) as raised:
                call(name, **{argument: value})
            assert str(raised.value).startswith(f"{name}: {argument} is "), raised.value


@pytest.mark.parametrize("name", GOOD)
def test_what_has_the_right_type_is_no_error(name: str) -> None:
    if name not in ABSENT:
        call(name)


def test_each_connector_is_here() -> None:
    found = {name for name in ("ms.generate", "ms.sink", "ms.source", "ms.stdout")}
    for module in MODULES.split():
        place = getattr(ms, module)
        assert isinstance(place, ModuleType)
        found |= {
            f"ms.{module}.{name}" for name in place.__all__ if isinstance(getattr(place, name), FunctionType)
        }
    assert found - GOOD.keys() == NO_OPTIONS


OUT_OF_RANGE: dict[str, tuple[Callable[[], object], str]] = {
    "address": (lambda: ms.tcp.listen("localhost"), "ms.tcp.listen: address is HOST:PORT"),
    "host": (lambda: ms.tcp.connect(":9000"), "ms.tcp.connect: address is HOST:PORT"),
    "port": (lambda: ms.tcp.send_to("a:99999"), "ms.tcp.send_to: address is HOST:PORT"),
    "listen": (lambda: ms.http.listen("localhost"), "ms.http.listen: 'localhost' is no address"),
    "path": (lambda: ms.http.listen(":0", path="orders"), "ms.http.listen: the path begins with /"),
    "paths": (lambda: ms.http.listen(":0", path=[]), "ms.http.listen: a source of requests has a path"),
    "health": (lambda: ms.http.listen(":0", health="up"), "ms.http.listen: health: the path begins with /"),
    "feed": (lambda: ms.http.feed(":0", "orders"), "ms.http.feed: the path begins with /"),
    "token": (lambda: ms.http.feed(":0", token="a b"), "ms.http.feed: a token is one or more visible"),
    "origin": (lambda: ms.http.listen(":0", origins=["a"]), "ms.http.listen: an origin is like https://"),
    "method": (lambda: ms.http.listen(":0", methods=["GET"]), "ms.http.listen: a GET may have no body"),
    "no file": (lambda: ms.files.lines([]), "ms.files.lines: path is a file, or several"),
    "encode": (lambda: ms.http.post(URL, encode=3), "ms.http.post: encode is a function or None"),  # type: ignore[arg-type]
    "frame": (lambda: ms.tcp.listen("a:1", max_frame=0), "ms.tcp.listen: max_frame is a number, 1 or more"),
    "line": (lambda: ms.files.lines("f", max_frame=0), "ms.files.lines: max_frame is a number, 1 or more"),
    "rate": (lambda: ms.generate(list, rate=0), "ms.generate: rate is a number of items a second"),
    "batch": (lambda: ms.postgres.write("", "t", batch=0), "ms.postgres.write: batch is a number of items"),
    "most": (lambda: ms.Backoff(most=0.01), "ms.Backoff: most is at least first (0.1), not 0.01"),
}


@pytest.mark.parametrize("case", OUT_OF_RANGE)
def test_a_value_that_is_out_of_range_is_refused_with_its_name(case: str) -> None:
    make, said = OUT_OF_RANGE[case]
    with pytest.raises(ms.FlowUsageError, match=f"^{re.escape(said)}"):
        make()


def test_no_error_shows_a_secret() -> None:
    wrong: list[Callable[[], object]] = [
        lambda: ms.http.OAuth(URL, "me", b"hidden"),  # type: ignore[arg-type]
        lambda: ms.Login(password=b"hidden"),  # type: ignore[arg-type]
        lambda: ms.http.post(URL, headers={"authorization": b"hidden"}),  # type: ignore[dict-item]
        lambda: ms.kafka.read("a", "t", settings={"sasl.password": b"hidden"}),  # type: ignore[dict-item]
        lambda: ms.postgres.write(b"password=hidden", "t"),  # type: ignore[arg-type]
    ]
    for make in wrong:
        with pytest.raises(ms.FlowUsageError) as raised:
            make()
        assert "hidden" not in str(raised.value)


class Sink(ms.Sink[int]):
    def open(self, worker: int) -> Any: ...


@ms.sink
class Table:
    def __init__(self, name: str) -> None: ...
    def write(self, batch: list[int], first: int, last: int) -> None: ...


@pytest.mark.parametrize("given", [Sink, ms.testing.Collected, Table])
def test_a_class_is_no_sink(given: Any) -> None:
    items = ms.Flow("f").source("in", ms.testing.items([1]))
    name = given.__name__
    with pytest.raises(ms.FlowUsageError, match=rf"{name} is a class: .*{name}\(\.\.\.\)"):
        items.sink("out", given)
    # The advice.
    items.sink("out", given("t") if given is Table else given())


def test_a_class_is_no_source() -> None:
    class Numbers(ms.Source[int]): ...

    with pytest.raises(ms.FlowUsageError, match=r"Numbers is a class: .*Numbers\(\.\.\.\)"):
        ms.Flow("f").source("in", Numbers)  # type: ignore[arg-type]
    ms.Flow("f").source("in", Numbers())
