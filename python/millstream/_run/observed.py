"""The server of the page of a flow, as options of a run ask for it."""

from __future__ import annotations

from .. import _millstream
from .._errors.flow import FlowUsageError

__all__ = ["observed"]


def observed(address: str | None, token: str | None, open: bool) -> _millstream.Observer | None:
    """Binds the address of the page of a flow, if it has one."""
    if address is None:
        if token is not None or open:
            name = "http_token" if token is not None else "http_open"
            raise FlowUsageError(f"{name} needs the address of the page: http=")
        return None
    return _millstream.Observer(address, token, open)
