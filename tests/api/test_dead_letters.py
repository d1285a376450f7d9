"""Dead letters in runs with a state directory: each bad item is kept once, wherever the run was killed."""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path
from typing import Any

import millstream as ms
import pytest
from millstream._run.trial import run_crashing

MOMENTS = ("before", "within", "after")
TEXTS = [str(n) if n % 3 else f"bad {n}" for n in range(24)]
BAD = [text for text in TEXTS if text.startswith("bad")]


def crash_often(flow: ms.Flow, state: Path, commits: int = 2, workers: tuple[int, ...] = (1,)) -> int:
    """Runs until it ends, crashing at each moment of each n-th commit; returns how often it crashed."""
    for crashes in count():
        try:
            crash = (MOMENTS[crashes % 3], commits)
            run_crashing(flow, workers[crashes % len(workers)], state, crash)
        except ms.SimulatedCrash:
            continue
        return crashes
    raise AssertionError("it never ends")


def item_of(letter: Any) -> bytes:
    return str(letter.item).encode()


def texts(flow: ms.Flow) -> ms.Stream[str]:
    return flow.source("texts", ms.testing.items(TEXTS, batch_size=2))


def numbers(dead: Any) -> tuple[ms.Flow, list[int]]:
    flow = ms.Flow("numbers")
    out = ms.testing.collect()
    parsed = texts(flow).map(int, name="parse", on_error=ms.dead_letter(dead))
    parsed.key_by(lambda n: n % 4).count("each").values().sink("out", out)
    return flow, out


@pytest.mark.parametrize("workers", [(1,), (2,), (1, 3, 2)])
def test_a_file_has_each_dead_letter_once(tmp_path: Path, workers: tuple[int, ...]) -> None:
    bad = tmp_path / "bad"
    flow, _ = numbers(ms.files.write(bad, encode=item_of))
    assert crash_often(flow, tmp_path / "state", workers=workers) > 6
    assert bad.read_text().splitlines() == BAD


def test_a_file_of_json_lines_has_the_same_lines(tmp_path: Path) -> None:
    written: list[str] = []
    for name, write in (("text", ms.files.write), ("json", ms.files.write_json_lines)):
        flow, _ = numbers(write(tmp_path / name))
        ms.run(flow)
        written.append((tmp_path / name).read_text())
    assert written[0] == written[1]
    letters = [json.loads(line) for line in written[0].splitlines()]
    assert [(letter["step"], letter["item"]) for letter in letters] == [("parse", item) for item in BAD]


def test_a_journal_has_each_dead_letter_once(tmp_path: Path) -> None:
    flow, _ = numbers(ms.journals.append(tmp_path / "bad", encode=item_of))
    assert crash_often(flow, tmp_path / "state") > 6
    with ms.Journal(tmp_path / "bad", mode="r") as journal:
        assert [record.body.decode() for record in journal] == BAD


def test_a_queue_has_each_dead_letter_once(tmp_path: Path) -> None:
    flow, _ = numbers(ms.queues.write(tmp_path / "queues", "bad", encode=item_of))
    assert crash_often(flow, tmp_path / "state") > 6
    with ms.Queues(tmp_path / "queues") as queues:
        assert [item.decode() for item in queues["bad"]] == BAD


def test_a_list_has_each_dead_letter_once(tmp_path: Path) -> None:
    dead: list[Any] = ms.testing.collect()
    flow, _ = numbers(dead)
    assert crash_often(flow, tmp_path / "state") > 6
    assert [letter.item for letter in dead] == BAD


def test_a_trial_with_a_crash_at_every_commit_finds_no_difference() -> None:
    flow, _ = numbers(ms.testing.collect())
    assert ms.testing.crash_everywhere(flow) > 20
    assert ms.testing.crash_everywhere(flow, workers=2) > 20


@pytest.mark.parametrize("workers", [(1,), (3, 1)])
def test_steps_that_share_a_sink_keep_each_letter_once(tmp_path: Path, workers: tuple[int, ...]) -> None:
    bad = tmp_path / "bad"
    kept = ms.testing.collect()
    dead = ms.testing.collect()
    shared = ms.files.write(bad, encode=item_of)
    flow = ms.Flow("shared")
    all_texts = texts(flow)
    all_texts.map(int, name="one", on_error=ms.dead_letter(shared)).sink("numbers", kept)
    keyed = all_texts.key_by(len).map(int, name="two", on_error=ms.dead_letter(shared))
    keyed.stateful_map("three", lambda state, n: (state, 24 // n), on_error=ms.dead_letter(dead)).sink(
        "out", ms.testing.collect()
    )
    tens = all_texts.event_time(lambda text: int(text), name="four", on_error=ms.dead_letter(dead))
    tens.sink("tens", ms.testing.collect())
    assert crash_often(flow, tmp_path / "state", workers=workers) > 6
    assert sorted(bad.read_text().splitlines()) == sorted(BAD * 2)
    assert sorted(str(letter.item) for letter in dead if letter.step == "four") == sorted(BAD)


def test_bad_lines_of_a_source_are_kept_once(tmp_path: Path) -> None:
    (tmp_path / "in").write_text("\n".join(TEXTS) + "\n")
    bad = tmp_path / "bad"
    flow = ms.Flow("lines")
    dead = ms.dead_letter(ms.files.write(bad, encode=item_of))
    lines = ms.files.frames(tmp_path / "in", "lines", decode=lambda line: int(line))
    flow.source("in", lines, on_error=dead).sink("out", ms.testing.collect())
    crash_often(flow, tmp_path / "state", commits=1)
    assert bad.read_text().splitlines() == [str(text.encode()) for text in BAD]


def test_dead_letters_of_two_steps_in_an_external_system_are_there_once(tmp_path: Path) -> None:
    rows: list[tuple[int, str]] = []

    @ms.sink(encode=item_of, decode=bytes.decode)
    class Table:
        def write(self, batch: list[str], first: int, last: int) -> None:
            rows.extend(zip(range(first, last + 1), batch, strict=True))

        def position(self) -> int | None:
            return rows[-1][0] if rows else None

    table = Table()
    flow = ms.Flow("held")
    out = ms.testing.collect()
    all_texts = texts(flow)
    for name in ("one", "two"):
        all_texts.map(int, name=name, on_error=ms.dead_letter(table)).sink(f"{name} out", out)
    assert crash_often(flow, tmp_path / "state") > 6
    assert [number for number, _ in rows] == list(range(len(rows)))
    assert sorted(item for _, item in rows) == sorted(BAD * 2)


def test_a_removed_dead_letter_sink_is_reported_until_it_is_forgotten(tmp_path: Path) -> None:
    flow, _ = numbers(ms.files.write(tmp_path / "bad", encode=item_of))
    ms.run(flow, state=tmp_path / "state")
    flow = ms.Flow("numbers")
    parsed = texts(flow).map(int, name="parse", on_error="skip")
    parsed.key_by(lambda n: n % 4).count("each").values().sink("out", ms.testing.collect())
    with pytest.raises(ms.FlowError, match=r'"parse\.dead_letters"'):
        ms.run(flow, state=tmp_path / "state")
    ms.run(flow, state=tmp_path / "state", drop_state=["parse.dead_letters", "out"])


def test_a_name_that_the_dead_letters_of_a_step_have_is_taken() -> None:
    flow, _ = numbers(ms.testing.collect())
    with pytest.raises(ms.FlowError, match=r"parse\.dead_letters"):
        texts_again = flow.source("more", ms.testing.items([1]))
        texts_again.sink("parse.dead_letters", ms.testing.collect())


@pytest.mark.parametrize("kind", ["journal", "queue"])
def test_a_letter_in_a_journal_or_a_queue_is_a_line_of_json(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "dead"
    flow, _ = numbers(ms.journals.append(path) if kind == "journal" else ms.queues.write(path, "dead"))
    ms.run(flow)
    if kind == "journal":
        with ms.Journal(path, "r") as journal:
            letters = [bytes(record.body) for record in journal]
    else:
        with ms.Queues(path) as queues:
            letters = [bytes(item) for item in iter(queues["dead"].get, None)]
    assert [json.loads(letter)["item"] for letter in letters] == BAD
