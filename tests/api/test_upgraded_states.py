"""Saved states and a program that has changed: found at the start, with step and key, or taken up as it
says.
"""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import millstream as ms
import pytest
from millstream import testing
from millstream._run.trial import run_crashing

MODULE = "a_module_that_changes"


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


def totals(stream: ms.KeyedStream, module: ModuleType, timed: bool, **options: Any) -> ms.KeyedStream:
    """Adds to the state what it is called in each version of the program."""

    def add(state: Any, value: int) -> str:
        state.add(value)
        return state.show()

    return stream.stateful("totals", add, state=module.made, ttl=1e6 if timed else None, **options)


def run(module: ModuleType, state: Path, values: list[int], timed: bool = False, **options: Any) -> list[Any]:
    """Resumes after the values of the previous run, and is stopped before the end of its input."""
    flow = ms.Flow("upgraded")
    out = testing.collect()
    # The items after the values give the commits time to cover the values.
    script = testing.items([*values, *[None] * 6], 1)
    given = flow.source("in", script).filter(lambda value: value is not None)
    keyed = given.key_by(lambda value: f"key {value % 2}")
    totals(keyed, module, timed, **options).values().sink("out", out)
    with pytest.raises(ms.SimulatedCrash):
        run_crashing(flow, 1, state, len(values) + 3, ["in", "out"] if state.exists() else [])
    return list(out)


FIRST = """
class Stats:
    def __init__(self): self.total = 0
    def add(self, value): self.total += value
    def show(self): return f"{self.total}"
made = Stats
"""
GAINED = """
class Stats:
    def __init__(self): self.total, self.count = 0, 0
    def add(self, value): self.total += value; self.count += 1
    def show(self): return f"{self.total} {self.count}"
made = Stats
"""
DATACLASS = """
from dataclasses import dataclass, field
@dataclass{arguments}
class Stats:
    total: int = 0
    {field}
    def add(self, value): self.total += value
    def show(self): return f"{{self.total}} {{getattr(self, 'seen', None)}}"
made = Stats
"""
STRUCT = """
import msgspec
class Stats(msgspec.Struct):
    total: int = 0
    {field}
    def add(self, value): self.total += value
    def show(self): return f"{{self.total}} {{getattr(self, 'seen', None)}}"
made = Stats
"""
RENAMED = FIRST.replace("Stats", "Figures")
BOTH = pytest.mark.parametrize("timed", [False, True])


def started(module: ModuleType, state: Path, source: str, timed: bool) -> None:
    define(module, source)
    run(module, state, [1, 2, 3], timed)


@BOTH
@pytest.mark.parametrize("factory", ["Stats", "lambda: Stats()"])
def test_an_added_attribute_is_reported_at_the_start(
    module: ModuleType, tmp_path: Path, timed: bool, factory: str
) -> None:
    started(module, tmp_path / "s", FIRST, timed)
    define(module, GAINED.replace("made = Stats", f"made = {factory}"))
    flow = ms.Flow("upgraded")
    seen = []
    values = flow.source("in", testing.items([1, 2, 3, 5], 1)).key_by(lambda value: f"key {value % 2}")
    totals(values.inspect(seen.append), module, timed).values().sink("out", testing.collect())
    with pytest.raises(
        ms.FlowError, match=r'step "totals", key "?\'?key \d\'?"?.*without the attribute \'count\'.*migrate='
    ):
        ms.run(flow, state=tmp_path / "s", epoch=0, drop_state=["in", "out"])
    assert seen == [], "nothing was read"


@BOTH
def test_migrate_gives_each_saved_state_its_shape_of_today(
    module: ModuleType, tmp_path: Path, timed: bool
) -> None:
    started(module, tmp_path / "s", FIRST, timed)
    define(module, GAINED)

    def migrate(state: Any) -> Any:
        if not hasattr(state, "count"):
            state.count = 10
        return state

    assert run(module, tmp_path / "s", [5, 6], timed, migrate=migrate) == ["9 11", "8 11"]
    # Those that were written since are taken up as they are.
    assert run(module, tmp_path / "s", [7, 8], timed, migrate=migrate) == ["16 12", "16 12"]


@BOTH
def test_another_class_can_be_made_of_what_was_saved(module: ModuleType, tmp_path: Path, timed: bool) -> None:
    started(module, tmp_path / "s", FIRST, timed)
    define(module, FIRST + GAINED.replace("Stats", "Better"))
    with pytest.raises(
        ms.FlowError, match=r'"totals", key .*of the class Stats, and the step has states of Better'
    ):
        run(module, tmp_path / "s", [5], timed)

    def migrate(state: Any) -> Any:
        better = module.Better()
        better.total = state.total
        return better

    assert run(module, tmp_path / "s", [5], timed, migrate=migrate) == ["9 1"]


@BOTH
@pytest.mark.parametrize("aliases", ["names", "full names", "mapping"])
def test_a_renamed_class_is_found_by_its_alias(
    module: ModuleType, tmp_path: Path, timed: bool, aliases: str
) -> None:
    started(module, tmp_path / "s", FIRST, timed)
    define(module, RENAMED)
    with pytest.raises(ms.FlowError, match=rf'"totals", key .*aliases={{"{MODULE}.Stats": '):
        run(module, tmp_path / "s", [5], timed)
    given: dict[str, Any] = {
        "names": ["Stats"],
        "full names": (f"{MODULE}.Stats",),
        "mapping": {"Stats": module.Figures},
    }
    assert run(module, tmp_path / "s", [5, 6], timed, aliases=given[aliases]) == ["9", "8"]
    # What was written since has the name of today.
    assert run(module, tmp_path / "s", [7, 8], timed) == ["16", "16"]


@BOTH
@pytest.mark.parametrize("arguments", ["", "(slots=True)"])
@pytest.mark.parametrize(
    ("field", "shown"), [("seen: int = 7", "7"), ("seen: list = field(default_factory=list)", "[]")]
)
def test_a_dataclass_gives_its_defaults(
    module: ModuleType, tmp_path: Path, timed: bool, arguments: str, field: str, shown: str
) -> None:
    started(module, tmp_path / "s", DATACLASS.format(arguments=arguments, field=""), timed)
    define(module, DATACLASS.format(arguments=arguments, field=field))
    assert run(module, tmp_path / "s", [5, 6], timed) == [f"9 {shown}", f"8 {shown}"]


@BOTH
def test_a_struct_gives_its_defaults(module: ModuleType, tmp_path: Path, timed: bool) -> None:
    started(module, tmp_path / "s", STRUCT.format(field=""), timed)
    define(module, STRUCT.format(field="seen: int = 7"))
    assert run(module, tmp_path / "s", [5, 6], timed) == ["9 7", "8 7"]


def test_a_fold_is_migrated_too(tmp_path: Path) -> None:
    def build(out: Any, values: list[int], add: Callable[[Any, int], Any], **options: Any) -> ms.Flow:
        flow = ms.Flow("folded")
        given = flow.source("in", testing.items([*values, *[None] * 6], 1))
        keyed = given.filter(lambda value: value is not None).key_by(lambda value: "k")
        keyed.fold("sum", dict, add, emit="each", **options).values().sink("out", out)
        return flow

    state = str(tmp_path)
    first = build(testing.collect(), [1, 2], lambda acc, value: (acc or 0) + value)
    with pytest.raises(ms.SimulatedCrash):
        run_crashing(first, 1, state, 5)
    out = testing.collect()
    second = build(
        out,
        [3],
        lambda acc, v: {"sum": acc["sum"] + v},
        migrate=lambda s: s if isinstance(s, dict) else {"sum": s},
    )
    with pytest.raises(ms.SimulatedCrash):
        run_crashing(second, 1, state, 4, ["in", "out"])
    assert out == [{"sum": 6}]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"aliases": "Stats"}, "several names"),
        ({"aliases": [3]}, "names and classes"),
        ({"aliases": {"Stats": 3}}, "names and classes"),
        ({"migrate": 3}, "takes a function"),
    ],
)
def test_mistakes_are_errors_with_a_remedy(options: Any, words: str) -> None:
    flow = ms.Flow("wrong")
    keyed = flow.source("in", testing.items([1])).key_by(str)
    with pytest.raises(ms.FlowUsageError, match=words):
        keyed.stateful("s", lambda state, value: None, state=dict, **options)
    with pytest.raises(ms.FlowUsageError, match="a class that makes the states"):
        keyed.stateful("t", lambda state, value: None, state=lambda: {}, aliases=["Old"])


def counting(name: str, out: Any) -> ms.Flow:
    flow = ms.Flow(name)
    flow.source("in", testing.items([1, 2, 3], 1)).key_by(str).count("each").sink("out", out)
    return flow


def test_a_state_directory_belongs_to_a_flow(tmp_path: Path) -> None:
    out = testing.collect()
    with pytest.raises(ms.SimulatedCrash):
        run_crashing(counting("one", out), 1, tmp_path, 2)
    with pytest.raises(ms.FlowError, match='it is the state of flow "one", not of "two"'):
        ms.run(counting("two", out), state=tmp_path)
    ms.run(counting("one", out), state=tmp_path)
    assert out == [("1", 1), ("2", 1), ("3", 1)]
    with pytest.raises(ms.FlowError, match='it is the state of flow "one", not of "two"'):
        ms.run(counting("two", out), state=tmp_path)


def test_two_workers_restore_their_first_states_at_once() -> None:
    from threading import Thread

    from millstream._values.revival import Revival

    class Total:
        value = 1
        asked = False

        @property
        def __dict__(self) -> dict[str, int]:  # type: ignore[override]
            # The second worker arrives while the first one looks at a new state.
            if not Total.asked:
                Total.asked = True
                second = Thread(target=lambda: finished.append(revival.finish(Total())))
                second.start()
                second.join()
            return {"value": 1}

    finished: list[object] = []
    revival = Revival(Total, Total, None, None, False)
    finished.append(revival.finish(Total()))
    assert [type(state) for state in finished] == [Total, Total]
