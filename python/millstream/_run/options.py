"""The checked options of a run: workers, and the state directory."""

from __future__ import annotations

import os

from .._errors.flow import FlowUsageError
from .._values.durations import LONGEST
from .replica import Replica

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
    reset_clock: bool,
    replica: Replica | None = None,
    commit_on_replica: bool = False,
) -> Saving | None:
    """The state directory of a run, with checked options."""
    if not isinstance(workers, int) or not 1 <= workers <= 256:
        raise FlowUsageError(f"workers is a number from 1 to 256, not {workers!r}")
    if state is not None:
        if not 0 <= epoch <= LONGEST:
            raise FlowUsageError(f"epoch is a number of seconds from 0 to 200 years, not {epoch!r}")
        saving = Saving(os.fspath(state), epoch, sync, list(drop_state), fresh=bool(fresh))
        saving.reset_clock = bool(reset_clock)
        saving.replicate(replica, commit_on_replica)
        return saving
    given = {
        "drop_state": drop_state,
        "fresh": fresh,
        "reset_clock": reset_clock,
        "replica": replica is not None,
        "commit_on_replica": commit_on_replica,
    }
    for name in filter(given.get, given):
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
        self.reset_clock = False
        self.replica: Replica | None = None
        self.commit_on_replica = False

    def replicate(self, replica: Replica | None, commit_on_replica: bool) -> None:
        """Serves the directory to followers; a commit waits for one on request."""
        if replica is not None and not isinstance(replica, Replica):
            raise FlowUsageError(f"replica is a millstream.Replica, not {replica!r}")
        if commit_on_replica and replica is None:
            raise FlowUsageError(
                "commit_on_replica needs the address where followers get the state: replica="
            )
        self.replica = replica
        self.commit_on_replica = bool(commit_on_replica)
