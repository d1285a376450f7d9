"""The restarts of a flow by its supervisor, as its processes show them on their page."""

from __future__ import annotations

import json
import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .._millstream import Observer


KEPT = 20
"""The number of restarts that are kept, the last ones."""
CAUSE_CHARACTERS = 500


class Restarted:
    """The restarts so far, in a file that the next processes read.

    Args:
        path: the file; there is none before the first restart.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.count = 0
        self.last: list[tuple[int, str]] = []

    def note(self, cause: str) -> None:
        """Notes a restart, and why it is necessary."""
        self.count += 1
        self.last = [(time.time_ns() // 1_000_000, cause[:CAUSE_CHARACTERS]), *self.last[: KEPT - 1]]
        with open(self.path + ".new", "w", encoding="utf-8") as file:
            json.dump({"count": self.count, "last": self.last}, file)
        os.replace(self.path + ".new", self.path)

    def arguments(self) -> list[str]:
        """The arguments of ``millstream run`` for the next processes."""
        return ["--restarted", self.path] if self.count else []


def show_restarts(observer: Observer, path: str | None) -> None:
    """Shows the restarts of the file on a page."""
    if path is None:
        return
    try:
        with open(path, encoding="utf-8") as file:
            restarted = json.load(file)
    except (OSError, ValueError):
        # The supervisor has ended, and this process will, too.
        return
    observer.show_restarts(restarted["count"], [(int(at), str(cause)) for at, cause in restarted["last"]])
