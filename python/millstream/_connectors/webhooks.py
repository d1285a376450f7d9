"""What senders of web hooks send: requests as items, their bodies, and their signatures."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from urllib.parse import parse_qsl

from .. import _millstream
from .._errors.flow import FlowUsageError
from .._values import json as _json
from .._values.checked import checked
from .._values.durations import seconds

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, Literal

    from .._values.durations import Seconds


MAX_FIELDS = 10_000


@dataclass(frozen=True)
class Request:
    """A request that ``ms.http.listen(item="request")`` has received.

    Args:
        method: its method, such as ``"POST"``.
        path: its path, as the source has it.
        query: the values of each name in the query, in their order.
        headers: the headers, with names in lower case. Those of equal names are joined with ``", "``. The
            headers of a login are missing: ``authorization``, ``proxy-authorization`` and ``cookie``.
        body: the body, as ``body=`` of the source says. None for a GET or DELETE without one.
        id: that of no other request of the source. It is recorded with the request: after a crash the same
            request has the same one.

    Example:
        >>> import millstream as ms
        >>> request = ms.http.Request("POST", "/orders", {"shop": ["7"]}, {"x-event": "paid"}, {"id": 1})
        >>> request.headers["x-event"], request.query["shop"], request.body["id"]
        ('paid', ['7'], 1)
    """

    method: str
    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]
    body: Any
    id: str = ""

    def reply(self, body: Any = None, status: int = 200, headers: Mapping[str, str] | None = None) -> Reply:
        """The answer to this request, for the sink :func:`millstream.http.reply`.

        Args:
            body: the body. Bytes are sent as they are, with the content type ``application/octet-stream``, a
                text as ``text/plain``, any other value as JSON. None: there is none.
            status: the status, from 200 to 599.
            headers: the headers. A content type here replaces that of the body.

        Returns:
            The reply.

        Example:
            >>> import millstream as ms
            >>> request = ms.http.Request("POST", "/orders", {}, {}, {"n": 1}, id="1b-1")
            >>> request.reply({"n": 2}, status=201)
            Reply(request='1b-1', body={'n': 2}, status=201, headers={})
        """
        return Reply(self.id, body, status, dict(headers or {}))

    @classmethod
    def of_item(cls, item: bytes) -> Request:
        """The request of a dead letter of such a source, whose ``item`` are bytes.

        Args:
            item: the bytes.

        Returns:
            The request. Its body are bytes.

        Raises:
            ValueError: the bytes are of no request, or the query is no text.

        Example:
            >>> import millstream as ms
            >>> ms.http.Request.of_item(b"")
            Traceback (most recent call last):
            ValueError: it is no request of a source with item="request"
        """
        id, method, path, query, fields, body = _millstream.http_received(item)
        headers: dict[str, str] = {}
        for name, raw in fields:
            value = raw.decode("latin-1")
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
        return cls(method, path, _pairs(query, "query"), headers, body, id)


@dataclass(frozen=True)
class Reply:
    """The answer of a flow to a request: see :meth:`Request.reply`.

    Args:
        request: the ``id`` of the request.
        body: the body: bytes, a text, a JSON value, or None.
        status: the status, from 200 to 599.
        headers: the headers.

    Example:
        >>> import millstream as ms
        >>> ms.http.Reply("1b-1", "ordered").status
        200
    """

    request: str
    body: Any = None
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


def encode_reply(reply: object) -> bytes:
    """The item of a reply.

    Raises:
        TypeError: it is no reply, or its body has no form in JSON.
        ValueError: no client could read it.
    """
    if not isinstance(reply, Reply):
        raise TypeError(f"an item of ms.http.reply is made by Request.reply, not {reply!r:.200}")
    body = reply.body
    kind = None
    if isinstance(body, str):
        body = body.encode()
        kind = "text/plain; charset=utf-8"
    elif isinstance(body, (bytes, bytearray, memoryview)):
        body = bytes(body)
        kind = "application/octet-stream"
    elif body is not None:
        body = _json.dump(body).encode()
        kind = "application/json"
    headers = list(reply.headers.items())
    if kind is not None and not any(name.lower() == "content-type" for name, _ in headers):
        headers.insert(0, ("content-type", kind))
    return _millstream.http_reply(reply.request, reply.status, headers, body or b"")


def _pairs(text: str, what: str) -> dict[str, list[str]]:
    """The values of each name in a query or a form.

    >>> _pairs("a=1&b=%C3%BC+&a=", "form")
    {'a': ['1', ''], 'b': ['ü ']}
    >>> _pairs("a=%ff", "form")
    Traceback (most recent call last):
    ValueError: an escape of the form is no text in UTF-8
    """
    found: dict[str, list[str]] = {}
    try:
        pairs = parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=MAX_FIELDS)
    except UnicodeDecodeError:
        raise ValueError(f"an escape of the {what} is no text in UTF-8") from None
    for name, value in pairs:
        found.setdefault(name, []).append(value)
    return found


def _form(body: bytes) -> dict[str, list[str]]:
    return _pairs(body.decode(), "form")


BODIES: dict[str, Callable[[bytes], Any] | None] = {
    "json": _json.load,
    "lines": None,
    "bytes": None,
    "text": bytes.decode,
    "form": _form,
}


def decoder(
    item: str, body: str, decode: type | Callable[[Any], Any] | None
) -> type | Callable[[bytes], Any] | None:
    """What makes an item of the bytes of a source of requests."""
    read = BODIES.get(body)
    if item != "request":
        return read if decode is None else decode
    if isinstance(decode, type):
        raise FlowUsageError(f'decode is a function of a request with item="request", not {decode!r}')

    def of_request(raw: bytes) -> Any:
        request = Request.of_item(raw)
        if read is not None:
            is_empty = not request.body and request.method in ("GET", "DELETE")
            request = replace(request, body=None if is_empty else read(request.body))
        return request if decode is None else decode(request)

    return of_request


@dataclass(frozen=True)
class Signature:
    """How the sender of web hooks signs its requests: made by one of the methods below.

    A request without a right signature is answered with 401, and counted as a fault of the source; nothing
    of it is recorded. Signatures are compared in a time that does not depend on their contents. A secret is
    in no ``repr``, log and error. Several secrets, ``[new, old]``, are all accepted, while they change.

    Example:
        >>> import millstream as ms
        >>> ms.http.Signature.github("secret")
        Signature(scheme='github')
    """

    scheme: str
    secrets: str | list[str] = field(repr=False)
    tolerance: float = field(default=300.0, repr=False)
    verify_token: str | None = field(default=None, repr=False)
    header: str = field(default="", repr=False)
    prefix: str = field(default="", repr=False)
    hash: str = field(default="sha256", repr=False)
    base64: bool = field(default=False, repr=False)

    def __post_init__(self) -> None:
        secrets = [self.secrets] if isinstance(self.secrets, str) else list(self.secrets)
        if not secrets or not all(secrets):
            raise FlowUsageError("the secret of a signature is a text that is not empty, or a list of such")
        object.__setattr__(self, "secrets", secrets)

    @classmethod
    @checked
    def github(cls, secret: str | list[str]) -> Signature:
        """GitHub: ``X-Hub-Signature-256``.

        Args:
            secret: the secret of the web hook.

        Returns:
            The signature.

        Raises:
            FlowUsageError: the secret is empty.
        """
        return replace(cls.hmac("x-hub-signature-256", secret, prefix="sha256="), scheme="github")

    @classmethod
    @checked
    def stripe(cls, secret: str | list[str], tolerance: Seconds = 300.0) -> Signature:
        """Stripe: ``Stripe-Signature``, with a time.

        Args:
            secret: the secret of the endpoint, ``whsec_...``.
            tolerance: the largest difference between the time of a signature and the clock.

        Returns:
            The signature.

        Raises:
            FlowUsageError: the secret is empty, or the tolerance no time.
        """
        return cls("stripe", secret, seconds("tolerance", tolerance, 0))

    @classmethod
    @checked
    def slack(cls, secret: str | list[str], tolerance: Seconds = 300.0) -> Signature:
        """Slack: ``X-Slack-Signature``, with a time.

        The request by which Slack confirms an address (``url_verification``) is answered, and is no item.

        Args:
            secret: the signing secret of the app.
            tolerance: the largest difference between the time of a signature and the clock.

        Returns:
            The signature.

        Raises:
            FlowUsageError: the secret is empty, or the tolerance no time.
        """
        return cls("slack", secret, seconds("tolerance", tolerance, 0))

    @classmethod
    @checked
    def meta(cls, secret: str | list[str], verify_token: str) -> Signature:
        """Meta (Facebook, Instagram, WhatsApp): ``X-Hub-Signature-256``.

        The GET by which an address is confirmed (``hub.challenge``) is answered if it has the verify token.

        Args:
            secret: the secret of the app.
            verify_token: the verify token of the web hook.

        Returns:
            The signature.

        Raises:
            FlowUsageError: the secret or the verify token is empty.
        """
        if not verify_token:
            raise FlowUsageError("the verify token of a signature is a text that is not empty")
        return cls("meta", secret, verify_token=verify_token)

    @classmethod
    @checked
    def hmac(
        cls,
        header: str,
        secret: str | list[str],
        *,
        prefix: str = "",
        hash: Literal["sha256", "sha512", "sha1"] = "sha256",
        base64: bool = False,
    ) -> Signature:
        """Any other sender that sends an HMAC of the body.

        Args:
            header: the name of the header.
            secret: the secret.
            prefix: what the header has before the HMAC, such as ``"sha256="``.
            hash: the hash function.
            base64: whether the HMAC is written in base64 instead of hexadecimal digits.

        Returns:
            The signature.

        Raises:
            FlowUsageError: the secret is empty, or the hash unknown.

        Example:
            >>> import millstream as ms
            >>> ms.http.Signature.hmac("X-Shopify-Hmac-Sha256", "secret", base64=True)
            Signature(scheme='hmac')
        """
        return cls("hmac", secret, header=header, prefix=prefix, hash=hash, base64=base64)
