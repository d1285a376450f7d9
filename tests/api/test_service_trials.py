"""Time and timers in tests of components, and variants with odd values."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from dataclasses import dataclass
from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Protocol

import pytest
from millstream.service import Clock, ServiceError, Trial, char, check, every, i8, timestamp, variants

START = datetime(2026, 11, 23, 8, tzinfo=timezone.utc)
START_NS = 1_795_420_800_000_000_000


@dataclass
class Order:
    id: str
    side: char
    quantity: i8
    price: float
    limit: Decimal
    sent: timestamp
    raw: bytes
    note: str | None = None


class Orders(Protocol):
    def place(self, order: Order) -> None: ...

    def cancel(self, id: str) -> None: ...


class Rates(Protocol):
    def placed(self, id: str, at: timestamp) -> None: ...

    def rate(self, orders: int, at: timestamp) -> None: ...

    def odd(self, what: str) -> None: ...


class Meter(Orders):
    def __init__(self, rates: Rates, clock: Clock) -> None:
        self.rates = rates
        self.clock = clock
        self.orders = 0

    def place(self, order: Order) -> None:
        self.orders += 1
        self.rates.placed(order.id[:3], self.clock.now_ns())
        if math.isnan(order.price):
            self.rates.odd("price nan")
        if order.price > 1e308:
            self.rates.odd("price largest")
        if order.quantity in (-1, 127):
            self.rates.odd(f"quantity {order.quantity}")
        if len(order.id) > 9999:
            self.rates.odd("id long")

    def cancel(self, id: str) -> None:
        self.rates.placed(id[:3], self.clock.now_ns())

    @every(1.0)
    def beat(self, now_ns: int) -> None:
        assert now_ns == self.clock.now_ns()
        self.rates.rate(self.orders, now_ns)


def text(calls: list[str]) -> list[str]:
    return [" ".join(call.split()) for call in calls]


def test_timers_fire_while_time_advances() -> None:
    trial = Trial(Meter, START)
    trial.advance(0.5)
    assert trial.take() == []
    trial.component.cancel("A-1")
    trial.advance(1.5)
    assert text(trial.take()) == [
        "placed: id: A-1 at: 2026-11-23T08:00:00.5Z",
        "rate: orders: 0 at: 2026-11-23T08:00:01Z",
        "rate: orders: 0 at: 2026-11-23T08:00:02Z",
    ]
    assert trial.now_ns() == START_NS + 2_000_000_000
    # After a pause a timer is called once, however many periods have passed.
    trial.pause(3.5)
    assert text(trial.take()) == ["rate: orders: 0 at: 2026-11-23T08:00:03Z"]
    trial.advance_to(START_NS + 6_000_000_000)
    assert text(trial.take()) == ["rate: orders: 0 at: 2026-11-23T08:00:06Z"]
    trial.advance_to(START)
    assert trial.take() == [] and trial.now_ns() == START_NS + 6_000_000_000


def test_a_trial_begins_with_its_first_time() -> None:
    trial = Trial(Meter)
    trial.advance_to(START)
    assert trial.take() == [] and trial.now_ns() == START_NS


def test_what_a_timer_raises_is_raised_and_times_are_checked() -> None:
    class Failing(Meter):
        @every(1.0)
        def fail(self, now_ns: int) -> None:
            raise LookupError("no rate")

    trial = Trial(Failing, START)
    with pytest.raises(LookupError, match="no rate"):
        trial.advance(1)
    for wrong in (-1.0, math.nan, math.inf):
        with pytest.raises(ServiceError, match="seconds is a number of seconds from 0"):
            trial.advance(wrong)
    with pytest.raises(ServiceError, match="needs a time zone"):
        trial.advance_to(datetime(2026, 1, 1))
    with pytest.raises(
        ServiceError,
        match=r"timers would be called \d+ times from 2026-11-23T08:00:00Z to .*a test may have 100000",
    ):
        Trial(Meter, START).advance(200_000)


def test_a_component_cannot_advance_its_own_trial() -> None:
    class Hasty(Meter):
        @every(1.0)
        def hurry(self, now_ns: int) -> None:
            trial.advance(1)

    trial = Trial(Hasty, START)
    with pytest.raises(ServiceError, match="a component cannot advance it from a timer"):
        trial.advance(1)


IN = """\
at: 2026-11-23T08:00:00Z
place: {id: A-1, side: B, quantity: 1, price: 1.5, limit: 2.5, sent: 2026-11-23T08:00:00Z, raw: AA==}
---
at: 2026-11-23T08:00:02Z
place: {id: A-2, side: B, quantity: 2, price: 1.5, limit: 2.5, sent: 2026-11-23T08:00:00Z, raw: AA==}
---
# Nothing happens any more, but time goes on.
at: 2026-11-23T08:00:03.5Z
"""

OUT = """\
placed: {id: A-1, at: 2026-11-23T08:00:00Z}
---
rate: {orders: 1, at: 2026-11-23T08:00:01Z}
---
rate: {orders: 1, at: 2026-11-23T08:00:02Z}
---
placed: {id: A-2, at: 2026-11-23T08:00:02Z}
---
rate: {orders: 2, at: 2026-11-23T08:00:03Z}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "in.yaml").write_text(IN)
    (tmp_path / "out.yaml").write_text(OUT)
    return tmp_path


def test_timers_fire_between_the_calls_of_a_test(folder: Path) -> None:
    assert check(Meter, folder) == (1, [], [], 0)
    (folder / "setup.yaml").write_text("at: 2026-11-23T07:59:58Z\ncancel: A-0\n")
    # The timer has fired before the test begins, and at the same moment as its first call.
    report = check(Meter, folder)
    assert "+rate:\n+  orders: 0\n+  at: 2026-11-23T08:00:00Z\n" in report.failed[0][1]


def test_fields_are_overridden_by_values_of_their_types(folder: Path) -> None:
    names = variants(Meter, folder)
    assert len(names) == len(set(names))
    first = {
        "empty": {"id", "quantity", "price", "limit", "sent", "raw"},
        "nan": {"price"},
        "minus-1": {"quantity", "price", "limit", "sent"},
        "largest": {"quantity", "price", "limit", "sent"},
        "long": {"id", "raw", "note"},
    }
    for value, fields in first.items():
        prefix = f"{value}-place-order-"
        found = {name.removeprefix(prefix) for name in names if name.startswith(prefix)}
        assert {field for field in found if not field.endswith("-2")} == fields
        assert {field.removesuffix("-2") for field in found if field.endswith("-2")} == fields
        several = {name for name in names if name in (f"{value}-place", f"{value}-place-2")}
        assert len(several) == (2 if len(fields) > 1 else 0)
    assert [name for name in names if "-place" not in name] == [
        "missing-1", "doubled-1", "swapped-1", "missing-2", "doubled-2",
    ]  # fmt: skip

    check(Meter, folder, update=True, agitate=True)
    assert check(Meter, folder, agitate=True) == (1 + len(names), [], [], 0)

    def found(name: str) -> str:
        return (folder / "agitated" / f"{name}.yaml").read_text()

    assert "odd: price nan\n" in found("nan-place-order-price")
    assert "odd: price largest\n" in found("largest-place-order-price-2")
    assert "odd: quantity -1\n" in found("minus-1-place-order-quantity")
    assert "odd: quantity 127\n" in found("largest-place") and "price largest" in found("largest-place")
    assert "odd: id long\n" in found("long-place-order-id")


def test_swapped_calls_leave_time_as_it_is(folder: Path) -> None:
    check(Meter, folder, update=True, variant="swapped-1")
    swapped = (folder / "agitated" / "swapped-1.yaml").read_text()
    assert [line for line in swapped.splitlines() if "id:" in line or "at:" in line] == [
        "  id: A-2",
        "  at: 2026-11-23T08:00:00Z",
        "  at: 2026-11-23T08:00:01Z",
        "  at: 2026-11-23T08:00:02Z",
        "  id: A-1",
        "  at: 2026-11-23T08:00:02Z",
        "  at: 2026-11-23T08:00:03Z",
    ]


def test_the_number_of_variants_is_limited(tmp_path: Path) -> None:
    call = IN.split("---\n")[1]
    (tmp_path / "in.yaml").write_text("---\n".join([call] * 150))
    (tmp_path / "out.yaml").write_text("")
    names = variants(Meter, tmp_path)
    assert len(names) == 700
    report = check(Meter, tmp_path, agitate=True, update=True)
    assert report.passed + len(report.updated) + len(report.failed) == 701
    # 449 of calls in the wrong place, and 22 with odd values for each call.
    assert report.left_out == 449 + 22 * 150 - 700


COMPONENT = f"""\
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from test_service_trials import Meter
"""


def test_pytest_shows_a_test_for_each_variant(folder: Path) -> None:
    (folder / "meter.py").write_text(COMPONENT)
    (folder / "component").write_text("meter.py:Meter")
    command = [sys.executable, "-m", "pytest", "-v", "-c", os.devnull, "--rootdir", str(folder)]
    command += ["-p", "no:cacheprovider", "--millstream-agitate", str(folder)]

    def run(*more: str) -> str:
        done = subprocess.run([*command, *more], cwd=folder, capture_output=True, text=True, timeout=240)
        return done.stdout

    out = run()
    assert f"{folder.name} PASSED" in out
    assert f"{folder.name}[missing-1] FAILED" in out
    assert f"{folder.name}[empty-place-order-raw] PASSED" in out
    names = variants(Meter, folder)
    run("--millstream-update")
    assert f"{len(names) + 1} passed" in run()
    (folder / "agitated" / "missing-2.yaml").write_text("")
    out = run()
    assert f"1 failed, {len(names)} passed" in out and f"{folder.name}[missing-2] FAILED" in out
