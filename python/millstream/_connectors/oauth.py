"""How a sink gets its tokens: client credentials of OAuth 2.0 (RFC 6749, section 4.4)."""

from __future__ import annotations

from dataclasses import dataclass, field

from .._values.checked import checked

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


@checked
@dataclass(frozen=True)
class OAuth:
    """Client credentials of OAuth 2.0, for ``ms.http.post(oauth=...)``.

    A token is fetched when it is needed, kept until shortly before its end (a minute, or a quarter of its
    time), and fetched once more after a 401. While the token server is away, deliveries wait. The secret is
    in no ``repr``, log and error.

    Args:
        url: the URL of the token server, ``https://`` or ``http://``.
        id: the identity of the client.
        secret: its secret.
        scope: the scope that is asked for; several are divided by spaces.
        parameters: further parameters of the request, such as ``{"audience": "..."}``.
        in_body: whether the client and its secret are sent in the body of the request, for servers that do
            not take HTTP Basic.

    Raises:
        FlowUsageError: an argument is no text.

    Example:
        >>> import millstream as ms
        >>> ms.http.OAuth("https://login.example.com/token", "shop", "secret", scope="orders.write")
        OAuth(url='https://login.example.com/token', id='shop', scope='orders.write', in_body=False)
    """

    url: str
    id: str
    secret: str = field(repr=False)
    scope: str | None = None
    parameters: Mapping[str, str] = field(default_factory=dict, repr=False)
    in_body: bool = False

    def _parts(self) -> tuple[str, str, str, bool, list[tuple[str, str]]]:
        scope = [] if self.scope is None else [("scope", self.scope)]
        return self.url, self.id, self.secret, self.in_body, scope + list(self.parameters.items())
