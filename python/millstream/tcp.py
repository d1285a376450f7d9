"""TCP as source and sink.

``framing`` says where a message ends: ``u8``, ``u16``, ``u32`` (a length before the message, big-endian;
``u16le`` and ``u32le`` little-endian), ``lines``, or ``fixed:N``. Addresses are ``host:port``.
"""

from __future__ import annotations

from typing import overload

from . import _millstream
from ._errors.flow import FlowUsageError
from ._values.checked import checked, positive
from ._values.durations import seconds, seconds_or_none

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Literal

    from ._values.durations import Seconds
    from ._values.types import Decoder, Frame, U

__all__ = ["connect", "listen", "send_to"]

MAX_FRAME = 1 << 20
MAX_CONNECTIONS = 1024


def _host_and_port(address: str) -> str:
    """Checks an address.

    >>> _host_and_port("localhost")
    Traceback (most recent call last):
    millstream.FlowUsageError: address is HOST:PORT, such as 127.0.0.1:9000, not 'localhost'
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise FlowUsageError(f"address is HOST:PORT, such as 127.0.0.1:9000, not {address!r}")
    return address


@overload
def listen(
    address: str,
    framing: str = "u32",
    max_frame: int = MAX_FRAME,
    connections: int | None = None,
    max_connections: int = MAX_CONNECTIONS,
    decode: None = None,
    on_bound: Callable[[str, int], object] | None = None,
) -> _millstream.ByteSource[bytes]: ...
@overload
def listen(
    address: str,
    framing: str = "u32",
    max_frame: int = MAX_FRAME,
    connections: int | None = None,
    max_connections: int = MAX_CONNECTIONS,
    decode: Decoder[U] = ...,
    on_bound: Callable[[str, int], object] | None = None,
) -> _millstream.ByteSource[U]: ...
@checked
def listen(
    address: str,
    framing: str = "u32",
    max_frame: int = MAX_FRAME,
    connections: int | None = None,
    max_connections: int = MAX_CONNECTIONS,
    decode: type | Callable[[bytes], Any] | None = None,
    on_bound: Callable[[str, int], object] | None = None,
) -> _millstream.ByteSource[Any]:
    """Accepts connections and reads their messages.

    Args:
        address: the address, ``host:port``. Port 0 lets the system choose one.
        framing: how messages are separated; see :mod:`millstream.tcp`.
        max_frame: the largest message in bytes; a connection that sends a longer one is closed.
        connections: the source ends when so many connections have come and gone. None: it never ends.
        max_connections: how many connections are open at once at most; further ones wait in the queue of
            the system.
        decode: makes an item of the bytes: ``str``, ``bytes``, a subclass of :class:`millstream.Record`, or
            a function. None leaves bytes.
        on_bound: is called with host and port when the socket is bound.

    Returns:
        A source of bytes, or of what ``decode`` makes of them.

    Example:
        >>> import socket
        >>> import millstream as ms
        >>> def send(host: str, port: int) -> None:
        ...     with socket.create_connection((host, port)) as client:
        ...         client.sendall(b"to\\nbe\\n")
        >>> flow, out = ms.Flow("words"), ms.testing.collect()
        >>> words = ms.tcp.listen("127.0.0.1:0", "lines", connections=1, decode=str, on_bound=send)
        >>> flow.source("words", words).sink("out", out)
        >>> _ = ms.run(flow)
        >>> out
        ['to', 'be']
    """
    return _millstream.tcp_listen(
        _host_and_port(address),
        framing=framing,
        max_frame=positive("max_frame", max_frame),
        connections=connections,
        max_connections=positive("max_connections", max_connections),
        decode=decode,
        on_bound=on_bound,
    )


@overload
def connect(
    address: str,
    framing: str = "u32",
    max_frame: int = MAX_FRAME,
    decode: None = None,
) -> _millstream.ByteSource[bytes]: ...
@overload
def connect(
    address: str,
    framing: str = "u32",
    max_frame: int = MAX_FRAME,
    decode: Decoder[U] = ...,
) -> _millstream.ByteSource[U]: ...
@checked
def connect(
    address: str,
    framing: str = "u32",
    max_frame: int = MAX_FRAME,
    decode: type | Callable[[bytes], Any] | None = None,
) -> _millstream.ByteSource[Any]:
    """Connects to an address and reads messages until the other side closes the connection.

    Args:
        address: the address, ``host:port``.
        framing: how messages are separated; see :mod:`millstream.tcp`.
        max_frame: the largest message in bytes; a longer one is an error.
        decode: makes an item of the bytes: ``str``, ``bytes``, a subclass of :class:`millstream.Record`, or
            a function. None leaves bytes.

    Returns:
        A source of bytes, or of what ``decode`` makes of them.

    Example:
        >>> import socket, threading
        >>> import millstream as ms
        >>> server = socket.create_server(("127.0.0.1", 0))
        >>> def send() -> None:
        ...     with server, server.accept()[0] as client:
        ...         client.sendall(b"to\\nbe\\n")
        >>> sender = threading.Thread(target=send)
        >>> sender.start()
        >>> flow, out = ms.Flow("words"), ms.testing.collect()
        >>> address = f"127.0.0.1:{server.getsockname()[1]}"
        >>> flow.source("words", ms.tcp.connect(address, "lines", decode=str)).sink("out", out)
        >>> _ = ms.run(flow)
        >>> sender.join()
        >>> out
        ['to', 'be']
    """
    return _millstream.tcp_connect(
        _host_and_port(address), framing=framing, max_frame=positive("max_frame", max_frame), decode=decode
    )


@overload
def send_to(
    address: str,
    framing: Literal["lines"],
    encode: None = None,
    reconnect: Seconds | None = None,
    numbered: bool = False,
    connect_timeout: Seconds = 5.0,
) -> _millstream.ByteSink[object]: ...
@overload
def send_to(
    address: str,
    framing: str = "u32",
    encode: None = None,
    reconnect: Seconds | None = None,
    numbered: bool = False,
    connect_timeout: Seconds = 5.0,
) -> _millstream.ByteSink[Frame]: ...
@overload
def send_to(
    address: str,
    framing: str = "u32",
    encode: Callable[[U], Frame] = ...,
    reconnect: Seconds | None = None,
    numbered: bool = False,
    connect_timeout: Seconds = 5.0,
) -> _millstream.ByteSink[U]: ...
@checked
def send_to(
    address: str,
    framing: str = "u32",
    encode: Callable[[Any], Any] | None = None,
    reconnect: Seconds | None = None,
    numbered: bool = False,
    connect_timeout: Seconds = 5.0,
) -> _millstream.ByteSink[Any]:
    """Connects to an address and writes messages. Each worker has a connection of its own.

    With ``numbered`` each message begins with 8 bytes, inside the frame, little-endian: a count of the
    messages of the worker, and above 48 bits the worker. Messages that are sent again after a crash have
    the same numbers, so that ``millstream receive --dedupe`` drops them, if the flow emits its outputs in
    the same order again.

    Args:
        address: the address, ``host:port``.
        framing: how messages are separated; see :mod:`millstream.tcp`.
        encode: a function that makes bytes, ``str`` or a record of an item. None: items are that already.
        reconnect: for how long a lost connection is tried again; messages that the receiver had not
            read are lost then. None: a lost connection is an error.
        numbered: whether messages are numbered.
        connect_timeout: how long the sink waits for the receiver at the start.

    Returns:
        A sink of bytes, ``str``, records, or items for ``encode``.

    Example:
        >>> import socket
        >>> import millstream as ms
        >>> server = socket.create_server(("127.0.0.1", 0))
        >>> flow = ms.Flow("words")
        >>> words = flow.source("words", ms.testing.items(["to", "be"]))
        >>> words.sink("out", ms.tcp.send_to(f"127.0.0.1:{server.getsockname()[1]}", "lines"))
        >>> _ = ms.run(flow)
        >>> with server, server.accept()[0] as client:
        ...     client.makefile().read()
        'to\\nbe\\n'
    """
    return _millstream.tcp_send_to(
        _host_and_port(address),
        framing=framing,
        encode=encode,
        reconnect=seconds_or_none("reconnect", reconnect),
        numbered=numbered,
        connect_timeout=seconds("connect_timeout", connect_timeout),
    )
