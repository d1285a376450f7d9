"""The objects below a prefix, read one after the other.

Invariant: the position has for each directory the object that was read last and the place in it, so that each
object is read once although other directories have greater names.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from fnmatch import fnmatchcase
from time import monotonic, sleep

from .._connectors.adapter import At
from .._connectors.adapter.lag import reporter
from .errors import ObjectError
from .store import Found, Prefix, describe, open_store

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    from .._values.backoff import Backoff
    from .formats import Format

    Position = dict[str, tuple[str, int, int]]


log = logging.getLogger("millstream.flow.source")
COMPLETE = -1
"""The place in an object of which everything was read."""
NAP = 0.2
"""A generator on a thread ends at a ``yield``: a wait has one after so many seconds."""


@dataclass(frozen=True)
class ReadOptions:
    """What ``ms.objects.read`` was called with."""

    at: Any
    format: Format
    patterns: tuple[str, ...]
    follow: float | None
    prefix: str
    config: Mapping[str, Any] | None
    timeout: float
    retry: Backoff


class Reading:
    """Reads the objects from a position on.

    Args:
        options: what ``ms.objects.read`` was called with.
        position: for each directory the last object, the place in it, and its size. None: the beginning.
    """

    def __init__(self, options: ReadOptions, position: Position | None) -> None:
        self.options = options
        self.position: Position = position or {}
        self.failed = 0
        self.report_lag = reporter()
        self.read_before: dict[str, int] = {}
        store = open_store(options.at, options.config, options.timeout, create=False)
        self.prefix = Prefix(store, describe(options.at), options.prefix)

    def run(self) -> Iterator[At[list[Any]]]:
        while True:
            try:
                yield from self.read_new()
            except OSError as error:
                yield from self.wait(self.delay(error))
                continue
            self.works()
            if self.options.follow is None:
                return
            yield from self.wait(self.options.follow)

    def wait(self, seconds: float) -> Iterator[At[list[Any]]]:
        until = monotonic() + seconds
        while (left := until - monotonic()) > 0:
            yield At(self.position, [])
            sleep(min(left, NAP))

    def delay(self, error: OSError) -> float:
        """The time until the next attempt.

        Raises:
            ObjectError: there were too many.
        """
        self.failed += 1
        retry = self.options.retry
        if retry.gives_up(self.failed):
            raise ObjectError(f"{error}; {self.failed} attempts have failed") from error
        level = logging.WARNING if self.failed == 1 else logging.DEBUG
        delay = retry.delay(self.failed)
        log.log(level, "%s; the next attempt is in %g s", error, delay)
        return delay

    def works(self) -> None:
        """The store has answered."""
        if self.failed:
            log.warning("%s: answers again after %d attempts", self.prefix.address, self.failed)
            self.failed = 0

    def read_new(self) -> Iterator[At[list[Any]]]:
        new = self.new_objects()
        left = sum(found.size for found in new)
        self.report_lag(bytes=left)
        for found in new:
            directory = found.name.rpartition("/")[0]
            last, place, size = self.position.get(directory, ("", 0, 0))
            start = place if last == found.name else 0
            if start and size != found.size:
                raise ObjectError(
                    f'{self.prefix.address}: object "{self.prefix.path(found.name)}" was replaced while it '
                    f"was read: it had {size} bytes, and has {found.size}"
                )
            for place, items in self.options.format.read(self.prefix, found, start):
                self.works()
                self.position = {**self.position, directory: (found.name, place, found.size)}
                yield At(self.position, items)
            self.position = {**self.position, directory: (found.name, COMPLETE, found.size)}
            self.read_before[directory] = self.read_before.get(directory, 0) + 1
            left -= found.size
            self.report_lag(bytes=left)
            yield At(self.position, [])

    def new_objects(self) -> list[Found]:
        """The objects that were not read completely, in the order of their names."""
        new = []
        read_before = dict.fromkeys(self.position, 0)
        begun = {last for last, place, _ in self.position.values() if place != COMPLETE}
        for found in self.prefix.listed():
            begun.discard(found.name)
            directory, _, name = found.name.rpartition("/")
            # A store has empty objects as marks of directories.
            if not found.size or not any(fnmatchcase(name, each) for each in self.options.patterns):
                continue
            last, place, _ = self.position.get(directory, ("", 0, 0))
            if found.name > last or (found.name == last and place != COMPLETE):
                new.append(found)
            else:
                read_before[directory] += 1
        if begun:
            removed = self.prefix.path(min(begun))
            raise ObjectError(f'{self.prefix.address}: object "{removed}" was removed while it was read')
        self.warn_of_late(read_before)
        return sorted(new, key=lambda found: found.name)

    def warn_of_late(self, read_before: dict[str, int]) -> None:
        """Warns of objects that have appeared among those that were read."""
        for directory, count in read_before.items():
            known = self.read_before.get(directory)
            if known is not None and count > known:
                log.warning(
                    '%s: %d objects have appeared in "%s" with names before "%s", which is read: they are '
                    "not read",
                    self.prefix.address,
                    count - known,
                    self.prefix.path(directory),
                    self.position[directory][0],
                )
            self.read_before[directory] = count
