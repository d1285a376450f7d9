"""HTTP as a source and as sinks of flows; the guide is ``docs/guide/http.md``.

``listen``: a request is acknowledged with 200 after it is recorded in the state directory of the flow. No
acknowledged item is lost, and each has its effect once. ``reply`` answers requests. ``post`` delivers batches
with an idempotency key. ``feed`` sends a stream to browsers, over WebSockets and as server-sent events.
"""

from __future__ import annotations

from typing import overload

from . import _millstream
from ._connectors.oauth import OAuth
from ._connectors.outbox import _records, _size
from ._connectors.webhooks import Reply, Request, Signature, decoder, encode_reply
from ._errors.flow import FlowUsageError
from ._values import json as _json
from ._values.backoff import Backoff
from ._values.checked import checked, positive
from ._values.durations import seconds, seconds_or_none

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from os import PathLike
    from typing import Any, Literal, TypedDict

    from typing_extensions import Unpack

    from ._values.durations import Seconds
    from ._values.types import Decoder, Frame, U, Written

    class Listening(TypedDict, total=False):
        """The options of :func:`listen` that do not change the type of its items."""

        methods: Sequence[str]
        health: str | None
        token: str | None
        signature: Signature | None
        origins: Sequence[str]
        max_body: int
        max_pending: int
        max_connections: int
        timeout: Seconds
        requests: int | None
        on_bound: Callable[[str], object] | None


__all__ = ["OAuth", "Reply", "Request", "Signature", "feed", "listen", "post", "reply"]

MAX_BODY = 1 << 20
MAX_PENDING = 64 << 20
MAX_CONNECTIONS = 1024
MAX_CLIENT = 8 << 20
MAX_PARALLEL = 256

PARTS = ("key", "url", "method", "headers")
"""The parts of a request that may depend on the item."""
METHODS = ("POST", "PUT", "PATCH", "DELETE")


@overload
def listen(
    address: str,
    path: str | Sequence[str] = "/",
    *,
    item: Literal["body"] = "body",
    body: Literal["json"] = "json",
    decode: None = None,
    **options: Unpack[Listening],
) -> _millstream.ByteSource[Any]: ...
@overload
def listen(
    address: str,
    path: str | Sequence[str] = "/",
    *,
    item: Literal["body"] = "body",
    body: Literal["lines", "bytes"],
    decode: None = None,
    **options: Unpack[Listening],
) -> _millstream.ByteSource[bytes]: ...
@overload
def listen(
    address: str,
    path: str | Sequence[str] = "/",
    *,
    item: Literal["body"] = "body",
    body: Literal["text"],
    decode: None = None,
    **options: Unpack[Listening],
) -> _millstream.ByteSource[str]: ...
@overload
def listen(
    address: str,
    path: str | Sequence[str] = "/",
    *,
    item: Literal["body"] = "body",
    body: Literal["form"],
    decode: None = None,
    **options: Unpack[Listening],
) -> _millstream.ByteSource[dict[str, list[str]]]: ...
@overload
def listen(
    address: str,
    path: str | Sequence[str] = "/",
    *,
    item: Literal["body"] = "body",
    body: Literal["json", "lines", "bytes", "text", "form"] = "json",
    decode: Decoder[U],
    **options: Unpack[Listening],
) -> _millstream.ByteSource[U]: ...
@overload
def listen(
    address: str,
    path: str | Sequence[str] = "/",
    *,
    item: Literal["request"],
    body: Literal["json", "bytes", "text", "form"] = "json",
    decode: None = None,
    reply: Seconds | None = None,
    **options: Unpack[Listening],
) -> _millstream.ByteSource[Request]: ...
@overload
def listen(
    address: str,
    path: str | Sequence[str] = "/",
    *,
    item: Literal["request"],
    body: Literal["json", "bytes", "text", "form"] = "json",
    decode: Callable[[Request], U],
    reply: Seconds | None = None,
    **options: Unpack[Listening],
) -> _millstream.ByteSource[U]: ...
@checked
def listen(
    address: str,
    path: str | Sequence[str] = "/",
    *,
    item: Literal["body", "request"] = "body",
    body: Literal["json", "lines", "bytes", "text", "form"] = "json",
    decode: type | Callable[[Any], Any] | None = None,
    methods: Sequence[str] = ("POST",),
    health: str | None = None,
    token: str | None = None,
    signature: Signature | None = None,
    reply: Seconds | None = None,
    origins: Sequence[str] = (),
    max_body: int = MAX_BODY,
    max_pending: int = MAX_PENDING,
    max_connections: int = MAX_CONNECTIONS,
    timeout: Seconds = 30.0,
    requests: int | None = None,
    on_bound: Callable[[str], object] | None = None,
) -> _millstream.ByteSource[Any]:
    """Listens on an address; requests, or their bodies, are items.

    With a state directory a request is recorded before it is answered with 200; the records are pruned when
    their effect is committed. Without one it is answered when the flow has taken it.

    Args:
        address: the address, ``host:port`` or ``unix:PATH``. Port 0 lets the system choose one.
        path: the path of the requests, as in a URL, or several; for another one the answer is 404.
        item: ``"body"``: the body, or a part of it. ``"request"``: a :class:`millstream.http.Request`, with
            method, path, query, headers, and a body that is read as ``body`` says, as a whole.
        body: how items are read from a body. ``"json"``: a document; the elements of an array are items, and
            so are the lines of a body whose content type is ``application/x-ndjson``. ``"lines"``: each line
            is an item. ``"bytes"``: the body is one item. ``"text"``: so it is, as ``str``. ``"form"``: the
            values of each name in a body of the content type ``application/x-www-form-urlencoded``. A body
            that is packed with gzip is unpacked first.
        decode: makes an item of the bytes of one: ``str``, ``bytes``, a subclass of
            :class:`millstream.Record`, or a function. None reads JSON as ``json.loads`` does, without NaN,
            infinite numbers and halves of surrogate pairs, and leaves bytes otherwise. It is called twice:
            before a request is accepted, which is answered with 400 if it raises, and when the flow reads it.
            With another ``on_error`` of the source than ``"fail"`` the policy handles what it raises. With
            ``item="request"`` it is a function of the request.
        methods: the methods that are accepted, among POST, PUT and PATCH, and with ``item="request"`` GET
            and DELETE; for another one the answer is 405.
        health: a path at which a GET or HEAD is answered with 200 while the source accepts requests, and with
            503 at its end, without a token.
        signature: how the sender signs its requests; 401 without a right signature, before anything is
            recorded.
        reply: with ``item="request"``, for how long a request that is accepted waits for the reply of the
            flow, from the sink :func:`reply`, then the answer is 202. None: the
            answer is 200 when the request is accepted.
        token: requests need the header ``Authorization: Bearer TOKEN``; 401 without one, 403 with another.
        origins: the origins of the pages that may post, such as ``"https://example.org"``; ``"*"`` is every
            page. Browsers send it; the requests of other programs have no origin, and need none.
        max_body: the largest body in bytes, at most 16 MiB, as it is sent and unpacked; for a larger one the
            answer is 413.
        max_pending: how many bytes of requests may wait for the flow; while there are more, the answer is
            429 with ``Retry-After``.
        max_connections: how many connections are open at once at most; further ones wait in the queue of
            the system.
        timeout: how long a client has to send the next header, to send a body, or to read an
            answer; a slower one is disconnected.
        requests: the source ends after so many requests, those of earlier runs on the same state directory
            included. None: it never ends.
        on_bound: is called with the address when the socket is bound.

    Returns:
        A source of JSON values, of bytes, texts, forms or requests, or of what ``decode`` makes of them.

    Raises:
        FlowUsageError: ``origins`` or ``methods`` is a text, ``signature`` is no signature, ``reply`` is no
            time or without ``item="request"``, or ``decode`` is a class with ``item="request"``.
        ValueError: ``item``, ``body`` or ``timeout`` is none of the allowed values.

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
    if reply is not None and item != "request":
        raise FlowUsageError('a reply is to a request: reply needs item="request"')
    return _millstream.http_listen(
        address,
        paths=[path] if isinstance(path, str) else list(path),
        methods=list(methods),
        health=health,
        item=item,
        body=body,
        signature=signature,
        reply=seconds_or_none("reply", reply),
        token=token,
        origins=list(origins),
        max_body=positive("max_body", max_body),
        max_pending=positive("max_pending", max_pending),
        max_connections=positive("max_connections", max_connections),
        timeout=seconds("timeout", timeout),
        requests=requests,
        decode=decoder(item, body, decode),
        on_bound=on_bound,
    )


@checked
def reply(source: _millstream.ByteSource[Any]) -> _millstream.ByteSink[Reply]:
    """Answers the requests of a source of the same flow, which has ``item="request"`` and a time ``reply``.

    In a run with a state directory a reply is sent after the commit of its epoch: what it says is not rolled
    back by a crash. Without one it is sent at once. The first reply to a request counts; one to a request
    that is no longer there, or that an earlier run has accepted, is dropped.

    Args:
        source: the source, made by :func:`listen`.

    Returns:
        A sink of :class:`millstream.http.Reply`.

    Raises:
        FlowUsageError: it is no source of :func:`listen`, or it has no ``reply``.

    Example:
        >>> import threading, urllib.request
        >>> import millstream as ms
        >>> answers = []
        >>> def ask(address: str) -> None:
        ...     send = lambda: urllib.request.urlopen(f"http://{address}/", b"to be ", 60).read()
        ...     threading.Thread(target=lambda: answers.append(send())).start()
        >>> asked = ms.http.listen(
        ...     "127.0.0.1:0", item="request", body="bytes", reply=60, requests=1, on_bound=ask
        ... )
        >>> flow = ms.Flow("double")
        >>> doubled = flow.source("asked", asked).map(lambda request: request.reply(2 * request.body))
        >>> doubled.sink("answers", ms.http.reply(asked))
        >>> _ = ms.run(flow)
        >>> answers
        [b'to be to be ']
    """
    return _millstream.http_replies(source, encode_reply)


@checked
def post(
    url: str | Callable[[Any], str],
    *,
    body: Literal["array", "lines", "each"] = "array",
    encode: Callable[[Written], Frame] | None = None,
    method: str | Callable[[Any], str] = "POST",
    key: Callable[[Any], str | bytes | int] | None = None,
    parallel: int = 1,
    token: str | None = None,
    oauth: OAuth | None = None,
    headers: Mapping[str, str] | Callable[[Any], Mapping[str, str]] | None = None,
    timeout: Seconds = 30.0,
    ca: str | PathLike[str] | None = None,
    retry: Backoff | None = None,
    max_bytes: int | str = "1GiB",
    max_age: Seconds | None = None,
    batch: int = 1000,
    wait_at_end: Seconds = 60.0,
) -> _millstream.ByteSink[Written]:
    """Posts items to a URL, in batches, through an outbox.

    A status of 2xx acknowledges a request. After 408, 425, 429, 5xx and errors of the connection the request
    is repeated, with the same ``Idempotency-Key``. After 400, 409, 413, 422 and other 4xx that are about the
    items, the batch is halved until the items that the server refuses are alone. Any other status fails the
    flow: 401, 403, 404 and redirects among them.

    Args:
        url: ``http://`` or ``https://``, or with ``body="each"`` a function that makes the URL of an item. A
            redirect is not followed.
        body: ``"array"``: a JSON array of the items of a batch. ``"lines"``: one item a line. ``"each"``: a
            request for each item, whose idempotency key stays the same after a crash too.
        encode: a function that makes the JSON text of an item, bytes or ``str``. None is ``json.dumps``. NaN,
            infinite numbers and whatever else is no JSON are errors of the item, unless ``headers`` have a
            content type that is not JSON.
        method: ``"POST"``, ``"PUT"``, ``"PATCH"`` or ``"DELETE"``, or with ``body="each"`` a function of the
            item. A DELETE is sent without a body.
        key: with ``body="each"``, a function of the item: requests of equal keys are sent one after the
            other, in order. None: with ``parallel`` no order is kept.
        parallel: with ``body="each"``, how many requests are sent at a time, from 1 to 256. 1: each after
            the one before, in order.
        token: for the header ``Authorization: Bearer TOKEN``.
        oauth: gets such tokens from a server.
        headers: further headers, or with ``body="each"`` a function that makes the headers of an item.
        timeout: how long a request may take, from the connect to the end of the answer.
        ca: a file of certificates in PEM that are trusted for ``https://``, instead of Mozilla's list.
        retry: the delays between attempts. A ``Retry-After`` in seconds is the least.
        max_bytes: sources pause while more output waits.
        max_age: sources pause while older output waits.
        batch: the largest number of items in a request.
        wait_at_end: for how long a flow whose sources have ended waits for a server that fails.

    Returns:
        A sink of JSON values, or of items for ``encode``.

    Raises:
        FlowUsageError: an option has a wrong value.
        ValueError: ``body`` is none of the allowed values.

    Example:
        >>> import threading
        >>> from http.server import BaseHTTPRequestHandler, HTTPServer
        >>> import millstream as ms
        >>> class Handler(BaseHTTPRequestHandler):
        ...     def do_POST(self) -> None:
        ...         print(self.rfile.read(int(self.headers["Content-Length"])))
        ...         self.send_response(204)
        ...         self.end_headers()
        ...     def log_message(self, *args: object) -> None: ...
        >>> server = HTTPServer(("127.0.0.1", 0), Handler)
        >>> thread = threading.Thread(target=server.handle_request)
        >>> thread.start()
        >>> flow = ms.Flow("orders")
        >>> orders = flow.source("in", ms.testing.items([{"quantity": 2}]))
        >>> orders.sink("out", ms.http.post(f"http://127.0.0.1:{server.server_port}/orders"))
        >>> _ = ms.run(flow)
        b'[{"quantity":2}]'
        >>> thread.join()
        >>> server.server_close()
    """
    if not callable(method) and method not in METHODS:
        raise FlowUsageError(f"method is one of {', '.join(METHODS)}, not {method!r}")
    by_item = {"url": url, "method": method, "headers": headers}
    made: dict[str, object] = {name: part for name, part in by_item.items() if callable(part)}
    if key is not None:
        made["key"] = key
    _check_parts(body, made, parallel)
    fixed: Mapping[str, str] = {} if headers is None or callable(headers) else headers
    if oauth is not None and (token is not None or "authorization" in map(str.lower, fixed)):
        raise FlowUsageError("oauth makes the header Authorization: without token and such a header")
    sent = [] if token is None else [("Authorization", f"Bearer {token}")]
    retry = Backoff() if retry is None else retry
    return _millstream.http_post(
        None if callable(url) else url,
        _json.dump if encode is None else encode,
        body=body,
        parts={part: made.get(part) for part in PARTS} if body == "each" else None,
        checks_json=encode is not None,
        method="POST" if callable(method) else method,
        parallel=parallel,
        oauth=None if oauth is None else oauth._parts(),
        headers=sent + list(fixed.items()),
        timeout=seconds("timeout", timeout),
        ca=ca,
        retry=retry._parts(),
        max_bytes=_size(max_bytes),
        max_age=seconds_or_none("max_age", max_age, 0),
        batch=_records(batch),
        wait_at_end=seconds("wait_at_end", wait_at_end, 0),
    )


def _check_parts(body: str, made: Mapping[str, object], parallel: int) -> None:
    if not 1 <= parallel <= MAX_PARALLEL:
        raise FlowUsageError(f"parallel is a number of requests, from 1 to {MAX_PARALLEL}, not {parallel!r}")
    found = [f"a function for {name}" for name in made] + (["parallel"] if parallel > 1 else [])
    if body != "each" and found:
        raise FlowUsageError(f'{found[0]} needs body="each", a request for each item, not "{body}"')


@checked
def feed(
    address: str,
    path: str = "/",
    *,
    encode: Callable[[Written], Frame] | None = None,
    token: str | None = None,
    origins: Sequence[str] = (),
    max_client: int | str = MAX_CLIENT,
    max_connections: int = MAX_CONNECTIONS,
    timeout: Seconds = 30.0,
    on_bound: Callable[[str], object] | None = None,
) -> _millstream.ByteSink[Written]:
    """Sends items to browsers, over WebSockets and as server-sent events.

    A client gets the items from its connection on: as text messages if it asks for a WebSocket, as
    server-sent events otherwise. A client that does not keep up is disconnected; the flow never waits.

    Args:
        address: the address, ``host:port`` or ``unix:PATH``. Port 0 lets the system choose one.
        path: the path of the feed, as in a URL; for another one the answer is 404.
        encode: a function that makes the text of an item, ``str`` or bytes in UTF-8. None is ``json.dumps``.
        token: clients need the header ``Authorization: Bearer TOKEN`` or ``?token=TOKEN`` in the URL.
        origins: the origins of the pages that may read the feed, such as ``"https://example.org"``; ``"*"``
            is every page. Requests without an origin, of programs that are not browsers, need none. On
            127.0.0.1 and without a token they must be for an address, for ``localhost``, or for the host of
            an accepted origin.
        max_client: how many bytes may wait for one client, a number or a text such as ``"8MiB"``; with more
            it is disconnected. Each item counts 64 bytes more than its text.
        max_connections: how many connections are open at once at most; further ones wait in the queue of
            the system.
        timeout: how long a client has to send its request, to read what was sent, or to answer one
            of two pings; a slower one is disconnected.
        on_bound: is called with the address when the socket is bound.

    Returns:
        A sink of JSON values, or of items for ``encode``.

    Raises:
        FlowUsageError: an option has a wrong value.

    Example:
        >>> import urllib.request
        >>> import millstream as ms
        >>> clients = []
        >>> def connect(address: str) -> None:
        ...     clients.append(urllib.request.urlopen(f"http://{address}/", timeout=60))
        >>> flow = ms.Flow("orders")
        >>> orders = flow.source("in", ms.testing.items([{"quantity": 2}]))
        >>> orders.sink("out", ms.http.feed("127.0.0.1:0", on_bound=connect))
        >>> _ = ms.run(flow)
        >>> [line for line in clients[0] if line.startswith(b"data: ")]
        [b'data: {"quantity":2}\\n']
        >>> clients[0].close()
    """
    return _millstream.http_feed(
        address,
        _json.dump if encode is None else encode,
        path=path,
        token=token,
        origins=list(origins),
        max_client=_size(max_client, "max_client"),
        max_connections=positive("max_connections", max_connections),
        timeout=seconds("timeout", timeout),
        on_bound=on_bound,
    )
