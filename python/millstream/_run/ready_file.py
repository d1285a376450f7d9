"""The file that exists while a flow runs, for probes of an outer supervisor: ``--ready-file``."""

from __future__ import annotations

import os
from contextlib import suppress


def set_ready(path: str | None, ready: bool) -> None:
    """Creates or removes the file; without a path it does nothing."""
    if path is None:
        return
    if ready:
        with open(path, "w"):
            pass
    else:
        with suppress(FileNotFoundError):
            os.remove(path)
