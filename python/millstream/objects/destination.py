"""The destination of ``ms.objects.write``: one object for each delivery.

The objects of an outbox form a chain, whose last one tells the position: what it contains is counted.
"""

from __future__ import annotations

from dataclasses import dataclass

from .chain import Chain, create_or_compare
from .errors import ObjectError
from .formats import count_items
from .store import Prefix, describe, open_store

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from .._connectors.outbox import OutboxIdentity
    from .formats import Format
    from .partitions import Partitions


@dataclass(frozen=True)
class WriteOptions:
    """What ``ms.objects.write`` was called with."""

    to: Any
    format: Format
    prefix: str
    config: Mapping[str, Any] | None
    timeout: float
    partitions: Partitions | None = None


class Objects:
    """The destination of an outbox. A delivery that is repeated is compared with what is there."""

    _compares = True

    def __init__(self, options: WriteOptions) -> None:
        self.options = options

    def connect(self, outbox: OutboxIdentity) -> None:
        options = self.options
        store = open_store(options.to, options.config, options.timeout, create=True)
        self.prefix = Prefix(store, describe(options.to), options.prefix)
        self.outbox = outbox
        self.chain = Chain(self.prefix, self.directory(outbox))

    def directory(self, outbox: OutboxIdentity) -> str:
        """The directory of the chain that tells the position."""
        return outbox.id

    def skip(self, number: int) -> None:
        """Leaves a gap: the next object has the number of its own first item."""


class Destination(Objects):
    """Writes each delivery as an object."""

    def position(self) -> int | None:
        newest = self.chain.newest()
        if newest is None:
            return None
        first = self.chain.number_of(newest.name)
        assert first is not None
        count = count_items(self.prefix, newest)
        if count == 0:
            raise ObjectError(
                f'{self.prefix.address}: object "{self.prefix.path(newest.name)}" was replaced: it has no '
                "items, and the position of the outbox is not known without them"
            )
        return first + count - 1

    def write(self, batch: list[Any], first: int, last: int) -> None:
        content = self.options.format.join(batch, first)
        name = self.chain.name(first, self.options.format.ending)
        create_or_compare(self.prefix, self.outbox, name, content, first, last)
