"""The options of a generator source."""

from __future__ import annotations

from dataclasses import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..._values.backoff import Backoff
    from ..durable import Keep
    from .dedupe import Dedupe


BUFFER_ITEMS = 1024
BUFFER_BYTES = 8 << 20


@dataclass(frozen=True)
class Options:
    """What ``ms.source`` was called with, and the name of the function.

    ``undecoded``: it may yield ``Undecoded`` in the place of items, for which the ``on_error`` of
    ``Flow.source`` applies. Sources of this package set it.
    """

    name: str
    asynchronous: bool
    durable: bool = False
    keep: Keep = None
    resume: bool = False
    partitions: tuple[str, ...] | None = None
    retry: Backoff | None = None
    ack: bool = False
    dedupe: Dedupe | None = None
    batches: bool = False
    buffer: int = BUFFER_ITEMS
    buffer_bytes: int = BUFFER_BYTES
    undecoded: bool = False
