"""The delays between attempts at something that failed and may succeed later.

One class for every part that tries again: sources that connect anew, sinks that deliver anew.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from .._errors.flow import FlowUsageError
from .checked import checked
from .durations import seconds

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .durations import Seconds


@checked
@dataclass(frozen=True)
class Backoff:
    """How long to wait after each failed attempt, and how many attempts there are.

    The delay grows by a constant factor from `first` to `most`. There is no random part: the same failures
    give the same delays.

    Args:
        first: the delay after the first failed attempt. The attribute is in seconds, as that of ``most``.
        most: the longest delay.
        factor: what each delay is multiplied by to get the next, at least 1.
        tries: the number of attempts in a row before giving up; None never gives up.

    Raises:
        FlowUsageError: a delay is no duration, `most` is below `first`, or `factor` or `tries` is below 1.

    Example:
        >>> backoff = Backoff(first=0.5, most=3.0)
        >>> [backoff.delay(attempt) for attempt in range(1, 5)]
        [0.5, 1.0, 2.0, 3.0]
    """

    first: float
    most: float
    factor: float
    tries: int | None

    def __init__(
        self, first: Seconds = 0.1, most: Seconds = 30.0, factor: float = 2.0, tries: int | None = None
    ) -> None:
        made = {"first": seconds("first", first, 0), "most": seconds("most", most, 0)}
        if made["most"] < made["first"]:
            raise FlowUsageError(f"most is at least first ({first}), not {most!r}")
        if not 1 <= factor < math.inf:
            raise FlowUsageError(f"factor is a number from 1, not {factor!r}")
        if tries is not None and tries < 1:
            raise FlowUsageError(f"tries is 1 or more, or None for no limit, not {tries!r}")
        vars(self).update(made, factor=float(factor), tries=tries)

    def _parts(self) -> tuple[float, float, float, int | None]:
        """What the engine takes."""
        return self.first, self.most, self.factor, self.tries

    def delay(self, attempt: int) -> float:
        """Returns how long to wait after an attempt failed.

        Args:
            attempt: the number of attempts that failed in a row, from 1.

        Returns:
            The delay in seconds.

        Raises:
            ValueError: `attempt` is below 1.

        Example:
            >>> Backoff().delay(2)
            0.2
        """
        if attempt < 1:
            raise ValueError(f"attempts are counted from 1, and not {attempt!r}")
        if self.first == 0:
            return 0.0
        # Doubling for ever would overflow, and the limit is reached long before.
        steps = min(attempt - 1, 1024)
        try:
            return min(self.most, self.first * self.factor**steps)
        except OverflowError:
            return self.most

    def gives_up(self, attempt: int) -> bool:
        """Returns whether `attempt` failed attempts in a row are the last.

        Args:
            attempt: the number of attempts that failed in a row, from 1.

        Returns:
            True once `tries` attempts failed; never where `tries` is None.

        Example:
            >>> Backoff(tries=3).gives_up(3)
            True
        """
        return self.tries is not None and attempt >= self.tries
