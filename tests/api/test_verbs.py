"""The verbs, on one to three workers, judged by plain Python."""

from collections import Counter, deque

import millstream as ms
import pytest
from millstream import testing

WORKERS = pytest.mark.parametrize("workers", [1, 2, 3])
NUMBERS = list(range(200))


def test_verbs_without_keys() -> None:
    seen: list[int] = []
    cases = {
        "map": (lambda s: s.map(lambda n: n + 1), [n + 1 for n in NUMBERS]),
        "filter": (lambda s: s.filter(lambda n: n % 2), [n for n in NUMBERS if n % 2]),
        "flat_map": (
            lambda s: s.flat_map(lambda n: [n] * (n % 3)),
            [n for n in NUMBERS for _ in range(n % 3)],
        ),
        "filter_map": (lambda s: s.filter_map(lambda n: n or None), NUMBERS[1:]),
        "map_batch": (lambda s: s.map_batch(lambda batch: [-n for n in batch]), [-n for n in NUMBERS]),
        "inspect": (lambda s: s.inspect(seen.append), NUMBERS),
        "values": (lambda s: s.key_by(int).values(), NUMBERS),
        "items": (lambda s: s.key_by(str).items(), [(str(n), n) for n in NUMBERS]),
    }
    for name, (build, expected) in cases.items():
        flow = ms.Flow(name)
        out = testing.collect()
        build(flow.source("in", testing.items(NUMBERS))).sink("out", out)
        ms.run(flow)
        assert out == expected, name
    assert seen == NUMBERS


@WORKERS
def test_verbs_on_values_keep_the_key(workers: int) -> None:
    cases = {
        "map": (lambda s: s.map(lambda n: -n), lambda n: [-n]),
        "filter": (lambda s: s.filter(lambda n: n > 50), lambda n: [n] if n > 50 else []),
        "flat_map": (lambda s: s.flat_map(lambda n: [n, n]), lambda n: [n, n]),
        "filter_map": (lambda s: s.filter_map(lambda n: n or None), lambda n: [n] if n else []),
        "map_batch": (lambda s: s.map_batch(lambda batch: [n * 2 for n in batch]), lambda n: [n * 2]),
        "inspect": (lambda s: s.inspect(lambda n: None), lambda n: [n]),
    }
    for name, (build, expected) in cases.items():
        flow = ms.Flow(name)
        out = testing.collect()
        build(flow.source("in", testing.items(NUMBERS)).key_by(lambda n: n % 7)).sink("out", out)
        ms.run(flow, workers=workers)
        assert sorted(out) == sorted((n % 7, made) for n in NUMBERS for made in expected(n)), name


@WORKERS
def test_branch_and_merge(workers: int) -> None:
    flow = ms.Flow("f")
    out = testing.collect()
    even, odd = flow.source("in", testing.items(NUMBERS)).branch(lambda n: n % 2 == 0)
    even.map(lambda n: ("even", n)).merge(odd.redistribute().map(lambda n: ("odd", n))).sink("out", out)
    ms.run(flow, workers=workers)
    assert sorted(out) == sorted(("odd" if n % 2 else "even", n) for n in NUMBERS)


@WORKERS
def test_keyed_branch(workers: int) -> None:
    flow = ms.Flow("f")
    out = testing.collect()
    rest = testing.collect()
    yes, no = flow.source("in", testing.items(NUMBERS)).key_by(lambda n: n % 5).branch(lambda n: n < 20)
    yes.count().sink("out", out)
    no.sink("rest", rest)
    ms.run(flow, workers=workers)
    assert sorted(out) == [(key, 4) for key in range(5)]
    assert sorted(rest) == sorted((n % 5, n) for n in NUMBERS[20:])


@WORKERS
@pytest.mark.parametrize("emit", ["end", "each"])
def test_aggregates(workers: int, emit: str) -> None:
    numbers = [n * 7919 % 101 for n in NUMBERS]
    groups: dict[int, list[int]] = {}
    for n in numbers:
        groups.setdefault(n % 3, []).append(n)
    cases = {
        "count": (lambda s: s.count(emit=emit), len),
        "sum": (lambda s: s.sum(emit=emit), sum),
        "min": (lambda s: s.min(emit=emit), min),
        "max": (lambda s: s.max(emit=emit), max),
        "fold": (lambda s: s.fold("f", list, lambda acc, n: [*acc, n], emit=emit), list),
        "reduce": (lambda s: s.reduce("r", lambda a, b: a * 10 + b, emit=emit), None),
    }
    for name, (build, judge) in cases.items():
        flow = ms.Flow(name)
        out = testing.collect()
        build(flow.source("in", testing.items(numbers)).key_by(lambda n: n % 3)).sink("out", out)
        ms.run(flow, workers=workers)
        for key, values in groups.items():
            got = [value for k, value in out if k == key]
            assert len(got) == (1 if emit == "end" else len(values)), name
            if judge is not None:
                assert got[-1] == judge(values), name


@WORKERS
def test_logic_with_an_end(workers: int) -> None:
    class Last:
        def __init__(self) -> None:
            self.seen: list[int] = []

        def on_item(self, key: int, value: int) -> None:
            self.seen.append(value)

        def on_end(self, key: int) -> list[tuple[int, int]]:
            return [(len(self.seen), self.seen[-1])]

    flow = ms.Flow("f")
    out = testing.collect()
    flow.source("in", testing.items(NUMBERS)).key_by(lambda n: n % 4).stateful("last", Last).sink("out", out)
    ms.run(flow, workers=workers)
    assert sorted(out) == [(key, (50, 196 + key)) for key in range(4)]


@WORKERS
@pytest.mark.parametrize("batch_size", [1, 7, 100])
@pytest.mark.parametrize("topology", ["straight", "redistributed", "merged"])
def test_sequence_window(workers: int, batch_size: int, topology: str) -> None:
    """Each key counts 1, 2, ...: a window of the last four shows loss, doubles, disorder and mixed keys."""
    keys = ["a", "b", "c", "d", "e"]
    script = [(key, n) for n in range(1, 101) for key in keys]
    flow = ms.Flow("window")
    out = testing.collect()
    if topology == "merged":
        parts = [[item for item in script if item[0] in "ab"], [item for item in script if item[0] in "cde"]]
        streams = [
            flow.source(f"in{i}", testing.items(part, batch_size)).key_by(lambda item: item[0])
            for i, part in enumerate(parts)
        ]
        keyed = streams[0].merge(streams[1])
    else:
        stream = flow.source("in", testing.items(script, batch_size))
        if topology == "redistributed":
            # Order is lost on the way, so that each key goes by one batch.
            stream = flow.source("more", testing.items([("z", n) for n in range(1, 101)], 100)).merge(stream)
        keyed = stream.key_by(lambda item: item[0])

    def window(last: deque[int], item: tuple[str, int]) -> list[int]:
        last.append(item[1])
        return list(last)

    keyed.stateful("window", window, state=lambda: deque(maxlen=4)).sink("out", out)
    ms.run(flow, workers=workers)
    for key in keys:
        windows = [value for k, value in out if k == key]
        assert windows == [list(range(max(1, n - 3), n + 1)) for n in range(1, 101)]


@WORKERS
def test_partitions_are_all_read(workers: int) -> None:
    flow = ms.Flow("f")
    out = testing.collect()
    flow.source("in", testing.partitions([1, 2], [3], [], [4, testing.pause(0.01), 5])).sink("out", out)
    ms.run(flow, workers=workers)
    assert Counter(out) == Counter([1, 2, 3, 4, 5])


def test_a_stream_read_twice_does_not_share_its_lists() -> None:
    flow = ms.Flow("f")
    out = testing.collect()
    cleared = testing.collect()
    stream = flow.source("in", testing.items(NUMBERS))

    def clear(batch: list[int]) -> list[int]:
        batch.clear()
        return batch

    stream.map_batch(clear).sink("cleared", cleared)
    stream.sink("out", out)
    ms.run(flow)
    assert (out, cleared) == (NUMBERS, [])


def test_a_flow_runs_twice() -> None:
    flow = ms.Flow("f")
    out = testing.collect()
    flow.source("in", testing.items("aab")).key_by(str).count().sink("out", out)
    ms.run(flow)
    ms.run(flow)
    assert out == [("a", 2), ("b", 1)] * 2


def test_report_and_metrics() -> None:
    reports: list[ms.Report] = []
    flow = ms.Flow("f")
    script = [1, testing.pause(0.2), 2]
    flow.source("in", testing.items(script)).map(str, name="text").sink("out", testing.discard())
    report = ms.run(flow, on_metrics=reports.append, metrics_interval=0.05)
    step = report.step("text")
    assert (step["items_in"], step["items_out"], step["skipped"]) == (2, 2, 0)
    assert "p99" in step["latency_us"] and "text" in str(report) and len(reports) >= 2
