"""Components that make other calls than are recorded, or publish while they are not called."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Protocol

import millstream as ms
import pytest
from millstream.service import Trial, replay

TIMEOUT = 60


class Orders(Protocol):
    def order(self, cents: int) -> None: ...


class Fees(Protocol):
    def fee(self, cents: int) -> None: ...


class OnePercent(Orders):
    percent = 1

    def __init__(self, fees: Fees) -> None:
        self.fees = fees
        self.paid = 0

    def order(self, cents: int) -> None:
        self.paid += cents * self.percent // 100
        self.fees.fee(self.paid)

    def snapshot(self) -> object:
        return self.paid

    def restore(self, state: int) -> None:
        self.paid = state


class TwoPercent(OnePercent):
    percent = 2


class Rules(Protocol):
    def set_percent(self, percent: int) -> None: ...


class Ruled(OnePercent, Rules):
    """Its rule is an input."""

    def set_percent(self, percent: int) -> None:
        self.percent = percent


def order(path: Path, *cents: int) -> None:
    orders = ms.publisher(Orders, path)
    for each in cents:
        orders.order(each)


def fees(out: Path) -> list[int]:
    text = ms._millstream.service_export(os.fspath(out), 0, None)
    return [int(line.split(": ")[1]) for line in text.splitlines() if line.startswith("fee: ")]


def test_a_changed_rule_is_an_error_at_the_first_record_that_differs(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    paths: dict[str, Any] = {"inputs": tmp_path / "orders", "out": tmp_path / "fees", "drain": True}
    order(tmp_path / "orders", 10_000, 20_000)
    ms.serve(OnePercent, **paths)
    text = r"orders, record 1: .* record 2 is fee\(cents=100\), and it makes fee\(cents=200\)"
    with pytest.raises(ms.ServiceError, match=text):
        ms.serve(TwoPercent, **paths)
    with pytest.raises(ms.ServiceError, match="orders, record 2: "):
        ms.serve(TwoPercent, **paths, accept_differences=1)
    assert fees(tmp_path / "fees") == [100, 300]
    capfd.readouterr()
    ms.serve(TwoPercent, **paths, on_difference="recorded")
    assert capfd.readouterr().err == ""
    for more in ({"accept_differences": 2}, {"on_difference": "warn"}):
        ms.serve(TwoPercent, **paths, **more)
        told = capfd.readouterr().err
        assert "makes other calls for 2 input(s) than are recorded, and the recorded ones stay" in told
    order(tmp_path / "orders", 1_000)
    ms.serve(TwoPercent, **paths, accept_differences=2)
    # Its state is that of the new rule from the first order on.
    assert fees(tmp_path / "fees") == [100, 300, 620]


def test_a_rule_changes_from_here_on_by_a_snapshot_or_as_an_input(tmp_path: Path) -> None:
    paths: dict[str, Any] = {"inputs": tmp_path / "orders", "out": tmp_path / "fees", "drain": True}
    order(tmp_path / "orders", 10_000, 20_000)
    ms.serve(OnePercent, **paths, rebuild="snapshot")
    order(tmp_path / "orders", 1_000)
    ms.serve(TwoPercent, **paths, rebuild="snapshot")
    assert fees(tmp_path / "fees") == [100, 300, 320]

    paths["out"] = tmp_path / "ruled"
    ms.publisher(Rules, tmp_path / "orders").set_percent(3)
    order(tmp_path / "orders", 1_000)
    for _ in range(2):
        ms.serve(Ruled, **paths)
        assert fees(tmp_path / "ruled") == [100, 300, 310, 340]


def test_a_component_that_is_no_function_of_its_inputs_is_reported(tmp_path: Path) -> None:
    starts: list[int] = []

    class Counting(OnePercent):
        def order(self, cents: int) -> None:
            self.fees.fee(len(starts))

    order(tmp_path / "orders", 1)
    for start in range(2):
        starts.append(start)
        serve = lambda: ms.serve(Counting, tmp_path / "orders", out=tmp_path / "fees", drain=True)  # noqa: E731
        if start == 0:
            serve()
            continue
        with pytest.raises(ms.ServiceError, match=r"is fee\(cents=1\), and it makes fee\(cents=2\)"):
            serve()


@pytest.mark.parametrize("options", [{"on_difference": "no"}, {"accept_differences": -1}])
def test_an_option_that_makes_no_sense(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(ms.ServiceError, match=next(iter(options))):
        ms.serve(OnePercent, tmp_path / "orders", out=tmp_path / "fees", **options)


def test_the_options_of_the_command(tmp_path: Path) -> None:
    order(tmp_path / "orders", 10_000)
    ms.serve(OnePercent, tmp_path / "orders", out=tmp_path / "fees", drain=True)
    run = [sys.executable, "-m", "millstream", "service", "run", f"{__file__}:TwoPercent", "--drain"]
    run += ["--in", str(tmp_path / "orders"), "--out", str(tmp_path / "fees")]
    for more, code, text in [
        ([], 1, "--accept-differences N"),
        (["--accept-differences", "1"], 0, "1 input(s)"),
        (["--on-difference", "warn"], 0, "1 input(s)"),
        (["--on-difference", "recorded"], 0, ""),
    ]:
        done = subprocess.run([*run, *more], capture_output=True, text=True, timeout=TIMEOUT)
        assert done.returncode == code and text in done.stderr, done.stderr
        assert text or not done.stderr


# Calls while it is not called.

REFUSED = "may publish only while it is called"


class InConstructor(OnePercent):
    def __init__(self, fees: Fees) -> None:
        super().__init__(fees)
        fees.fee(0)


class Quietly(OnePercent):
    def __init__(self, fees: Fees) -> None:
        super().__init__(fees)
        try:
            fees.fee(0)
        except ms.ServiceError:
            pass


class InRestore(OnePercent):
    def restore(self, state: int) -> None:
        self.fees.fee(state)


class InSnapshot(OnePercent):
    def snapshot(self) -> object:
        self.fees.fee(7)
        return 7


class OnThread(OnePercent):
    def order(self, cents: int) -> None:
        thread = threading.Thread(target=self.late, args=[cents])
        thread.start()
        thread.join()

    def late(self, cents: int) -> None:
        with pytest.raises(ms.ServiceError, match=REFUSED):
            self.fees.fee(cents)


@pytest.mark.parametrize("component", [InConstructor, Quietly])
def test_a_component_that_publishes_in_its_constructor_is_refused(
    component: type[OnePercent], tmp_path: Path
) -> None:
    order(tmp_path / "orders", 1)
    for _ in range(2):
        for out in (tmp_path / "fees", None):
            with pytest.raises(ms.ServiceError, match=REFUSED):
                ms.serve(component, tmp_path / "orders", out=out, drain=True)
    with pytest.raises(ms.ServiceError, match=REFUSED):
        replay(component, tmp_path / "orders")
    with pytest.raises(ms.ServiceError, match=REFUSED):
        Trial(component)
    (tmp_path / "in.yaml").write_text("order: 1\n")
    (tmp_path / "out.yaml").write_text("fee: 0\n")
    with pytest.raises(ms.ServiceError, match=REFUSED):
        ms.service.check(component, tmp_path)
    # Nothing was recorded, so the repaired one begins at the first order.
    ms.serve(OnePercent, tmp_path / "orders", out=tmp_path / "fees", drain=True)
    assert fees(tmp_path / "fees") == [0]


@pytest.mark.parametrize("component", [InRestore, InSnapshot])
def test_a_component_that_publishes_when_its_state_is_saved_or_restored_is_refused(
    component: type[OnePercent], tmp_path: Path
) -> None:
    paths: dict[str, Any] = {"inputs": tmp_path / "orders", "out": tmp_path / "fees", "drain": True}
    order(tmp_path / "orders", 100)
    if component is InRestore:
        ms.serve(component, **paths, rebuild="snapshot")
    with pytest.raises(ms.ServiceError, match=REFUSED):
        ms.serve(component, **paths, rebuild="snapshot")
    ms.serve(OnePercent, **paths, rebuild="snapshot")
    assert fees(tmp_path / "fees") == [1]


def test_a_component_that_publishes_on_a_thread_of_its_own_is_refused(tmp_path: Path) -> None:
    order(tmp_path / "orders", 1)
    with pytest.raises(ms.ServiceError, match=REFUSED):
        ms.serve(OnThread, tmp_path / "orders", out=tmp_path / "fees", drain=True)
    assert fees(tmp_path / "fees") == []
    trial = Trial(OnThread)
    trial.component.order(1)
    assert trial.take() == []


def test_a_thread_that_publishes_while_the_service_is_idle_ends_it(tmp_path: Path) -> None:
    called = threading.Event()

    class Idle(OnePercent):
        def order(self, cents: int) -> None:
            super().order(cents)
            threading.Thread(target=self.later).start()

        def later(self) -> None:
            called.wait(TIMEOUT)
            with pytest.raises(ms.ServiceError, match=REFUSED):
                self.fees.fee(0)

    order(tmp_path / "orders", 100)
    timer = threading.Timer(0.3, called.set)  # it is idle then, or not yet called again
    timer.start()
    with pytest.raises(ms.ServiceError, match=REFUSED):
        ms.serve(Idle, tmp_path / "orders", out=tmp_path / "fees")
    assert fees(tmp_path / "fees") == [1]
