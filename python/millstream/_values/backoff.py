"""The delays between attempts at something that failed and may succeed later.

One class for every part that tries again: sources that connect anew, sinks that deliver anew.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Backoff:
    """How long to wait after each failed attempt, and how many attempts there are.

    The delay grows by a constant factor from `first` to `most`. There is no random part: the same failures
    give the same delays.

    Args:
        first: the delay after the first failed attempt, in seconds.
        most: the longest delay, in seconds.
        factor: what each delay is multiplied by to get the next, at least 1.
        tries: the number of attempts in a row before giving up; None never gives up.

    Raises:
        ValueError: a delay is negative or not finite, `most` is below `first`, the factor is below 1, or
            `tries` is below 1.

    Example:
        >>> backoff = Backoff(first=0.5, most=3.0)
        >>> [backoff.delay(attempt) for attempt in range(1, 5)]
        [0.5, 1.0, 2.0, 3.0]
    """

    first: float = 0.1
    most: float = 30.0
    factor: float = 2.0
    tries: int | None = None

    def __post_init__(self) -> None:
        if not (math.isfinite(self.first) and self.first >= 0):
            raise ValueError(f"first is a number of seconds, 0 or more, and not {self.first!r}")
        if not (math.isfinite(self.most) and self.most >= self.first):
            raise ValueError(f"most is at least first ({self.first}), and not {self.most!r}")
        if not (math.isfinite(self.factor) and self.factor >= 1):
            raise ValueError(f"factor is at least 1, and not {self.factor!r}")
        if self.tries is not None and self.tries < 1:
            raise ValueError(f"tries is at least 1, or None for no limit, and not {self.tries!r}")

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
