"""A flow with a state directory resumes from its last commit."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import millstream as ms
import pytest
from millstream._run.trial import run_crashing

WORDS = [f"w{i * i % 17}" for i in range(200)]


@dataclass
class Seen:
    times: int = 0


def see(seen: Seen, word: object) -> int:
    seen.times += 1
    return seen.times


class Longest:
    """A logic that writes its own state."""

    def __init__(self) -> None:
        self.word = ""

    def on_item(self, key: str, word: str) -> list[str]:
        self.word = max(self.word, word, key=len)
        return [self.word]

    def on_end(self, key: str) -> list[str]:
        return [f"end {self.word}"]

    def snapshot(self) -> str:
        return self.word

    def restore(self, word: str) -> None:
        self.word = word


def verbs(keyed: ms.KeyedStream) -> list[ms.KeyedStream]:
    numbers = keyed.map(len)
    return [
        keyed.stateful("see", see, state=Seen),
        keyed.stateful("longest", Longest),
        keyed.count(),
        keyed.count("each", name="each"),
        numbers.sum(),
        numbers.max(emit="each"),
        numbers.fold("fold", list, lambda acc, n: [*acc, n]),
    ]


def build(out: list[Any]) -> ms.Flow:
    """One sink for all: a list is cut as a whole."""
    flow = ms.Flow("words")
    keyed = flow.source("in", ms.testing.items(WORDS)).key_by(str)
    tagged = [
        stream.items().map(lambda pair, place=place: (place, *pair))
        for place, stream in enumerate(verbs(keyed))
    ]
    tagged[0].merge(*tagged[1:]).sink("out", out)
    return flow


def runs(flow: ms.Flow, state: str, commits: int, workers: int = 1) -> int:
    for crashes in range(1000):
        try:
            run_crashing(flow, workers, state, commits)
        except ms.SimulatedCrash:
            continue
        return crashes
    raise AssertionError("it gets nowhere")


def test_a_crash_at_every_commit_changes_nothing() -> None:
    # 20 batches, and three moments around each of their commits.
    assert ms.testing.crash_everywhere(build([])) >= 3 * 20


def test_with_other_numbers_of_workers(tmp_path: Any) -> None:
    whole: list[Any] = []
    ms.run(build(whole))
    out: list[Any] = []
    flow = build(out)
    for workers in [2, 1, 3, 2, 1]:
        with pytest.raises(ms.SimulatedCrash):
            run_crashing(flow, workers, tmp_path, 3)
    runs(flow, str(tmp_path), 2, 2)
    assert sorted(map(repr, out)) == sorted(map(repr, whole))


def test_state_that_cannot_be_saved_names_step_and_key(tmp_path: Any) -> None:
    flow = ms.Flow("bad")
    out = ms.testing.collect()
    keyed = flow.source("in", ms.testing.items(["a", "b"])).key_by(str)
    keyed.stateful("locks", lambda state, item: None, state=lambda: (i for i in ())).sink("out", out)
    with pytest.raises(ms.StepError, match=r"cannot pickle 'generator' object.*snapshot\(\)") as raised:
        ms.run(flow, state=tmp_path, epoch=0)
    assert (raised.value.step, raised.value.key) == ("locks", "'a'")


def test_a_step_that_vanished_is_an_error_with_the_way_out(tmp_path: Any) -> None:
    def renamed(name: str, out: list[Any]) -> ms.Flow:
        flow = ms.Flow("renamed")
        flow.source("in", ms.testing.items("abc" * 20)).key_by(str).count("each", name=name).sink("out", out)
        return flow

    first: list[Any] = []
    with pytest.raises(ms.SimulatedCrash):
        run_crashing(renamed("old", first), 1, tmp_path, 3)
    with pytest.raises(ms.FlowError, match=r'"old".*drop_state=\["old"\]'):
        ms.run(renamed("new", first), state=tmp_path)
    ms.run(renamed("new", first), state=tmp_path, drop_state=["old"])
    assert len(first) == 60


def epochs_of(state: Path) -> list[list[bytes]]:
    """The records of each epoch with changes, without its commit."""
    epochs: list[list[bytes]] = [[]]
    with ms.Journal(state / "epochs", "r") as journal:
        for record in journal:
            body = bytes(record.body)
            if body[1] == COMMIT:
                epochs.append([])
            else:
                epochs[-1].append(body)
    return [epoch for epoch in epochs if epoch]


# Kinds of records: changes, a commit, and complete states.
CHANGED = 1
COMMIT = 4
WHOLE = 5


def run_census(state: Path, batches: list[Any]) -> None:
    """Counts the items of each key; each batch is an epoch."""
    flow = ms.Flow("census")
    out = ms.testing.collect()
    source = ms.testing.items([item for batch in batches for item in batch], batch_size=1_000)
    flow.source("in", source).key_by(str).stateful("seen", see, state=Seen).sink("out", out)
    ms.run(flow, state=state, epoch=0)


def test_an_epoch_with_few_items_saves_few_keys(tmp_path: Path) -> None:
    """Where all keys change, all are written without asking which; no longer than that."""
    busy = [[f"key-{key}" for key in range(1_000)]] * 12
    quiet = [["key-7", ms.testing.pause(0.01)]] * 20
    run_census(tmp_path, [*busy, *quiet])
    epochs = epochs_of(tmp_path)
    saved = [{body[1] for body in epoch} for epoch in epochs]
    # New keys are written in any case. One quiet epoch may be like the busy ones before it.
    busy_ones = saved.index({CHANGED}, 1) - 1
    assert 1 <= busy_ones <= 12
    assert saved == [{CHANGED}] + [{WHOLE}] * busy_ones + [{CHANGED}] * (len(saved) - busy_ones - 1)
    # A key, and not one of each group.
    few = epochs[busy_ones + 1 :]
    assert few and all(len(epoch) == 1 and len(epoch[0]) < 200 for epoch in few)


@pytest.mark.parametrize("first", [1, 4, 300])
def test_new_keys_are_saved_once(tmp_path: Path, first: int) -> None:
    """Whatever part of the keys has changed in the epochs before, while there were fewer keys."""
    old = [f"key-{key}" for key in range(first)]
    pause = ms.testing.pause(0.01)
    loads = [[f"key-{load}-{key}" for key in range(500)] for load in range(12)]
    run_census(tmp_path, [*[[*old, pause]] * 3, *[[*load, old[0], pause] for load in loads], [old[0], pause]])
    written = [sum(body.count(b"key-") for body in epoch) for epoch in epochs_of(tmp_path)]
    assert written[:3] == [first] * 3
    # The first epoch with other keys may begin with old ones that are all expected to change.
    assert written[3] in (500 + 1, 500 + first)
    assert written[4:] == [501] * 11 + [1]


def test_states_are_right_after_epochs_that_saved_all_or_some(tmp_path: Any) -> None:
    few = [3, 5, 8]
    many = range(300)
    numbers = [key for turn in range(40) for key in (many if turn // 10 % 2 == 0 else few)]

    def build(out: list[Any]) -> ms.Flow:
        flow = ms.Flow("some")
        source = ms.testing.items(numbers, batch_size=20)
        flow.source("in", source).key_by(int).stateful("seen", see, state=Seen).sink("out", out)
        return flow

    whole: list[Any] = []
    ms.run(build(whole))
    out: list[Any] = []
    flow = build(out)
    for workers in [1, 2, 4, 3, 3, 2, 1]:
        with pytest.raises(ms.SimulatedCrash):
            run_crashing(flow, workers, tmp_path, 5)
    assert runs(flow, str(tmp_path), 7, 2) > 1
    assert sorted(out) == sorted(whole)
