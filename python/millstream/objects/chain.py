"""A chain of objects, which tells the position of an outbox.

Invariant: the name of an object has the number of its first record, and an object is created only if there is
none of its name. The number of the next one follows from what the object says, so that of two forwarders of
one outbox only one can extend the chain, and its last object, which is found by listing, tells the position.
"""

from __future__ import annotations

from dataclasses import dataclass

from .errors import ObjectError
from .store import Found, Prefix

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .._connectors.outbox import OutboxIdentity


DIGITS = 20
"""The largest number of a record has so many: names are in the order of the numbers."""


@dataclass(frozen=True)
class Chain:
    """The objects of a directory whose names are a stem, a number and an ending.

    Args:
        prefix: where the directory is.
        directory: the directory.
        stem: the beginning of the names in it.
    """

    prefix: Prefix
    directory: str
    stem: str = ""

    def name(self, first: int, ending: str) -> str:
        """The name of the object whose first record has a number.

        >>> Chain(None, "5eed").name(1000, ".jsonl")
        '5eed/00000000000000001000.jsonl'
        """
        return f"{self.directory}/{self.stem}{first:0{DIGITS}}{ending}"

    def number_of(self, name: str) -> int | None:
        """The number of the first record of an object; None if it is none of the chain.

        >>> chain = Chain(None, "dt=1", "5eed-")
        >>> chain.number_of(chain.name(1000, ".parquet")), chain.number_of("dt=1/5eed-notes")
        (1000, None)
        """
        start = f"{self.directory}/{self.stem}"
        rest = name.removeprefix(start)
        digits = rest.partition(".")[0]
        is_number = len(digits) == DIGITS and digits.isascii() and digits.isdigit()
        return int(digits) if name.startswith(start) and is_number and "/" not in rest else None

    def newest(self) -> Found | None:
        """The last object of the chain.

        A store lists names in pages. After each page this jumps ahead by a step that doubles as long as
        there are objects, so that the number of requests grows with the logarithm of that of the objects.
        """
        last = self.latest(-1)
        step = 1
        if last is None:
            return None
        while True:
            number = self.number_of(last.name) or 0
            further = self.latest(number + step) or self.latest(number)
            if further is None:
                return last
            reached = self.number_of(further.name) or 0
            step = step * 2 if reached > number + step else max(1, step // 2)
            last = further

    def latest(self, number: int) -> Found | None:
        """Of some objects after that with a number the last one; None if there are none."""
        # A name with this number and any ending is not after it.
        after = self.name(max(0, number), ".~" if number >= 0 else "")
        some = self.prefix.some(self.directory, after)
        found = [each for each in some if self.number_of(each.name) is not None]
        return max(found, key=lambda each: each.name, default=None)


def create_or_compare(
    prefix: Prefix, outbox: OutboxIdentity, name: str, content: bytes, first: int, last: int
) -> None:
    """Creates an object with some records, or finds that it is there.

    Raises:
        ObjectError: there is one with other contents.
    """
    if prefix.create(name, content):
        return
    # An attempt of this forwarder may have succeeded without an answer, or another forwarder has written.
    if b"".join(prefix.chunks(name)) != content:
        raise ObjectError(
            f"{prefix.address}: another process delivers the same outbox. Object "
            f'"{prefix.path(name)}" exists, with other contents than the records {first} to {last} '
            f'of flow "{outbox.flow}", sink "{outbox.sink}". Is a copy of the state directory '
            "in use? End one of the two flows; this one has not written the records"
        )
