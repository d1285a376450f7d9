"""The destination of ``ms.objects.write`` with ``partition_by``: an object for each partition of a delivery.

Invariant: the objects of a delivery are created one after the other, and then a *marker* with the number of
its last record. The markers form the chain that tells the position. A delivery whose marker is missing is
repeated, perhaps divided in another way; what is there already is known by the last object of each partition,
which has the number of its last record: within a partition the numbers ascend.
"""

from __future__ import annotations

import hashlib
import json
import logging

from .chain import Chain, create_or_compare
from .destination import Objects, WriteOptions
from .errors import ObjectError
from .formats import Parquet
from .partitions import Partitions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .._connectors.outbox import OutboxIdentity


log = logging.getLogger("millstream.flow.sink")
MARKERS = "_millstream"
"""The directory of the markers: readers of datasets skip names that begin so."""
LAST = "millstream.last"
"""The number of the last record of an object, in the metadata of its footer."""
REMEMBERED = 10_000
"""Of how many partitions the last number is remembered; of others it is read again."""


class PartitionedDestination(Objects):
    """Writes the deliveries of an outbox as objects of partitions."""

    def __init__(self, options: WriteOptions) -> None:
        assert isinstance(options.format, Parquet) and options.partitions is not None
        super().__init__(options)
        self.format: Parquet = options.format
        self.partitions: Partitions = options.partitions

    def connect(self, outbox: OutboxIdentity) -> None:
        super().connect(outbox)
        self.marker: str | None = None
        self.lasts: dict[str, int] = {}

    def directory(self, outbox: OutboxIdentity) -> str:
        return f"{MARKERS}/{outbox.id}"

    def position(self) -> int | None:
        newest = self.chain.newest()
        self.marker = None if newest is None else newest.name
        if newest is None:
            return None
        try:
            return int(json.loads(b"".join(self.prefix.chunks(newest.name)))["last"])
        except (ValueError, KeyError, TypeError):
            raise ObjectError(
                f'{self.prefix.address}: object "{self.prefix.path(newest.name)}" was replaced: it does not '
                "tell the position of the outbox"
            ) from None

    def write(self, batch: list[Any], first: int, last: int) -> None:
        divided = self.partitions.divide(batch, first)
        # All are made before the first is created: a row that is refused has no effect.
        whole = {directory: self.content(rows) for directory, rows in divided.items()}
        self.check_rival(first, last)
        for directory, rows in divided.items():
            written = self.last_of(directory)
            left = [row for row in rows if row[0] > written]
            if left:
                content = whole[directory] if len(left) == len(rows) else self.content(left)
                name = self.objects(directory).name(left[0][0], self.format.ending)
                create_or_compare(self.prefix, self.outbox, name, content, left[0][0], left[-1][0])
                self.lasts[directory] = left[-1][0]
        self.mark(whole, first, last)

    def content(self, rows: list[tuple[int, Any]]) -> bytes:
        numbers = [number for number, _ in rows]
        return self.format.content([row for _, row in rows], numbers, {LAST: str(numbers[-1])})

    def objects(self, directory: str) -> Chain:
        return Chain(self.prefix, directory, f"{self.outbox.id}-")

    def last_of(self, directory: str) -> int:
        """The number of the last record that a partition has; -1 if it has none of this outbox."""
        if directory not in self.lasts:
            newest = self.objects(directory).newest()
            if len(self.lasts) >= REMEMBERED:
                del self.lasts[next(iter(self.lasts))]
            self.lasts[directory] = -1 if newest is None else self.read_last(newest)
        return self.lasts[directory]

    def read_last(self, found: Any) -> int:
        with self.format.opened(self.prefix, found) as file:
            value = (file.metadata.metadata or {}).get(LAST.encode())
        if value is None:
            raise ObjectError(
                f'{self.prefix.address}: object "{self.prefix.path(found.name)}" was replaced: it does not '
                "tell the number of its last record"
            )
        return int(value)

    def check_rival(self, first: int, last: int) -> None:
        """Finds a marker that this connection has not written."""
        newest = self.chain.newest()
        name = None if newest is None else newest.name
        if name != self.marker:
            owner = f'flow "{self.outbox.flow}", sink "{self.outbox.sink}"'
            raise ObjectError(
                f"{self.prefix.address}: another process delivers the same outbox: its last marker is "
                f"{name}, and not {self.marker}. The records {first} to {last} of {owner} are not written. "
                "Is a copy of the state directory in use? End one of the two flows"
            )

    def mark(self, whole: dict[str, bytes], first: int, last: int) -> None:
        """Creates the marker of a delivery, and removes the one before it."""
        digest = hashlib.sha256()
        for directory, content in whole.items():
            digest.update(directory.encode() + b"\0" + hashlib.sha256(content).digest())
        name = self.chain.name(first, ".json")
        before = self.marker
        marker = json.dumps({"last": last, "digest": digest.hexdigest()}).encode()
        create_or_compare(self.prefix, self.outbox, name, marker, first, last)
        self.marker = name
        if before is not None and before != name:
            try:
                self.prefix.remove(before)
            except (OSError, ObjectError) as error:
                # One that is left says nothing: the newest counts.
                log.debug("%s", error)
