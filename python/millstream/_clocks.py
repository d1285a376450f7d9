"""Clocks of the user's, which tell event time."""

from __future__ import annotations

from typing import Any, Protocol

TYPE_CHECKING = False
if TYPE_CHECKING:
    from datetime import datetime

__all__ = ["Clock"]


class Clock(Protocol):
    """Tells the time of one partition of a source, for :meth:`Stream.event_clock`. Two more methods are
    optional.

    ``on_pause(now)`` gives the watermark where no items come, or None; it is asked for about every 10 ms.
    ``resume(watermark)`` is called first when a run resumes, with the watermark of the partition at the last
    commit. Nothing else of a clock is saved.
    """

    def on_item(self, item: Any, now: float) -> tuple[float | datetime, float | datetime | None]:
        """The time of an item, and the watermark behind it: no item before that is expected any more.

        Times are seconds, or a ``datetime`` with a time zone; ``now`` is processing time. A watermark
        of None, or one that goes back, leaves it where it was.
        """
        ...
