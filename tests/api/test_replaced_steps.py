"""A step that takes the name of one of another kind: its state is refused, and removed by the advice."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import millstream as ms
import pytest
from millstream import testing
from millstream._run.trial import run_crashing

Add = Callable[[Any], Any]

VALUES = [5, 1, 4, 2, 6, 3]
NAME = "step"


def own_days(time: float) -> list[tuple[float, float]]:
    return [(time - time % 1000, time - time % 1000 + 1000)]


class Days:
    windows = staticmethod(own_days)


# Of each group any two have states that look alike. Streams with times are made by `timed`.
PLAIN: dict[str, Add] = {
    "count": lambda keyed: keyed.count("each", NAME),
    "sum": lambda keyed: keyed.sum(emit="each", name=NAME),
    "min": lambda keyed: keyed.min(emit="each", name=NAME),
    "max": lambda keyed: keyed.max(emit="each", name=NAME),
    "reduce": lambda keyed: keyed.reduce(NAME, lambda a, b: a * b, "each"),
    "fold": lambda keyed: keyed.fold(NAME, int, lambda acc, _: acc + 1, "each"),
}
FORGETTING: dict[str, Add] = {
    "count": lambda keyed: keyed.count("each", NAME, ttl=1e6),
    "sum": lambda keyed: keyed.sum(emit="each", name=NAME, ttl=1e6),
    "max": lambda keyed: keyed.max(emit="each", name=NAME, ttl=1e6),
    "stateful": lambda keyed: keyed.stateful_map(NAME, lambda n, v: (n + v, n), state=int, ttl=1e6),
}
VERBS: dict[str, Add] = {
    "count": lambda windows: windows.count(),
    "sum": lambda windows: windows.sum(),
    "min": lambda windows: windows.min(),
    "max": lambda windows: windows.max(),
    "reduce": lambda windows: windows.reduce(lambda a, b: a * b),
    "fold": lambda windows: windows.fold(int, lambda acc, v: acc + v, lambda a, b: a + b),
    "aggregate": lambda windows: windows.aggregate(int, lambda acc, v: acc + v, lambda a, b: a + b),
}
WINDOWS: dict[str, Any] = {
    "tumbling 1000s": (ms.windows.tumbling(1000), {}),
    "tumbling 1000s offset 7s": (ms.windows.tumbling(1000, offset=7), {}),
    "tumbling 2000s": (ms.windows.tumbling(2000), {}),
    "sliding 1000s every 500s": (ms.windows.sliding(1000, every=500), {}),
    "session 1000s": (ms.windows.session(1000), {}),
    "of 4 items": (ms.windows.count(4), {}),
    "by a windower": (Days(), {}),
    "ordered": (ms.windows.tumbling(1000), {"ordered": True}),
    "watermark by key": (ms.windows.tumbling(1000), {"watermark": "key"}),
}
JOINS: dict[str, Add] = {
    "latest": lambda keyed: keyed.join(NAME, keyed),
    "lookup": lambda keyed: keyed.lookup(NAME, keyed),
    "within": lambda keyed: keyed.join(NAME, keyed, within=1000),
    "watermark by key": lambda keyed: keyed.join(NAME, keyed, watermark="key"),
    "window": lambda keyed: keyed.join(NAME, keyed, window=ms.windows.tumbling(1000)),
    "2 streams": lambda keyed: keyed.join_all(NAME, keyed, emit="running"),
    "3 streams": lambda keyed: keyed.join_all(NAME, keyed, keyed, emit="running"),
}
LISTS: dict[str, Add] = {
    "collect": lambda keyed: keyed.collect(4, name=NAME),
    "dedupe": lambda keyed: keyed.dedupe(1e6, NAME),
    "throttle": lambda keyed: keyed.throttle(2, 1000, NAME),
    "changes": lambda keyed: keyed.changes(ttl=1e6, name=NAME),
}


def windowed(window: Any, options: Any, verb: str) -> Add:
    return lambda keyed: VERBS[verb](keyed.window(NAME, window, **options))


GROUPS: list[tuple[bool, dict[str, Add]]] = [
    (False, PLAIN),
    (False, FORGETTING),
    (True, FORGETTING),
    (True, {verb: windowed(ms.windows.tumbling(1000), {}, verb) for verb in VERBS}),
    (True, {text: windowed(*window, "sum") for text, window in WINDOWS.items()}),
    (True, JOINS),
    (False, LISTS),
    (True, LISTS),
]
PAIRS = [
    pytest.param(timed, group[first], group[second], id=f"{timed}-{first}-{second}")
    for timed, group in GROUPS
    for first, second in combinations(group, 2)
]


def flow_of(timed: bool, add: Add) -> tuple[ms.Flow, list[Any]]:
    flow, out = ms.Flow("replaced"), testing.collect()
    values = flow.source("in", testing.items(VALUES, 1))
    keyed = (values.event_time(float) if timed else values).key_by(lambda value: "k")
    add(keyed).sink("out", out)
    return flow, out


@pytest.mark.parametrize(("timed", "first", "second"), PAIRS)
def test_a_step_of_another_kind_refuses_the_state(
    timed: bool, first: Add, second: Add, tmp_path: Path
) -> None:
    before, _ = flow_of(timed, first)
    with pytest.raises(ms.SimulatedCrash):
        run_crashing(before, 1, tmp_path / "state", ("after", 3))
    flow, _ = flow_of(timed, second)
    with pytest.raises(ms.FlowError) as refused:
        run_crashing(flow, 1, tmp_path / "state", None)
    kinds = [kind_of(before), kind_of(flow)]
    assert kinds[0] != kinds[1]
    for part in [f'step "{NAME}" of flow "replaced"', *kinds, f'drop_state=["{NAME}"]']:
        assert part in str(refused.value)
    # The advice, with the whole input again: the results are those of a run from scratch.
    flow, out = flow_of(timed, second)
    run_crashing(flow, 1, tmp_path / "state", None, [NAME, "in", "out"])
    flow, wanted = flow_of(timed, second)
    run_crashing(flow, 1, tmp_path / "other", None)
    assert out == wanted


def kind_of(flow: ms.Flow) -> str:
    """The kind of the step, as the description shows it."""
    found = re.search(rf"^ *(\S+) +{NAME}( \(.*\))? from", flow.describe(), re.MULTILINE)
    assert found
    return found[1] + (found[2] or "")
