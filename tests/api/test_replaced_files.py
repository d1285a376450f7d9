"""A file that was read in part, and is another one at the next start: lines, CSV and JSON lines."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import millstream as ms
import pytest
from millstream import testing

ROWS = 6

Write = Callable[[Path, bytes], object]
FORMATS: dict[str, tuple[Callable[[Path], Any], Callable[[str], str], str]] = {
    "lines": (ms.files.lines, lambda text: text, ""),
    "csv": (ms.files.csv, lambda text: text, "name\n"),
    "json lines": (ms.files.json_lines, lambda text: json.dumps({"name": text}), ""),
}
WAYS: dict[str, tuple[str, Write]] = {
    "plain": ("in.txt", Path.write_bytes),
    "gzip": ("in.gz", lambda path, contents: path.write_bytes(gzip.compress(contents))),
}


class Case:
    """A file of one format, read by a flow with a state directory."""

    def __init__(self, format_: str, way: str, folder: Path) -> None:
        name, self.write = WAYS[way]
        self.read, self.row, self.head = FORMATS[format_]
        self.path = folder / name
        self.state = folder / "state"
        self.out: list[Any] = testing.collect()

    def put(self, *texts: str, end: str = "\n") -> None:
        self.write(self.path, (self.head + "\n".join(map(self.row, texts)) + end).encode())

    def run(self, drop: tuple[str, ...] = ()) -> list[str]:
        """Runs the flow; returns the texts that it emits."""
        before = len(self.out)
        flow = ms.Flow("files")
        flow.source("in", self.read(self.path)).sink("out", self.out)
        ms.run(flow, state=self.state, drop_state=list(drop))
        return names(self.out[before:])


def names(items: list[Any]) -> list[str]:
    return [item if isinstance(item, str) else item["name"] for item in items]


REPLACED = r"its first \d+ bytes are not those of the file that was read; put it back, or drop the state"

# Of few bytes, and of more than are compared.
LENGTHS = [3, 3000]


def texts(letter: str, length: int, rows: int = ROWS) -> list[str]:
    return [letter * length + str(row) for row in range(rows)]


@pytest.fixture(params=[(format_, way) for format_ in FORMATS for way in WAYS], ids=str)
def case(request: pytest.FixtureRequest, tmp_path: Path) -> Case:
    return Case(*request.param, tmp_path)


@pytest.mark.parametrize("length", LENGTHS)
def test_a_file_that_has_grown_goes_on(case: Case, length: int) -> None:
    case.put(*texts("a", length))
    case.run()
    grown = [*texts("a", length), *texts("b", length)]
    case.put(*grown)
    case.run()
    assert names(case.out) == grown


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("rows", [ROWS, 2 * ROWS])
def test_another_file_is_refused_and_read_by_the_advice(case: Case, length: int, rows: int) -> None:
    case.put(*texts("a", length))
    case.run()
    others = texts("b", length, rows)
    case.put(*others)
    with pytest.raises(OSError, match=REPLACED):
        case.run()
    # The advice: the state of the source is removed, and the file is read from its beginning.
    assert case.run(drop=("in",)) == others


def test_a_file_that_is_put_back_goes_on(case: Case) -> None:
    case.put(*texts("a", 3))
    case.run()
    case.put(*texts("b", 3))
    with pytest.raises(OSError, match=REPLACED):
        case.run()
    case.put(*texts("a", 3), "more")
    assert case.run() == ["more"]


def test_a_file_that_has_lost_its_end_is_refused(case: Case) -> None:
    case.put(*texts("a", 3))
    case.run()
    case.put(*texts("a", 3, 2))
    with pytest.raises(OSError, match=f"fewer than the|{REPLACED}"):
        case.run()


def test_an_empty_file_is_read_when_it_is_filled(case: Case) -> None:
    case.path.write_bytes(b"")
    assert case.run() == []
    case.put(*texts("a", 3))
    assert case.run() == texts("a", 3)


def test_a_last_line_without_end_gets_one(case: Case) -> None:
    case.put("a", end="")
    assert case.run() == ["a"]
    case.put("a", "b")
    assert case.run() == ["b"]
    case.put("a", "b", "c")
    assert case.run() == ["c"]
    case.put("a", "x", "c", "d")
    with pytest.raises(OSError, match=REPLACED):
        case.run()
