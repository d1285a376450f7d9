"""Redis streams as a source and a sink of flows. It needs ``pip install 'millstream[redis]'``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

from ._connectors.adapter.deliveries import REMEMBERED, Delivered, delivered_by
from ._connectors.outbox import destination, with_outbox
from ._connectors.servers import TLS, Login, Server, context_of, library, named, parts_of
from ._errors.delivery import Refusals
from ._errors.flow import FlowUsageError
from ._values.checked import checked

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Literal

    from typing_extensions import Unpack

    from ._connectors.adapter import SourceFunction
    from ._connectors.outbox import OutboxIdentity, OutboxOptions, OutboxSink
    from ._values.backoff import Backoff

__all__ = ["Entry", "read", "write"]

BATCH = 500
IDLE = 5.0
TIMEOUT = 10.0
"""Entries of a call; how long a call waits for some, and a silent server is waited for, in seconds."""

PASSING = ("BUSY ", "LOADING", "MASTERDOWN", "MILLSTREAM", "MISCONF", "NOREPLICAS", "TRYAGAIN", "UNBLOCKED")
"""How errors begin after which another attempt may pass."""
MOST_FIELDS = 3000
"""A call of a Lua script has at most about 8,000 arguments."""
SCRIPT = """
local known = redis.call('HGET', KEYS[2], 'position') or ''
if known ~= ARGV[1] then
    return redis.error_reply('MILLSTREAM another connection has written: the position is ' .. known)
end
local at = 4
while ARGV[at] do
    redis.call('XADD', KEYS[1], '*', unpack(ARGV, at + 1, at + ARGV[at]))
    at = at + 1 + ARGV[at]
end
if ARGV[3] ~= '0' then redis.call('XTRIM', KEYS[1], 'MAXLEN', '~', ARGV[3]) end
redis.call('HSET', KEYS[2], 'position', ARGV[2])
"""
"""Adds entries and advances the position, unless a call of an earlier connection has arrived late."""


@dataclass(frozen=True)
class Entry:
    """An entry of a stream.

    Args:
        id: its id in the stream, such as ``"1700000000000-0"``.
        fields: its values by name. A name is text; its bytes that are not UTF-8 are surrogates.

    Example:
        >>> import millstream as ms
        >>> ms.redis.Entry("1-0", {"quantity": b"3"}).fields["quantity"]
        b'3'
    """

    id: str
    fields: Mapping[str, bytes] = field(default_factory=dict)


@checked
def read(
    url: str,
    stream: str,
    group: str,
    *,
    consumer: str = "millstream",
    start: Literal["earliest", "latest"] = "earliest",
    login: Login | None = None,
    retry: Backoff | None = None,
) -> SourceFunction[..., Entry]:
    """Reads a stream as a consumer of a group. Stream and group are created if they are missing.

    In a run with a state directory each entry has its effect once: it is acknowledged when its epoch is
    committed, and one that is delivered again is dropped by its id.

    Args:
        url: the address of the server: ``redis://HOST:PORT/DATABASE``, ``rediss://`` or ``unix://PATH``; the
            port is 6379 and the database 0 by default.
        stream: the key of the stream.
        group: the consumer group. Other consumers of it get other entries.
        consumer: the name of the consumer. Each flow of the group has its own.
        start: where a new group begins: ``"earliest"`` or ``"latest"``.
        login: user and password, certificates. None: there is none.
        retry: the delays between attempts to connect. None: ``Backoff()``, 0.1 s, doubled up to 30 s, without
            end.

    Returns:
        A source of :class:`Entry`, with one partition.

    Raises:
        FlowUsageError: an option has a wrong value, a certificate cannot be read, or the package ``redis``
            is missing.

    Example:
        >>> import millstream as ms
        >>> ms.redis.read("redis://localhost:6379", "orders", "billing")
        <source redis orders>
    """
    named(stream=stream, group=group, consumer=consumer)
    link = _Link(url, login, "ms.redis.read")
    first = "0" if start == "earliest" else "$"
    reader = partial(_Consumer, link, stream, group, consumer, first)
    return delivered_by(f"redis {stream}", reader, retry, remembered=REMEMBERED)


@with_outbox()
def write(
    url: str,
    stream: str,
    *,
    encode: Callable[[Any], Entry | Mapping[str, Any]] | None = None,
    max_entries: int | None = None,
    login: Login | None = None,
    **outbox: Unpack[OutboxOptions],
) -> OutboxSink[Any]:
    """Adds items to a stream, each once in a run with a state directory.

    The position of the outbox is in the same database, in a hash ``millstream:{STREAM}:ID``, and changes in
    one script with the entries. The server must not evict it: ``maxmemory-policy`` is ``noeviction``.

    Args:
        url: as for :func:`read`.
        stream: the key of the stream.
        encode: makes the fields of an item: a mapping from names to bytes, text or numbers, or an
            :class:`Entry`, whose id is not used. None: items are that already.
        max_entries: the number of entries to which the stream is trimmed, about. None: it grows.
        login: as for :func:`read`.

    Returns:
        The sink.

    Raises:
        FlowUsageError: an option has a wrong value, a certificate cannot be read, or the package ``redis``
            is missing.

    Example:
        >>> import millstream as ms
        >>> ms.redis.write("redis://localhost:6379", "invoices", encode=lambda total: {"total": total})
        <sink redis invoices>
    """
    named(stream=stream)
    link = _Link(url, login, "ms.redis.write")
    return destination(f"redis {stream}", _Adder, **outbox)(link, stream, encode, max_entries)


class _Link:
    """The server, and how to connect to it."""

    def __init__(self, url: str, login: Login | None, name: str) -> None:
        library("redis", "redis", "redis")
        self.server = Server.at(url, login, "redis", "rediss", "unix")
        given = parts_of(self.server.login, name, "user", "password", *TLS)
        names = {
            "user": "username",
            "ca": "ssl_ca_certs",
            "certificate": "ssl_certfile",
            "key": "ssl_keyfile",
        }
        self.options = {names.get(part, part): value for part, value in given.items()}
        if any(part in given for part in TLS) and not url.startswith("rediss:"):
            raise FlowUsageError(f"{name}: a login with certificates needs an address rediss://")
        # The client reads the files when it connects: a wrong one is an error before the flow runs.
        context_of(self.server.login)

    def client(self, module: Any) -> Any:
        """A client that does not repeat calls by itself."""
        waits = {"socket_timeout": IDLE + TIMEOUT, "socket_connect_timeout": TIMEOUT, "retry": None}
        return module.Redis.from_url(self.server.url, protocol=2, **waits, **self.options)

    def error(self, error: Exception, place: str = "") -> Exception:
        """FlowError for what a person must change, ConnectionError for what another attempt may pass."""
        from redis import exceptions as kinds

        text = str(error)
        is_final = isinstance(error, (kinds.AuthenticationError, kinds.AuthorizationError, kinds.DataError))
        is_final |= isinstance(error, kinds.ResponseError) and not text.startswith(PASSING)
        passing = (kinds.ReadOnlyError, kinds.OutOfMemoryError, kinds.ClusterDownError)
        return self.server.error(f"{place}{text}", is_final and not isinstance(error, passing))


class _Consumer:
    """A reader of entries; see ``delivered_by``."""

    def __init__(self, link: _Link, stream: str, group: str, name: str, first: str) -> None:
        self.link = link
        self.stream = stream
        self.group = group
        self.name = name
        self.first = first
        self.client: Any = None
        # First the entries that this consumer has not acknowledged, then new ones.
        self.after = "0"
        self.pending: set[str] = set()

    async def open(self, delivered: Delivered[str], again: bool) -> None:
        from redis import asyncio

        self.delivered = delivered
        self.client = self.link.client(asyncio)
        if not again:
            await self.create()

    async def create(self) -> None:
        from redis.exceptions import RedisError

        try:
            await self.client.xgroup_create(self.stream, self.group, id=self.first, mkstream=True)
        except (RedisError, OSError) as error:
            if "BUSYGROUP" not in str(error):
                raise self.link.error(error, f'stream "{self.stream}": ') from None

    async def receive(self) -> list[tuple[str, Entry, str]]:
        from redis.exceptions import RedisError

        found: list[tuple[str, Entry, str]] = []
        while not found:
            try:
                answer = await self.client.xreadgroup(
                    self.group, self.name, {self.stream: self.after}, count=BATCH, block=int(IDLE * 1000)
                )
            except (RedisError, OSError) as error:
                raise self.lost(error) from None
            found = [self.entry(id.decode(), values) for id, values in (answer[0][1] if answer else [])]
            if self.after != ">":
                self.pending |= {id for id, _, _ in found}
                self.after = found[-1][0] if found else ">"
                if not found:
                    self.delivered.keep(self.pending.__contains__)
        return found

    def entry(self, id: str, values: Mapping[bytes, bytes] | None) -> tuple[str, Entry, str]:
        if values is None:
            # It was removed from the stream, and is acknowledged without an item.
            self.delivered.is_new(id)
        named = {name.decode(errors="surrogateescape"): value for name, value in (values or {}).items()}
        return id, Entry(id, named), id

    def lost(self, error: Exception) -> Exception:
        if not str(error).startswith("NOGROUP"):
            return self.link.error(error, f'stream "{self.stream}": ')
        return self.link.server.lost(f'the group "{self.group}" of the stream "{self.stream}"')

    async def acknowledge(self, messages: list[str]) -> None:
        await self.client.xack(self.stream, self.group, *messages)

    def is_open(self) -> bool:
        return self.client is not None

    def waiting(self) -> int:
        return 0

    async def close(self) -> None:
        client = self.client
        self.client = None
        if client is not None:
            await client.aclose()


class _Adder:
    """The destination of ``write``."""

    def __init__(self, link: _Link, stream: str, encode: Any, max_entries: int | None) -> None:
        import redis

        self.link = link
        self.stream = stream
        self.encode = encode
        self.max_entries, self.client = max_entries or 0, link.client(redis)
        self.known: int | None = None

    def connect(self, outbox: OutboxIdentity) -> None:
        self.place = f'{self.link.server.address}, stream "{self.stream}"'
        self.refusals = Refusals(outbox, self.place)
        self.key = f"millstream:{self.stream}:{outbox.id}"
        about = {"flow": outbox.flow, "sink": outbox.sink, "stream": self.stream}
        self.called(lambda: self.client.hset(self.key, mapping=about))

    def called(self, call: Callable[[], Any]) -> Any:
        from redis.exceptions import RedisError

        try:
            return call()
        except (RedisError, OSError) as error:
            raise self.link.error(error, f'stream "{self.stream}": ') from None

    def position(self) -> int | None:
        found = self.called(lambda: self.client.hget(self.key, "position"))
        self.known = None if found is None else int(found)
        return self.known

    def fields(self, item: Any) -> list[Any]:
        made = item if self.encode is None else self.encode(item)
        made = made.fields if isinstance(made, Entry) else made
        if not isinstance(made, Mapping) or not 1 <= len(made) <= MOST_FIELDS:
            raise TypeError(f"an entry is a mapping of 1 to {MOST_FIELDS} fields")
        return [part for name, value in made.items() for part in (as_bytes(name), as_bytes(value))]

    def write(self, batch: list[Any], first: int, last: int) -> None:
        arguments: list[Any] = ["" if self.known is None else self.known, last, self.max_entries]
        for _, _, fields in self.refusals.made(self.fields, batch, first):
            arguments += [len(fields), *fields]
        self.called(lambda: self.client.eval(SCRIPT, 2, self.stream, self.key, *arguments))
        self.known = last

    def close(self) -> None:
        self.client.close()


def as_bytes(value: Any) -> bytes:
    """A name or value as Redis stores it.

    >>> as_bytes("a"), as_bytes(1.5)
    (b'a', b'1.5')
    """
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, (str, int, float)) and not isinstance(value, bool):
        return str(value).encode(errors="surrogateescape")
    raise TypeError(f"a field is bytes, text or a number, not {type(value).__name__}")
