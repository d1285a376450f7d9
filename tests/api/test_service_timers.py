"""Timers of components: one-off timers, times of the day, and what is missed."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Protocol

import pytest
from millstream.service import (
    Clock,
    ServiceError,
    Timers,
    Trial,
    check,
    every,
    one_off,
    publisher,
    replay,
    serve,
    timestamp,
)

START = datetime(2026, 10, 24, 12, tzinfo=timezone.utc)


class Orders(Protocol):
    def place(self, id: str, seconds: float) -> None: ...

    def pay(self, id: str) -> None: ...


class Replies(Protocol):
    def expired(self, id: str, at: timestamp) -> None: ...

    def paid(self, id: str, in_time: bool) -> None: ...


class Desk(Orders):
    def __init__(self, replies: Replies, timers: Timers, clock: Clock) -> None:
        self.replies = replies
        self.timers = timers
        self.clock = clock

    def place(self, id: str, seconds: float) -> None:
        self.timers.start(self.expire, id, seconds)

    def pay(self, id: str) -> None:
        self.replies.paid(id, self.timers.cancel(self.expire, id))

    @one_off()
    def expire(self, id: str, now_ns: int) -> None:
        assert now_ns == self.clock.now_ns()
        self.replies.expired(id, now_ns)

    def snapshot(self) -> None:
        return None

    def restore(self, state: None) -> None: ...


def text(calls: list[str]) -> list[str]:
    return [" ".join(call.split()) for call in calls]


def test_a_one_off_timer_fires_once_unless_it_is_cancelled() -> None:
    trial = Trial(Desk, START)
    desk = trial.component
    for id in ("A", "B", "C"):
        desk.place(id, 1800)
    desk.place("C", 60)
    desk.pay("A")
    trial.advance(60)
    # One that is due while the service is down is called when it starts.
    trial.pause(3600)
    desk.pay("B")
    assert text(trial.take()) == [
        "paid: id: A in_time: true",
        "expired: id: C at: 2026-10-24T12:01:00Z",
        "expired: id: B at: 2026-10-24T12:30:00Z",
        "paid: id: B in_time: false",
    ]


def test_lengths_and_methods_are_checked() -> None:
    timers = Trial(Desk, START).component.timers
    timers.start("expire", "A", "30m")
    timers.start("expire", "A", timedelta(seconds=1))
    for wrong in (0, -1, float("nan"), "soon", "0s", None):
        with pytest.raises(ServiceError, match="length is a number of seconds"):
            timers.start("expire", "A", wrong)  # type: ignore[arg-type]
    with pytest.raises(ServiceError, match="pay: the component has no method for one-off timers"):
        timers.start("pay", "A", 1)

    class Hasty(Desk):
        def __init__(self, replies: Replies, timers: Timers, clock: Clock) -> None:
            super().__init__(replies, timers, clock)
            self.place("A", 1)

    with pytest.raises(ServiceError, match="not while the component is made"):
        Trial(Hasty)

    class Short(Orders):
        def place(self, id: str, seconds: float) -> None: ...

        def pay(self, id: str) -> None: ...

        @one_off()  # type: ignore[type-var]
        def expire(self, id: str) -> None: ...

    with pytest.raises(
        ServiceError, match="expire, which is called by one-off timers: cannot be called with 2"
    ):
        Trial(Short)


@pytest.mark.parametrize("rebuild", ["inputs", "snapshot"])
def test_one_off_timers_are_known_after_a_restart(tmp_path: Path, rebuild: str) -> None:
    orders = tmp_path / "orders"
    replies = tmp_path / "replies"
    desk = publisher(Orders, orders)
    desk.place("A", 3600)
    desk.place("B", 0.001)
    desk.place("C", 3600)

    def run() -> list[str]:
        serve(Desk, orders, out=replies, rebuild=rebuild, drain=True)
        return [" ".join(call.split()) for call in replay(Desk, orders, out=replies)]

    run()
    desk.pay("A")
    # The timer is due before the payment, which was recorded later.
    found = run()
    assert [line.split(" at:")[0] for line in found] == ["expired: id: B", "paid: id: A in_time: true"]
    desk.pay("B")
    desk.pay("C")
    assert run()[2:] == ["paid: id: B in_time: false", "paid: id: C in_time: true"]


def test_a_component_without_its_inputs_has_no_one_off_timers(tmp_path: Path) -> None:
    publisher(Orders, tmp_path / "orders").place("A", 1)
    with pytest.raises(ServiceError, match="expire: one-off timers are a part of the state"):
        serve(Desk, tmp_path / "orders", out=tmp_path / "replies", rebuild="nothing", drain=True)


class Ticks(Protocol):
    def tick(self) -> None: ...


class Beats(Protocol):
    def beat(self, of: str, at: timestamp) -> None: ...


class Heart(Ticks):
    def __init__(self, beats: Beats) -> None:
        self.beats = beats

    def tick(self) -> None: ...

    @every(at="02:30", zone="Europe/Berlin")
    def night(self, now_ns: int) -> None:
        self.beats.beat("night", now_ns)

    @every(3600, missed="skip")
    def skipping(self, now_ns: int) -> None:
        self.beats.beat("skip", now_ns)

    @every(3600, missed="all")
    def all_of_them(self, now_ns: int) -> None:
        self.beats.beat("all", now_ns)


def test_a_time_of_the_day_is_that_of_its_zone_and_comes_once_a_day() -> None:
    trial = Trial(Heart, START)
    trial.advance(3 * 86_400)
    nights = [call for call in text(trial.take()) if "night" in call]
    # The clocks are put back in the first night.
    assert [call.split(" at: ")[1] for call in nights] == [
        "2026-10-25T00:30:00Z",
        "2026-10-26T01:30:00Z",
        "2026-10-27T01:30:00Z",
    ]


def test_missed_times_follow_the_rule_of_the_timer() -> None:
    trial = Trial(Heart, START + timedelta(minutes=1))
    trial.pause(3 * 3600)
    assert text(trial.take()) == [f"beat: of: all at: 2026-10-24T{hour}:00:00Z" for hour in (13, 14, 15)]


def test_a_test_as_data_says_until_when_a_service_is_down(tmp_path: Path) -> None:
    (tmp_path / "in.yaml").write_text(
        "at: 2026-10-24T12:01:00Z\n---\nat: {down_until: 2026-10-24T14:01:00Z}\n---\ntick: []\n"
        "---\nat: 2026-10-24T15:00:00Z\n"
    )
    (tmp_path / "out.yaml").write_text(
        "beat: {of: all, at: 2026-10-24T13:00:00Z}\n---\nbeat: {of: all, at: 2026-10-24T14:00:00Z}\n"
        "---\nbeat: {of: all, at: 2026-10-24T15:00:00Z}\n---\nbeat: {of: skip, at: 2026-10-24T15:00:00Z}\n"
    )
    assert check(Heart, tmp_path) == (1, [], [], 0)
    (tmp_path / "in.yaml").write_text("at: {down: 2026-10-24T14:01:00Z}\n")
    with pytest.raises(ServiceError, match=r"line 1: at has a time, or \{down_until: TIME\}"):
        check(Heart, tmp_path)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "either a period"),
        ({"seconds": 1.0, "at": "18:00"}, "either a period"),
        ({"seconds": 0.0}, "seconds is a number of seconds above 0"),
        ({"seconds": float("inf")}, "seconds is a number of seconds above 0"),
        ({"seconds": 1.0, "zone": "Europe/Berlin"}, "a zone is for a time of the day"),
        ({"seconds": 1.0, "missed": "twice"}, "missed='twice': it is one of once, skip, all"),
        ({"at": "6pm"}, "6pm: it is no time of the day"),
        ({"at": "18:00", "zone": "Mars/Base"}, "Mars/Base: this machine knows no such time zone"),
    ],
)
def test_what_is_no_time_is_refused_with_its_place(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ServiceError, match=message):
        every(**arguments)  # type: ignore[arg-type]
