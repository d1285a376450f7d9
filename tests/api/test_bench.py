"""The benchmarks of Python flows, made small: every figure is there and is one."""

from typing import Any

from millstream import _bench


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


def test_an_unknown_argument_is_a_usage_error(capsys: Any) -> None:
    assert _bench.bench_flow(["--json", "--fast"]) == 2
    assert "unknown argument --fast" in capsys.readouterr().err
