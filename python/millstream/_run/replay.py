"""Replay: recorded input goes through a flow again, at its recorded times; external systems do not change.

The output is the same each time, so that two versions of a flow can be compared by their output for the
same input.
"""

from __future__ import annotations

import os
from datetime import datetime, timedelta, timezone
from pathlib import Path

from .. import _millstream
from .._errors.flow import FlowUsageError
from .._streams.flow import Flow
from .options import RunOptions
from .run import run_with

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, TypeAlias

    from .trial import Outputs

    Recorded: TypeAlias = "str | os.PathLike[str] | Mapping[str, str | os.PathLike[str]]"
    Place: TypeAlias = "int | datetime"


def replay(
    flow: Flow | str,
    recorded: Recorded,
    *,
    start: Place | None = None,
    end: Place | None = None,
    workers: int = 1,
    batch_size: int | None = None,
) -> Outputs:
    """Feeds recorded input through a flow. External systems do not change.

    Processing time is the time at which a batch was recorded. With one worker the flow runs on the calling
    thread, so that a debugger stops in its steps.

    Args:
        flow: the flow, or a file: ``"FLOW.py"`` or ``"FLOW.py:name"``.
        recorded: the state directory of a flow with durable sources, or for the name of each source the
            directory of a journal, whose records are its messages.
        start: the first record: a sequence number, where there is one input, or a datetime with a time
            zone.
        end: the record before which the replay ends, given as ``start`` is.
        workers: the number of worker threads, from 1 to 256.
        batch_size: divides recorded batches, which does not change the result.

    Returns:
        The items of each sink, by its name.

    Raises:
        FlowUsageError: ``start``, ``end`` or a source does not fit.
        StepError: a step failed.

    Example:
        >>> import tempfile, millstream as ms
        >>> journal = tempfile.mkdtemp()
        >>> with ms.Journal(journal) as words:
        ...     _ = words.append_many(["to", "be"])
        >>> flow = ms.Flow("shout")
        >>> source = flow.source("words", ms.tcp.listen("127.0.0.1:7001", decode=str))
        >>> source.map(str.upper).sink("out", ms.tcp.send_to("127.0.0.1:7002"))
        >>> ms.testing.replay(flow, {"words": journal})
        {'out': ['TO', 'BE']}
    """
    outputs: Outputs = {}
    run_replay(flow, recorded, lambda name: outputs.setdefault(name, []), start, end, workers, batch_size)
    return outputs


def run_replay(
    flow: Flow | str,
    recorded: Recorded,
    make_sink: Callable[[str], object],
    start: Place | None,
    end: Place | None,
    workers: int = 1,
    batch_size: int | None = None,
) -> _millstream.Report:
    """Replays into the sinks that ``make_sink`` returns for their names."""
    described = (recordings(recorded), place("start", start), place("end", end), batch_size)
    rehearsal = _millstream.Rehearsal([], make_sink, described)
    return run_with(loaded(flow), RunOptions(workers), rehearsal=rehearsal)


def loaded(flow: Flow | str) -> Flow:
    """A flow, or that of a file."""
    if isinstance(flow, (str, os.PathLike)):
        from .flow_file import load

        return load(os.fspath(flow))
    if not isinstance(flow, Flow):
        raise FlowUsageError(f"a replay is one of a Flow, not of {flow!r}")
    return flow


def recordings(recorded: Recorded) -> list[tuple[str | None, str, bool]]:
    """Source, directory, and whether that is a journal of plain messages; no source for a state directory."""
    if isinstance(recorded, (str, os.PathLike)):
        return [(None, os.fspath(recorded), False)]
    return [(name, os.fspath(path), not is_input(Path(path))) for name, path in recorded.items()]


def is_input(path: Path) -> bool:
    """Whether this is the recorded input of a durable source: ``STATE/inputs/NAME``."""
    return path.parent.name == "inputs" and (path.parent.parent / "epochs").is_dir()


def place(name: str, at: Place | None) -> tuple[bool, int] | None:
    """Whether the limit is a time, and its value: a sequence number or nanoseconds."""
    if at is None:
        return None
    if isinstance(at, datetime):
        if at.tzinfo is None:
            raise FlowUsageError(f"{name} is a time with a time zone, not {at!r}")
        since = at - datetime(1970, 1, 1, tzinfo=timezone.utc)
        if since < timedelta():
            raise FlowUsageError(f"{name} is a time after 1970, not {at!r}")
        return True, since // timedelta(microseconds=1) * 1000
    if isinstance(at, int) and not isinstance(at, bool) and at >= 0:
        return False, at
    raise FlowUsageError(f"{name} is a sequence number or a datetime, not {at!r}")


def text(item: Any) -> str:
    """An item on one line, the same in each run."""
    if isinstance(item, str) and item.isprintable():
        return item
    own_repr = getattr(type(item), "__repr__", None) is not object.__repr__
    if not own_repr and hasattr(item, "__dict__"):
        # Its own repr would show its address in memory.
        return f"{type(item).__qualname__}({', '.join(f'{k}={v!r}' for k, v in vars(item).items())})"
    return repr(item)


class SinkDifference:
    """The outputs of two flows for one sink. True when they differ.

    Args:
        sink: the name of the sink.
        a: the items of one flow, as text; None where it has no such sink.
        b: the items of the other flow.

    Example:
        >>> from millstream.testing import SinkDifference
        >>> sink = SinkDifference("out", ["a", "b"], ["a", "c"])
        >>> bool(sink)
        True
    """

    def __init__(self, sink: str, a: list[str] | None, b: list[str] | None) -> None:
        self.sink = sink
        self.a = a
        self.b = b

    def __bool__(self) -> bool:
        return self.a != self.b

    def first(self) -> int:
        """Returns the index of the first item that differs.

        Returns:
            The index, from 0.

        Example:
            >>> from millstream.testing import SinkDifference
            >>> sink = SinkDifference("out", ["a", "b"], ["a", "c"])
            >>> sink.first()
            1
        """
        a = self.a or []
        b = self.b or []
        pairs = zip(a, b, strict=False)
        return next((at for at, (one, other) in enumerate(pairs) if one != other), min(len(a), len(b)))

    def only(self) -> tuple[int, int]:
        """Counts the items that only one flow has, wherever they are.

        Returns:
            The number for the one flow, and the number for the other.

        Example:
            >>> from millstream.testing import SinkDifference
            >>> sink = SinkDifference("out", ["a", "b"], ["a", "c"])
            >>> sink.only()
            (1, 1)
        """
        from collections import Counter

        a = Counter(self.a or [])
        b = Counter(self.b or [])
        return sum((a - b).values()), sum((b - a).values())

    def to_dict(self) -> dict[str, Any]:
        """Returns the difference as a dict for programs.

        Returns:
            A dict with ``sink``, ``same``, ``items`` and, where the outputs differ, ``first`` and ``only``.

        Example:
            >>> from millstream.testing import SinkDifference
            >>> sink = SinkDifference("out", ["a", "b"], ["a", "c"])
            >>> sink.to_dict()["first"]
            {'item': 1, 'a': 'b', 'b': 'c'}
        """
        at, (only_a, only_b) = self.first(), self.only()
        counts = [None if items is None else len(items) for items in (self.a, self.b)]
        found: dict[str, Any] = {"sink": self.sink, "same": not self, "items": counts}
        if self:
            ends = [(items or [])[at : at + 1] for items in (self.a, self.b)]
            firsts = [end[0] if end else None for end in ends]
            found["first"] = {"item": at, "a": firsts[0], "b": firsts[1]}
            found["only"] = [only_a, only_b]
        return found


class Difference:
    """The outputs of two flows for the same input. True when they differ; ``str`` is a report for people.

    Args:
        names: the names of the flows.
        sinks: the outputs for each sink.

    Example:
        >>> from millstream.testing import Difference, SinkDifference
        >>> sink = SinkDifference("out", ["a", "b"], ["a", "c"])
        >>> found = Difference(("old.py", "new.py"), [sink])
        >>> print(found)
        output "out": 2 and 2 items, 1 only in old.py, 1 only in new.py; from item 1 on:
          - b
          + c
    """

    LINES = 20
    """How many items of each sink are shown, from the first difference on."""

    def __init__(self, names: tuple[str, str], sinks: list[SinkDifference]) -> None:
        self.names = names
        self.sinks = sinks

    def __bool__(self) -> bool:
        return any(self.sinks)

    def to_json(self) -> str:
        """Returns the differences as JSON: ``{differs, flows: [a, b], sinks: [{sink, same, items, first,
        only}]}``.

        Returns:
            The JSON text.

        Example:
            >>> from millstream.testing import Difference, SinkDifference
            >>> sink = SinkDifference("out", ["a", "b"], ["a", "c"])
            >>> found = Difference(("old.py", "new.py"), [sink])
            >>> found.to_json()[:16]
            '{"differs": true'
        """
        import json

        sinks = [sink.to_dict() for sink in self.sinks]
        return json.dumps({"differs": bool(self), "flows": list(self.names), "sinks": sinks})

    def __str__(self) -> str:
        return "\n".join(line for sink in self.sinks for line in self.report(sink))

    def report(self, sink: SinkDifference) -> list[str]:
        """Returns the report on one sink.

        Args:
            sink: the outputs for the sink.

        Returns:
            The lines of the report.

        Example:
            >>> from millstream.testing import Difference, SinkDifference
            >>> sink = SinkDifference("out", ["a", "b"], ["a", "c"])
            >>> found = Difference(("old.py", "new.py"), [sink])
            >>> found.report(sink)[1:]
            ['  - b', '  + c']
        """
        for name, items in zip(self.names, (sink.a, sink.b), strict=True):
            if items is None:
                return [f'output "{sink.sink}": {name} has no such sink']
        a = sink.a or []
        b = sink.b or []
        if not sink:
            return [f'output "{sink.sink}": the same, {len(a)} items']
        at, (only_a, only_b) = sink.first(), sink.only()
        how = f"{only_a} only in {self.names[0]}, {only_b} only in {self.names[1]}"
        if not only_a and not only_b:
            how = "the same items in another order"
        head = f'output "{sink.sink}": {len(a)} and {len(b)} items, {how}; from item {at} on:'
        return [head, *self.window(a[at : at + self.LINES], b[at : at + self.LINES])]

    def window(self, a: list[str], b: list[str]) -> list[str]:
        """Returns the items from the first difference on, as lines that begin with ``-``, ``+`` or a space.

        Args:
            a: the items of the one flow.
            b: the items of the other flow.

        Returns:
            The lines, at most ``LINES``.

        Example:
            >>> from millstream.testing import Difference, SinkDifference
            >>> sink = SinkDifference("out", ["a", "b"], ["a", "c"])
            >>> found = Difference(("old.py", "new.py"), [sink])
            >>> found.window(["b"], ["b"])
            ['    b']
        """
        import difflib

        lines = difflib.ndiff(a, b)
        return [f"  {line.rstrip()}" for line in lines if not line.startswith("?")][: self.LINES]


def diff(
    flow_a: Flow | str,
    flow_b: Flow | str,
    recorded: Recorded,
    *,
    start: Place | None = None,
    end: Place | None = None,
) -> Difference:
    """Feeds the same recorded input through two flows and compares their outputs.

    Items are compared by their ``repr``.

    Args:
        flow_a: the flow, or a file: ``"FLOW.py"`` or ``"FLOW.py:name"``.
        flow_b: the other flow, or its file.
        recorded: the state directory of a flow with durable sources, or for the name of each source the
            directory of a journal, whose records are its messages.
        start: the first record: a sequence number, where there is one input, or a datetime with a time
            zone.
        end: the record before which the replay ends, given as ``start`` is.

    Returns:
        The differences; false when there are none.

    Raises:
        FlowUsageError: ``start``, ``end`` or a source does not fit.
        StepError: a step failed.

    Example:
        >>> import tempfile, millstream as ms
        >>> journal = tempfile.mkdtemp()
        >>> with ms.Journal(journal) as words:
        ...     _ = words.append_many(["to", "be", "or"])
        >>> def flow(step):
        ...     flow = ms.Flow(step.__name__)
        ...     words = flow.source("words", ms.tcp.listen("127.0.0.1:7001", decode=str))
        ...     words.map(step).sink("out", ms.stdout())
        ...     return flow
        >>> found = ms.testing.diff(flow(str.title), flow(str.upper), {"words": journal})
        >>> bool(found)
        True
        >>> print(found)
        output "out": 3 and 3 items, 3 only in title, 3 only in upper; from item 0 on:
          - To
          - Be
          - Or
          + TO
          + BE
          + OR
    """
    flows = loaded(flow_a), loaded(flow_b)
    names = tuple(
        given if isinstance(given, str) else flow.name
        for given, flow in zip((flow_a, flow_b), flows, strict=True)
    )
    if names[0] == names[1]:
        names = "a", "b"
    outputs = [replay(flow, recorded, start=start, end=end) for flow in flows]
    sinks = []
    for name in sorted(outputs[0].keys() | outputs[1].keys()):
        a, b = (None if name not in found else list(map(text, found[name])) for found in outputs)
        sinks.append(SinkDifference(name, a, b))
    return Difference((names[0], names[1]), sinks)
