"""The inputs of a service: they exist when it starts, or it waits for them. It never creates one."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence

from .. import _millstream
from .._errors.flow import ServiceError

#: The interval between two checks for a missing input, in seconds.
LOOK_SECONDS = 0.05

Path = str | os.PathLike[str]


def paths_of(inputs: Path | Sequence[Path]) -> list[str]:
    """One input or several as a list of paths."""
    return [os.fspath(path) for path in ([inputs] if isinstance(inputs, (str, os.PathLike)) else inputs)]


def print_missing(missing: Sequence[str]) -> None:
    """Prints on standard error for which inputs the service waits."""
    if missing:
        print(f"millstream: waiting for {', '.join(missing)}", file=sys.stderr, flush=True)


def await_inputs(
    paths: Sequence[str],
    wait: bool,
    is_stopped: Callable[[], bool],
    tell: Callable[[Sequence[str]], None],
) -> bool:
    """Waits until each input exists.

    :param paths: the directories of the inputs.
    :param wait: without it, a missing input is an error.
    :param is_stopped: polled while inputs are missing; ends the wait.
    :param tell: called with the inputs that are missing, each time that they change; with none after a wait.
    :returns: whether all exist; false when it was stopped before.
    :raises ServiceError: an input is missing, without ``wait``; a directory is no journal.
    """
    reported: list[str] = []
    while missing := [path for path in paths if not _millstream.service_has_input(path)]:
        if not wait:
            raise ServiceError(f"{missing[0]}: there is no journal here")
        if is_stopped():
            return False
        if missing != reported:
            tell(missing)
            reported = missing
        time.sleep(LOOK_SECONDS)
    if reported:
        tell([])
    return True
