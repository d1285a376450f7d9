"""HTTP as a source of flows.

A request is acknowledged with 200 after it is recorded in the state directory of the flow: no acknowledged
item is lost, and each has its effect once. The guide is ``docs/guide/http.md``.
"""

from __future__ import annotations

import json
from typing import overload

from . import _millstream

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Literal

    from ._types import Decoder, U

__all__ = ["listen"]

MAX_BODY = 1 << 20
MAX_PENDING = 64 << 20
MAX_CONNECTIONS = 1024


@overload
def listen(
    address: str,
    path: str = "/",
    *,
    body: Literal["json"] = "json",
    decode: None = None,
    token: str | None = None,
    max_body: int = MAX_BODY,
    max_pending: int = MAX_PENDING,
    max_connections: int = MAX_CONNECTIONS,
    timeout: float = 30.0,
    requests: int | None = None,
    on_bound: Callable[[str], object] | None = None,
) -> _millstream.ByteSource[Any]: ...
@overload
def listen(
    address: str,
    path: str = "/",
    *,
    body: Literal["lines", "bytes"],
    decode: None = None,
    token: str | None = None,
    max_body: int = MAX_BODY,
    max_pending: int = MAX_PENDING,
    max_connections: int = MAX_CONNECTIONS,
    timeout: float = 30.0,
    requests: int | None = None,
    on_bound: Callable[[str], object] | None = None,
) -> _millstream.ByteSource[bytes]: ...
@overload
def listen(
    address: str,
    path: str = "/",
    *,
    body: Literal["json", "lines", "bytes"] = "json",
    decode: Decoder[U],
    token: str | None = None,
    max_body: int = MAX_BODY,
    max_pending: int = MAX_PENDING,
    max_connections: int = MAX_CONNECTIONS,
    timeout: float = 30.0,
    requests: int | None = None,
    on_bound: Callable[[str], object] | None = None,
) -> _millstream.ByteSource[U]: ...
def listen(
    address: str,
    path: str = "/",
    *,
    body: Literal["json", "lines", "bytes"] = "json",
    decode: type | Callable[[bytes], Any] | None = None,
    token: str | None = None,
    max_body: int = MAX_BODY,
    max_pending: int = MAX_PENDING,
    max_connections: int = MAX_CONNECTIONS,
    timeout: float = 30.0,
    requests: int | None = None,
    on_bound: Callable[[str], object] | None = None,
) -> _millstream.ByteSource[Any]:
    """Listens on an address; the bodies of POST requests are items.

    With a state directory a request is recorded before it is answered with 200; the records are pruned when
    their effect is committed. Without one it is answered when the flow has taken it.

    Args:
        address: the address, ``host:port`` or ``unix:PATH``. Port 0 lets the system choose one.
        path: the path of the requests; for another one the answer is 404.
        body: how items are read from a body. ``"json"``: a document; the elements of an array are items, and
            so are the lines of a body whose content type is ``application/x-ndjson``. ``"lines"``: each line
            is an item. ``"bytes"``: the body is one item.
        decode: makes an item of the bytes of one: ``str``, ``bytes``, a subclass of
            :class:`millstream.Record`, or a function. None is ``json.loads`` for JSON, and leaves bytes
            otherwise.
        token: requests need the header ``Authorization: Bearer TOKEN``; 401 without one, 403 with another.
        max_body: the largest body in bytes, at most 16 MiB; for a larger one the answer is 413.
        max_pending: how many bytes of requests may wait for the flow; while there are more, the answer is
            429 with ``Retry-After``.
        max_connections: how many connections are open at once at most; further ones wait in the queue of
            the system.
        timeout: how many seconds a client has to send the next header, to send a body, or to read an
            answer; a slower one is disconnected.
        requests: the source ends after so many requests, those of earlier runs on the same state directory
            included. None: it never ends.
        on_bound: is called with the address when the socket is bound.

    Returns:
        A source of JSON values, of bytes, or of what ``decode`` makes of them.

    Raises:
        ValueError: ``body`` or ``timeout`` is none of the allowed values.

    Example:
        >>> import threading, urllib.request
        >>> import millstream as ms
        >>> def post(address: str) -> None:
        ...     send = lambda: urllib.request.urlopen(f"http://{address}/", b'["to", "be"]', 60)
        ...     threading.Thread(target=send).start()
        >>> flow, out = ms.Flow("words"), ms.testing.collect()
        >>> words = ms.http.listen("127.0.0.1:0", body="bytes", requests=1, on_bound=post)
        >>> flow.source("words", words).sink("out", out)
        >>> _ = ms.run(flow)
        >>> out
        [b'["to", "be"]']
    """
    if decode is None and body == "json":
        decode = json.loads
    return _millstream.http_listen(
        address,
        path=path,
        body=body,
        token=token,
        max_body=max_body,
        max_pending=max_pending,
        max_connections=max_connections,
        timeout=timeout,
        requests=requests,
        decode=decode,
        on_bound=on_bound,
    )
