"""The server of the page of a flow, as the options of its run ask for it."""

from __future__ import annotations

import sys

from .. import _millstream
from .._errors import command

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .options import RunOptions


def page_of(options: RunOptions, *, framed: bool = False) -> _millstream.Observer | None:
    """Binds the address of the page of a flow, if it has one, and prints it; that of a page which a notebook
    shows is not printed."""
    if options.http is None:
        return None
    observer = _millstream.Observer(str(options.http), options.http_token, options.http_open, framed)
    observer.show_about([("Python", sys.version.split()[0]), ("options", given(options))])
    if not framed:
        announce(observer)
    return observer


def url(observer: _millstream.Observer) -> str:
    """The URL of a page."""
    address = observer.address
    return address if address.startswith("unix:") else f"http://{address}/"


def announce(observer: _millstream.Observer) -> None:
    """Prints the address of a page, unless the log has it."""
    import logging

    logger = logging.getLogger("millstream.observe.observer")
    if not (logger.isEnabledFor(logging.INFO) and logger.hasHandlers()):
        command.announce(f"page: {url(observer)}")


def given(options: RunOptions) -> str:
    """The options that differ from the defaults, without secrets."""
    plain = vars(type(options)())
    changed = {name: value for name, value in vars(options).items() if value != plain[name]}
    changed.pop("http_token", None)
    return ", ".join(f"{name}={value}" for name, value in changed.items())
