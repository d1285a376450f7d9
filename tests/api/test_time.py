"""Event time and timers in Python, judged by a plain loop that goes through the items one by one."""

import random
from collections import defaultdict
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any

import millstream as ms
import pytest
from millstream import testing

LATENESS = 8
Event = tuple[str, float, int]


def events(seed: int) -> list[Event]:
    chance = random.Random(seed)
    now = 0
    made = []
    for number in range(800):
        now += chance.randrange(4) + (300 if chance.randrange(100) == 0 else 0)
        made.append((f"k{chance.randrange(20)}", float(now - chance.randrange(20)), number))
    return made


class Diary:
    """Says what it is called with; sets a timer with each item, cancels some, and forgets itself at times."""

    def __init__(self) -> None:
        self.seen = 0

    def on_item(self, key: str, event: Event, ctx: ms.KeyContext) -> list[Any]:
        self.seen += 1
        _, time, number = event
        assert ctx.time == time and ctx.kind is None
        ctx.set_timer(time + number % 13)
        if number % 5 == 0:
            ctx.cancel_timer(time + 3)
        if number % 17 == 0:
            ctx.discard()
        return [("item", number, ctx.watermark)]

    def on_timer(self, key: str, at: float, ctx: ms.KeyContext) -> list[Any]:
        assert ctx.time == at and ctx.kind == "event"
        if at % 3 == 0:
            ctx.set_timer(at + 4)
        return [("timer", at)]

    def on_end(self, key: str) -> list[Any]:
        return [("end", self.seen)]


def model(events: list[Event]) -> dict[str, list[Any]]:
    out: dict[str, list[Any]] = defaultdict(list)
    keys: dict[str, tuple[set[float], list[Event]]] = {}
    watermark: float | None = None

    def fire(key: str, timers: set[float]) -> None:
        while watermark is not None and timers and min(timers) <= watermark:
            at = min(timers)
            timers.remove(at)
            out[key].append(("timer", at))
            if at % 3 == 0:
                timers.add(at + 4)

    for event in events:
        key, time, number = event
        timers, seen = keys.setdefault(key, (set(), []))
        watermark = max(time - LATENESS, time - LATENESS if watermark is None else watermark)
        fire(key, timers)
        seen.append(event)
        out[key].append(("item", number, watermark))
        timers.add(time + number % 13)
        if number % 5 == 0:
            timers.discard(time + 3)
        if number % 17 == 0:
            del keys[key]
    for key, (timers, seen) in keys.items():
        fire(key, timers)
        out[key].append(("end", len(seen)))
    return dict(out)


def by_key(out: list[tuple[str, Any]]) -> dict[str, list[Any]]:
    keys: dict[str, list[Any]] = defaultdict(list)
    for key, value in out:
        keys[key].append(value)
    return dict(keys)


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("batch", [1, 7, 10_000])
def test_items_and_timers_of_a_key_come_as_if_one_by_one(batch: int, workers: int) -> None:
    for seed in range(3):
        given = events(seed)
        flow = ms.Flow("timers")
        out = testing.collect()
        (
            flow.source("in", testing.items(given, batch))
            .event_time(lambda event: event[1], lateness=LATENESS)
            .key_by(lambda event: event[0])
            .stateful("diary", Diary)
            .sink("out", out)
        )
        ms.run(flow, workers=workers)
        assert by_key(out) == model(given), f"seed {seed}"


class Times:
    def on_item(self, key: object, value: object, ctx: ms.KeyContext) -> list[Any]:
        return [(value, ctx.time)]


VERBS = {
    "map": lambda s, e: s.map(lambda n: n, on_error=e),
    "filter": lambda s, e: s.filter(lambda n: n % 3, on_error=e),
    "flat_map": lambda s, e: s.flat_map(lambda n: [n] * (n % 3), on_error=e),
    "filter_map": lambda s, e: s.filter_map(lambda n: n if n % 3 else None, on_error=e),
    "inspect": lambda s, e: s.inspect(lambda n: None, on_error=e),
    "map_batch": lambda s, e: s.map_batch(lambda batch: list(batch), on_error=e),
    "branch": lambda s, e: s.branch(lambda n: n % 2, on_error=e)[1],
    "merge": lambda s, e: s.merge(s.map(lambda n: n)),
    "failing": lambda s, e: s.map(lambda n: n // (n % 4), on_error="skip"),
    "failing filter": lambda s, e: s.filter(lambda n: 1 // (n % 4) + 1, on_error="skip"),
}


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("on_error", ["fail", "skip"])
@pytest.mark.parametrize("verb", VERBS)
def test_times_stay_with_their_items(verb: str, on_error: str, workers: int) -> None:
    """Items keep their times through any verb, with keys or without."""
    for keyed_first in (False, True):
        flow = ms.Flow(verb)
        out = testing.collect()
        timed = flow.source("in", testing.items(range(100), 7)).event_time(lambda n: n + 1000, lateness=100)
        if keyed_first:
            keyed = VERBS[verb](timed.key_by(lambda n: n % 5), on_error)
        else:
            keyed = VERBS[verb](timed, on_error).key_by(lambda n: n % 5)
        keyed.stateful("times", Times).values().sink("out", out)
        ms.run(flow, workers=workers)
        assert out
        if verb != "failing":
            assert all(time == value + 1000 for value, time in out)
        else:
            assert sorted(out) == sorted((n // (n % 4), n + 1000.0) for n in range(100) if n % 4)


def test_what_can_be_a_time() -> None:
    utc = timezone.utc
    cases: list[tuple[Any, Any]] = [
        (3, 3.0),
        (0.1, 0.1),
        (-1.5, -1.5),
        (1_700_000_000.123456, 1_700_000_000.123456),
        (datetime(2024, 1, 2, 3, 4, 5, 678901, utc), 1704164645.678901),
    ]
    for given, expected in cases:
        flow = ms.Flow("times")
        out = testing.collect()
        timed = flow.source("in", testing.items([given])).event_time(lambda time: time)
        timed.key_by(lambda _: 0).stateful("times", Times).values().sink("out", out)
        ms.run(flow)
        assert out == [(given, expected)]


IN_SECONDS = "s is out of range: a time is in seconds since 1970, so divide milliseconds by 1000"
BAD_TIMES = {
    "yesterday": "TypeError: a time is a number of seconds or a datetime, not 'yesterday'",
    float("nan"): "ValueError: nan is no time",
    1e300: f"ValueError: 1e+300 {IN_SECONDS}",
    1732812345123: f"ValueError: 1732812345123 {IN_SECONDS}",
    10**30: f"ValueError: {10**30} {IN_SECONDS}",
    datetime(2024, 1, 1): "ValueError: datetime.datetime(2024, 1, 1, 0, 0) has no time zone: say which, as "
    "replace(tzinfo=timezone.utc) does",
}


@pytest.mark.parametrize("bad", BAD_TIMES)
def test_what_is_no_time(bad: Any) -> None:
    flow = ms.Flow("times")
    out = testing.collect()
    timed = flow.source("in", testing.items([1, bad, 2])).event_time(lambda time: time, name="when")
    timed.sink("out", out)
    with pytest.raises(ms.StepError, match="when") as raised:
        ms.run(flow)
    cause = raised.value.__cause__
    assert f"{type(cause).__name__}: {cause}" == BAD_TIMES[bad]

    flow = ms.Flow("times")
    out = testing.collect()
    bad_ones = testing.collect()
    source = flow.source("in", testing.items([1, bad, None, 2]))
    dead = ms.dead_letter(bad_ones)
    timed = source.event_time(lambda time: time if time is not None else 1 / 0, on_error=dead)
    timed.sink("out", out)
    report = ms.run(flow)
    assert out == [1, 2] and len(bad_ones) == 2
    assert report.steps[1]["skipped"] == 2


def test_a_key_that_is_none_keeps_times_in_step() -> None:
    flow = ms.Flow("keys")
    out = testing.collect()
    timed = flow.source("in", testing.items(range(12))).event_time(lambda n: n)

    def key(n: int) -> Any:
        if n % 3:
            return n % 3
        return 1.5 if n % 2 else 1 // (n % 4 - 2)

    timed.key_by(key, on_error="skip").stateful("times", Times).values().sink("out", out)
    report = ms.run(flow)
    # 0 gets a key, 3 and 9 get a float, and on 6 the function fails.
    assert sorted(out) == [(n, float(n)) for n in range(12) if n not in (3, 6, 9)]
    assert report.steps[2]["skipped"] == 12 - len(out)


class Lives:
    """How many items the key has had since it was made."""

    def __init__(self) -> None:
        self.items = 0

    def on_item(self, key: object, value: object) -> list[int]:
        self.items += 1
        return [self.items]


def count(state: Lives, value: object) -> int:
    return state.on_item(None, value)[0]


@pytest.mark.parametrize("function", [False, True])
def test_a_key_lives_so_long(function: bool) -> None:
    items = [("a", 0), ("a", 9), ("a", 20), ("b", 29), ("a", 21), ("b", 33), ("a", 30), ("a", 31)]
    flow = ms.Flow("ttl")
    out = testing.collect()
    keyed = flow.source("in", testing.items(items)).event_time(lambda i: i[1]).key_by(lambda i: i[0])
    ttl = timedelta(seconds=10)
    if function:
        keyed.stateful("lives", count, state=Lives, ttl=ttl).sink("out", out)
    else:
        keyed.stateful("lives", Lives, ttl=ttl).sink("out", out)
    ms.run(flow)
    assert by_key(out)["a"] == [1, 2, 1, 2, 1, 2]


def test_a_key_lives_so_long_in_processing_time() -> None:
    clock = testing.clock()
    script = [
        "a",
        testing.advance(clock, 9),
        "a",
        testing.advance(clock, 9),
        "a",
        testing.advance(clock, 11),
        "a",
    ]
    flow = ms.Flow("ttl")
    out = testing.collect()
    flow.source("in", testing.items(script)).key_by(str).stateful("lives", Lives, ttl=10).sink("out", out)
    ms.run(flow, clock=clock)
    assert out == [("a", 1), ("a", 2), ("a", 3), ("a", 1)]
    assert clock.time() == 29.0


class Reminder:
    """Reminds of each item a minute later, in processing time."""

    def on_item(self, key: str, value: str, ctx: ms.KeyContext) -> None:
        ctx.set_timer(ctx.now + 60, kind="processing")

    def on_timer(self, key: str, at: float, ctx: ms.KeyContext) -> list[tuple[float, str | None]]:
        return [(at, ctx.kind)]


def test_timers_in_processing_time() -> None:
    clock = testing.clock(1000)
    back = testing.advance(clock, 0.001)
    on = testing.advance(clock, 59)
    script = ["a", on, "b", on, "c", on, back]
    flow = ms.Flow("reminder")
    out = testing.collect()
    flow.source("in", testing.items(script)).key_by(str).stateful("reminder", Reminder).sink("out", out)
    ms.run(flow, clock=clock)
    assert out == [("a", (1060.0, "processing")), ("b", (1119.0, "processing"))]


def test_a_clock_that_steps_back_changes_nothing() -> None:
    """An hour back, then a day forward: each timer fires once, and none before its time."""
    clock = testing.clock(100_000)

    class Back(ms.Source):
        """Items, between which the clock is set."""

        def open(self, partition: str, position: int | None) -> Any:
            self.script = iter(["a", 0, 96_400, "b", 0, 96_459, "c", 0, 100_061, 190_000])
            return self

        def next_batch(self) -> list[Any] | None:
            step = next(self.script, None)
            if isinstance(step, int):
                if step:
                    clock.set(step)
                return []
            return None if step is None else [step]

        def next_awake(self) -> float:
            return 0.005

        def position(self) -> int:
            return 0

    flow = ms.Flow("back")
    out = testing.collect()
    flow.source("in", Back()).key_by(str).stateful("reminder", Reminder).sink("out", out)
    ms.run(flow, clock=clock)
    assert sorted(out) == [(key, (100_060.0, "processing")) for key in "abc"]


class Heartbeat:
    def on_item(self, key: str, value: str, ctx: ms.KeyContext) -> None:
        ctx.set_timer(5)

    def on_timer(self, key: str, at: float, ctx: ms.KeyContext) -> None:
        ctx.set_timer(at)


def test_mistakes_are_errors_with_a_remedy() -> None:
    flow = ms.Flow("mistakes")
    plain = flow.source("in", testing.items(range(10)))
    timed = plain.event_time(lambda n: n)
    with pytest.raises(ms.FlowUsageError, match="a stream with times merges only with streams with times"):
        plain.merge(timed)
    with pytest.raises(ms.FlowUsageError, match="a stream with times merges only with streams with times"):
        timed.key_by(str).merge(plain.key_by(str))
    with pytest.raises(
        ms.FlowUsageError, match="lateness is a number of seconds from 0 to 200 years, not -1"
    ):
        plain.event_time(lambda n: n, lateness=-1)
    with pytest.raises(
        ms.FlowUsageError, match="idle is a number of seconds, a timedelta or text like \"1h\", not 'x'"
    ):
        plain.event_time(lambda n: n, idle="x")  # type: ignore[arg-type]
    with pytest.raises(ms.FlowUsageError, match="ttl is a number of seconds above 0"):
        plain.key_by(str).stateful("s", Lives, ttl=0)
    with pytest.raises(ms.FlowUsageError, match='event_time is applied after "dealt"|is applied after'):
        plain.redistribute().event_time(lambda n: n)


@pytest.mark.parametrize(
    ("logic", "timed", "message"),
    [
        (Heartbeat, True, "must be later than the one that fires"),
        (Heartbeat, False, None),
    ],
)
def test_a_timer_that_would_fire_for_ever(logic: type, timed: bool, message: str | None) -> None:
    flow = ms.Flow("for ever")
    out = testing.collect()
    stream = flow.source("in", testing.items(range(10)))
    if timed:
        stream = stream.event_time(lambda n: n)
    stream.key_by(lambda n: "k").stateful("beat", logic).sink("out", out)
    with pytest.raises(ms.StepError, match="step \"beat\", key 'k'") as raised:
        ms.run(flow, clock=testing.clock(100))
    assert "must be later than the one that fires" in str(raised.value)


def test_errors_of_logic_name_step_and_key() -> None:
    class Fails:
        def on_item(self, key: str, value: int, ctx: ms.KeyContext) -> list[int]:
            ctx.set_timer(value + 1)
            return [10 // (value % 5)]

        def on_timer(self, key: str, at: float, ctx: ms.KeyContext) -> list[float]:
            return [1 / (at % 4)]

    def make(on_error: Any) -> tuple[ms.Flow, Any]:
        flow = ms.Flow("fails")
        out = testing.collect()
        timed = flow.source("in", testing.items(range(1, 20))).event_time(lambda n: n)
        timed.key_by(lambda n: "k").stateful("fails", Fails, on_error=on_error).sink("out", out)
        return flow, out

    with pytest.raises(ms.StepError) as raised:
        ms.run(make("fail")[0])
    assert (raised.value.step, raised.value.key, raised.value.item) == ("fails", "'k'", None)
    bad = testing.collect()
    flow, out = make(ms.dead_letter(bad))
    ms.run(flow)
    items = [n for n in range(1, 20) if n % 5]
    timers = [at for at in range(2, 20) if at % 4]
    assert len(out) == len(items) + len(timers)
    assert sum(letter.item is None for letter in bad) == len([at for at in range(2, 20) if at % 4 == 0])
    assert [letter.item for letter in bad if letter.item is not None] == [5, 10, 15]


@pytest.mark.parametrize("batch", [1, 100])
def test_a_key_expires_before_its_own_next_item(batch: int) -> None:
    """With items of one key alone: no other key moves event time on."""

    class Class:
        seen = 0

        def on_item(self, key: str, time: int) -> list[int]:
            self.seen += 1
            return [self.seen]

    def function(state: Class, time: int) -> int:
        return state.on_item("", time)[0]

    steps: list[Callable[[Any], Any]] = [
        lambda keyed: keyed.stateful("lives", Class, ttl=10),
        lambda keyed: keyed.stateful("lives", function, state=Class, ttl=10),
        lambda keyed: keyed.stateful_map("lives", lambda n, time: ((n or 0) + 1,) * 2, ttl=10),
    ]
    for step in steps:
        flow = ms.Flow("alone")
        out = testing.collect()
        times = flow.source("in", testing.items([0, 5, 100, 105, 300], batch)).event_time(float)
        step(times.key_by(lambda time: "ann")).values().sink("out", out)
        ms.run(flow)
        assert out == [1, 2, 1, 2, 1]


@pytest.mark.parametrize("batch", [1, 100])
def test_a_timer_fires_before_the_item_that_is_later(batch: int) -> None:
    class Session:
        clicks = 0
        ends = 0.0

        def on_item(self, user: str, at: int, ctx: ms.KeyContext) -> None:
            self.clicks += 1
            ctx.cancel_timer(self.ends)
            self.ends = at + 30
            ctx.set_timer(self.ends)

        def on_timer(self, user: str, at: float, ctx: ms.KeyContext) -> list[Any]:
            ctx.discard()
            return [(at, self.clicks)]

    for lateness, ended in [(0, [(50, 2), (131, 1)]), (60, [(131, 3)]), (200, [])]:
        flow = ms.Flow("session")
        out = testing.collect()
        clicks = flow.source("in", testing.items([0, 20, 101, 300], batch))
        times = clicks.event_time(float, lateness=lateness)
        times.key_by(lambda _: "ann").stateful("session", Session).values().sink("out", out)
        ms.run(flow)
        assert out == ended
