"""``millstream demo``: all its processes, its report, and its end by Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from millstream._demo.flow import Probe
from millstream._demo.report import disagreement
from millstream._demo.results import counted

DEMO = [sys.executable, "-m", "millstream", "demo"]
PATIENCE = 120


def start(folder: Path, *options: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*DEMO, *map(str, options), "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"TMPDIR": str(folder)},
    )


def ended(demo: subprocess.Popen[str]) -> dict[str, Any]:
    """The report of a run that succeeds and says nothing else."""
    said, errors = demo.communicate(timeout=PATIENCE)
    assert demo.returncode == 0 and not errors, errors
    report: dict[str, Any] = json.loads(said)
    return report


def judge(report: dict[str, Any], rate: float) -> None:
    """A report is complete: everything that was sent was handled, and what was asked for was measured."""
    assert (report["workers"], report["rate_ordered"], report["skipped"]) == (1, rate, 0)
    assert report["rate_reached"] > 0
    counts = report["counts"]
    assert report["end_to_end"]["count"] == counts["ordered"]
    assert report["messages"] == counts["sent"] == counts["handled"]
    assert report["results"] == counts["results"] == counts["expected_results"]
    assert counts["wrong_results"] == []
    for latency in report["internal"], report["end_to_end"]:
        assert 0 < latency["p50_us"] <= latency["p99_us"] <= latency["max_us"]


def test_the_demo_handles_all_that_it_sends(tmp_path: Path) -> None:
    report = ended(start(tmp_path, "--seconds", 1, "--rate", 20_000))
    judge(report, 20_000)
    # The first order of a symbol with a wide spread is number 5,226, the second 24,957.
    assert (report["messages"], report["results"]) == (20_000, 1)
    assert not list(tmp_path.iterdir())


def test_as_many_as_go_through_have_no_schedule_and_orders_are_rejected(tmp_path: Path) -> None:
    report = ended(start(tmp_path, "--seconds", 4, "--rate", 0))
    assert report["rate_ordered"] is None and report["end_to_end"] is None
    assert report["sender_lag_max_us"] is None
    counts = report["counts"]
    assert report["messages"] == counts["ordered"] == counts["sent"] == counts["handled"]
    assert report["results"] == counts["expected_results"] >= 1
    assert counts["wrong_results"] == []


def test_the_report_is_a_table_without_json(tmp_path: Path) -> None:
    command = [*DEMO, "--seconds", "1", "--rate", "10000", "--spin"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    assert "market_spread.py" in done.stderr
    first, _, head, *_ = done.stdout.splitlines()
    assert first.startswith("Market Spread in Python, 1 worker, 0.010 M msg/s ordered: ")
    assert first.endswith(" 10000 messages, 0 results, 0 skipped")
    assert head.split() == ["latency,", "us", "p50", "p90", "p99", "p99.9", "p99.99", "max", "messages"]


@pytest.mark.parametrize(
    "options, said",
    [
        (["--rate", "-1"], "--rate -1: a number of messages, or 0"),
        (["--seconds", "0"], "--seconds 0: more than 0, at most 3600"),
        (["--workers", "2"], "unrecognized arguments: --workers 2"),
    ],
)
def test_bad_usage(options: list[str], said: str) -> None:
    done = subprocess.run([*DEMO, *options], capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"millstream demo: {said} (see millstream demo --help)\n"


def until(condition: Any) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


@pytest.mark.parametrize("milliseconds", [0, 50, 200, 400, 800, 1200])
def test_ctrl_c_at_any_moment_ends_well(tmp_path: Path, milliseconds: int) -> None:
    demo = start(tmp_path, "--rate", 20_000, "--seconds", 600)
    # The signals are hooked before the data are generated.
    until(lambda: list(tmp_path.iterdir()))
    time.sleep(milliseconds / 1000)
    demo.send_signal(signal.SIGINT)
    said, errors = demo.communicate(timeout=PATIENCE)
    assert demo.returncode == 0, errors
    if errors:
        assert errors == "millstream demo: interrupted before there was anything to measure\n"
    else:
        judge(json.loads(said), 20_000)
    assert not list(tmp_path.iterdir())


def test_ctrl_c_under_load_drains_and_reports(tmp_path: Path) -> None:
    demo = start(tmp_path, "--rate", 20_000, "--seconds", 600)
    children = Path(f"/proc/{demo.pid}/task/{demo.pid}/children")

    def sends(child: str) -> bool:
        try:
            return "--stream" in Path(f"/proc/{child}/cmdline").read_text()
        except OSError:
            return False

    until(lambda: any(map(sends, children.read_text().split())))
    # The schedule starts 0.7 s after the sender.
    time.sleep(1.5)
    demo.send_signal(signal.SIGINT)
    report = ended(demo)
    judge(report, 20_000)
    assert 0 < report["messages"] < 600 * 20_000


# The judgement.


def stream(ordered: int, messages: int) -> dict[str, int]:
    return {"ordered": ordered, "messages": messages}


def sent(*streams: dict[str, int], interrupted: bool = False) -> dict[str, Any]:
    return {"streams": streams, "interrupted": interrupted, "end_ns": 2_000_000_000}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    from millstream._demo.programs import generate

    folder = tmp_path_factory.mktemp("data")
    found = {kind: str(folder / kind) for kind in ("initial", "orders")}
    for kind, path in found.items():
        generate(kind, path)
    return found


def test_each_count_and_each_result_is_compared(files: dict[str, str], tmp_path: Path) -> None:
    from millstream._demo.results import expected

    results = tmp_path / "results"
    good = [bytes(one) for one in expected(files["initial"], files["orders"], 700_000)]
    assert len(good) == 10

    def judged(
        kept: list[bytes], handled: int = 1_400_000, ordered: int = 700_000, **more: bool
    ) -> str | None:
        results.write_bytes(b"".join(len(one).to_bytes(4, "big") + one for one in kept))
        of_run = sent(stream(700_000, 700_000), stream(ordered, 700_000), **more)
        counts = counted(files["initial"], files["orders"], str(results), of_run)
        return disagreement(counts | {"handled": handled})

    assert judged(good) is None
    # In any order of symbols, and at any time.
    by_symbol = sorted(good, key=lambda one: one[11:15])
    assert judged([one[:47] + bytes(8) for one in by_symbol]) is None
    for bad in (
        judged(good, handled=1_399_999),
        judged(good, handled=1_400_001),
        judged(good, ordered=700_001),
        judged(good[:-1]),
        judged([*good[:4], good[3], *good[5:]]),
    ):
        assert bad is not None and bad.startswith("the counts disagree: ordered ")
    assert judged(good, ordered=700_001, interrupted=True) is None
    # The last bid, the quantity, the name of the order, and the symbol.
    for at in (36, 17, 5, 14):
        changed = bytearray(good[3])
        changed[at] ^= 1
        bad = judged([*good[:3], bytes(changed), *good[4:]])
        assert bad is not None and " of symbol " in bad


def test_messages_that_were_due_and_never_sent_are_in_the_latencies() -> None:
    probe = Probe()
    assert probe.latencies() is None
    probe.schedule(1_000_000_000, 1000.0)
    probe.ended(sent(stream(5, 5), stream(25_000, 10_000)))
    latencies = probe.latencies()
    assert latencies is not None and latencies["count"] == 15_000
    # The first of them was due 10 ms after the start, a second before the end.
    assert latencies["max_us"] == 990_000.0
    assert latencies["p50_us"] <= latencies["p90_us"] <= latencies["max_us"]
