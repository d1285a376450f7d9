"""Dead letters that go through their steps again, as further input of a flow.

While the file of the flow is loaded, the verbs of streams add a source before each step that has letters:
``STEP.redriven``, whose items are merged with the input of the step. Its partition is the file of letters.
Its position, which stays in the state of the flow, is that in the file, with a checksum of what is before it:
a later run sends the letters that no commit has, and refuses another file of the same name.
"""

from __future__ import annotations

import hashlib
import inspect
import io
import json
import os
from contextlib import contextmanager
from functools import wraps
from threading import Lock

from .. import _millstream
from .._connectors.io import Source
from .._errors.command import UsageError
from .._errors.flow import FlowUsageError
from .._streams.streams import KeyedStream, Stream
from .._values.letters import read, values_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, TypeAlias

    Mark: TypeAlias = tuple[int, str]
    """A position in the file: how many bytes, and the checksum of these."""


BATCH_VERBS = ("map_batch", "stateful_batch")
BATCH = 8
"""Letters that are sent at once at most: no epoch ends within them, and steps may be slow."""
TIME_VERBS = ("event_time", "event_clock", "processing_time")
MAGIC = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
"""How compressed files begin."""
LOOK_SECONDS = 0.2
"""How often a source that has sent all is asked whether it has more, in seconds."""
ENDING = ".redriven"
"""How the names of the sources of letters end; the engine knows them by it."""


def source_of(step: str) -> str:
    """The name of the source of the letters of a step."""
    return f"{step}{ENDING}"


class Letters:
    """The dead letters of a file that no commit of a state has.

    Args:
        path: the file.
        state: the state directory of the flow.

    Raises:
        UsageError: it cannot be read, a line is no dead letter, or it is not the file of this name of which
            the state has a position.
    """

    def __init__(self, path: str, state: str | os.PathLike[str]) -> None:
        self.path = path
        saved: list[tuple[str, str, Mark]] = _millstream.saved_positions(state, ENDING)
        names = (name for _, name, _ in saved)
        #: The name under which the state knows the file.
        self.partition = next((name for name in names if is_same_file(name, path)), path)
        positions = {source: mark for source, name, mark in saved if name == self.partition}
        #: The lines of each step with their numbers and ends, and what they contain once the flow is loaded.
        self.lines: dict[str, list[tuple[int, int, dict[str, Any]]]] = {}
        self.items: dict[str, list[tuple[int, Any, Any]]] = {}
        self.stopper: _millstream.Stopper | None = None
        #: By step, the end of its last letter that a commit has.
        self.committed: dict[str, int] = {}
        #: Whether what a start of the flow has removed from the file has been left out.
        self.is_settled = False
        self.settling = Lock()
        found, self.sums, rest = lines_of(contents(path))
        if rest:
            self.refuse_complete(len(found) + 1, rest)
        self.check(positions)
        for number, end, line in found:
            letter = self.named(number, read, line)
            if end > positions.get(source_of(letter["step"]), (0, ""))[0]:
                self.lines.setdefault(letter["step"], []).append((number, end, letter))

    def refuse_complete(self, number: int, line: bytes) -> None:
        """Raises if the last line, which has no end, is a letter nevertheless: it would be left out."""
        try:
            read(line)
        except ValueError:
            return
        raise UsageError(
            f"{self.path}, line {number}: it has no end: end it with a line feed if it is complete"
        )

    def named(self, number: int, function: Callable[[Any], Any], value: object) -> Any:
        """What a function makes of a line, which its errors name."""
        try:
            return function(value)
        except Exception as error:
            raise UsageError(f"{self.path}, line {number}: {error}") from None

    def check(self, positions: dict[str, Mark]) -> None:
        """Raises if the file is not the one with these positions."""
        other = sorted(source for source, (end, digest) in positions.items() if self.sums.get(end) != digest)
        if other:
            drop = " ".join(f'--drop-state "{source}"' for source in other)
            raise UsageError(
                f"{self.path} does not begin with the letters that were redriven from a file of this name: "
                f"to send all letters redrive a copy under another name, or run the flow with {drop} before"
            )

    def decode(self) -> None:
        """Reads keys and items. Their classes are known when the flow is loaded."""
        for step, lines in self.lines.items():
            for number, end, letter in lines:
                key, item = self.named(number, values_of, letter)
                self.items.setdefault(step, []).append((end, key, item))

    def resumed(self, step: str, mark: Mark | None) -> int:
        """The end of the last letter of a step that a commit has: another redrive may have sent some."""
        if mark is not None and self.sums.get(mark[0]) != mark[1]:
            raise FlowUsageError(f"{self.path} has changed since this redrive began: run it again")
        sent = mark[0] if mark is not None else 0
        self.note_commit(step, sent)
        return sent

    def settle(self) -> None:
        """Leaves out what is in the file no more: where it is output of the flow, the start has removed what
        followed the last commit, and the flow processes these items again."""
        with self.settling:
            if self.is_settled:
                return
            _, now, _ = lines_of(contents(self.path))
            for step, items in self.items.items():
                self.items[step] = [each for each in items if now.get(each[0]) == self.sums[each[0]]]
            self.is_settled = True
        self.stop_when_committed()

    def note_commit(self, step: str, end: int) -> None:
        """Notes that letters of a step are committed up to this end."""
        self.committed[step] = end
        self.stop_when_committed()

    def stop_when_committed(self) -> None:
        """Stops the flow after the last letter."""
        if self.is_settled and self.is_committed() and self.stopper is not None:
            self.stopper.stop()

    def left(self, step: str, end: int) -> list[tuple[int, Any, Any]]:
        """The letters of a step after this end."""
        return [each for each in self.items[step] if each[0] > end]

    def is_committed(self) -> bool:
        """Whether all letters are committed."""
        return not any(self.left(step, self.committed.get(step, 0)) for step in self.items)


def is_same_file(one: str, other: str) -> bool:
    """Whether two paths refer to the same file."""
    try:
        return one == other or os.path.samefile(one, other)
    except OSError:
        return False


def contents(path: str) -> bytes:
    """The contents of a file, decompressed if it is compressed: a sink may have done so under any name.

    Raises:
        UsageError: it cannot be read.
    """
    try:
        with open(path, "rb") as file:
            content = file.read()
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    compression = next((name for magic, name in MAGIC.items() if content.startswith(magic)), None)
    if compression is None:
        return content
    try:
        return b"".join(_millstream.Decompressor([content], compression))
    except ValueError as error:
        raise UsageError(
            f"{path}: {error}; if a flow that was killed has written it, run that flow before: its start "
            "removes what followed the last commit"
        ) from None


def lines_of(content: bytes) -> tuple[list[tuple[int, int, bytes]], dict[int, str], bytes]:
    """Divides a content into lines.

    Returns:
        The lines with their numbers and ends; the checksums of what is before these ends; what follows the
        last end of a line: its process writes it, or was killed.
    """
    summed = hashlib.sha256()
    sums = {0: summed.hexdigest()}
    found: list[tuple[int, int, bytes]] = []
    end = 0
    for number, line in enumerate(io.BytesIO(content), 1):
        if not line.endswith(b"\n"):
            return found, sums, line
        summed.update(line)
        end += len(line)
        sums[end] = summed.hexdigest()
        found.append((number, end, line))
    return found, sums, b""


class Redriven(Source[object]):
    """The letters of a step, as a source of pairs of key and item."""

    def __init__(self, letters: Letters, step: str) -> None:
        self.letters = letters
        self.step = step

    def partitions(self, *_: object) -> list[str]:
        return [self.letters.partition]

    def open(self, partition: str, position: Mark | None, *_: object) -> Sending:
        return Sending(self.letters, self.step, self.letters.resumed(self.step, position))

    def commit(self, positions: dict[str, Mark]) -> None:
        position = positions.get(self.letters.partition)
        if position is not None:
            self.letters.note_commit(self.step, position[0])


class Sending:
    """The open source. It has no end: the run is stopped when all is committed, so that nothing is emitted
    which only the end of all input emits."""

    def __init__(self, letters: Letters, step: str, sent: int) -> None:
        self.letters = letters
        self.step = step
        self.sent = sent
        self.left: list[tuple[int, Any, Any]] | None = None

    def next_batch(self) -> list[tuple[Any, Any]]:
        if self.left is None:
            # Only now all sinks are open.
            self.letters.settle()
            self.left = self.letters.left(self.step, self.sent)
        batch = self.left[:BATCH]
        if batch:
            self.left = self.left[BATCH:]
            self.sent = batch[-1][0]
        return [(key, item) for _, key, item in batch]

    def next_awake(self) -> float:
        return LOOK_SECONDS

    def position(self) -> Mark:
        return self.sent, self.letters.sums[self.sent]


@contextmanager
def adding(letters: Letters) -> Iterator[dict[tuple[str, str], bool]]:
    """While flows are described in this block, their steps that have letters get them as further input.

    Returns:
        The names of these flows and steps, and whether letters could be added: they have no times.
    """
    added: dict[tuple[str, str], bool] = {}
    before: list[tuple[type, str, Any]] = []
    kinds: tuple[type, ...] = (Stream, KeyedStream)
    for kind in kinds:
        for verb, function in inspect.getmembers(kind, inspect.isfunction):
            signature = inspect.signature(function)
            changed: Any = function
            if not verb.startswith("_") and {"name", "on_error"} <= signature.parameters.keys():
                changed = verb_with(function, signature, letters, added)
            if verb in TIME_VERBS:
                changed = time_verb_with(changed, letters)
            if changed is not function:
                before.append((kind, verb, vars(kind).get(verb)))
                setattr(kind, verb, changed)
    try:
        yield added
    finally:
        for kind, verb, own in before:
            if own is None:
                delattr(kind, verb)
            else:
                setattr(kind, verb, own)


def verb_with(
    function: Any, signature: inspect.Signature, letters: Letters, added: dict[tuple[str, str], bool]
) -> Any:
    """A verb that adds letters to the stream before its step."""

    @wraps(function)
    def called(stream: Any, *args: Any, **named: Any) -> Any:
        step = signature.bind(stream, *args, **named).arguments.get("name")
        if step in letters.lines:
            stream = with_letters(stream, step, function.__name__, letters, added)
        return function(stream, *args, **named)

    return called


def with_letters(
    stream: Stream[Any] | KeyedStream[Any, Any],
    step: str,
    verb: str,
    letters: Letters,
    added: dict[tuple[str, str], bool],
) -> Any:
    """A stream with the letters of the step that is its next one."""
    flow = flow_of(stream)
    if (flow.name, step) in added:
        return stream
    added[flow.name, step] = not stream._timed
    if stream._timed:
        return stream
    name = source_of(step)
    pairs: Stream[Any] = Stream(flow.source(name, Redriven(letters, step), "fail", None))
    if verb in BATCH_VERBS:
        # The item of such a letter is a batch.
        pairs = pairs.flat_map(lambda pair: [(pair[0], one) for one in pair[1]], name=f"{name}.each")
    if not isinstance(stream, KeyedStream):
        return stream.merge(pairs.map(lambda pair: pair[1], name=f"{name}.item"))
    keyed = pairs.key_by(lambda pair: pair[0], name=f"{name}.key")
    return stream.merge(keyed.map(lambda pair: pair[1], name=f"{name}.item"))


def flow_of(stream: Stream[Any] | KeyedStream[Any, Any]) -> _millstream.Flow:
    """The flow of which this is a stream."""
    pipe, _ = stream._joined()
    return _millstream.Flow.of(pipe)


def time_verb_with(function: Any, letters: Letters) -> Any:
    """A verb that gives items their times. Letters that were added before it are a mistake in the flow."""

    @wraps(function)
    def called(stream: Stream[Any], *args: Any, **named: Any) -> Any:
        try:
            return function(stream, *args, **named)
        except FlowUsageError:
            nodes = json.loads(flow_of(stream).describe("json"))["nodes"]
            inputs = {node["name"]: node["inputs"] for node in nodes}
            above = [nodes[-1]["name"]]
            # It grows while it is read.
            for name in above:
                above.extend(inputs[name])
            for step in letters.lines:
                if source_of(step) in above:
                    raise UsageError(
                        f'step "{step}" comes before {function.__name__}, or is it: there all items are of '
                        "one source, so that letters cannot be redriven; add their items to the flow's input"
                    ) from None
            raise

    return called
