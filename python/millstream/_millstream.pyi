"""The native half of the package: what the Python half describes flows with."""

import sys
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from os import PathLike
from typing import Any, Literal, final

# Read by type checkers only, which bring typing_extensions along; nothing imports it at run time.
if sys.version_info >= (3, 11):
    from typing import Self
else:
    from typing_extensions import Self

if sys.version_info >= (3, 15):
    from typing import disjoint_base
else:
    from typing_extensions import disjoint_base

__all__ = [
    "ByteSink",
    "ByteSource",
    "Field",
    "Flow",
    "KeyContext",
    "Layout",
    "Pipe",
    "Record",
    "Report",
    "Script",
    "Stopper",
    "VirtualClock",
    "cli_main",
    "file_read",
    "file_write",
    "key_hash",
    "run",
    "tcp_connect",
    "tcp_listen",
    "tcp_send_to",
]

@final
class Flow:
    def __new__(cls, name: str) -> Self: ...
    @property
    def name(self) -> str: ...
    def source(self, name: str, source: object, on_error: object) -> Pipe: ...
    def describe(self, format: str) -> str: ...

@final
class Pipe:
    def step(
        self, kind: str, name: str, shape: str, make: Callable[[], object], on_error: object
    ) -> Pipe: ...
    def event_time(
        self,
        name: str,
        make: Callable[[], object],
        lateness: int,
        idle: int | None,
        on_error: object,
    ) -> Pipe: ...
    def processing_time(self, name: str) -> Pipe: ...
    def stateful(
        self,
        name: str,
        make: Callable[[], object],
        function: Callable[[Any, Any], object] | None,
        timed: bool,
        ttl: int | None,
        on_error: object,
    ) -> Pipe: ...
    def window(
        self,
        name: str,
        described: tuple[str, Sequence[int], int],
        kind: str,
        functions: Sequence[Callable[..., Any] | None],
        timed: bool,
        on_error: object,
    ) -> tuple[Pipe, Pipe]: ...
    def divide(self, name: str, make: Callable[[], object], on_error: object) -> tuple[Pipe, Pipe]: ...
    @staticmethod
    def gather(kind: str, name: str, streams: Sequence[Pipe], by_key: bool) -> Pipe: ...
    def redistribute(self) -> Pipe: ...
    def sink(self, name: str, sink: object) -> None: ...

@final
class KeyContext:
    @property
    def time(self) -> float | None: ...
    @property
    def watermark(self) -> float | None: ...
    @property
    def now(self) -> float: ...
    @property
    def kind(self) -> Literal["event", "processing"] | None: ...
    def set_timer(self, at: float | datetime, kind: Literal["event", "processing"] | None = None) -> None: ...
    def cancel_timer(
        self, at: float | datetime, kind: Literal["event", "processing"] | None = None
    ) -> None: ...
    def discard(self) -> None: ...

@final
class VirtualClock:
    def __new__(cls, start: float | datetime) -> Self: ...
    def time(self) -> float: ...
    def advance(self, by: timedelta) -> None: ...
    def set(self, to: float | datetime) -> None: ...

@final
class Report:
    @property
    def flow(self) -> str: ...
    @property
    def seconds(self) -> float: ...
    @property
    def steps(self) -> list[dict[str, Any]]: ...
    @property
    def workers(self) -> list[list[dict[str, Any]]]: ...
    def step(self, name: str) -> dict[str, Any]: ...
    def to_json(self) -> str: ...

@final
class Stopper:
    def __new__(cls) -> Self: ...
    def stop(self) -> None: ...

@final
class Script:
    def __new__(cls, partitions: Sequence[Sequence[object]], batch_size: int) -> Self: ...

@final
class ByteSource: ...

@final
class ByteSink: ...

@final
class Field:
    def __get__(self, instance: object, owner: object = None, /) -> Any: ...
    def __set__(self, instance: object, value: object, /) -> None: ...
    def __delete__(self, instance: object, /) -> None: ...

@final
class Layout:
    def __new__(cls, format: str, names: Sequence[str], constants: dict[str, object]) -> Self: ...
    @property
    def size(self) -> int: ...
    @property
    def fields(self) -> dict[str, Field]: ...

@disjoint_base
class Record:
    def __new__(cls) -> Self: ...
    @classmethod
    def pack(cls, *values: object, **named: object) -> Self: ...
    @classmethod
    def unpack(cls, data: bytes) -> Self: ...
    def to_dict(self) -> dict[str, Any]: ...
    def __bytes__(self) -> bytes: ...
    def __len__(self) -> int: ...
    def __hash__(self) -> int: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    def __reduce__(self) -> tuple[Callable[[bytes], Self], tuple[bytes]]: ...

def run(
    flow: Flow,
    workers: int,
    spin: bool,
    on_metrics: Callable[[Report], object] | None,
    metrics_interval: float,
    clock: VirtualClock | None,
    stopper: Stopper,
) -> Report: ...
def tcp_listen(
    address: str,
    *,
    framing: str,
    max_frame: int,
    connections: int | None,
    max_connections: int,
    decode: object,
    on_bound: Callable[[str, int], object] | None,
) -> ByteSource: ...
def tcp_connect(address: str, *, framing: str, max_frame: int, decode: object) -> ByteSource: ...
def tcp_send_to(
    address: str, *, framing: str, encode: Callable[[Any], object] | None, reconnect: float | None
) -> ByteSink: ...
def file_read(
    paths: Sequence[str | PathLike[str]], *, framing: str, max_frame: int, decode: object, position: int
) -> ByteSource: ...
def file_write(
    path: str | PathLike[str], *, framing: str, encode: Callable[[Any], object] | None
) -> ByteSink: ...
def key_hash(key: object) -> int: ...
def cli_main(argv: Sequence[str | PathLike[str]]) -> int: ...
