"""How much of their input sources of one's own have not read: ``report_lag``."""

import asyncio
import time
from pathlib import Path
from typing import Any

import millstream as ms
import pytest


def lags(*sources: Any) -> list[dict[str, Any]]:
    flow = ms.Flow("lags")
    for number, source in enumerate(sources):
        flow.source(f"in{number}", source).sink(f"out{number}", ms.testing.discard())
    found: list[dict[str, Any]] = ms.run(flow, workers=2).lags
    return found


@ms.source(partitions=["a", "b"])
async def asynchronous(partition: str) -> Any:
    for left in range(3, -1, -1):
        await asyncio.sleep(0)
        ms.report_lag(records=left, seconds=0.5 if partition == "b" else None)
        yield left


@ms.source
def on_a_thread() -> Any:
    ms.report_lag(bytes=1 << 40)
    yield 1


@ms.source
def silent() -> Any:
    yield 1


def test_the_lag_of_generators() -> None:
    found = lags(silent, on_a_thread, asynchronous)
    assert [lag.pop("withheld") for lag in found] == [None] * 3
    assert found == [
        {"source": "in1", "partition": "0", "records": None, "bytes": 1 << 40, "seconds": None},
        {"source": "in2", "partition": "a", "records": 0, "bytes": None, "seconds": None},
        {"source": "in2", "partition": "b", "records": 0, "bytes": None, "seconds": 0.5},
    ]


@pytest.mark.parametrize(
    ("lag", "kind"),
    [
        ({"seconds": -1.0}, ValueError),
        ({"seconds": float("nan")}, ValueError),
        ({"records": -1}, OverflowError),
    ],
)
def test_a_wrong_lag_is_an_error(lag: dict[str, Any], kind: type[Exception]) -> None:
    @ms.source
    def wrong() -> Any:
        with pytest.raises(kind):
            ms.report_lag(**lag)
        yield 1

    assert lags(wrong) == []


def test_there_is_no_lag_without_a_source() -> None:
    with pytest.raises(ms.FlowUsageError, match="is called by a function with ms.source"):
        ms.report_lag(records=1)


def test_files_that_appear_while_a_directory_is_read_count_in_its_lag(tmp_path: Path) -> None:
    def slow(line: str) -> str:
        time.sleep(0.002)
        return line

    (tmp_path / "1.txt").write_text(f"{'x' * 999}\n" * 20_000)
    flow = ms.Flow("backlog")
    lines = flow.source("in", ms.files.directory(tmp_path, "*.txt", follow=0.01))
    lines.map(slow, name="slow").sink("out", ms.testing.discard())
    with flow.start() as running:
        for number, lag in (2, 20_000_000), (3, 70_000_000):
            (tmp_path / ".next").write_text(f"{'x' * 999}\n" * 50_000)
            (tmp_path / ".next").rename(tmp_path / f"{number}.txt")
            until = time.monotonic() + 60
            while not sum(one["bytes"] for one in running.report().lags) > lag:
                assert time.monotonic() < until, running.report().lags
                time.sleep(0.05)
        # The first file is not read yet.
        assert running.report().step("slow")["items_in"] < 20_000
