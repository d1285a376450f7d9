"""Dead letters in runs with a state directory: each bad item is kept once, wherever the run was killed."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any

import millstream as ms
import pytest
from millstream._run import Saving, run_saving

MOMENTS = ("before", "within", "behind")
TEXTS = [str(n) if n % 3 else f"bad {n}" for n in range(24)]
BAD = [text for text in TEXTS if text.startswith("bad")]


def crash_often(flow: ms.Flow, state: Path, commits: int = 2, workers: tuple[int, ...] = (1,)) -> int:
    """Runs until it ends, crashing at each moment of each n-th commit; returns how often it crashed."""
    for crashes in count():
        try:
            crash = (MOMENTS[crashes % 3], commits)
            run_saving(flow, workers[crashes % len(workers)], Saving(str(state), 0.0, False, [], crash))
        except ms.SimulatedCrash:
            continue
        return crashes
    raise AssertionError("it never ends")


def item_of(letter: Any) -> bytes:
    return str(letter.item).encode()


def texts(flow: ms.Flow) -> ms.Stream[str]:
    return flow.source("texts", ms.testing.items(TEXTS, batch_size=2))


def numbers(dead: Any) -> tuple[ms.Flow, list[int]]:
    flow, out = ms.Flow("numbers"), ms.testing.collect()
    parsed = texts(flow).map(int, name="parse", on_error=ms.dead_letter(dead))
    parsed.key_by(lambda n: n % 4).count("each").values().sink("out", out)
    return flow, out


@pytest.mark.parametrize("workers", [(1,), (2,), (1, 3, 2)])
def test_a_file_has_each_dead_letter_once(tmp_path: Path, workers: tuple[int, ...]) -> None:
    bad = tmp_path / "bad"
    flow, _ = numbers(ms.files.write(bad, encode=item_of))
    assert crash_often(flow, tmp_path / "state", workers=workers) > 6
    assert bad.read_text().splitlines() == BAD


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
