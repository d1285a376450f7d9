"""Files that are compressed with gzip or zstd."""

from __future__ import annotations

import gzip
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import millstream as ms
import pytest
from millstream import testing


def read(source: Any) -> list[Any]:
    flow = ms.Flow("read")
    out = testing.collect()
    flow.source("in", source).sink("out", out)
    ms.run(flow)
    return list(out)


def write(items: list[Any], sink: Any) -> None:
    flow = ms.Flow("write")
    flow.source("in", testing.items(items)).sink("out", sink)
    ms.run(flow)


@pytest.mark.parametrize("ending", ["gz", "zst"])
def test_each_kind_of_file_is_written_and_read_compressed(tmp_path: Path, ending: str) -> None:
    numbers = [str(n) for n in range(3000)]
    rows = [{"n": n} for n in numbers]
    lines, csv, json = (tmp_path / f"{kind}.{ending}" for kind in ["a.txt", "b.csv", "c.jsonl"])
    write(numbers, ms.files.write(lines))
    write(rows, ms.files.write_csv(csv, ["n"]))
    write(rows, ms.files.write_json_lines(json))
    assert all(path.stat().st_size < 14_000 for path in [lines, csv, json])
    assert read(ms.files.lines(lines)) == read(ms.files.directory(tmp_path, "*.txt.*")) == numbers
    assert read(ms.files.csv(csv)) == read(ms.files.csv_directory(tmp_path, "*.csv.*")) == rows
    assert read(ms.files.json_lines(json)) == rows
    assert read(ms.files.json_lines_directory(tmp_path, "*.jsonl.*")) == rows
    assert read(ms.files.csv_directory(tmp_path, "*.csv.*", types={"n": int}))[-1] == {"n": 2999}


def test_the_standard_library_reads_and_writes_the_same_files(tmp_path: Path) -> None:
    path = tmp_path / "words.gz"
    write(["to", "be"], ms.files.write(path))
    assert gzip.decompress(path.read_bytes()) == b"to\nbe\n"
    with gzip.open(path, "at") as file:
        file.write("or not\n")
    assert read(ms.files.lines(path)) == ["to", "be", "or not"]


def test_the_compression_is_given_or_by_name(tmp_path: Path) -> None:
    path = tmp_path / "words"
    write(["to", "be"], ms.files.write(path, compression="zstd"))
    assert path.read_bytes()[:4] == b"\x28\xb5\x2f\xfd"
    assert read(ms.files.frames(path, "lines", str, compression="zstd")) == ["to", "be"]
    path = tmp_path / "plain.gz"
    words = ["to", "be", "or not to be"]
    write(words, ms.files.write(path, compression=None))
    assert path.read_text() == "to\nbe\nor not to be\n"
    assert read(ms.files.lines(path, compression=None)) == words
    with pytest.raises(ms.StepError, match=f"{path}: the gzip data is damaged at or before byte"):
        read(ms.files.lines(path))
    with pytest.raises(ms.FlowUsageError, match='compression is "auto", "gzip", "zstd" or None, not .xz.'):
        ms.files.lines(path, compression="xz")  # type: ignore[arg-type]


def test_a_relative_name_is_found_from_another_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "store").mkdir()
    target = tmp_path / "store" / "größe, 1 & 2.txt.gz"
    target.write_bytes(gzip.compress(b"one\ntwo\n"))
    # The name of a symbolic link decides, not that of its target.
    (tmp_path / "in" / "link.gz").symlink_to(target)
    state = tmp_path / "state"
    out = tmp_path / "out.gz"
    for folder in [tmp_path, tmp_path / "in"]:
        monkeypatch.chdir(folder)
        flow = ms.Flow("copy")
        relative = "in" if folder == tmp_path else "."
        flow.source("in", ms.files.directory(relative)).sink("out", ms.files.write(out))
        ms.run(flow, state=state)
        assert gzip.decompress(out.read_bytes()) == b"one\ntwo\n"


PROGRAM = """
import sys
import millstream as ms
source, out, state = sys.argv[1:]
flow = ms.Flow("copy")
flow.source("in", ms.files.json_lines_directory(source, "*")).sink("out", ms.files.write_json_lines(out))
ms.run(flow, state=state, epoch=0.02)
"""


@pytest.mark.parametrize("ending", ["gz", "zst"])
def test_a_flow_that_is_killed_leaves_each_line_once(tmp_path: Path, ending: str) -> None:
    source = tmp_path / "in"
    out = tmp_path / f"out.jsonl.{ending}"
    state = tmp_path / "state"
    source.mkdir()
    values = [{"n": n, "text": "x" * (n % 60)} for n in range(200_000)]
    for part in range(4):
        write(
            values[part * 50_000 : (part + 1) * 50_000],
            ms.files.write_json_lines(source / f"{part}.{ending}"),
        )
    kills = 0
    while True:
        arguments = [sys.executable, "-c", PROGRAM, str(source), str(out), str(state)]
        process = subprocess.Popen(arguments)
        if kills < 6:
            before = size(out)
            deadline = time.monotonic() + 60
            while process.poll() is None and size(out) <= before and time.monotonic() < deadline:
                time.sleep(0.005)
            time.sleep(0.03)
            process.send_signal(signal.SIGKILL)
        if process.wait(120) == 0:
            break
        assert process.returncode == -signal.SIGKILL
        kills += 1
    assert kills > 1
    assert read(ms.files.json_lines(out)) == values
    if ending == "gz":
        assert [json.loads(line) for line in gzip.decompress(out.read_bytes()).splitlines()] == values


def size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
