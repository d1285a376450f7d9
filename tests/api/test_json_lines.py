"""JSON lines, and the types of fields of CSV."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import millstream as ms
import msgspec
import pytest
from millstream import testing
from millstream._run.trial import run_crashing

VALUES: list[Any] = [{"a": 1, "b": [None, True]}, "größe \u2028\n", 10**40, -1.5, [], {}, "", None]


class Price(msgspec.Struct):
    name: str
    cents: int


def read(source: Any, **options: Any) -> list[Any]:
    flow = ms.Flow("read")
    out = testing.collect()
    flow.source("in", source, **options).sink("out", out)
    ms.run(flow)
    return list(out)


def test_values_are_written_and_read_back(tmp_path: Path) -> None:
    path = tmp_path / "values.jsonl"
    flow = ms.Flow("write")
    flow.source("in", testing.items(VALUES)).sink("out", ms.files.write_json_lines(path))
    ms.run(flow)
    assert [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]] == VALUES
    assert read(ms.files.json_lines(path)) == VALUES
    assert read(ms.files.json_lines_directory(tmp_path, "*.jsonl", partitions=2)) == VALUES


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {1, 2}, b"bytes"])
def test_what_is_no_json_is_not_written(tmp_path: Path, value: object) -> None:
    flow = ms.Flow("write")
    flow.source("in", testing.items([value])).sink("out", ms.files.write_json_lines(tmp_path / "out"))
    with pytest.raises(ms.StepError, match='step "out"'):
        ms.run(flow)


def test_an_encoder_may_not_write_two_lines(tmp_path: Path) -> None:
    flow = ms.Flow("write")
    sink: Any = ms.files.write_json_lines(tmp_path / "out", lambda item: json.dumps(item, indent=1))
    flow.source("in", testing.items([[1]])).sink("out", sink)
    with pytest.raises(ms.StepError, match="line"):
        ms.run(flow)


@pytest.mark.parametrize("bad", ["", "{", "1 2", "\\", "[1,]", "NaN", "[1e999]", '"\\ud800"'])
def test_a_bad_line_names_file_line_and_offset(tmp_path: Path, bad: str) -> None:
    path = tmp_path / "odd name.jsonl"
    path.write_text(f"1\n22\n{bad}\n4\n")
    with pytest.raises(ms.StepError, match=f"at offset 5 of {path}, line 3: ") as failed:
        read(ms.files.json_lines(path))
    assert isinstance(failed.value.__cause__, ValueError)
    assert read(ms.files.json_lines(path), on_error="skip") == [1, 22, 4]
    with pytest.raises(ms.StepError, match=f"of {path}, line 3: "):
        read(ms.files.json_lines_directory(tmp_path))


def test_values_have_a_type(tmp_path: Path) -> None:
    path = tmp_path / "prices.jsonl"
    path.write_text('{"name": "tea", "cents": 3}\n{"name": "milk", "cents": "3"}\n')
    source = ms.files.json_lines(path, Price)
    assert read(source, on_error="skip") == [Price("tea", 3)]
    with pytest.raises(ms.StepError, match="line 2: .*Expected `int`, got `str` - at `\\$.cents`"):
        read(ms.files.json_lines_directory(tmp_path, type=Price))
    with pytest.raises(ms.FlowUsageError, match="type is a class or None, not 7"):
        ms.files.json_lines(path, 7)  # type: ignore[call-overload]


def test_a_crash_at_every_commit_changes_no_line(tmp_path: Path) -> None:
    values = [{"n": n, "text": "x" * (n % 50)} for n in range(5000)]
    lines = "".join(json.dumps(value) + "\n" for value in values)
    (tmp_path / "in.jsonl").write_text(lines)
    flow = ms.Flow("copy")
    source = ms.files.json_lines(tmp_path / "in.jsonl")
    flow.source("in", source, batch_size=100).sink("out", ms.files.write_json_lines(tmp_path / "out.jsonl"))
    for crashes in range(1000):
        crash = (["before", "within", "after"][crashes % 3], 2)
        try:
            run_crashing(flow, 1, tmp_path / "state", crash)
        except ms.SimulatedCrash:
            continue
        break
    assert crashes > 3
    assert [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()] == values


def test_fields_of_csv_have_types(tmp_path: Path) -> None:
    path = tmp_path / "prices.csv"
    path.write_text("name,price,count\ntea,1.5,3\nmilk,free,4\nrum,2,\n")
    types: dict[str, Any] = {"price": float, "count": lambda text: int(text) if text else None}
    due = [{"name": "tea", "price": 1.5, "count": 3}, {"name": "rum", "price": 2.0, "count": None}]
    assert read(ms.files.csv(path, types=types), on_error="skip") == due
    message = f'{path}, line 3, column 6: the field price has "free": ValueError: could not convert'
    with pytest.raises(ms.StepError, match=message) as failed:
        read(ms.files.csv_directory(tmp_path, types=types))
    assert isinstance(failed.value.__cause__, ValueError)
    names = ["a", "b", "c"]
    path.write_text("1,2,3\n")
    assert read(ms.files.csv(path, header=names, types={"b": int})) == [{"a": "1", "b": 2, "c": "3"}]


def test_types_of_fields_that_do_not_exist(tmp_path: Path) -> None:
    path = tmp_path / "prices.csv"
    path.write_text("name,price\ntea,3\n")
    with pytest.raises(ms.StepError, match='types has "cost", which is no field: the fields are'):
        read(ms.files.csv(path, types={"cost": int}), on_error="skip")
    with pytest.raises(ms.FlowUsageError, match="types has 'cost', which is no field"):
        ms.files.csv(path, header=["name"], types={"cost": int})
    with pytest.raises(ms.FlowUsageError, match="types needs the names of the fields"):
        ms.files.csv(path, header=False, types={"cost": int})  # type: ignore[call-overload]
    with pytest.raises(ms.FlowUsageError, match="types is a mapping from texts to functions"):
        ms.files.csv(path, types={"price": "int"})  # type: ignore[dict-item]


def test_a_value_that_is_read_can_be_saved(tmp_path: Path) -> None:
    """One limit, where a value enters: what is nested deeper is no JSON, and not a failed commit."""
    path = tmp_path / "deep.jsonl"
    depths = [1, 128, 255, 256, 257, 400, 500, 990, 5000]
    lines = [
        line for depth in depths for line in ("[" * depth + "]" * depth, '{"a":' * depth + "1" + "}" * depth)
    ]
    path.write_text("\n".join(lines))
    flow, bad, out = ms.Flow("deep"), testing.collect(), testing.collect()
    values = flow.source("in", ms.files.json_lines(path), on_error=ms.dead_letter(bad))
    values.key_by(lambda _: "all").stateful_map("last", lambda last, value: (value, 1), state=list).sink(
        "out", out
    )
    ms.run(flow, state=tmp_path / "state")
    assert len(out) == 2 * 4 and len(bad) == 2 * 5
    assert all("nested more than 256 deep" in str(letter.error) for letter in bad)
