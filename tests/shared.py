"""What one process of a test run makes and all of them use: the programs, a broker, a database server.

The workers of pytest-xdist are processes. The first one that asks makes the thing and saves it in the run's
own folder; the others load what it saved. Servers are registered with their process, and the process that
started the workers ends them with the run.
"""

from __future__ import annotations

import fcntl
import os
import pickle
import shutil
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import pytest

T = TypeVar("T")


class Shared:
    """The things of one run.

    Args:
        folder: a folder that all processes of the run know.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def of(cls, factory: pytest.TempPathFactory) -> Shared:
        """The things of the run of this process, which is a worker or the only process."""
        base = factory.getbasetemp()
        return cls(base.parent if "PYTEST_XDIST_WORKER" in os.environ else base)

    def once(self, name: str, make: Callable[[Path], T]) -> T:
        """What ``make`` has returned in the first process that asked for ``name``.

        Args:
            name: the name of the thing.
            make: makes it in a folder of its own; what it returns is pickled.
        """
        place = self.folder / f"shared-{name}"
        place.mkdir(exist_ok=True)
        saved = place / "saved"
        with open(place / "lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not saved.exists():
                saved.write_bytes(pickle.dumps(make(place)))
            made: T = pickle.loads(saved.read_bytes())
        return made

    def end_with_run(
        self, process: int, how: signal.Signals = signal.SIGKILL, folder: Path | None = None
    ) -> None:
        """Registers a server: at the end of the run it gets this signal, and its folder is removed."""
        (self.folder / f"server-{process}").write_bytes(pickle.dumps((process, how, folder)))

    def end(self) -> None:
        """Ends the registered servers."""
        for server in self.folder.glob("server-*"):
            process, how, folder = pickle.loads(server.read_bytes())
            with suppress(ProcessLookupError):
                os.kill(process, how)
            if folder is not None:
                shutil.rmtree(folder, ignore_errors=True)
            server.unlink()
