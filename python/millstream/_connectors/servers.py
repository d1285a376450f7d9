"""What connectors to servers share: optional client libraries, addresses without secrets."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields, replace

from .._errors.flow import FlowError, FlowUsageError
from .._values.checked import checked

TYPE_CHECKING = False
if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable
    from typing import Any, TypeVar

    M = TypeVar("M")


UNTRUSTED = re.compile(
    "certificate verify failed"
    "|alert (unknown ca|(bad|unsupported) certificate|certificate (required|expired|revoked|unknown))",
    re.IGNORECASE,
)
"""Errors of TLS after which another attempt fails too: one side does not accept a certificate."""

TLS = ("ca", "certificate", "key")
"""The parts of a login for TLS."""


def library(module: str, package: str, extra: str) -> Any:
    """Imports a module of an optional client library.

    Raises:
        FlowUsageError: the library is missing; the text names the extra that installs it.

    Example:
        >>> library("no_such_client", "no-such-client", "nats")
        Traceback (most recent call last):
        millstream.FlowUsageError: ms.nats needs no-such-client (...): pip install 'millstream[nats]'
    """
    from importlib import import_module

    try:
        return import_module(module)
    except ImportError as error:
        raise FlowUsageError(
            f"ms.{extra} needs {package} ({error}): pip install 'millstream[{extra}]'"
        ) from None


@checked
@dataclass(frozen=True)
class Login:
    """How a connector logs in. Secrets are in no ``repr``, log and error.

    Args:
        user: the name of the user.
        password: the password of the user.
        token: a token, in the place of user and password (NATS).
        credentials: the path of a file with a JWT and a seed, ``.creds`` (NATS); it needs the package
            ``nkeys``.
        ca: the path of a file with the certificates that are trusted, as PEM. None: those of the system.
        certificate: the path of a file with a certificate of the client, and its key if ``key`` is None.
        key: the path of a file with the key of the certificate.

    Example:
        >>> import millstream as ms
        >>> ms.Login(user="me", password="secret")
        Login(user='me', credentials=None, ca=None, certificate=None, key=None)
    """

    user: str | None = None
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    credentials: str | None = None
    ca: str | None = None
    certificate: str | None = None
    key: str | None = None


def parts_of(login: Login, name: str, *known: str) -> dict[str, Any]:
    """The parts of a login that are given, by their names.

    Raises:
        FlowUsageError: one is given that the connector ``name`` does not know.

    Example:
        >>> parts_of(Login(token="t"), "ms.redis.read", "user", "password")
        Traceback (most recent call last):
        millstream.FlowUsageError: ms.redis.read: a login has user and password, and no token
    """
    parts = {part.name: getattr(login, part.name) for part in fields(login)}
    found = {part: value for part, value in parts.items() if value is not None}
    for part in found:
        if part not in known:
            has = f"{', '.join(known[:-1])} and {known[-1]}"
            raise FlowUsageError(f"{name}: a login has {has}, and no {part}")
    return found


def context_of(login: Login) -> ssl.SSLContext | None:
    """The context of TLS for the certificates of a login, or None if there are none.

    Raises:
        FlowUsageError: a file cannot be read.
    """
    import ssl

    if login.ca is None and login.certificate is None:
        if login.key is not None:
            raise FlowUsageError("a login with a key needs a certificate")
        return None
    try:
        context = ssl.create_default_context(cafile=login.ca)
        if login.certificate is not None:
            context.load_cert_chain(login.certificate, login.key)
    except (OSError, ssl.SSLError) as error:
        files = ", ".join(filter(None, (login.ca, login.certificate, login.key)))
        raise FlowUsageError(f"a login has certificates that cannot be read ({files}): {error}") from None
    return context


@dataclass(frozen=True)
class Server:
    """A server as messages name it, and how to reach it.

    Args:
        address: its URL, without user, password and query.
        url: its URL without user and password.
        login: the login, with the user and password of the URL.
    """

    address: str
    url: str = field(default="", repr=False)
    login: Login = field(default_factory=Login, repr=False)

    @classmethod
    def at(cls, url: str, login: Login | None, *schemes: str) -> Server:
        """The server at a URL, which may have a user and a password.

        Raises:
            FlowUsageError: the URL has another scheme, or a port that is none.

        >>> server = Server.at("nats://me:se%40cret@broker:4222?x=1", None, "nats", "tls")
        >>> server.address, server.url, server.login.password
        ('nats://broker:4222', 'nats://broker:4222?x=1', 'se@cret')
        >>> Server.at("nats://broker:x", None, "nats", "tls")
        Traceback (most recent call last):
        millstream.FlowUsageError: nats://broker:x has no such port
        """
        from urllib.parse import unquote, urlsplit

        scheme, colon, rest = url.partition("://") if isinstance(url, str) else ("", "", "")
        if not colon or scheme not in schemes:
            raise FlowUsageError(f"the address of a server is a URL that begins with {schemes[0]}://")
        at, _, place = rest.rpartition("@")
        user, _, password = (unquote(part) for part in at.partition(":"))
        login = login or Login()
        login = replace(login, user=login.user or user or None, password=login.password or password or None)
        address = f"{scheme}://{place.partition('?')[0]}"
        try:
            _ = urlsplit(address).port
        except ValueError:
            raise FlowUsageError(f"{address} has no such port") from None
        return cls(address, f"{scheme}://{place}", login)

    def text(self, error: object) -> str:
        """An error on one line after the address, without secrets.

        >>> Server("nats://broker", login=Login(password="secret")).text(OSError("no\\nsecret"))
        'nats://broker: no; ***'
        """
        lines = [line.strip() for line in str(error).splitlines()]
        text = "; ".join(line for line in lines if line) or type(error).__name__
        login = self.login
        # A user without a password may be a token.
        for secret in filter(None, (login.password or login.user, login.token)):
            text = text.replace(secret, "***")
        return f"{self.address}: {text}"

    def error(self, error: object, is_final: object = False) -> Exception:
        """The exception for an error: FlowError for what a person must change, ConnectionError for what
        another attempt may pass."""
        text = self.text(error)
        is_final = is_final or UNTRUSTED.search(text)
        return FlowError(text) if is_final else ConnectionError(text)

    def lost(self, what: str) -> Exception:
        """The error that the server has lost by what a flow reads, such as a consumer."""
        way = "create it again where it was, or forget the source's position with --drop-state (drop_state=)"
        text = f"{what} is missing, and the flow has read by it"
        return self.error(f"{text}: {way}, to read by start=", True)


def named(**names: object) -> None:
    """Checks names that may not be empty.

    >>> named(stream="orders", consumer="")
    Traceback (most recent call last):
    millstream.FlowUsageError: consumer is a name, not ''
    """
    for name, value in names.items():
        if value == "":
            raise FlowUsageError(f"{name} is a name, not ''")


def message_of(item: Any, encode: Callable[[Any], Any] | None, kind: type[M], body: str) -> M:
    """The message of an item, which is one, or bytes or text, or of which ``encode`` makes that.

    Args:
        item: the item.
        encode: the function. None: the item is that already.
        kind: the class of messages.
        body: its field for bytes.
    """
    made = item if encode is None else encode(item)
    if not isinstance(made, kind):
        made = kind(made.encode() if isinstance(made, str) else made)  # type: ignore[call-arg]
    sent = getattr(made, body)
    if not isinstance(sent, (bytes, bytearray, memoryview)):
        module = kind.__module__.replace("millstream", "ms")
        raise TypeError(f"a message is a {module}.Message, bytes or text, not {type(sent).__name__}")
    return made
