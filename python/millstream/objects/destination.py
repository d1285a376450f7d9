"""The destination of ``ms.objects.write``: one object for each delivery.

Invariant: the objects of an outbox form a chain. The name of an object is the number of its first record, the
number of the next one's is that plus the count of its items, and an object is created only if there is none
of its name. So of two forwarders of one outbox only one can extend the chain, and the chain alone tells the
position: its last object is found by listing, and what it contains is counted.
"""

from __future__ import annotations

from dataclasses import dataclass

from .errors import ObjectError
from .formats import count_items
from .store import Found, Prefix, describe, open_store

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from .._outbox import OutboxIdentity
    from .formats import Format

__all__ = ["Destination", "WriteOptions", "object_name"]

DIGITS = 20
"""The largest number of a record has so many: names are in the order of the numbers."""


@dataclass(frozen=True)
class WriteOptions:
    """What ``ms.objects.write`` was called with."""

    to: Any
    format: Format
    prefix: str
    config: Mapping[str, Any] | None
    timeout: float


def object_name(outbox: str, first: int, ending: str) -> str:
    """The name of the object whose first record has a number.

    >>> object_name("5eed", 1000, ".jsonl")
    '5eed/00000000000000001000.jsonl'
    """
    return f"{outbox}/{first:0{DIGITS}}{ending}"


def number_of(name: str) -> int | None:
    """The number of the first record of an object; None if it is no name of :func:`object_name`.

    >>> number_of("5eed/00000000000000001000.jsonl"), number_of("5eed/notes")
    (1000, None)
    """
    digits = name.rpartition("/")[2].partition(".")[0]
    return int(digits) if len(digits) == DIGITS and digits.isascii() and digits.isdigit() else None


class Destination:
    """Writes the deliveries of an outbox as objects."""

    def __init__(self, options: WriteOptions) -> None:
        self.options = options
        self.format = options.format

    def connect(self, outbox: OutboxIdentity) -> None:
        options = self.options
        store = open_store(options.to, options.config, options.timeout, create=True)
        self.prefix = Prefix(store, describe(options.to), options.prefix)
        self.outbox = outbox

    def position(self) -> int | None:
        newest = self.newest()
        if newest is None:
            return None
        first = number_of(newest.name)
        assert first is not None
        count = count_items(self.prefix, newest)
        if count == 0:
            raise ObjectError(
                f'{self.prefix.address}: object "{self.prefix.path(newest.name)}" was replaced: it has no '
                "items, and the position of the outbox is not known without them"
            )
        return first + count - 1

    def newest(self) -> Found | None:
        """The last object of this outbox.

        A store lists names in pages. After each page this jumps ahead by a step that doubles as long as
        there are objects, so that the number of requests grows with the logarithm of that of the objects.
        """
        last, step = self.latest(-1), 1
        if last is None:
            return None
        while True:
            number = number_of(last.name) or 0
            further = self.latest(number + step) or self.latest(number)
            if further is None:
                return last
            reached = number_of(further.name) or 0
            step = step * 2 if reached > number + step else max(1, step // 2)
            last = further

    def latest(self, number: int) -> Found | None:
        """Of some objects after that with a number the last one; None if there are none."""
        # A name with this number and any ending is not after it.
        after = object_name(self.outbox.id, max(0, number), ".~" if number >= 0 else "")
        some = self.prefix.some(self.outbox.id, after)
        found = [each for each in some if number_of(each.name) is not None]
        return max(found, key=lambda each: each.name, default=None)

    def write(self, batch: list[Any], first: int, last: int) -> None:
        content = self.format.join(batch, first)
        name = object_name(self.outbox.id, first, self.format.ending)
        if self.prefix.create(name, content):
            return
        # An attempt of this forwarder may have succeeded without an answer, or another forwarder has written.
        there = b"".join(self.prefix.chunks(name))
        if there != content:
            raise ObjectError(
                f"{self.prefix.address}: another process delivers the same outbox. Object "
                f'"{self.prefix.path(name)}" exists, with other contents than the records {first} to {last} '
                f'of flow "{self.outbox.flow}", sink "{self.outbox.sink}". Is a copy of the state directory '
                "in use? End one of the two flows; this one has not written the records"
            )
