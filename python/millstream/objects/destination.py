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


def opened(options: WriteOptions) -> Prefix:
    """The prefix below which objects are written."""
    store = open_store(options.to, options.config, options.timeout, create=True)
    return Prefix(store, describe(options.to), options.prefix)


class Destination:
    """Writes the deliveries of an outbox as objects."""

    def __init__(self, options: WriteOptions) -> None:
        self.options = options
        self.format = options.format

    def connect(self, outbox: OutboxIdentity) -> None:
        self.prefix = opened(self.options)
        self.outbox = outbox
        self.chain = Chain(self.prefix, outbox.id)

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
        content = self.format.join(batch, first)
        name = self.chain.name(first, self.format.ending)
        create_or_compare(self.prefix, self.outbox, name, content, first, last)
