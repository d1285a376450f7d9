"""How soon a supervisor starts again what has died, and when it gives up.

Invariant: of two deaths in a row the second never waits for less time than the first, unless what was started
between them was healthy for a time.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from .._values.backoff import Backoff

__all__ = ["Restart", "Restarts"]


@dataclass(frozen=True)
class Restart:
    """The policy: the first and the longest pause, and how many deaths in a time are tolerated.

    After ``healthy_s`` seconds of life the next pause is the first one again; with None all deaths within the
    time make it longer.
    """

    first_s: float = 0.1
    longest_s: float = 10.0
    limit: int = 5
    within_s: float = 60.0
    healthy_s: float | None = None


class Restarts:
    """The deaths so far.

    Args:
        policy: the limits.

    Example:
        >>> restarts = Restarts(Restart(limit=2, within_s=60.0))
        >>> [restarts.pause(now) for now in (1.0, 2.0, 3.0)]
        [0.1, 0.2, None]
        >>> restarts.pause(63.0)
        0.2
    """

    def __init__(self, policy: Restart) -> None:
        self.policy = policy
        self.deaths: deque[float] = deque()
        self.in_a_row = 0

    def pause(self, now_s: float, lived_s: float = 0.0) -> float | None:
        """Notes a death.

        Args:
            now_s: the time of the death, in seconds of any clock that does not jump.
            lived_s: for how many seconds it was healthy.

        Returns:
            The pause before the next start in seconds, or None when the limit is reached.
        """
        policy = self.policy
        self.deaths.append(now_s)
        while now_s - self.deaths[0] > policy.within_s:
            self.deaths.popleft()
        if policy.healthy_s is None:
            self.in_a_row = len(self.deaths)
        else:
            self.in_a_row = 1 if lived_s >= policy.healthy_s else self.in_a_row + 1
        if len(self.deaths) > policy.limit:
            return None
        return Backoff(min(policy.first_s, policy.longest_s), policy.longest_s).delay(self.in_a_row)
