"""Counts what a desk answers, as a report of the day."""

from __future__ import annotations

from typing import Protocol

from desk import Replies
from millstream.service import timestamp


class Totals(Protocol):
    """The answers of the day so far."""

    def counted(self, accepted: int, rejected: int, canceled: int) -> None: ...


class Report(Replies):
    """Publishes after each answer the counts of each kind."""

    def __init__(self, totals: Totals) -> None:
        self.totals = totals
        self.counts = {"accepted": 0, "rejected": 0, "canceled": 0}

    def accepted(self, id: str, exposure: float, at: timestamp) -> None:
        self.count("accepted")

    def rejected(self, id: str, reason: str, at: timestamp) -> None:
        self.count("rejected")

    def canceled(self, id: str, exposure: float) -> None:
        self.count("canceled")

    def count(self, kind: str) -> None:
        self.counts[kind] += 1
        self.totals.counted(**self.counts)

    def rebuild_counted(self, accepted: int, rejected: int, canceled: int) -> None:
        self.counts = {"accepted": accepted, "rejected": rejected, "canceled": canceled}
