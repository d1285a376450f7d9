"""Positions of a source of changes, as they are saved with each epoch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from .._errors import show
from .errors import PostgresError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["START", "Position", "Snapshot", "Streaming", "read_position"]


START = ("start",)
"""The position before anything is known."""


@dataclass(frozen=True)
class Snapshot:
    """The slot may exist, and belongs to this source. ``begun``: rows were passed on."""

    begun: bool

    def saved(self) -> tuple[Any, ...]:
        return ("snapshot", self.begun)


@dataclass(frozen=True)
class Streaming:
    """Everything before ``lsn`` was passed on in the log of ``system``, and ``count`` changes of the
    transaction whose commit is at ``next``."""

    system: str
    lsn: int
    next: int = 0
    count: int = 0

    def saved(self) -> tuple[Any, ...]:
        return ("stream", self.system, self.lsn, self.next, self.count)


Position: TypeAlias = "Snapshot | Streaming"


def read_position(saved: Any) -> Position | None:
    """The position that was saved; None if there is none.

    Raises:
        PostgresError: it is that of another kind of source.

    >>> read_position(Streaming("7", 5).saved())
    Streaming(system='7', lsn=5, next=0, count=0)
    """
    if saved is None or saved == START:
        return None
    if isinstance(saved, tuple):
        if saved[:1] == ("snapshot",) and len(saved) == 2:
            return Snapshot(saved[1])
        if saved[:1] == ("stream",) and len(saved) == 5:
            return Streaming(*saved[1:])
    raise PostgresError(f"the saved position {show(saved)} is that of another kind of source")
