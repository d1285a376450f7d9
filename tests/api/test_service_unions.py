"""Unions of classes as arguments of services: what is an enum with fields in Rust."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Protocol

import millstream as ms
import msgspec
import pytest
from millstream import service
from millstream.service import Recorder, aliases


@dataclass
class Placed:
    id: str
    quantity: int = 1


class Filled(msgspec.Struct, tag="filled", kw_only=True):
    id: str
    legs: list[Placed] = []


@dataclass
class Closed:
    pass


Event = Annotated[Placed | Filled | Closed, "Event"]
EVENTS: list[Placed | Filled | Closed] = [
    Placed("A-1", 7),
    Filled(id="A-1", legs=[Placed("A-2")]),
    Closed(),
]


class Events(Protocol):
    def happened(self, event: Event, before: Event | None = None) -> None: ...

    def all(self, events: list[Placed | Filled | Closed], by_name: dict[str, Event]) -> None: ...


class Keep(Events):
    seen: list[Any]

    def __init__(self) -> None:
        Keep.seen = []

    def happened(self, event: Event, before: Event | None = None) -> None:
        self.seen.append((event, before))

    def all(self, events: list[Placed | Filled | Closed], by_name: dict[str, Event]) -> None:
        self.seen.append((events, by_name))


def test_each_object_of_a_union_comes_back_as_its_own_class(tmp_path: Path) -> None:
    events = ms.publisher(Events, tmp_path / "events")
    for event in EVENTS:
        events.happened(event, Closed())
        events.happened(event)
    events.all(EVENTS, {"last": EVENTS[1]})
    ms.serve(Keep, tmp_path / "events", drain=True)
    expected: list[Any] = [pair for event in EVENTS for pair in ((event, Closed()), (event, None))]
    assert Keep.seen == [*expected, (EVENTS, {"last": EVENTS[1]})]
    assert [type(event) for event in Keep.seen[-1][0]] == [Placed, Filled, Closed]


def test_a_union_reads_as_the_name_of_its_class_and_the_fields() -> None:
    recorder = Recorder()
    events = recorder.publisher(Events)
    events.all(EVENTS, {})
    (text,) = recorder.take()
    assert text == TEXT


TEXT = """\
all:
  events:
    - Placed:
        id: A-1
        quantity: 7
    - filled:
        id: A-1
        legs:
          - id: A-2
            quantity: 1
    - Closed
  by_name: {}
"""


def test_a_test_in_yaml_makes_the_objects(tmp_path: Path) -> None:
    (tmp_path / "in.yaml").write_text(
        "happened:\n  event:\n    Placed: {id: A-1}\n---\nhappened:\n  event: Closed\n"
    )
    (tmp_path / "out.yaml").write_text("")
    checked = service.check(Keep, tmp_path)
    assert checked.failed == [], checked
    assert Keep.seen == [(Placed("A-1", 1), None), (Closed(), None)]


def test_what_is_of_none_of_the_classes_is_refused() -> None:
    class Other(Placed):
        pass

    events = Recorder().publisher(Events)
    for wrong in ("Placed", Other("A-1"), None, {"id": "A-1"}):
        with pytest.raises(TypeError, match=r"^happened\.event: expected Event, found "):
            events.happened(wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"^happened\.event\.quantity: expected i64, found str"):
        events.happened(Placed("A-1", "7"))  # type: ignore[arg-type]


def test_a_variant_may_come_later_and_a_field_may_gain_a_name(tmp_path: Path) -> None:
    ms.publisher(Events, tmp_path / "events").happened(Placed("A-1", 7))

    @dataclass
    class NowPlaced:
        order: Annotated[str, aliases("id")]
        quantity: int
        venue: str = "XLON"

    NowPlaced.__name__ = "Placed"

    class Later(Protocol):
        def happened(self, event: Closed | Filled | NowPlaced) -> None: ...

    Later.__name__ = "Events"
    seen = []

    class Watch(Later):
        def happened(self, event: Closed | Filled | NowPlaced) -> None:
            seen.append(event)

    Watch.happened.__annotations__["event"] = Later.happened.__annotations__["event"]
    ms.serve(Watch, tmp_path / "events", drain=True)
    assert seen == [NowPlaced("A-1", 7, "XLON")]


@dataclass
class Filled2:
    id: str


Filled2.__name__ = "filled"


class Odd(msgspec.Struct, tag=7):
    id: str


@pytest.mark.parametrize(
    ("annotation", "why"),
    [
        (int | str, "a union is of dataclasses or msgspec.Structs"),
        (Placed | int, "a union is of dataclasses or msgspec.Structs"),
        (Placed | list[int], "a union is of dataclasses or msgspec.Structs"),
        (Annotated[Placed | None, "Event"], "a union is of dataclasses or msgspec.Structs"),
        (Filled | Filled2, "two of its classes are called filled"),
        (Odd | Placed, "the tag of Odd is no text"),
    ],
)
def test_a_union_of_anything_else_is_refused_at_the_start(annotation: Any, why: str) -> None:
    def odd(self: Any, what: Any) -> None: ...

    odd.__annotations__ = {"what": annotation, "return": None}
    interface = type("Unions", (), {"odd": odd})
    with pytest.raises(
        ms.ServiceError, match=rf"^interface Unions, odd\.what: .* cannot be part of a record: {why}$"
    ):
        Recorder().publisher(interface)
