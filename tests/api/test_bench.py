"""The benchmarks of Python flows, made small: every figure is there and is one."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from millstream import _bench, _bench_recovery, _bench_wake


def test_flows_and_plain_loops_are_measured() -> None:
    numbers = list(range(1000))
    for flow, plain in [
        (lambda n: _bench.map_flow(n, 10), _bench.map_plain),
        (_bench.stateful_flow, _bench.stateful_plain),
        (_bench.count_flow, _bench.count_plain),
    ]:
        assert min(_bench.compare(flow, plain, numbers)) > 0


def test_two_workers_are_compared_with_one() -> None:
    assert _bench.two_workers_ratio(list(range(1000))) > 0


def test_an_idle_flow_is_measured() -> None:
    assert 0 <= _bench.idle_percent(0.05) < 100


def test_recovery_is_measured_beside_none(monkeypatch: Any) -> None:
    monkeypatch.setattr(
        _bench_recovery,
        "CASES",
        {
            "few": lambda rounds: _bench.stateful_of(_bench_recovery.Again([1, 2, 3] * 1000, rounds)),
            "windows": lambda rounds: _bench.window_count_of(
                again := _bench_recovery.Again(list(enumerate([1, 2, 3] * 1000)), rounds), again.time_of
            ),
        },
    )
    few, windows = _bench_recovery.costs(0.01, 1)
    assert few["what"] == "few" and windows["what"] == "windows"
    assert min(few["off"], few["on"], windows["off"], windows["on"]) > 0


def test_wake_ups_of_sources_are_measured() -> None:
    rows = _bench_wake.wake_latencies(20)
    assert [row["what"] for row in rows] == ["io.wake()", "io.register(socket)"]
    assert all(0 < row["p50_us"] <= row["p99_us"] for row in rows)


def test_a_flow_that_resumes_is_measured() -> None:
    assert 0 < _bench_recovery.resume(100, 1) < 60


def test_a_part_can_be_measured_by_itself(monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.setitem(_bench.PARTS, "idle", lambda: {"idle_percent": 0.5})
    assert _bench.bench_flow(["--only", "idle", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["idle_percent"] == 0.5
    assert _bench.bench_flow(["--only", "all"]) == 2
    assert "--only takes steps, workers, recovery, resume, idle, wake, not 'all'" in capsys.readouterr().err


def test_an_unknown_argument_is_a_usage_error(capsys: Any) -> None:
    assert _bench.bench_flow(["--json", "--fast"]) == 2
    assert "unknown argument --fast" in capsys.readouterr().err


@pytest.mark.parametrize("language", ["rust", "python"])
def test_typed_calls_are_measured_from_process_to_process(language: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "millstream", "bench", "service", "--json", "--folder", str(tmp_path)]
    command += ["--rate", "2000", "--seconds", "0.3", "--warm-up", "0.1", "--runs", "1"]
    command += ["--python"] if language == "python" else []
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    (run,) = json.loads(done.stdout)["runs"]
    assert abs(run["latency"]["count"] - 600) <= 1
    assert 0 < run["latency"]["p50_us"] <= run["latency"]["p99_us"] <= run["latency"]["max_us"]
    assert run["digest"] != 0
    assert not list(tmp_path.iterdir())
