"""Text where numbers are meant, as fields of a CSV file: ``sum`` refuses it, ``min`` and ``max`` log it."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import millstream as ms
import pytest
from millstream import testing

ROWS = "k,v\na,1\na,2\na,10\n"


def combined(
    source: Any, verb: str, windows: bool, values: Any = lambda row: row["v"], **options: Any
) -> Any:
    flow = ms.Flow("f")
    out = testing.collect()
    rows = flow.source("in", source)
    if not windows:
        keyed = rows.key_by(lambda row: "a").map(values)
        getattr(keyed, verb)(**options).sink("out", out)
    else:
        keyed = rows.event_time(lambda row: 1).key_by(lambda row: "a").map(values)
        results = getattr(keyed.window("w", ms.windows.tumbling(10), **options), verb)()
        results.map(lambda window: window.value).sink("out", out)
    ms.run(flow)
    return [value for _, value in out]


@pytest.mark.parametrize(
    ("verb", "windows"), [("sum", False), ("mean", False), ("sum", True), ("mean", True)]
)
def test_text_is_not_added(verb: str, windows: bool, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(ROWS)
    with pytest.raises(
        ms.StepError, match=r"adds numbers, and '1' is text; .*types=\{\"v\": float\}.*map\(float\)"
    ):
        combined(ms.files.csv(path), verb, windows)
    assert combined(ms.files.csv(path), verb, windows, on_error="skip") == []
    expected = 13 if verb == "sum" else 13 / 3
    assert combined(ms.files.csv(path, types={"v": float}), verb, windows) == [expected]
    assert combined(ms.files.csv(path), verb, windows, values=lambda row: float(row["v"])) == [expected]


@pytest.mark.parametrize("windows", [False, True])
@pytest.mark.parametrize("by", ["v", lambda row: row["v"]])
def test_text_in_a_field_is_not_added(by: Any, windows: bool, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(ROWS)

    def run(source: Any, on_error: Any = "fail") -> list[Any]:
        flow = ms.Flow("f")
        out = testing.collect()
        keyed = flow.source("in", source).key_by("k")
        if windows:
            made: Any = keyed.window("w", ms.windows.count(3), on_error=on_error).sum(by)
            made = made.map(lambda window: window.value)
        else:
            made = keyed.sum(by, on_error=on_error)
        made.values().sink("out", out)
        ms.run(flow)
        return list(out)

    with pytest.raises(ms.StepError, match=r"sum adds numbers, and '1' is text; .*types=\{\"v\": float\}"):
        run(ms.files.csv(path))
    assert run(ms.files.csv(path), "skip") == []
    assert run(ms.files.csv(path, types={"v": float})) == [13]


@pytest.mark.parametrize("windows", [False, True])
@pytest.mark.parametrize("text", ["1", b"1", bytearray(b"1")])
def test_good_values_around_text_count(text: Any, windows: bool) -> None:
    dead = testing.collect()
    source = testing.items([{"v": value} for value in (text, 2, text, 3)])
    assert combined(source, "sum", windows, on_error=ms.dead_letter(dead)) == [5]
    assert [letter.item for letter in dead] == [text, text]


WINDOWS = {
    "tumbling": ms.windows.tumbling(10),
    "sliding": ms.windows.sliding(10, 5),
    "session": ms.windows.session(3),
    "count": ms.windows.count(2),
}


@pytest.mark.parametrize("kind", WINDOWS)
def test_a_window_in_which_all_values_failed_has_no_result(kind: str) -> None:
    flow = ms.Flow("f")
    out = testing.collect()
    items = [(1, "1"), (2, "2"), (21, 5), (22, "3"), (23, 6), (41, "4")]
    timed = flow.source("in", testing.items(items)).event_time(lambda item: item[0])
    windows = (
        timed.key_by(lambda item: "a").map(lambda item: item[1]).window("w", WINDOWS[kind], on_error="skip")
    )
    windows.sum().values().map(lambda window: window.value).sink("out", out)
    ms.run(flow)
    assert set(out) == {11}


@pytest.mark.parametrize("windows", [False, True])
@pytest.mark.parametrize("verb", ["min", "max"])
def test_text_that_is_a_number_is_logged_once(verb: str, windows: bool, tmp_path: Path, caplog: Any) -> None:
    path = tmp_path / "a.csv"
    path.write_text(ROWS * 2)
    with caplog.at_level(logging.WARNING, logger="millstream"):
        combined(ms.files.csv(path), verb, windows)
    (record,) = caplog.records
    assert f"{verb} compares text by its characters" in record.getMessage()
    assert 'types={"v": float}' in record.getMessage()


@pytest.mark.parametrize("windows", [False, True])
def test_other_text_and_numbers_are_compared_in_silence(windows: bool, caplog: Any) -> None:
    for values in (["2026-01-01", "2025-01-01"], [9, 10], [9.0, 10.0], [True, False]):
        source = testing.items([{"v": value} for value in values])
        assert combined(source, "max", windows) == [max(values)]  # type: ignore[type-var]
    assert caplog.records == []
