"""Dead letters that go through their steps again, as further input of a flow.

While the file of the flow is loaded, the verbs of streams add a source before each step that has letters:
``STEP.redriven``, whose items are merged with the input of the step. Its position, in the state of the flow,
is that in the file of letters, with a checksum of what is before it: a run that resumes sends the letters
that no commit has, and refuses another file.
"""

from __future__ import annotations

import hashlib
import inspect
import os
from contextlib import contextmanager
from functools import wraps

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
POSITIONS_LEFT = "positions-left"
"""In the note of a file whose letters have been redriven: the state may have their positions yet."""
LOOK_SECONDS = 0.2
"""How often a source that has sent all is asked whether it has more, in seconds."""


def source_of(step: str) -> str:
    """The name of the source of the letters of a step; the engine knows such names by their end."""
    return f"{step}.redriven"


class Letters:
    """The dead letters of a file that have not been redriven.

    Args:
        path: the file.

    Raises:
        UsageError: it cannot be read, a line is no dead letter, or it has changed since a part was redriven.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.note = f"{path}.redriven"
        #: The checksums at the ends of lines.
        self.sums = {0: hashlib.sha256().hexdigest()}
        #: The lines of each step with their numbers and ends, and what they contain once the flow is loaded.
        self.lines: dict[str, list[tuple[int, int, dict[str, Any]]]] = {}
        self.items: dict[str, list[tuple[int, Any, Any]]] = {}
        self.stopper: _millstream.Stopper | None = None
        #: By step, the end of its last letter that a commit has.
        self.committed: dict[str, int] = {}
        self.end = 0
        #: Up to where all have been redriven.
        self.done = 0
        #: The steps of letters that were redriven by a run that was killed before it removed their positions.
        self.unforgotten: set[str] = set()
        if path.endswith((".gz", ".zst")):
            raise UsageError(f"{path}: it is compressed: decompress it, and redrive that file")
        try:
            with open(path, "rb") as file:
                self.read(file.readlines())
        except OSError as error:
            raise UsageError(f"{path}: {error.strerror}") from None
        self.count = sum(map(len, self.lines.values()))

    def read(self, lines: list[bytes]) -> None:
        """Finds the step of each line. The last one is left out while it has no end: its process writes it,
        or was killed."""
        summed = hashlib.sha256()
        found = []
        for number, line in enumerate(lines, 1):
            if not line.endswith(b"\n"):
                self.refuse_complete(number, line)
                break
            summed.update(line)
            self.end += len(line)
            self.sums[self.end] = summed.hexdigest()
            found.append((number, self.end, line))
        self.done, is_forgotten = self.read_done()
        for number, end, line in found:
            if end <= self.done and is_forgotten:
                continue
            letter = self.named(number, read, line)
            if end > self.done:
                self.lines.setdefault(letter["step"], []).append((number, end, letter))
            else:
                self.unforgotten.add(letter["step"])

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

    def read_done(self) -> tuple[int, bool]:
        """How many bytes of the file have been redriven, and whether their positions have been removed."""
        try:
            with open(self.note, encoding="ascii") as file:
                end, digest, *more = file.read().split()
                done = int(end)
        except FileNotFoundError:
            return 0, True
        except (OSError, ValueError) as error:
            raise UsageError(f"{self.note}: {error}") from None
        if self.sums.get(done) != digest:
            raise UsageError(
                f"{self.path} has changed: it does not begin with the {done} bytes that were redriven; "
                f"remove {self.note} to send all of its letters"
            )
        return done, more != [POSITIONS_LEFT]

    def decode(self) -> None:
        """Reads keys and items. Their classes are known when the flow is loaded."""
        for step, lines in self.lines.items():
            for number, end, letter in lines:
                key, item = self.named(number, values_of, letter)
                self.items.setdefault(step, []).append((end, key, item))

    def resumed(self, step: str, mark: Mark | None) -> int:
        """The end of the last letter of a step that a commit has."""
        if mark is not None and self.sums.get(mark[0]) != mark[1]:
            raise FlowUsageError(
                f"{self.path} is not the file whose redrive was interrupted, or has changed: finish that one "
                f'first, or give up what is left of it with --drop-state "{source_of(step)}"'
            )
        sent = mark[0] if mark is not None else 0
        self.note_commit(step, sent)
        return sent

    def note_commit(self, step: str, end: int) -> None:
        """Notes that letters of a step are committed up to this end; after the last one the flow stops."""
        self.committed[step] = end
        if self.is_committed() and self.stopper is not None:
            self.stopper.stop()

    def is_committed(self) -> bool:
        """Whether all letters are committed."""
        return all(self.committed.get(step, -1) >= lines[-1][1] for step, lines in self.lines.items())

    def note_done(self, end: int, forgotten: bool) -> None:
        """Notes that all letters up to this end have been redriven, and whether the state has forgotten their
        positions."""
        partial = f"{self.note}.new"
        with open(partial, "w", encoding="ascii") as file:
            file.write(f"{end} {self.sums[end]}{'' if forgotten else f' {POSITIONS_LEFT}'}\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, self.note)


class Redriven(Source[object]):
    """The letters of a step, as a source of pairs of key and item."""

    def __init__(self, letters: Letters, step: str) -> None:
        self.letters = letters
        self.step = step

    def open(self, partition: str, position: Mark | None, *_: object) -> Sending:
        sent = self.letters.resumed(self.step, position)
        return Sending(self.letters, [each for each in self.letters.items[self.step] if each[0] > sent], sent)

    def commit(self, positions: dict[str, Mark]) -> None:
        for end, _ in positions.values():
            self.letters.note_commit(self.step, end)


class Sending:
    """The open source. It has no end: the run is stopped when all is committed, so that nothing is emitted
    which only the end of all input emits."""

    def __init__(self, letters: Letters, left: list[tuple[int, Any, Any]], sent: int) -> None:
        self.letters = letters
        self.left = left
        self.sent = sent

    def next_batch(self) -> list[tuple[Any, Any]]:
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

    def add(stream: Stream[Any] | KeyedStream[Any, Any], step: str, verb: str) -> Any:
        pipe, _ = stream._joined()
        flow = _millstream.Flow.of(pipe)
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

    before: list[tuple[type, str, Any]] = []
    kinds: tuple[type, ...] = (Stream, KeyedStream)
    for kind in kinds:
        for verb, function in inspect.getmembers(kind, inspect.isfunction):
            signature = inspect.signature(function)
            if not verb.startswith("_") and {"name", "on_error"} <= signature.parameters.keys():
                before.append((kind, verb, vars(kind).get(verb)))
                setattr(kind, verb, verb_with(function, signature, letters, add))
    try:
        yield added
    finally:
        for kind, verb, own in before:
            if own is None:
                delattr(kind, verb)
            else:
                setattr(kind, verb, own)


def verb_with(
    function: Any, signature: inspect.Signature, letters: Letters, add: Callable[[Any, str, str], Any]
) -> Any:
    """A verb that adds letters to the stream before its step."""

    @wraps(function)
    def called(stream: Any, *args: Any, **named: Any) -> Any:
        step = signature.bind(stream, *args, **named).arguments.get("name")
        if step in letters.lines:
            stream = add(stream, step, function.__name__)
        return function(stream, *args, **named)

    return called
