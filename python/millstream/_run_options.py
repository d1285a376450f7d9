"""The checked options of a run: workers, and the state directory."""

from __future__ import annotations

import os

from ._errors import FlowUsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Saving", "checked"]


def checked(
    workers: int,
    state: str | os.PathLike[str] | None,
    epoch: float,
    sync: bool,
    drop_state: Iterable[str],
    fresh: bool,
) -> Saving | None:
    """The state directory of a run, with checked options."""
    if not isinstance(workers, int) or not 1 <= workers <= 256:
        raise FlowUsageError(f"workers is a number from 1 to 256, not {workers!r}")
    if state is not None:
        if not epoch >= 0:
            raise FlowUsageError(f"epoch is a number of seconds, not {epoch!r}")
        return Saving(os.fspath(state), epoch, sync, list(drop_state), fresh=bool(fresh))
    if drop_state or fresh:
        name = "drop_state" if drop_state else "fresh"
        raise FlowUsageError(f"{name} needs the directory that holds the state: state=")
    return None


class Saving:
    """The state directory of a run, and its options."""

    def __init__(
        self,
        dir: str,
        epoch: float,
        sync: bool,
        drop: list[str],
        crash: int | tuple[str, int] | None = None,
        fresh: bool = False,
    ) -> None:
        self.dir = dir
        self.epoch = epoch
        self.sync = sync
        self.drop = drop
        self.crash = crash
        self.fresh = fresh
