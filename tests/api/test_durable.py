"""Durable sources: input that was read once is not requested from the source again."""

from __future__ import annotations

import random
from datetime import timedelta
from pathlib import Path
from typing import Any

import millstream as ms
import pytest
from millstream._run.trial import run_crashing


class Once(ms.Source):
    """Returns each number once, as a socket would; opened at a position after its end, it continues."""

    def __init__(self, end: int) -> None:
        self.given = 0
        self.end = end

    def open(self, partition: str, position: int | None) -> Once:
        return self

    def next_batch(self) -> list[Any] | None:
        if self.given == self.end:
            self.given += 1
            return None
        batch = [{"number": number} for number in range(self.given, self.given + 5)]
        self.given += 5
        return batch

    def next_awake(self) -> float | None:
        return None

    def position(self) -> int:
        return 0


@pytest.mark.parametrize("workers", [1, 2])
def test_a_crash_at_any_commit_loses_and_repeats_nothing(tmp_path: Path, workers: int) -> None:
    source = Once(500)
    out = tmp_path / "out"
    state = tmp_path / "state"
    chance = random.Random(workers)
    crashes = 0
    while True:
        flow = ms.Flow("sums")
        (
            flow.source("numbers", source.durable())
            .map(lambda item: item["number"])
            .key_by(lambda number: 0)
            .sum(emit="each")
            .values()
            .sink("out", ms.files.write(out))
        )
        try:
            run_crashing(flow, workers, state, chance.randrange(1, 9))
        except ms.SimulatedCrash:
            crashes += 1
        else:
            break
    assert crashes > 3
    sums = [n * (n + 1) // 2 for n in range(500)]
    assert [int(line) for line in out.read_text().split()] == sums


def test_frames_are_recorded_as_they_are_and_kept_on_request(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_text("one\r\ntwo\nthree")
    flow = ms.Flow("lines")
    out = ms.testing.collect()
    flow.source("a/b", ms.files.lines(path).durable(keep="7d")).sink("out", out)
    ms.run(flow, state=tmp_path / "state")
    assert out == ["one", "two", "three"]
    with ms.Journal(tmp_path / "state" / "inputs" / "a%2fb", mode="r") as journal:
        first, *batches, _ended = [record.body for record in journal]
    assert first[4:8] == bytes(4) and all(batch[:2] == b"\1\0" for batch in batches)
    # How many frames a batch has is up to the pace of the flow.
    kept = b"".join(batches)
    assert kept.index(b"one") < kept.index(b"two") < kept.index(b"three")


def test_a_durable_source_needs_a_state_directory() -> None:
    flow = ms.Flow("no-state")
    flow.source("numbers", ms.testing.items([1]).durable()).sink("out", ms.testing.collect())
    with pytest.raises(ms.FlowUsageError, match='"numbers".*needs a directory for its state: state='):
        ms.run(flow)


def test_what_cannot_be_recorded_names_the_source(tmp_path: Path) -> None:
    flow = ms.Flow("unpicklable")
    flow.source("numbers", ms.testing.items([lambda: 1]).durable()).sink("out", ms.testing.collect())
    with pytest.raises(ms.StepError, match='step "numbers"'):
        ms.run(flow, state=tmp_path)


@pytest.mark.parametrize("keep", ["7", "7 years", -1, True, timedelta(days=-1), 1.5, "", "all of it"])
def test_how_long_input_is_kept_is_checked(keep: Any) -> None:
    with pytest.raises(ms.FlowUsageError, match="keep is a time"):
        ms.testing.items([]).durable(keep=keep)


@pytest.mark.parametrize("keep", [None, "7d", "10GiB", 10**6, timedelta(days=1), "all"])
def test_input_is_kept_for_a_time_a_size_or_for_ever(tmp_path: Path, keep: Any) -> None:
    flow = ms.Flow("kept")
    out = ms.testing.collect()
    flow.source("numbers", ms.testing.items([1, 2]).durable(keep=keep)).sink("out", out)
    ms.run(flow, state=tmp_path)
    assert out == [1, 2]


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("kind", ["lines", "journal"])
@pytest.mark.parametrize("spelling", ["./a/in", "{}/a/in", "link/in"])
def test_a_path_may_be_spelled_in_another_way(
    durable: bool, kind: str, spelling: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a").mkdir()
    (tmp_path / "link").symlink_to("a")

    def append(*words: str) -> None:
        if kind == "lines":
            with open("a/in", "a") as file:
                file.writelines(f"{word}\n" for word in words)
        else:
            with ms.Journal("a/in") as journal:
                journal.append_many([word.encode() for word in words])

    def run(path: str) -> list[Any]:
        source: Any = ms.files.lines(path) if kind == "lines" else ms.journals.read(path, decode=bytes.decode)
        flow = ms.Flow("words")
        flow.source("in", source.durable() if durable else source).sink("out", out)
        ms.run(flow, state="state")
        return list(out)

    out = ms.testing.collect()
    append("one", "two")
    assert run("a/in") == ["one", "two"]
    append("three")
    assert run(spelling.format(tmp_path)) == ["one", "two", "three"]
    append("four")
    assert run("a/in") == ["one", "two", "three", "four"]
