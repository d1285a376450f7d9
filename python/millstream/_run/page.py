"""The server of the page of a flow, as the options of its run ask for it."""

from __future__ import annotations

from .. import _millstream

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .options import RunOptions

__all__ = ["page_of"]


def page_of(options: RunOptions) -> _millstream.Observer | None:
    """Binds the address of the page of a flow, if it has one."""
    if options.http is None:
        return None
    return _millstream.Observer(str(options.http), options.http_token, options.http_open)
