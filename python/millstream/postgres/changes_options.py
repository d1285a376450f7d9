"""The options of ``ms.postgres.changes``."""

from __future__ import annotations

from dataclasses import dataclass

from .._values.backoff import Backoff


@dataclass(frozen=True)
class ChangesOptions:
    """What ``ms.postgres.changes`` was called with."""

    dsn: str
    slot: str
    tables: tuple[str, ...] | None
    publication: str
    snapshot: bool
    retry: Backoff
    heartbeat: float
    warn_bytes: int
    timeout: float
