"""TCP as source and sink.

``framing`` says where a message ends: ``u8``, ``u16``, ``u32`` (a length in front, big-endian; ``u16le`` and
``u32le`` little-endian), ``lines``, or ``fixed:N``. Addresses are ``host:port``.
"""

from __future__ import annotations

from typing import overload

from . import _millstream

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Literal

    from ._types import Decoder, Frame, U

__all__ = ["connect", "listen", "send_to"]

MAX_FRAME = 1 << 20
MAX_CONNECTIONS = 1024


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
def listen(
    address: str,
    framing: str = "u32",
    max_frame: int = MAX_FRAME,
    connections: int | None = None,
    max_connections: int = MAX_CONNECTIONS,
    decode: type | Callable[[bytes], Any] | None = None,
    on_bound: Callable[[str, int], object] | None = None,
) -> _millstream.ByteSource[Any]:
    """Frames from all who connect to ``address``; ends when ``connections`` have come and gone, or never.

    ``decode`` makes an object of a frame: a subclass of :class:`millstream.Record`, ``str``, or any function
    of bytes; bytes unless given. Who sends a frame of more than ``max_frame`` bytes is cut off. At most
    ``max_connections`` are taken at once; more wait in the system's queue. ``on_bound`` is called with host
    and port, which is of use with port 0.
    """
    return _millstream.tcp_listen(
        address,
        framing=framing,
        max_frame=max_frame,
        connections=connections,
        max_connections=max_connections,
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
def connect(
    address: str,
    framing: str = "u32",
    max_frame: int = MAX_FRAME,
    decode: type | Callable[[bytes], Any] | None = None,
) -> _millstream.ByteSource[Any]:
    """Connects to ``address`` and reads frames until the other side closes."""
    return _millstream.tcp_connect(address, framing=framing, max_frame=max_frame, decode=decode)


@overload
def send_to(
    address: str,
    framing: Literal["lines"],
    encode: None = None,
    reconnect: float | None = None,
    numbered: bool = False,
    connect_timeout: float = 5.0,
) -> _millstream.ByteSink[object]: ...
@overload
def send_to(
    address: str,
    framing: str = "u32",
    encode: None = None,
    reconnect: float | None = None,
    numbered: bool = False,
    connect_timeout: float = 5.0,
) -> _millstream.ByteSink[Frame]: ...
@overload
def send_to(
    address: str,
    framing: str = "u32",
    encode: Callable[[U], Frame] = ...,
    reconnect: float | None = None,
    numbered: bool = False,
    connect_timeout: float = 5.0,
) -> _millstream.ByteSink[U]: ...
def send_to(
    address: str,
    framing: str = "u32",
    encode: Callable[[Any], Any] | None = None,
    reconnect: float | None = None,
    numbered: bool = False,
    connect_timeout: float = 5.0,
) -> _millstream.ByteSink[Any]:
    """Connects to ``address`` and writes frames; each worker has a connection of its own.

    Items are bytes, str or records, or what ``encode`` makes of them. A lost connection is an error, or is
    tried again for ``reconnect`` seconds; what the receiver had not read is lost then. At the start a
    receiver that is not up yet is waited for, for ``connect_timeout`` seconds.

    With ``numbered`` each message has 8 bytes in front, inside the frame, little-endian: a count of the
    worker's messages, and above 48 bits the worker. What is sent again after a crash has the same numbers, so
    that ``millstream receive --dedupe`` drops it, if the flow gives its outputs in the same order again.
    """
    return _millstream.tcp_send_to(
        address,
        framing=framing,
        encode=encode,
        reconnect=reconnect,
        numbered=numbered,
        connect_timeout=connect_timeout,
    )
