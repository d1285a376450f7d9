"""The layers of millstream-flow: a module uses those that are before it in this list, and its own parts."""

from collections.abc import Iterator
from pathlib import Path

from modules import Uses, rust_uses

FLOW = Path(__file__).parent.parent / "crates" / "millstream-flow" / "src"

# From the bottom up.
LAYERS = """
    named data position clock mutex error key compression framing input cluster time saved batch node
    starting metrics poller control panics
    step sink policy source letters
    state shared_log durable outbox checkpoint replay rehearsal
    dataflow
    describe
    connectors operators
    run
    testing
    crate
""".split()


def against(uses: Uses, layers: list[str]) -> Iterator[str]:
    """The uses of a higher module by a lower one, and the modules that are in no layer, one a line."""
    height = {module: number for number, module in enumerate(layers)}
    for module, used in sorted(uses.items()):
        if top(module) not in height:
            yield f"{module} is in no layer"
        elif not module.endswith("::tests"):
            # What is found in the root itself is a macro, which is exported there.
            others = used - {"crate"}
            higher = (other for other in others if height.get(top(other), 0) > height[top(module)])
            yield from (f"{module} -> {other}" for other in sorted(higher))


def top(module: str) -> str:
    """The top-level module of one: `run` of `crate::run::worker`."""
    return module.removeprefix("crate::").split("::")[0]


def test_modules_of_a_flow_use_only_lower_layers() -> None:
    uses = rust_uses(FLOW)
    assert list(against(uses, LAYERS)) == []
    assert {top(module) for module in uses} == set(LAYERS), "a layer has no modules"


def test_a_use_of_a_higher_layer_is_found() -> None:
    uses: Uses = {"crate::time": {"crate::run", "crate::error"}, "crate::run": set(), "crate::new": set()}
    assert list(against(uses, LAYERS)) == ["crate::new is in no layer", "crate::time -> crate::run"]
