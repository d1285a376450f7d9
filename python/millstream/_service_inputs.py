"""The inputs of a service: they are there when it starts, or it waits for them. It never makes one."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence

from . import _millstream
from ._errors import ServiceError

__all__ = ["await_inputs", "paths_of"]

#: How often an input that is not there yet is looked for, in seconds.
LOOK_SECONDS = 0.05

Path = str | os.PathLike[str]


def paths_of(inputs: Path | Sequence[Path]) -> list[str]:
    """One input or several as a list of paths."""
    return [os.fspath(path) for path in ([inputs] if isinstance(inputs, (str, os.PathLike)) else inputs)]


def await_inputs(paths: Sequence[str], wait: bool, is_stopped: Callable[[], bool]) -> bool:
    """Waits until each input is there; whether it is. Without ``wait``, one that is not there is an error."""
    told = False
    while missing := [path for path in paths if not _millstream.service_has_input(path)]:
        if not wait:
            raise ServiceError(f"{missing[0]}: there is no journal here")
        if is_stopped():
            return False
        if not told:
            print(f"millstream: waiting for {', '.join(missing)}", file=sys.stderr, flush=True)
            told = True
        time.sleep(LOOK_SECONDS)
    return True
