"""A replay repeats production: order of inputs, timers, outputs. Also reports of a diff and a debugger."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import millstream as ms
import pytest

TIMEOUT = 120

METER = """\
from typing import Protocol

from millstream.service import Clock, every


class Orders(Protocol):
    def place(self, id: str) -> None: ...


class Limits(Protocol):
    def limit(self, value: int) -> None: ...


class Rates(Protocol):
    def placed(self, id: str, limit: int, at: int) -> None: ...

    def rate(self, name: str, orders: int, at: int) -> None: ...


class Meter(Orders, Limits):
    def __init__(self, rates: Rates, clock: Clock) -> None:
        self.rates = rates
        self.clock = clock
        self.orders = self.value = 0

    def place(self, id: str) -> None:
        self.orders += 1
        self.rates.placed(id, self.value, self.clock.now_ns())

    def limit(self, value: int) -> None:
        self.value = value

    @every(0.01)
    def often(self, now_ns: int) -> None:
        self.rates.rate("often", self.orders, now_ns)

    @every(0.025)
    def beat(self, now_ns: int) -> None:
        self.rates.rate("beat", self.orders, now_ns)
        self.orders = 0


class Plain(Orders):
    def __init__(self, rates: Rates, clock: Clock) -> None:
        self.rates = rates
        self.clock = clock

    def place(self, id: str) -> None:
        self.rates.placed(id, 0, self.clock.now_ns())


class Timed(Plain):
    @every(1.0)
    def beat(self, now_ns: int) -> None:
        self.rates.rate("beat", 0, now_ns)


class Debugged(Plain):
    def place(self, id: str) -> None:
        breakpoint()
"""


def service(
    folder: Path, *arguments: str, code: int | None = 0, feed: str = ""
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "millstream", "service", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=TIMEOUT, input=feed)
    assert code is None or done.returncode == code, done.stdout + done.stderr
    return done


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "meter.py").write_text(METER)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    sys.modules.pop("meter", None)
    return tmp_path


def calls_of(journal: str, folder: Path) -> list[str]:
    """The calls that were recorded, without the times of their records."""
    text = service(folder, "export", journal).stdout
    calls = text.split("---\n") if text else []
    return [call.split("\n", 2)[2] for call in calls]


def test_a_replay_gives_the_outputs_of_production(folder: Path) -> None:
    """A service of two inputs and two timers is killed repeatedly while both are written."""
    import meter

    seed = int(os.environ.get("MILLSTREAM_SEED", random.randrange(1 << 32)))
    print(f"MILLSTREAM_SEED={seed}")
    dice = random.Random(seed)
    orders = ms.publisher(meter.Orders, "orders")
    limits = ms.publisher(meter.Limits, "limits")
    orders.place("first")
    limits.limit(0)
    inputs = ["--in", "orders", "--in", "limits"]
    run = [sys.executable, "-m", "millstream", "service", "run", "meter.py:Meter", *inputs, "--out", "rates"]
    placed = 0
    for _ in range(int(os.environ.get("MILLSTREAM_KILLS", "4"))):
        process = subprocess.Popen(run, cwd=folder)
        end = time.monotonic() + 0.4 + dice.random()
        while time.monotonic() < end:
            orders.place(f"A-{placed}")
            placed += 1
            if dice.random() < 0.3:
                limits.limit(placed)
            time.sleep(0.002)
        process.send_signal(signal.SIGKILL)
        process.wait(TIMEOUT)
    service(folder, *run[4:], "--drain")
    produced = calls_of("rates", folder)
    assert sum(call.startswith("placed:") for call in produced) == placed + 1
    assert sum("name: often" in call for call in produced) > 0
    before = sorted(
        (path, path.stat().st_mtime_ns) for path in folder.rglob("*") if path.suffix == ".segment"
    )
    for out in ("rates", "rates.schedule", str(folder / "rates")):
        done = service(folder, "replay", "meter.py:Meter", *inputs, "--out", out)
        assert done.stdout.split("---\n") == produced, f"seed {seed}"
        assert done.stderr == ""
    # Inputs are known by what they are, not by their names or their order.
    os.rename("orders", "elsewhere")
    moved = ["--in", "limits", "--in", "elsewhere"]
    assert service(folder, "replay", "meter.py:Meter", *moved, "--out", "rates").stdout == done.stdout
    os.rename("elsewhere", "orders")
    same = service(folder, "diff", "meter.py:Meter", "meter.py:Meter", *inputs, "--out", "rates").stdout
    assert same.startswith("no difference in ") and same.endswith(" calls\n")
    after = sorted((path, path.stat().st_mtime_ns) for path in folder.rglob("*") if path.suffix == ".segment")
    assert before == after


def publish_at_times(folder: Path) -> None:
    """Orders, and a second without any between two of them."""
    import meter

    orders = ms.publisher(meter.Orders, folder / "orders")
    orders.place("A-1")
    time.sleep(1.1)
    orders.place("A-2")


def test_timers_fire_by_the_times_of_records_where_no_order_is_recorded(folder: Path) -> None:
    publish_at_times(folder)
    done = service(folder, "replay", "meter.py:Timed", "--in", "orders")
    methods = [call.split(":")[0] for call in done.stdout.split("---\n")]
    assert methods[0] == methods[-1] == "placed" and set(methods[1:-1]) == {"rate"}
    assert done.stderr == (
        "millstream service replay: no output journal is given (--out): inputs are merged by the times of "
        "their records, and timers fire by these times\n"
    )
    assert service(folder, "replay", "meter.py:Plain", "--in", "orders").stderr == ""


def test_a_diff_of_a_version_with_a_timer_and_one_without(folder: Path) -> None:
    publish_at_times(folder)
    done = service(folder, "diff", "meter.py:Plain", "meter.py:Timed", "--in", "orders", code=1)
    assert "@@ timer beat at 20" in done.stdout and "+rate:\n" in done.stdout
    assert "(--out)" in done.stderr
    # Production had the timer; what it recorded is what both versions see.
    service(folder, "run", "meter.py:Timed", "--in", "orders", "--out", "rates", "--drain")
    done = service(folder, "replay", "meter.py:Timed", "--in", "orders", "--out", "rates")
    assert done.stdout.split("---\n") == calls_of("rates", folder)
    ticks = done.stdout.count("rate:\n")
    done = service(
        folder, "diff", "meter.py:Plain", "meter.py:Timed", "--in", "orders", "--out", "rates",
        code=1 if ticks else 0,
    )  # fmt: skip
    assert done.stdout.count("@@ timer beat at") == ticks
    assert done.stderr == ""


def test_a_new_timer_fires_in_what_was_recorded_without_it(folder: Path) -> None:
    publish_at_times(folder)
    service(folder, "run", "meter.py:Plain", "--in", "orders", "--out", "rates", "--drain")
    done = service(
        folder, "diff", "meter.py:Plain", "meter.py:Timed", "--in", "orders", "--out", "rates", code=1
    )
    assert done.stdout.startswith("--- meter.py:Plain\n+++ meter.py:Timed\n@@ timer beat at 20")


def test_an_output_that_is_not_there_is_an_error(folder: Path) -> None:
    publish_at_times(folder)
    done = service(folder, "replay", "meter.py:Timed", "--in", "orders", "--out", "rats", code=1)
    assert done.stderr == "millstream service replay: rats: there is no journal here\n"


def test_a_diff_names_the_record_and_ends_with_one_line(folder: Path) -> None:
    publish_at_times(folder)
    (folder / "other.py").write_text(
        "import meter\n\n\nclass Other(meter.Plain):\n"
        "    def place(self, id: str) -> None:\n"
        "        super().place('B-2' if id == 'A-2' else id)\n"
    )
    done = service(folder, "diff", "meter.py:Plain", "other.py:Other", "--in", "orders", code=1)
    assert "\n@@ orders, record 2, place at 20" in done.stdout
    assert done.stdout.endswith("\n1 of 2 calls have other outputs\n")
    done = service(folder, "diff", "meter.py:Plain", "meter.py:Plain", "--in", "orders")
    assert done.stdout == "no difference in 2 calls\n"


@pytest.mark.parametrize("verb", ["run", "replay"])
@pytest.mark.parametrize("policy", ["fail", "skip"])
def test_leaving_the_debugger_ends_quietly(verb: str, policy: str, folder: Path) -> None:
    publish_at_times(folder)
    done = service(folder, verb, "meter.py:Debugged", "--in", "orders", "--on-error", policy, feed="q\ny\n")
    assert done.stderr == "" and done.stdout.count("(Pdb)") == 1


def test_a_replay_ends_after_so_many_calls(folder: Path) -> None:
    publish_at_times(folder)
    for count in (0, 1, 2, 3):
        found = service(folder, "replay", "meter.py:Plain", "--in", "orders", "--until", str(count)).stdout
        assert found.count("placed:") == min(count, 2)


def test_two_versions_in_files_of_one_name_are_two_components(folder: Path) -> None:
    publish_at_times(folder)
    for version, id in (("one", "id"), ("two", "id + '!'")):
        (folder / version).mkdir()
        text = METER.replace("self.rates.placed(id, 0,", f"self.rates.placed({id}, 0,")
        (folder / version / "meter.py").write_text(text)
    versions = ("one/meter.py:Plain", "two/meter.py:Plain")
    done = service(folder, "diff", *versions, "--in", "orders", code=1)
    assert done.stdout.endswith("\n2 of 2 calls have other outputs\n")
