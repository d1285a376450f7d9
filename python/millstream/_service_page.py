"""The page of a service that runs in this process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ._page_options import check_http

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ._service_options import Hooks

__all__ = ["shown"]


@contextmanager
def shown(options: Any, name: str) -> Iterator[Hooks | None]:
    """Serves the page of the service ``name``, if it has one: what its runner needs for that."""
    check_http(options)
    if options.http is None:
        yield None
        return
    from . import _millstream
    from ._logs import configure
    from ._run import observed
    from ._service_inputs import print_missing
    from ._service_options import Hooks, Retention

    configure("info", "text")
    observer = observed(options.http, options.http_token_file, options.http_open)
    assert observer is not None  # there is an address
    meter = _millstream.Meter()
    places = [os.fspath(path) for path in options.inputs]
    observer.show_service(name, meter, places, options.out, options.dead_letters)
    try:
        yield Hooks(_millstream.Stopper(), meter, Retention(), (), print_missing)
    finally:
        observer.stop()
