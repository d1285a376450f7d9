"""Windows and lists with many items for a key: an epoch saves the new items, not all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import millstream as ms
import pytest
from millstream._run.trial import run_crashing

# An item is longer than the size from which states are saved by what was added to them.
SIZE = 5_000
COUNT = 60
# The kind of a record that commits an epoch.
COMMIT = 4


def items() -> list[tuple[int, str]]:
    """Times and texts; some times are earlier than those before."""
    return [(n - n % 7, f"{n:05d}" * (SIZE // 5)) for n in range(COUNT)]


def summary(texts: Any) -> list[str]:
    return [text[:5] for text in texts]


def windowed(window: Any, ordered: bool = True, **options: Any) -> Callable[[ms.KeyedStream], ms.KeyedStream]:
    def build(keyed: ms.KeyedStream) -> ms.KeyedStream:
        windows = keyed.window("window", window, ordered=ordered, **options).collect()
        return windows.map(lambda window: (window.start, window.early, summary(window.value)))

    return build


def by_key(keyed: ms.KeyedStream) -> ms.KeyedStream:
    return windowed(ms.windows.tumbling(20), watermark="key", lateness=8, patience=5)(keyed)


def brief(pair: Any) -> list[str | None]:
    values = getattr(pair, "value", pair)
    return [text and text[:5] for text in values]


def pairs(**options: Any) -> Callable[[ms.KeyedStream], ms.KeyedStream]:
    """Joins each third text with the others."""

    def build(keyed: ms.KeyedStream) -> ms.KeyedStream:
        left = keyed.filter(lambda text: int(text[:5]) % 3 > 0, name="left")
        right = keyed.filter(lambda text: int(text[:5]) % 3 == 0, name="right")
        return left.join("joined", right, **options).map(brief)

    return build


def rows(keyed: ms.KeyedStream) -> ms.KeyedStream:
    """All combinations of values of two streams, by their times."""
    left = keyed.filter(lambda text: int(text[:5]) % 9 > 0, name="left")
    right = keyed.filter(lambda text: int(text[:5]) % 9 == 0, name="right")
    return left.join_all("joined", right, emit="final", insert="product").map(brief)


class Numbered:
    """Numbers the texts of a key, and says so at the next moment."""

    def __init__(self) -> None:
        self.seen = 0

    def on_item(self, key: str, text: str, ctx: ms.KeyContext) -> tuple[int, str]:
        self.seen += 1
        ctx.set_timer(ctx.time + 1)
        return self.seen, text[:5]

    def on_timer(self, key: str, at: float, ctx: ms.KeyContext) -> tuple[str, float, int]:
        return "timer", at, self.seen


SHAPES: dict[str, Callable[[ms.KeyedStream], ms.KeyedStream]] = {
    "tumbling": windowed(ms.windows.tumbling(20)),
    "sliding": windowed(ms.windows.sliding(20, 5)),
    "early": windowed(ms.windows.tumbling(20), early=7),
    "as they arrive": windowed(ms.windows.tumbling(20), ordered=False, early=7),
    "sliding as they arrive": windowed(ms.windows.sliding(20, 5), ordered=False),
    "session": windowed(ms.windows.session(9)),
    "by key": by_key,
    "collect": lambda keyed: keyed.collect(17).map(summary),
    "count": windowed(ms.windows.count(17)),
    "near": pairs(how="full", within=9),
    "latest": pairs(how="full"),
    "in windows": pairs(how="left", window=ms.windows.tumbling(20)),
    "rows": rows,
    "in order": lambda keyed: keyed.stateful("numbered", Numbered, ordered=True),
}


def build(shape: str, out: Any) -> ms.Flow:
    flow = ms.Flow("growing")
    source = flow.source("in", ms.testing.items(items(), batch_size=3))
    timed = source.event_time(lambda item: item[0], lateness=8)
    keyed = timed.key_by(lambda item: "ab"[item[0] % 11 == 0]).map(lambda item: item[1])
    SHAPES[shape](keyed).sink("out", out)
    return flow


@pytest.mark.parametrize("shape", SHAPES)
def test_a_crash_at_every_commit_changes_nothing(shape: str) -> None:
    assert ms.testing.crash_everywhere(build(shape, ms.testing.collect())) >= COUNT // 3


@pytest.mark.parametrize("shape", ["tumbling", "sliding", "collect"])
def test_nor_do_other_numbers_of_workers(shape: str, tmp_path: Path) -> None:
    whole: list[Any] = []
    ms.run(build(shape, whole))
    out: list[Any] = []
    flow = build(shape, out)
    for workers in [1, 2, 3, 1, 2]:
        with pytest.raises(ms.SimulatedCrash):
            run_crashing(flow, workers, tmp_path, 3)
    ms.run(flow, state=tmp_path)
    assert sorted(map(repr, out)) == sorted(map(repr, whole))


@pytest.mark.parametrize(
    "shape",
    [
        "tumbling",
        "sliding",
        "as they arrive",
        "by key",
        "session",
        "count",
        "collect",
        "near",
        "in windows",
        "rows",
        "in order",
    ],
)
def test_an_epoch_saves_new_items(shape: str, tmp_path: Path) -> None:
    flow = ms.Flow("growing")
    texts = [(0, f"{n:05d}" * (SIZE // 5)) for n in range(COUNT)]
    source = flow.source("in", ms.testing.items(texts, batch_size=2))
    keyed = source.event_time(lambda item: item[0]).key_by(lambda item: "k").map(lambda item: item[1])
    step = keyed.collect(COUNT + 1).map(summary) if shape == "collect" else SHAPES[shape](keyed)
    step.sink("out", ms.testing.collect())
    ms.run(flow, state=tmp_path, epoch=0)
    epochs: list[int] = [0]
    with ms.Journal(tmp_path / "epochs", "r") as journal:
        for record in journal:
            body = bytes(record.body)
            epochs[-1] += len(body)
            if body[1] == COMMIT:
                epochs.append(0)
    # Each item once, and again where the journal is compacted: a few times, since each time it has doubled.
    assert sum(epochs) < 4 * COUNT * SIZE
    assert sorted(epochs)[len(epochs) // 2] < 4 * SIZE
