"""A finished flow that is run again with its state continues with new input."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import millstream as ms
import pytest


def counts(words: Path, out: list[Any]) -> ms.Flow:
    flow = ms.Flow("counts")
    keyed = flow.source("words", ms.files.lines(words)).key_by(str)
    keyed.count(emit="end").sink("out", out)
    return flow


def test_a_file_that_has_grown_is_counted_on(tmp_path: Path) -> None:
    words = tmp_path / "words"
    state = tmp_path / "state"
    out = ms.testing.collect()
    flow = counts(words, out)
    words.write_text("a\nb\na\n")
    ms.run(flow, state=state)
    assert out == [("a", 2), ("b", 1)]
    ms.run(flow, state=state)
    assert len(out) == 2
    with words.open("a") as file:
        file.write("b\nc\n")
    ms.run(flow, state=state, workers=1)
    assert out[2:] == [("a", 2), ("b", 2), ("c", 1)]


@pytest.mark.parametrize("kind", ["lines", "frames", "csv"])
def test_a_file_whose_path_is_spelled_otherwise_is_the_same_file(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = tmp_path / "words"
    out = ms.testing.collect()
    Path("there").mkdir()
    Path("link").symlink_to("words")
    words.write_text("")
    spellings = ["words", "./words", str(words), "there/../words", "link", "words"]
    for number, path in enumerate(spellings):
        with words.open("a") as file:
            file.write(f"{number}\n")
        flow = ms.Flow("copy")
        if kind == "csv":
            rows = flow.source("in", ms.files.csv([path], header=["n"]))
            numbers = rows.map(lambda row: int(row["n"]))
        else:
            read = ms.files.lines([path]) if kind == "lines" else ms.files.frames([path], "lines", str)
            numbers = flow.source("in", read).map(int)
        numbers.sink("out", out)
        ms.run(flow, state="state", workers=1 + number % 2)
        assert out == list(range(number + 1)), path


def test_files_of_a_list_whose_paths_change_resume_each_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    out = ms.testing.collect()
    for name in "ab":
        Path(name).write_text(f"{name}1\n")
    for number, paths in enumerate((["a", "b"], ["./b", "c", tmp_path / "a"], ["b", "a", "c"]), 2):
        for name in "abc":
            with Path(name).open("a") as file:
                file.write(f"{name}{number}\n")
        flow = ms.Flow("copy")
        flow.source("in", ms.files.lines(paths)).sink("out", out)
        ms.run(flow, state="state")
    assert sorted(out) == ["a1", "a2", "a3", "a4", "b1", "b2", "b3", "b4", "c2", "c3", "c4"]


def test_an_older_copy_of_a_state_is_refused_by_the_queue_that_it_wrote_to(tmp_path: Path) -> None:
    place, state, copy = (tmp_path / name for name in ("queues", "state", "copy"))

    def run(state: Path, **options: Any) -> list[bytes]:
        with ms.Queues(place) as queues:
            queues["in"].put_many(["a", "b"])
        flow = ms.Flow("count")
        items = flow.source("in", ms.queues.read(place, "in", decode=bytes.decode, until_empty=True))
        counted = items.key_by(str).count("each").items().map(lambda pair: f"{pair[0]}{pair[1]}")
        counted.sink("counts", ms.queues.write(place, "counts"))
        ms.run(flow, state=state, **options)
        with ms.Queues(place) as queues:
            return list(queues["counts"])

    assert run(state) == [b"a1", b"b1"]
    shutil.copytree(state, copy)
    assert run(state) == [b"a2", b"b2"]
    with pytest.raises(OSError, match='sink "counts".* has 4 items of this flow, .* knows of 2') as refused:
        run(copy)
    assert "an older copy" in str(refused.value)
    assert run(state) == [b"a3", b"b3", b"a4", b"b4"]
    # Two rounds of input wait by now: one of the refused run, one of this.
    assert run(copy, drop_state=["counts"]) == [b"a2", b"b2"]


def test_windows_joins_and_lists_go_on(tmp_path: Path) -> None:
    lines = tmp_path / "lines"
    state = tmp_path / "state"
    windows = ms.testing.collect()
    lists = ms.testing.collect()
    seen = ms.testing.collect()
    flow = ms.Flow("many")
    numbers = flow.source("lines", ms.files.lines(lines)).map(int)
    timed = numbers.event_time(float).key_by(lambda _: "all")
    timed.window("tens", ms.windows.tumbling(10)).count().sink("windows", windows)
    numbers.key_by(lambda _: "all").collect(3).sink("lists", lists)

    async def later(item: int) -> int:
        return item

    asked = numbers.map_async(later, name="asked")
    asked.key_by(lambda _: "all").count("each").sink("seen", seen)
    lines.write_text("1\n2\n3\n11\n")
    ms.run(flow, state=state)
    assert [window.value for _, window in windows] == [3, 1]
    assert [sorted(values) for _, values in lists] == [[1, 2, 3], [11]]
    assert seen[-1] == ("all", 4)
    with lines.open("a") as file:
        file.write("12\n21\n")
    ms.run(flow, state=state)
    assert [window.value for _, window in windows[2:]] == [2, 1]
    assert [sorted(values) for _, values in lists[2:]] == [[12, 21]]
    assert seen[-1] == ("all", 6)


class Growing(ms.Source):
    """A list that the test appends to."""

    def __init__(self, items: list[str]) -> None:
        self.items = items

    def open(self, partition: str, position: int | None) -> Growing:
        self.at = position or 0
        return self

    def next_batch(self) -> list[str] | None:
        batch = self.items[self.at : self.at + 2]
        self.at += len(batch)
        return batch or None

    def next_awake(self) -> float | None:
        return None

    def position(self) -> int:
        return self.at


@pytest.mark.parametrize("durable", [False, True])
def test_a_source_of_the_user_resumes_after_its_position(tmp_path: Path, durable: bool) -> None:
    items = ["a", "b", "c"]
    out = ms.testing.collect()
    source: Any = Growing(items).durable() if durable else Growing(items)
    flow = ms.Flow("growing")
    flow.source("items", source).sink("out", out)
    for more in ([], ["d"], [], ["e", "f", "g"]):
        items += more
        ms.run(flow, state=tmp_path / "state")
        assert out == items


def run_program(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "millstream", "run", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


PROGRAM = """
import millstream as ms

flow = ms.Flow("{name}")
lines = flow.source("{source}", ms.files.lines("{folder}/in"))
lines.key_by(str).count("each").sink("out", ms.files.write("{folder}/out", encode=str))
"""


def test_fresh_forgets_its_own_state_only(tmp_path: Path) -> None:
    (tmp_path / "in").write_text("a\na\n")
    ours = tmp_path / "ours.py"
    theirs = tmp_path / "theirs.py"
    ours.write_text(PROGRAM.format(name="ours", source="lines", folder=tmp_path))
    theirs.write_text(PROGRAM.format(name="theirs", source="others", folder=tmp_path))
    state = tmp_path / "state"
    for options in ([], [], ["--fresh"], ["--fresh"]):
        assert run_program(ours, "--state", state, *options).returncode == 0
        assert (tmp_path / "out").read_text() == "('a', 1)\n('a', 2)\n"
    refused = run_program(theirs, "--state", state, "--fresh")
    assert refused.returncode == 1
    assert (
        f'millstream run: flow "theirs": state in {state}: it is the state of flow "ours", not of "theirs"'
        in refused.stderr
    )
    again = run_program(ours, "--state", state)
    assert again.returncode == 0 and "no new input since it finished" in again.stderr
    assert run_program(ours, "--fresh").stderr == (
        "millstream run: --fresh needs --state (see millstream run --help)\n"
    )
    assert run_program(ours, "--fresh").returncode == 2


def test_a_mistake_in_the_description_is_bad_usage_and_names_the_flow_once(tmp_path: Path) -> None:
    file = tmp_path / "unread.py"
    file.write_text(
        'import millstream as ms\nflow = ms.Flow("x")\nflow.source("in", ms.testing.items([1]))\n'
    )
    failed = run_program(file)
    assert failed.returncode == 2
    assert failed.stderr == (
        'millstream run: flow "x": nothing reads the output of "in"; end it with a sink\n'
    )


def test_a_file_in_the_place_of_the_state_is_named(tmp_path: Path) -> None:
    file = tmp_path / "ours.py"
    state = tmp_path / "state"
    (tmp_path / "in").write_text("a\n")
    state.write_text("something\n")
    file.write_text(PROGRAM.format(name="ours", source="lines", folder=tmp_path))
    failed = run_program(file, "--state", state)
    assert failed.returncode == 2
    assert failed.stderr == (
        f'millstream run: flow "ours": --state DIR: {state} is a file, not a directory\n'
    )
