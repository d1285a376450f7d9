"""A duration is a number of seconds, a timedelta or text, in each argument that is one.

The arguments are those with the annotation `Seconds` or `Sync` in the signatures of the package.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any, Protocol

import millstream as ms
import pytest
from millstream._run.running import Running
from millstream._values import durations
from test_docstrings import NATIVE, PUBLIC, STUBS, stub_functions
from test_wrong_arguments import call

NAMES = re.compile(
    "timeout|interval|every|after|ttl|age|epoch|delay|first|most|linger|length|lateness|patience|idle|gap|wait"
)
"""What durations are called."""


class Calls(Protocol):
    def call(self, n: int) -> None: ...


class Component(Calls):
    def __init__(self, timers: ms.service.Timers) -> None:
        self.timers = timers

    def call(self, n: int) -> None: ...

    @ms.service.one_off()
    def due(self, name: str, now_ns: int) -> None: ...


def stream() -> Any:
    return ms.Flow("f").source("in", ms.testing.items([1]))


def keyed() -> Any:
    return stream().event_time(float).key_by(int)


def two() -> Any:
    times = stream().event_time(float)
    return times.key_by(int), times.key_by(int)


def flow() -> ms.Flow:
    made = ms.Flow("f")
    made.source("in", ms.testing.items([1])).sink("out", ms.testing.discard())
    return made


async def ask(item: int) -> int:
    return item


numbers = count()


def folder(place: Path) -> Path:
    return place / str(next(numbers))


def queue(place: Path) -> ms.Queue:
    found = ms.Queues(folder(place))["jobs"]
    found.put("a")
    return found


def with_item(place: Path, use: Callable[[ms.OpenItem], object]) -> None:
    with queue(place).open() as item:
        assert item is not None
        use(item)


def unanswered(place: Path, timeout: Any) -> None:
    calls: Any = ms.publisher(Calls, folder(place))
    out = ms.Journal(folder(place))
    with pytest.raises(ms.service.NoAnswerError):
        ms.call(calls.call, 1, out=out.path, timeout=timeout)


def verbs(
    verb: str, *given: Any, of: Callable[[], Any] = keyed, **more: Any
) -> Callable[[Path, dict[str, Any]], object]:
    return lambda place, option: getattr(of(), verb)(*given, **more, **option)


def joins(verb: str, **more: Any) -> Callable[[Path, dict[str, Any]], object]:
    def join(place: Path, option: dict[str, Any]) -> object:
        one, other = two()
        return getattr(one, verb)("j", other, **({**more, **option}))

    return join


PER_KEY = {"watermark": "key"}
WAYS: dict[str, Callable[[Path, dict[str, Any]], object]] = {
    "ms.Cluster": lambda place, option: ms.Cluster(0, ["a:1"], **option),
    "ms.Flow.start": lambda place, option: flow().start(**option).wait(),
    "ms.Journal": lambda place, option: ms.Journal(folder(place), **option),
    "ms.Journal.prune": lambda place, option: ms.Journal(folder(place)).prune(**option),
    "ms.Journal.tail": lambda place, option: list(ms.Journal(folder(place)).tail(0, **option)),
    "ms.Journal.wait_follower": lambda place, option: not_followed(place, option),
    "ms.KeyedStream.agg": lambda place, option: keyed().agg(n=ms.count(), emit="each", **option),
    "ms.KeyedStream.changes": verbs("changes"),
    "ms.KeyedStream.count": verbs("count", emit="each"),
    "ms.KeyedStream.dedupe": verbs("dedupe"),
    "ms.KeyedStream.fold": verbs("fold", "f", int, max, emit="each"),
    "ms.KeyedStream.join": joins("join"),
    "ms.KeyedStream.join_all": joins("join_all"),
    "ms.KeyedStream.lookup": joins("lookup"),
    "ms.KeyedStream.max": verbs("max", emit="each"),
    "ms.KeyedStream.mean": verbs("mean", emit="each"),
    "ms.KeyedStream.min": verbs("min", emit="each"),
    "ms.KeyedStream.reduce": verbs("reduce", "r", max, emit="each"),
    "ms.KeyedStream.stateful": verbs("stateful", "s", lambda state, item: [], list),
    "ms.KeyedStream.stateful_batch": verbs("stateful_batch", "s", lambda state, items: [], list),
    "ms.KeyedStream.stateful_map": verbs("stateful_map", "s", lambda state, item: (state, item), int),
    "ms.KeyedStream.sum": verbs("sum", emit="each"),
    "ms.KeyedStream.throttle": verbs("throttle", 1),
    "ms.KeyedStream.window": lambda place, option: (
        keyed().window("w", ms.windows.tumbling(1), watermark="key", **option).count()
    ),
    "ms.OpenItem.abort": lambda place, option: with_item(place, lambda item: item.abort(**option)),
    "ms.OpenItem.touch": lambda place, option: with_item(place, lambda item: item.touch(**option)),
    "ms.Queue.each": lambda place, option: list(queue(place).each(**option)),
    "ms.Queue.get": lambda place, option: queue(place).get(**option),
    "ms.Queue.open": lambda place, option: queue(place).open(**option).__enter__(),
    "ms.Queue.put": lambda place, option: queue(place).put("a", **option),
    "ms.Queue.put_many": lambda place, option: queue(place).put_many(["a"], **option),
    "ms.Queues": lambda place, option: ms.Queues(folder(place), **option),
    "ms.Running.wait": lambda place, option: flow().start().wait(**option),
    "ms.KeyedStream.collect": verbs("collect", 2),
    "ms.KeyedStream.enrich_cached": verbs("enrich_cached", str),
    "ms.Stream.event_time": verbs("event_time", float, of=stream),
    "ms.KeyedStream.map_async": verbs("map_async", ask),
    "ms.VirtualClock.advance": lambda place, option: ms.testing.clock().advance(**option),
    "ms.ask": lambda place, option: no_service(place, option),
    "ms.call": lambda place, option: unanswered(place, **option),
    "ms.publisher": lambda place, option: ms.publisher(Calls, folder(place), **option),
    "ms.run": lambda place, option: ms.run(flow(), **option),
    "ms.serve": lambda place, option: served(place, option),
    "ms.service.Timers.start": lambda place, option: ms.service.Trial(Component, at=0).component.timers.start(
        "due", "a", **option
    ),
    "ms.service.Trial.advance": lambda place, option: ms.service.Trial(Component, at=0).advance(**option),
    "ms.service.Trial.pause": lambda place, option: ms.service.Trial(Component, at=0).pause(**option),
    "ms.service.every": lambda place, option: ms.service.every(**option),
    "ms.testing.advance": lambda place, option: ms.testing.advance(ms.testing.clock(), **option),
    "ms.testing.pause": lambda place, option: ms.testing.pause(**option),
    "ms.windows.session": lambda place, option: ms.windows.session(**option),
    "ms.windows.sliding": lambda place, option: ms.windows.sliding(**{"length": 1, "every": 0.02} | option),
    "ms.windows.tumbling": lambda place, option: ms.windows.tumbling(**{"length": 1} | option),
}
"""A call of each function with one option."""
MORE: dict[str, dict[str, Any]] = {
    "ms.Backoff": {"first": 0},
    "ms.KeyedStream.join: lateness": {"within": 1, **PER_KEY},
    "ms.KeyedStream.join: patience": {"within": 1, **PER_KEY},
    "ms.KeyedStream.lookup: lateness": PER_KEY,
    "ms.KeyedStream.lookup: patience": PER_KEY,
    "ms.http.listen": {"item": "request"},
}
"""What else a call needs."""
LONG = {"ms.Cluster: dead_after"}
"""From one second."""


def not_followed(place: Path, option: dict[str, Any]) -> None:
    journal = ms.Journal(folder(place))
    with pytest.raises(ms.RecordNotFollowedError):
        journal.wait_follower(journal.append("a"), **option)


def no_service(place: Path, option: dict[str, Any]) -> None:
    try:
        ms.ask(folder(place), "total", **option)
    except ms.ServiceError as error:
        if "no service with queries" not in str(error):
            raise


def served(place: Path, option: dict[str, Any]) -> None:
    inputs = folder(place)
    ms.publisher(Calls, inputs)
    ms.serve(Component, inputs, out=folder(place), drain=True, **option)


def found() -> Iterator[tuple[str, str]]:
    """The functions of the package, and their arguments that are durations."""
    for name, it in [*PUBLIC.items(), ("ms.Running.wait", Running.wait)]:
        if not isinstance(it, NATIVE) and not it.__module__.endswith("_millstream"):
            for each in inspect.signature(it).parameters.values():
                if re.search(r"\b(Seconds|Sync)\b", str(each.annotation)):
                    yield name, each.name
    for name, function in stub_functions("\n".join(path.read_text("utf-8") for path in STUBS)).items():
        for argument in [*function.args.args, *function.args.kwonlyargs]:
            if argument.annotation is not None and "Seconds" in ast.unparse(argument.annotation):
                yield f"ms.{name}", argument.arg


FOUND = sorted(f"{name}: {argument}" for name, argument in {*found()} if name != "ms.show")


def use(case: str, value: Any, place: Path) -> None:
    name, argument = case.split(": ")
    option = {**MORE.get(name, {}), **MORE.get(case, {}), argument: value}
    if name in WAYS:
        WAYS[name](place, option)
    else:
        call(name, **option)


@pytest.mark.parametrize("case", FOUND)
def test_an_argument_takes_each_form_and_refuses_what_is_none(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    milliseconds = 2000 if case in LONG else 20
    read: list[tuple[object, float | None]] = []
    number = durations._number

    def spy(duration: Any) -> float | None:
        read.append((duration, number(duration)))
        return read[-1][1]

    monkeypatch.setattr(durations, "_number", spy)
    for value in (milliseconds / 1000, timedelta(milliseconds=milliseconds), f"{milliseconds}ms"):
        use(case, value, tmp_path)
        assert (value, milliseconds / 1000) in read
    argument = case.split(": ")[1]
    for wrong in ("abc", -1, float("nan"), float("inf"), True, "-1s"):
        with pytest.raises((ValueError, ms.ServiceError)) as raised:
            use(case, wrong, tmp_path)
        assert re.search(rf"\b{argument}\b.* is .*not {re.escape(repr(wrong))}", str(raised.value)), (
            raised.value
        )


def test_a_number_with_the_name_of_a_duration_is_one() -> None:
    floats = {
        f"{name}: {each.name}"
        for name, it in PUBLIC.items()
        if not isinstance(it, NATIVE) and not it.__module__.endswith("_millstream")
        for each in inspect.signature(it).parameters.values()
        if "float" in str(each.annotation) and NAMES.fullmatch(each.name)
    }
    assert not floats
