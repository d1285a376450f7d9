"""The server of the page of a flow, as the options of its run ask for it."""

from __future__ import annotations

import sys

from .. import _millstream

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .options import StartOptions

__all__ = ["page_of"]


def page_of(options: StartOptions) -> _millstream.Observer | None:
    """Binds the address of the page of a flow, if it has one."""
    if options.http is None:
        return None
    observer = _millstream.Observer(options.http, options.http_token, options.http_open)
    observer.show_about([("Python", sys.version.split()[0]), ("options", given(options))])
    return observer


def given(options: StartOptions) -> str:
    """The options that differ from the defaults, without secrets."""
    values = ((name, getattr(options, name), each) for name, each in options.ALL.items())
    changed = (
        f"{name}={value}" for name, value, each in values if value != each.default and name != "http_token"
    )
    return ", ".join(changed)
