"""Trials: runs of a flow with given inputs and no external systems, once or with a crash at every point.

In a trial scripts stand in for sources and lists for sinks, dead letters included. With one worker the flow
runs on the thread that calls, so that a debugger stops in its steps.
"""

from __future__ import annotations

from .. import _millstream
from .._errors.flow import FlowUsageError, SimulatedCrash, show
from .._streams.flow import Flow
from . import shown as _shown
from .options import RunOptions
from .run import run_with
from .scripts import items

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from os import PathLike
    from typing import Any, TypeAlias

    Inputs: TypeAlias = "Mapping[str, _millstream.Script[Any] | Iterable[Any]]"
    Outputs: TypeAlias = "dict[str, list[Any]]"


MOMENTS = {
    "before": "before commit {}",
    "within": "at commit {}, before the sinks were notified",
    "after": "after commit {}",
}


def run_all(
    flow: Flow,
    inputs: Inputs | None = None,
    *,
    workers: int = 1,
    clock: _millstream.VirtualClock | None = None,
) -> Outputs:
    """Runs a flow with scripts for its sources and lists for its sinks. The sinks themselves are not
    opened.

    With one worker the flow runs on the calling thread, so that a debugger stops in its steps.

    Args:
        flow: the flow.
        inputs: for the name of a source its items, or a script (``ms.testing.items``,
            ``ms.testing.partitions``). A source of bytes receives ``bytes``, ``str`` or records, and
            decodes them. Sources that are not named read their own input.
        workers: the number of worker threads, from 1 to 256.
        clock: the clock of processing time.

    Returns:
        The items of each sink, by its name; the dead letters of a step under ``STEP.dead_letters``.

    Raises:
        FlowUsageError: the flow has no source of a name.
        StepError: a step failed.

    Example:
        >>> import millstream as ms
        >>> flow = ms.Flow("shout")
        >>> words = flow.source("words", ms.tcp.listen("127.0.0.1:7001", framing="lines", decode=str))
        >>> words.map(str.upper).sink("out", ms.tcp.send_to("127.0.0.1:7002", framing="lines"))
        >>> ms.testing.run_all(flow, {"words": ["to", "be"]})
        {'out': ['TO', 'BE']}
    """
    return rehearse(flow, scripts_of(flow, inputs), workers, clock)


def crash_everywhere(
    flow: Flow,
    inputs: Inputs | None = None,
    *,
    workers: int = 1,
    clock: _millstream.VirtualClock | None = None,
) -> int:
    """Runs a flow with simulated crashes around each commit, and asserts that they change nothing.

    Each batch of a source is an epoch of its own. For each commit the flow runs three times: it crashes
    before the commit, between the commit and the notification of the sinks, or after the commit, and is
    started again. In one more run it crashes after every commit. The contents of the sinks and the saved
    state at the end must be as without a crash. Where streams are merged, and with several workers, items
    have no order and are compared without one.

    Args:
        flow: the flow.
        inputs: for the name of a source its items, or a script (``ms.testing.items``,
            ``ms.testing.partitions``). A source of bytes receives ``bytes``, ``str`` or records, and
            decodes them. Sources that are not named read their own input.
        workers: the number of worker threads, from 1 to 256.
        clock: the clock of processing time.

    Returns:
        The number of crashes.

    Raises:
        AssertionError: a crash made a difference; the text names the crash and the first difference.
        FlowUsageError: the flow has no source of a name.

    Example:
        >>> import millstream as ms
        >>> flow = ms.Flow("count")
        >>> words = flow.source("words", ms.files.lines("words.txt"))
        >>> words.key_by(str).count("each", name="count").sink("out", ms.files.write("counts.txt"))
        >>> words = ms.testing.items(["to", "be", "to"], batch_size=1)
        >>> ms.testing.crash_everywhere(flow, {"words": words}) > 6
        True
    """
    scripts = scripts_of(flow, inputs)
    in_order = workers == 1 and is_one_line(flow)

    def trial(crash: Callable[[int], tuple[str, int] | None]) -> tuple[Found, int]:
        return one_trial(flow, scripts, workers, clock, crash)

    whole, _ = trial(lambda run: None)
    crashes = 0
    for moment, said in MOMENTS.items():
        commit = 1
        while True:
            found, crashed = trial(lambda run, at=(moment, commit): at if run == 0 else None)  # type: ignore[misc]
            if not crashed:
                break
            compare(whole, found, in_order, said.format(commit))
            crashes = crashes + 1
            commit = commit + 1
    found, crashed = trial(lambda run: ("after", 1))
    compare(whole, found, in_order, "after each commit")
    return crashes + crashed


def copy_everywhere(
    flow: Flow,
    inputs: Inputs | None = None,
    *,
    workers: int = 1,
    clock: _millstream.VirtualClock | None = None,
) -> Outputs:
    """Runs a flow in which each step receives copies, and as it is, and asserts that both give the same.

    It finds objects that two owners change or keep: an item that a step changes while another branch reads
    it, a state that is returned as an output and changed later, a list that a source fills again. Such a
    flow gives other results with other sizes of batches, numbers of workers or processes. In the first of
    the two runs each item travels alone and is pickled on its way to each step. Where streams are merged,
    and with several workers, items have no order and are compared without one.

    Args:
        flow: the flow.
        inputs: as those of :func:`crash_everywhere`. A script of items can be run twice; sources of your own
            must give equal items in both runs.
        workers: the number of worker threads, from 1 to 256.
        clock: the clock of processing time.

    Returns:
        The items of each sink, by its name, of the run without copies.

    Raises:
        AssertionError: copies make a difference; the text names the sink and the first difference.
        FlowUsageError: the flow has no source of a name.
        StepError: a step failed, or an item cannot be pickled.

    Example:
        >>> import millstream as ms
        >>> flow = ms.Flow("rates")
        >>> orders = flow.source("orders", ms.testing.items([]))
        >>> def in_cents(order):
        ...     order["price"] *= 100  # changes the item of the other branch, too
        ...     return order
        >>> orders.map(in_cents).sink("cents", ms.testing.collect())
        >>> orders.sink("all", ms.testing.collect())
        >>> try:
        ...     ms.testing.copy_everywhere(flow, {"orders": [{"price": 3}]})
        ... except AssertionError as error:
        ...     print(error)
        copies of the items change the results: output "all": item 0 is {'price': 300} and was {'price': 3}
    """
    scripts = scripts_of(flow, inputs)
    in_order = workers == 1 and is_one_line(flow)
    alone = [(name, script.one_by_one()) for name, script in scripts]
    copied = rehearse(flow, alone, workers, clock, copies=True)
    found = rehearse(flow, scripts, workers, clock)
    what = difference(Found(copied, []), Found(found, []), in_order)
    if what is not None:
        raise AssertionError(f"copies of the items change the results: {what}")
    return found


class Found:
    """The outcome of a trial."""

    def __init__(self, outputs: Outputs, states: list[tuple[str, Any, int, bytes]]) -> None:
        self.outputs = outputs
        self.states = {(step, key): (how, written) for step, key, how, written in states}


def one_trial(
    flow: Flow,
    scripts: list[tuple[str, _millstream.Script[Any]]],
    workers: int,
    clock: _millstream.VirtualClock | None,
    crash: Callable[[int], tuple[str, int] | None],
) -> tuple[Found, int]:
    """Runs until the end; the n-th run crashes as ``crash(n)`` says. Returns the number of crashes, too."""
    import tempfile

    outputs: Outputs = {}
    rehearsal = _millstream.Rehearsal(scripts, lambda name: outputs.setdefault(name, []), None)
    crashes = 0
    with tempfile.TemporaryDirectory(prefix="millstream-trial-") as state:
        while True:
            try:
                run_crashing(flow, workers, state, crash(crashes), clock=clock, rehearsal=rehearsal)
            except SimulatedCrash:
                crashes += 1
                continue
            # A sink that hides output until it is committed would have no more than this.
            for name, committed in rehearsal.committed().items():
                del outputs[name][committed:]
            return Found(outputs, _millstream.saved_states(state)), crashes


def run_crashing(
    flow: Flow,
    workers: int,
    state: str | PathLike[str],
    crash: int | tuple[str, int] | None = None,
    drop_state: Iterable[str] = (),
    *,
    clock: _millstream.VirtualClock | None = None,
    rehearsal: _millstream.Rehearsal | None = None,
) -> _millstream.Report:
    """Runs a flow that commits after each batch, and crashes after a commit or at a moment of one."""
    options = RunOptions(workers, clock=clock, state=state, epoch=0.0, sync=False, drop_state=drop_state)
    return run_with(flow, options, rehearsal=rehearsal, crash=crash)


def compare(whole: Found, found: Found, in_order: bool, crash: str) -> None:
    """Raises for the first difference of a trial from the one without crashes."""
    what = difference(whole, found, in_order)
    if what is not None:
        raise AssertionError(f"a crash {crash} changes the results: {what}")


def difference(whole: Found, found: Found, in_order: bool) -> str | None:
    """The first difference, in words."""
    for sink in sorted(whole.outputs.keys() | found.outputs.keys()):
        expected = whole.outputs.get(sink, [])
        got = found.outputs.get(sink, [])
        if not in_order:
            expected = sorted(expected, key=repr)
            got = sorted(got, key=repr)
        if expected == got:
            continue
        for at in range(max(len(expected), len(got))):
            was = expected[at : at + 1]
            now = got[at : at + 1]
            if was != now and repr(was) != repr(now):
                which = "item" if in_order else "in sorted order, item"
                return f'output "{sink}": {which} {at} is {describe_first(now)} and was {describe_first(was)}'
    for step, key in whole.states.keys() | found.states.keys():
        before = whole.states.get((step, key))
        after = found.states.get((step, key))
        if before != after and not same_state(before, after):
            place = f'state of step "{step}", key {show(key)}'
            return f"{place}: it is {describe_state(after)} and was {describe_state(before)}"
    return None


def describe_first(items: list[Any]) -> str:
    return show(items[0]) if items else "nothing"


def same_state(one: tuple[int, bytes] | None, other: tuple[int, bytes] | None) -> bool:
    """Whether two states are the same, though their pickles have other bytes."""
    if one is None or other is None:
        return False
    values = _shown.read(*one), _shown.read(*other)
    if values[0] is not None and values[0] == values[1]:
        return True
    shown = _millstream.shown_state(*one)
    return shown is not None and shown == _millstream.shown_state(*other)


def describe_state(state: tuple[int, bytes] | None) -> str:
    if state is None:
        return "nothing"
    shown = _millstream.shown_state(*state)
    return shown if shown is not None else state[1].hex()


def rehearse(
    flow: Flow,
    scripts: list[tuple[str, _millstream.Script[Any]]],
    workers: int,
    clock: _millstream.VirtualClock | None,
    copies: bool = False,
) -> Outputs:
    """Runs a flow with these scripts, and lists for sinks."""
    outputs: Outputs = {}
    rehearsal = _millstream.Rehearsal(scripts, lambda name: outputs.setdefault(name, []), None, copies)
    run_with(flow, RunOptions(workers, clock=clock), rehearsal=rehearsal)
    return outputs


def nodes(flow: Flow) -> list[dict[str, Any]]:
    """The nodes of a flow."""
    import json

    found: list[dict[str, Any]] = json.loads(flow.describe("json"))["nodes"]
    return found


def is_one_line(flow: Flow) -> bool:
    """Whether a flow merges no streams, so that its output has an order."""
    found = nodes(flow)
    sources = [node for node in found if node["kind"] == "source"]
    return len(sources) == 1 and all(len(node["inputs"]) <= 1 for node in found)


def scripts_of(flow: Flow, inputs: Inputs | None) -> list[tuple[str, _millstream.Script[Any]]]:
    """The scripts that replace sources."""
    if not isinstance(flow, Flow):
        raise FlowUsageError(f"a trial is one of a Flow, not of {flow!r}")
    sources = [node["name"] for node in nodes(flow) if node["kind"] == "source"]
    scripts = []
    for name, given in (inputs or {}).items():
        if name not in sources:
            raise FlowUsageError(f'flow "{flow.name}" has no source "{name}"; it has {", ".join(sources)}')
        scripts.append((name, given if isinstance(given, _millstream.Script) else items(given)))
    return scripts
