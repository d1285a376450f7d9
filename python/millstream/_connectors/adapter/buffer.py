"""The bounded buffer between a generator and the worker that reads its partition.

Invariant: ``take`` empties the buffer, so that the position and the acknowledgements in it are those of the
list that it returns.
"""

from __future__ import annotations

from sys import getsizeof
from threading import Lock

from ..._errors.flow import show
from .item import At

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .options import Options


class WrongItem(TypeError):
    """A generator yields something that its options do not allow. Another attempt would do the same."""


class Buffer:
    """Items from one generator. ``wake`` is called when there is news and the worker has found none before;
    ``make_room`` when the worker has emptied a full buffer."""

    def __init__(self, options: Options, position: Any, wake: Callable[[], None]) -> None:
        self.options = options
        self.wake = wake
        self.make_room: Callable[[], None] = _nothing
        self.lock = Lock()
        self.items: list[Any] = []
        self.size = 0
        self.acks: list[Callable[[], object]] = []
        self.idle = False
        self.full = False
        self.position = position
        self.faults: list[str] = []
        self.error: BaseException | None = None
        self.ended = False

    def put(self, item: Any) -> bool:
        """Adds what the generator has yielded; returns whether the generator must wait for room."""
        options = self.options
        at: At[Any] | None = None
        if type(item) is At:
            at = item
            self.check_at(at)
            item = at.item
        elif options.resume or options.ack:
            asked = "resume=True" if options.resume else "ack=True"
            raise WrongItem(
                f"{options.name} has {asked}, so that it yields ms.At(position, item), not {show(item)}"
            )
        if options.batches and not isinstance(item, list):
            raise WrongItem(f"{options.name} has batches=True, so that it yields lists, not {show(item)}")
        with self.lock:
            if options.batches:
                self.items += item
                self.size += sum(map(getsizeof, item))
            else:
                self.items.append(item)
                self.size += getsizeof(item)
            if at is not None:
                self.position = at.position
                if at.ack is not None:
                    self.acks.append(at.ack)
            full = self.full = len(self.items) >= options.buffer or self.size >= options.buffer_bytes
            idle = self.idle
            self.idle = False
        if idle:
            self.wake()
        return full

    def check_at(self, at: At[Any]) -> None:
        """Refuses a position or an acknowledgement that would be ignored, and a position that is missing."""
        name = self.options.name
        resume = self.options.resume
        if resume and at.position is None:
            raise WrongItem(f"{name} has resume=True, so that the position in ms.At is not None")
        if not resume and at.position is not None:
            raise WrongItem(f"{name} yields the position {show(at.position)}, and does not have resume=True")
        if at.ack is not None and not self.options.ack:
            raise WrongItem(f"{name} yields an ack, and does not have ack=True")

    def fault(self, text: str) -> None:
        """Reports something that the source survives."""
        with self.lock:
            self.faults.append(text)
            self.idle = False
        self.wake()

    def end(self, error: BaseException | None = None) -> None:
        """Notes the end of the generator."""
        with self.lock:
            self.ended = True
            self.error = error
            self.idle = False
        self.wake()

    def take(self) -> tuple[list[Any], Any, list[Callable[[], object]]]:
        """Returns the items, the position after them and their acknowledgements."""
        with self.lock:
            items = self.items
            self.items = []
            # An empty list of the generator may have an acknowledgement, too.
            acks = self.acks
            self.acks = []
            position = self.position
            self.size = 0
            full = self.full
            self.full = False
            self.idle = not items and not self.ended
        if full:
            self.make_room()
        return items, position, acks

    def take_faults(self) -> list[str]:
        """Returns the faults since the last call."""
        if not self.faults:
            return []
        with self.lock:
            faults = self.faults
            self.faults = []
        return faults


def _nothing() -> None:
    pass
