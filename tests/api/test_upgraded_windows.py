"""Saved accumulators of windows after a change of the program: refused at the start, or migrated."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import millstream as ms
import pytest
from millstream import testing
from millstream._run.trial import run_crashing

MODULE = "a_module_with_windows"

FIRST = """
class Stats:
    def __init__(self, total=0): self.total = total
    def shown(self): return str(self.total)
made = Stats
"""
GAINED = """
class Stats:
    def __init__(self, total=0): self.total, self.count = total, 0
    def shown(self): return f"{self.total} {self.count}"
made = Stats
"""
DATACLASS = """
from dataclasses import dataclass
@dataclass
class Stats:
    total: int = 0
    {field}
    def shown(self): return f"{{self.total}} {{getattr(self, 'seen', None)}}"
made = Stats
"""
RENAMED = FIRST.replace("Stats", "Figures")
WINDOWS = [
    (ms.windows.tumbling(1000), {}),
    (ms.windows.sliding(1000, every=1000), {"watermark": "key"}),
    (ms.windows.session(1000), {}),
    (ms.windows.count(100), {}),
]
EACH_WINDOW = pytest.mark.parametrize(("window", "options"), WINDOWS)


@pytest.fixture
def module() -> Iterator[ModuleType]:
    made = sys.modules[MODULE] = ModuleType(MODULE)
    yield made
    del sys.modules[MODULE]


def define(module: ModuleType, source: str) -> None:
    """The module as this source has it, and nothing of what it had before."""
    for name in [name for name in vars(module) if not name.startswith("__")]:
        delattr(module, name)
    exec(source, vars(module))


def add(state: Any, value: int) -> Any:
    state.total += value
    return state


def merge(state: Any, later: Any) -> Any:
    state.total += later.total
    return state


def flow_of(
    module: ModuleType, values: list[int], window: Any, verb: str, options: Any, upgrade: Any
) -> tuple[ms.Flow, list[str]]:
    flow = ms.Flow("upgraded")
    out = testing.collect()
    times = flow.source("in", testing.items(values, 1)).event_time(lambda value: float(value))
    keyed = times.key_by(lambda value: "k")
    if verb == "reduce" or options.get("ordered"):
        keyed = keyed.map(lambda value: module.made(value))
    windows = keyed.window("w", window, **options)
    if verb == "fold":
        results = windows.fold(lambda: module.made(), add, merge, **upgrade)
    elif verb == "aggregate":
        results = windows.aggregate(lambda: module.made(), add, merge, **upgrade)
    else:
        results = windows.reduce(merge, **upgrade)
    results.values().map(lambda result: result.value.shown()).sink("out", out)
    return flow, out


def first_run(module: ModuleType, state: Path, source: str, window: Any, verb: str, options: Any) -> None:
    """Three values in an open window, and a crash."""
    define(module, source)
    flow, _ = flow_of(module, [1, 2, 3, 4, 5, 6], window, verb, options, {})
    with pytest.raises(ms.SimulatedCrash):
        run_crashing(flow, 1, state, ("after", 3))


def second_run(
    module: ModuleType, state: Path, source: str, window: Any, verb: str, options: Any, **upgrade: Any
) -> list[str]:
    define(module, source)
    flow, out = flow_of(module, [], window, verb, options, upgrade)
    # Forgotten positions, so that the run has input: none of it changes the window.
    run_crashing(flow, 2, state, None, ["in", "out"])
    return out


@EACH_WINDOW
@pytest.mark.parametrize("verb", ["fold", "aggregate"])
def test_an_added_attribute_is_reported_at_the_start(
    module: ModuleType, tmp_path: Path, window: Any, options: Any, verb: str
) -> None:
    first_run(module, tmp_path / "s", FIRST, window, verb, options)
    with pytest.raises(ms.FlowError, match=r'step "w", key .*without the attribute \'count\'.*migrate='):
        second_run(module, tmp_path / "s", GAINED, window, verb, options)


@EACH_WINDOW
@pytest.mark.parametrize("verb", ["fold", "aggregate", "reduce"])
def test_migrate_gives_each_saved_accumulator_its_shape_of_today(
    module: ModuleType, tmp_path: Path, window: Any, options: Any, verb: str
) -> None:
    first_run(module, tmp_path / "s", FIRST, window, verb, options)
    migrated = []

    def migrate(state: Any) -> Any:
        if not hasattr(state, "count"):
            state.count = 10
        migrated.append(state)
        return state

    out = second_run(module, tmp_path / "s", GAINED, window, verb, options, migrate=migrate)
    assert len(migrated) == 1 and len(out) == 1
    assert out[0].split()[1] == "10"


@EACH_WINDOW
@pytest.mark.parametrize("verb", ["fold", "reduce"])
def test_a_class_that_was_renamed_is_found_by_its_alias(
    module: ModuleType, tmp_path: Path, window: Any, options: Any, verb: str
) -> None:
    first_run(module, tmp_path / "s", FIRST, window, verb, options)
    with pytest.raises(ms.FlowError, match=r'step "w", key .*Stats is not there any more'):
        second_run(module, tmp_path / "s", RENAMED, window, verb, options)
    aliases = {"Stats": module.made}
    # The class is that of the module as it is now.
    flow, out = flow_of(module, [], window, verb, options, {"aliases": aliases})
    run_crashing(flow, 1, tmp_path / "s", None, ["in", "out"])
    assert len(out) == 1 and int(out[0]) >= 1


@pytest.mark.parametrize("verb", ["fold", "aggregate", "reduce"])
@pytest.mark.parametrize("options", [{}, {"ordered": True}])
def test_a_field_with_a_default_is_filled_in(
    module: ModuleType, tmp_path: Path, verb: str, options: Any
) -> None:
    if verb != "reduce" and options:
        pytest.skip("what is kept in order are the values")
    window = ms.windows.tumbling(1000)
    first_run(module, tmp_path / "s", DATACLASS.format(field=""), window, verb, options)
    source = DATACLASS.format(field="seen: str = 'never'")
    out = second_run(module, tmp_path / "s", source, window, verb, options)
    assert [shown.split()[1] for shown in out] == ["never"]


def test_accumulators_that_were_not_upgraded_are_as_before(module: ModuleType, tmp_path: Path) -> None:
    window = ms.windows.tumbling(1000)
    first_run(module, tmp_path / "s", FIRST, window, "fold", {})
    assert second_run(module, tmp_path / "s", FIRST, window, "fold", {}) in (["3"], ["6"])


def test_aliases_without_classes_need_a_class_that_makes_accumulators() -> None:
    flow = ms.Flow("usage")
    keyed = flow.source("in", testing.items([1])).key_by(lambda value: value)
    with pytest.raises(ms.FlowUsageError, match="aliases= without classes needs a class"):
        keyed.window("w", ms.windows.count(2)).reduce(max, aliases=["Old"])
    with pytest.raises(ms.FlowUsageError, match="migrate= takes a function, not 7"):
        keyed.window("w", ms.windows.count(2)).fold(list, lambda acc, value: acc, migrate=7)  # type: ignore[arg-type]
