"""Datetimes as event times: exact to the microsecond, judged by the arithmetic of Python itself."""

from __future__ import annotations

import random
from collections.abc import Iterable
from datetime import date, datetime, timedelta, timezone, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

import millstream as ms
import pytest
from millstream import testing

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
MICROSECOND = timedelta(microseconds=1)
BERLIN = ZoneInfo("Europe/Berlin")
ZONES: list[tzinfo] = [
    timezone.utc,
    timezone(timedelta(hours=2)),
    timezone(timedelta(hours=-23, minutes=-59)),
    timezone(timedelta(seconds=-1, microseconds=7)),
    BERLIN,
    ZoneInfo("UTC"),
    # A change of half an hour; a day that was left out; winter time as the exception; minutes.
    *map(ZoneInfo, ("Australia/Lord_Howe", "Pacific/Apia", "Europe/Dublin", "Asia/Kolkata")),
]


def micros(time: datetime) -> int:
    """The value by Python's arithmetic: whole microseconds since 1970, rounded down."""
    return (time - EPOCH) // MICROSECOND


class Times:
    def on_item(self, key: int, item: Any, ctx: ms.KeyContext) -> list[tuple[Any, float | None]]:
        return [(item, ctx.time)]


def times_of(items: Iterable[Any]) -> list[tuple[Any, float | None]]:
    """Each item with its time, as the engine has it."""
    flow = ms.Flow("times")
    out = testing.collect()
    timed = flow.source("in", testing.items(items, 100)).event_time(
        lambda time: time, lateness=1e9, name="when"
    )
    timed.key_by(lambda _: 0).stateful("times", Times).values().sink("out", out)
    ms.run(flow)
    return out


def chosen(chance: random.Random, zone: tzinfo) -> datetime:
    """A moment in local time, near a change of the clocks more often than not.

    Between these years a float has its microseconds as exact as the engine, so that it can show them.
    """
    year = chance.randrange(1685, 2255)
    made = datetime(year, 1, 1) + timedelta(
        days=chance.randrange(365), microseconds=chance.randrange(86_400 * 10**6)
    )
    if chance.randrange(2):
        made = made.replace(
            year=chance.randrange(1900, 2030),
            month=chance.choice((3, 4, 10, 11)),
            day=chance.randrange(1, 31),
        )
        made = made.replace(hour=chance.randrange(4))
    return made.replace(tzinfo=zone, fold=chance.randrange(2))


@pytest.mark.parametrize("seed", range(20))
def test_datetimes_of_any_zone_are_as_exact_as_python(seed: int) -> None:
    chance = random.Random(seed)
    zones = chance.sample(ZONES, 3)
    items = [chosen(chance, chance.choice(zones)) for _ in range(2000)]
    # The offset of one second is not reused for another second, nor for the other fold.
    for at in range(0, len(items), 5):
        following = items[at].replace(fold=chance.randrange(2))
        items[at + 1 : at + 3] = [following, following.replace(second=chance.randrange(60))]
    assert times_of(items) == [(item, micros(item) / 10**6) for item in items], f"seed {seed}"


def test_two_microseconds_are_never_one() -> None:
    """So far from 1970 a float of seconds cannot tell them apart."""
    begin = datetime(2254, 12, 31, 23, 59, 59, 999_000, timezone.utc)
    items = [begin + timedelta(microseconds=step) for step in range(2000)]
    flow = ms.Flow("windows")
    out = testing.collect()
    keyed = flow.source("in", testing.items(items, 100)).event_time(lambda time: time).key_by(lambda _: 0)
    keyed.window("each", ms.windows.tumbling(MICROSECOND)).count().values().sink("out", out)
    ms.run(flow)
    assert [window.value for window in out] == [1] * 2000


def test_an_hour_that_is_repeated_and_one_that_is_left_out() -> None:
    twice = datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN)
    never = datetime(2026, 3, 29, 2, 30, tzinfo=BERLIN)
    items = [twice, twice.replace(fold=1), twice, never, never.replace(fold=1)]
    first, second, again, before, after = [time for _, time in times_of(items)]
    assert first == again == 1792888200.0 and second == 1792891800.0
    assert before == 1774747800.0 and after == 1774744200.0


def test_times_before_1970_and_at_the_ends() -> None:
    items = [
        datetime(1969, 12, 31, 23, 59, 59, 999_999, timezone.utc),
        datetime(1678, 6, 19, tzinfo=timezone.utc),
        datetime(2261, 7, 15, tzinfo=timezone.utc),
    ]
    assert times_of(items) == [(items[0], -0.000001), (items[1], -9199958400.0), (items[2], 9199958400.0)]


class Plain(datetime):
    """A subclass that adds nothing."""


class Stamp(datetime):
    """As `pandas.Timestamp`: nanoseconds, and years that a datetime does not have: the datetime says 1970."""

    far = 0
    nanosecond = 999

    @property
    def year(self) -> int:
        return self.far or super().year

    def timestamp(self) -> float:
        raise AssertionError("a time is not taken from a float")


class NotATime(datetime):
    """As `pandas.NaT`, which is a datetime whose fields are no numbers."""

    year = month = day = hour = minute = second = microsecond = float("nan")  # type: ignore[assignment]

    def __repr__(self) -> str:
        return "NaT"


def test_subclasses() -> None:
    plain = Plain(2026, 10, 25, 2, 30, 0, 7, BERLIN, fold=1)
    stamp = Stamp(2026, 10, 25, 2, 30, 0, 7, BERLIN, fold=1)
    assert [time for _, time in times_of([plain, stamp])] == [1792891800.000007] * 2


class Silent(tzinfo):
    """A time zone without an offset."""

    def utcoffset(self, when: datetime | None) -> timedelta | None:
        return None

    def dst(self, when: datetime | None) -> timedelta | None:
        return None

    def tzname(self, when: datetime | None) -> str | None:
        return None

    def __repr__(self) -> str:
        return "Silent()"


class Broken(Silent):
    def utcoffset(self, when: datetime | None) -> timedelta | None:
        raise LookupError("no such zone")


class Own(Silent):
    """A time zone whose offset goes by the microsecond, which Python allows."""

    def utcoffset(self, when: datetime | None) -> timedelta | None:
        return timedelta(hours=when.microsecond % 24) if when else None


def far(year: int) -> Stamp:
    stamp = Stamp(1970, 1, 1, tzinfo=timezone.utc)
    stamp.far = year
    return stamp


UTC = "tzinfo=datetime.timezone.utc"
RANGE = "is out of range: as a time a datetime is one from 1678-06-19 to 2261-07-15"
NAIVE = "has no time zone: say which, as replace(tzinfo=timezone.utc) does"
BAD = [
    (datetime(2026, 1, 1), f"ValueError: datetime.datetime(2026, 1, 1, 0, 0) {NAIVE}"),
    (Plain(2026, 1, 1), f"ValueError: Plain(2026, 1, 1, 0, 0) {NAIVE}"),
    (
        datetime(2026, 1, 1, tzinfo=Silent()),
        f"ValueError: datetime.datetime(2026, 1, 1, 0, 0, tzinfo=Silent()) {NAIVE}",
    ),
    (datetime(2026, 1, 1, tzinfo=Broken()), "LookupError: no such zone"),
    (datetime(1, 1, 1, tzinfo=timezone.utc), f"ValueError: datetime.datetime(1, 1, 1, 0, 0, {UTC}) {RANGE}"),
    (
        datetime(9999, 12, 31, tzinfo=timezone.utc),
        f"ValueError: datetime.datetime(9999, 12, 31, 0, 0, {UTC}) {RANGE}",
    ),
    (
        datetime(1678, 6, 18, tzinfo=timezone.utc),
        f"ValueError: datetime.datetime(1678, 6, 18, 0, 0, {UTC}) {RANGE}",
    ),
    (
        datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=23))),
        "ValueError: datetime.datetime(1, 1, 1, 0, 0, tzinfo=datetime.timezone("
        f"datetime.timedelta(seconds=82800))) {RANGE}",
    ),
    (far(9999), f"ValueError: Stamp(1970, 1, 1, 0, 0, {UTC}) {RANGE}"),
    (far(292_277_026), f"ValueError: Stamp(1970, 1, 1, 0, 0, {UTC}) is no time"),
    (NotATime(1, 1, 1), "ValueError: NaT is no time"),
    (
        date(2026, 1, 1),
        "TypeError: a time is a number of seconds or a datetime, not datetime.date(2026, 1, 1)",
    ),
    (timedelta(1), "TypeError: a time is a number of seconds or a datetime, not datetime.timedelta(days=1)"),
    (None, "TypeError: a time is a number of seconds or a datetime, not None"),
    ("2026-01-01", "TypeError: a time is a number of seconds or a datetime, not '2026-01-01'"),
]


@pytest.mark.parametrize(("bad", "said"), BAD, ids=[said for _, said in BAD])
def test_what_is_no_time_names_step_and_item(bad: object, said: str) -> None:
    with pytest.raises(ms.StepError) as raised:
        times_of([1, bad, 2])
    cause = raised.value.__cause__
    assert f"{type(cause).__name__}: {cause}" == said
    assert raised.value.step == "when" and raised.value.item == repr(bad)


def test_a_zone_of_ones_own_is_asked_each_time() -> None:
    items = [datetime(2026, 1, 1, 12, 0, 0, step, Own()) for step in range(100)]
    assert times_of(items) == [(item, micros(item) / 10**6) for item in items]


def test_timers_and_clocks_take_them_too() -> None:
    seen: list[float] = []

    class Later:
        def on_item(self, key: int, item: datetime, ctx: ms.KeyContext) -> None:
            ctx.set_timer(item.replace(microsecond=3))

        def on_timer(self, key: int, at: float, ctx: ms.KeyContext) -> None:
            seen.append(at)

    flow = ms.Flow("timers")
    begin = datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN, fold=1)
    items = [begin, begin + timedelta(hours=1)]
    timed = flow.source("in", testing.items(items)).event_time(lambda time: time)
    timed.key_by(hash).stateful("later", Later).sink("out", testing.discard())
    ms.run(flow)
    assert seen == [1792891800.000003]
    assert testing.clock(begin).time() == 1792891800.0
