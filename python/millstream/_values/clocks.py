"""The interface of clocks for event time."""

from __future__ import annotations

from typing import Any, Protocol

TYPE_CHECKING = False
if TYPE_CHECKING:
    from datetime import datetime


class Clock(Protocol):
    """Computes the times of one partition of a source, for :meth:`Stream.event_clock`.

    Two more methods are optional:

    - ``on_pause(now)`` returns the watermark when no items arrive, or None. It is called about every 10 ms.
    - ``resume(watermark)`` is called first when a run resumes, with the watermark of the partition at the
      last commit. Nothing else of a clock is saved.

    Example:
        >>> class Marked:
        ...     def on_item(self, item, now):
        ...         return item["time"], item["time"] - 5
        >>> Marked().on_item({"time": 12}, now=0.0)
        (12, 7)
    """

    def on_item(self, item: Any, now: float) -> tuple[float | datetime, float | datetime | None]:
        """Returns the time of an item, and the watermark after it: no earlier item is expected.

        Times are seconds, or a ``datetime`` with a time zone. A watermark of None, or one that is earlier
        than before, leaves the watermark as it is.

        Args:
            item: the item.
            now: processing time, in seconds since 1970.

        Returns:
            The time of the item, and the watermark.

        Example:
            >>> class Marked:
            ...     def on_item(self, item, now):
            ...         return item["time"], item["time"] - 5
            >>> Marked().on_item({"time": 12}, now=0.0)
            (12, 7)
        """
        ...
