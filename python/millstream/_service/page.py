"""The page of a service that runs in this process."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from os import PathLike

from .. import _millstream
from .._errors.flow import ServiceError
from .._run.page import announce
from .inputs import print_missing
from .options import Hooks, Retention


@contextmanager
def shown(
    address: str | None,
    token: str | None,
    is_open: bool,
    name: str,
    inputs: Sequence[str],
    out: str | PathLike[str] | None,
    dead_letters: str | PathLike[str] | None,
) -> Iterator[Hooks | None]:
    """Serves the page of the service ``name``, if it has an address: what its runner needs for that."""
    if address is None:
        if token is not None or is_open:
            raise ServiceError("http_token and http_open need the address of the page: http=")
        yield None
        return
    observer = _millstream.Observer(address, token, is_open)
    announce(observer)
    meter = _millstream.Meter()
    output = None if out is None else os.fspath(out)
    letters = None if dead_letters is None else os.fspath(dead_letters)
    observer.show_service(name, meter, list(inputs), output, letters)
    try:
        yield Hooks(_millstream.Stopper(), meter, Retention(), (), print_missing)
    finally:
        observer.stop()
