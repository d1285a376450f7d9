"""The benchmarks of Python flows at a small size: every figure is present and a number.

Those that run in ``millstream-bench``, which has to be compiled, are for ``make soak``.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import millstream
import pytest
from documents import ROOT
from millstream import _millstream
from millstream_bench import adapter, flow as bench, http_post, recovery, wake, workers


def test_flows_and_plain_loops_are_measured() -> None:
    numbers = list(range(1000))
    for flow, plain in [
        (lambda n: bench.map_flow(n, 10), bench.map_plain),
        (bench.stateful_flow, bench.stateful_plain),
        (bench.count_flow, bench.count_plain),
    ]:
        assert min(bench.compare(flow, plain, numbers)) > 0


def test_two_workers_are_compared_with_one() -> None:
    assert bench.two_workers_ratio(list(range(1000))) > 0


def test_a_keyed_flow_is_measured_with_one_worker_and_with_two(monkeypatch: Any) -> None:
    assert min(workers.measure(2000, 1)) > 0
    monkeypatch.setattr(workers, "sums", lambda end: [0] * workers.KEYS)
    with pytest.raises(RuntimeError, match="the sums of 1 workers are not those of a plain loop"):
        workers.measure(2000, 1)


def test_parallel_requests_are_measured_and_checked() -> None:
    rate, connections = http_post.measure(300, 8, 0.001)
    assert rate > 0 and 1 <= connections <= 8
    seen = http_post.Seen()
    for key, number in ((b"a", 0), (b"b", 2), (b"b", 1)):
        seen.add(key, {"key": 0, "n": number})
    with pytest.raises(SystemExit, match="item 1 has come after 2; 1 items are missing; items share"):
        seen.rate(4)


def test_an_idle_flow_is_measured() -> None:
    assert 0 <= bench.idle_percent(0.05) < 100


def test_recovery_is_measured_beside_none(monkeypatch: Any) -> None:
    monkeypatch.setattr(
        recovery,
        "CASES",
        {
            "few": lambda rounds: bench.stateful_of(recovery.Again([1, 2, 3] * 1000, rounds)),
            "windows": lambda rounds: bench.window_count_of(
                again := recovery.Again(list(enumerate([1, 2, 3] * 1000)), rounds), again.time_of
            ),
        },
    )
    few, windows = recovery.costs(0.01, 1)
    assert few["what"] == "few" and windows["what"] == "windows"
    assert min(few["off"], few["on"], windows["off"], windows["on"]) > 0


def test_wake_ups_of_sources_are_measured() -> None:
    rows = wake.wake_latencies(20)
    assert [row["what"] for row in rows] == ["io.wake()", "io.register(socket)"]
    assert all(0 < row["p50_us"] <= row["p99_us"] for row in rows)


def test_sources_from_generators_are_measured() -> None:
    measured = adapter.measure(1001, 1, 20)
    assert [row["what"] for row in measured["rates"]] == list(adapter.CASES)
    assert min(row["items_per_second"] for row in measured["rates"]) > 0
    assert 0 < measured["wake"]["p50_us"] <= measured["wake"]["p99_us"]


def test_items_that_do_not_arrive_are_an_error() -> None:
    with pytest.raises(RuntimeError, match="10 of 11 items"):
        adapter.items_per_second(lambda _: adapter.plain(10), 11)


def test_a_flow_that_resumes_is_measured() -> None:
    assert 0 < recovery.resume(100, 1) < 60


def test_a_part_can_be_measured_by_itself(monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.setitem(bench.PARTS, "idle", lambda: {"idle_percent": 0.5})
    assert bench.main(["--only", "idle", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["idle_percent"] == 0.5
    assert bench.main(["--only", "all"]) == 2
    assert (
        "--only takes steps, workers, recovery, resume, idle, wake, adapter, not 'all'"
        in capsys.readouterr().err
    )


def test_an_unknown_argument_is_a_usage_error(capsys: Any) -> None:
    assert bench.main(["--json", "--fast"]) == 2
    assert "unknown argument --fast" in capsys.readouterr().err


@pytest.mark.soak
def test_typed_calls_in_python_are_measured_from_process_to_process(
    millstream_bench: Path, tmp_path: Path
) -> None:
    command = [str(millstream_bench), "service", "--python", "--json", "--folder", str(tmp_path)]
    command += ["--rate", "2000", "--seconds", "0.3", "--warm-up", "0.1", "--runs", "1"]
    (run,) = measured(command)["runs"]
    assert abs(run["latency"]["count"] - 600) <= 1
    assert 0 < run["latency"]["p50_us"] <= run["latency"]["p99_us"] <= run["latency"]["max_us"]
    assert run["digest"] != 0
    assert not list(tmp_path.iterdir())


@pytest.mark.soak
def test_market_spread_in_python_is_measured(millstream_bench: Path) -> None:
    command = [str(millstream_bench), "market-spread", "--python", "--json"]
    report = measured([*command, "--seconds", "1", "--rate", "20000"])["median"]
    assert report["messages"] == report["counts"]["ordered"] == 20_000
    assert report["counts"]["wrong_results"] == []


@pytest.mark.soak
def test_an_http_source_in_python_is_measured(millstream_bench: Path, tmp_path: Path) -> None:
    command = [str(millstream_bench), "http", "--python", "--json", "--dir", str(tmp_path)]
    median = measured([*command, "--runs", "1", "--seconds", "0.2", "--lines", "2"])["median"]
    assert median["items"] == 2 * median["latency"]["count"] > 0
    assert not list(tmp_path.iterdir())


@pytest.mark.soak
def test_flows_in_python_are_measured_by_the_program(millstream_bench: Path) -> None:
    command = [str(millstream_bench), "flow", "--python", "--only", "wake", "--json"]
    assert [row["what"] for row in measured(command)["wake"]] == ["io.wake()", "io.register(socket)"]


@pytest.mark.soak
def test_a_part_of_python_needs_the_option(millstream_bench: Path) -> None:
    command = [str(millstream_bench), "flow", "--only", "wake"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (2, "millstream-bench flow: --only wake needs --python\n")


def test_the_package_starts_the_benchmarks_beside_its_interpreter_or_on_the_path(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "millstream", "bench", "flow", "--only", "wake"]
    program = tmp_path / "bin" / "millstream-bench"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\necho "$@"\nexit 2\n')
    program.chmod(0o755)
    path = {"PATH": f"{program.parent}:/bin"}
    found = subprocess.run(command, capture_output=True, text=True, timeout=60, env=os.environ | path)
    assert (found.returncode, found.stdout) == (2, "flow --only wake\n")
    missing = subprocess.run(
        command, capture_output=True, text=True, timeout=60, env=os.environ | {"PATH": str(tmp_path)}
    )
    assert missing.returncode == 2
    (line,) = missing.stderr.splitlines()
    assert line.startswith("millstream bench: cannot start millstream-bench (No such file")
    assert "cargo build --release --manifest-path benchmarks/Cargo.toml" in line


def measured(command: list[str]) -> Any:
    """What a benchmark reports, run with this interpreter for its Python processes."""
    python = {"MILLSTREAM_PYTHON": sys.executable}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=os.environ | python)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


# Texts that only the benchmarks have.
OF_BENCHMARKS = [b"OrdersOnChronicle", b"redis-server", b"CLIENT01", b"io.register(socket)"]


def test_the_package_has_no_benchmark_in_it() -> None:
    package = Path(millstream.__file__).parent
    names = [path.name for path in package.rglob("*") if "__pycache__" not in path.parts]
    assert "__init__.py" in names and not [name for name in names if "bench" in name]
    native = Path(_millstream.__file__).read_bytes()
    assert [text for text in OF_BENCHMARKS if text in native] == []
    # The texts are there where benchmarks are.
    sources = [path for path in (ROOT / "benchmarks").rglob("*") if path.suffix in (".rs", ".py")]
    texts = b"".join(path.read_bytes() for path in sources)
    assert [text for text in OF_BENCHMARKS if text not in texts] == []
