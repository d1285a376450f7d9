"""The native half of the package: what the Python half describes flows with."""

import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from os import PathLike
from pathlib import Path
from typing import Any, Generic, Literal, Protocol, final, overload

# Read by type checkers only, which bring typing_extensions along; nothing imports it at run time.
if sys.version_info >= (3, 11):
    from typing import Self
else:
    from typing_extensions import Self

from typing_extensions import TypeVar

from ._millstream_stores import (
    Field,
    ItemOrigin,
    Journal,
    JournalCursor,
    JournalReader,
    JournalRecord,
    Layout,
    OpenItem,
    Queue,
    Queues,
    Record,
)
from ._run.options import RunOptions
from ._values.durations import Seconds

# fmt: off
__all__ = [
    "ByteSink", "ByteSource", "Clock", "Counter", "CsvSource", "Decompressor", "DurableSource", "Field",
    "Flow", "Gauge", "Gateway", "Handle", "Interface", "ItemOrigin", "Journal", "JournalCursor",
    "JournalReader", "JournalRecord", "KafkaMessage", "KeyContext", "KeyedSink", "Layout", "Meter",
    "Observer", "OneOffs", "OpenItem", "Outlet", "Pipe", "Queue", "Queues", "Record", "Recorder",
    "Rehearsal", "Report", "Reporter", "Script", "Service", "SourceIo", "Stopper", "Trial", "VirtualClock",
    "When", "cli_main", "compress", "csv_directory", "csv_read", "directory_read", "file_read", "file_write",
    "file_write_by_key", "http_feed", "http_listen", "http_post", "http_received", "http_replies",
    "http_reply", "journal_append", "journal_read", "kafka_message_time", "kafka_read", "kafka_write",
    "key_hash", "log_levels", "log_line", "log_modules", "measure_lock_waits",
    "name_options_of_command_line", "outbox_sink", "plain_text", "queue_read",
    "queue_write", "run", "saved_positions", "saved_states", "service_ask", "service_export",
    "service_has_input", "service_history", "service_latency", "service_test", "service_variants",
    "shown_state", "start", "tcp_connect", "tcp_listen", "tcp_send_to", "user_counter", "user_gauge",
    "write_system_status",
]
# fmt: on

# What a source gives and what a sink takes: known to type checkers only.
_T_co = TypeVar("_T_co", covariant=True, default=Any)
_T_contra = TypeVar("_T_contra", contravariant=True, default=Any)

@final
class KafkaMessage:
    def __new__(
        cls,
        value: bytes | str | Record | None,
        key: bytes | str | Record | None = None,
        topic: str | None = None,
        partition: int | None = None,
        time: float | None = None,
        headers: Iterable[tuple[str, bytes | str | None]] | None = None,
    ) -> Self: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def topic(self) -> str | None: ...
    @property
    def partition(self) -> int | None: ...
    @property
    def offset(self) -> int | None: ...
    @property
    def time(self) -> float | None: ...
    @property
    def headers(self) -> list[tuple[str, bytes | None]]: ...
    @staticmethod
    def _of(frame: bytes) -> KafkaMessage: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __reduce__(self) -> tuple[Any, ...]: ...

@final
class Flow:
    def __new__(cls, name: str) -> Self: ...
    @staticmethod
    def of(stream: Pipe) -> Flow: ...
    @property
    def name(self) -> str: ...
    def version(self, parts: Sequence[tuple[str, str]]) -> None: ...
    def source(self, name: str, source: object, on_error: object, batch_size: object) -> Pipe: ...
    def describe(self, format: str) -> str: ...

@final
class Observer:
    def __new__(cls, address: str, token: str | None, open: bool, framed: bool = False) -> Self: ...
    @property
    def address(self) -> str: ...
    def show_restarts(self, count: int, restarts: list[tuple[int, str]]) -> None: ...
    def show_service(
        self,
        name: str,
        meter: Meter,
        inputs: Sequence[str],
        output: str | None,
        dead_letters: str | None,
    ) -> None: ...
    def show_system(self, state: str) -> None: ...
    def show_about(self, facts: list[tuple[str, str]]) -> None: ...
    def keep_in(self, path: str) -> None: ...
    def show_down(
        self,
        flow: str,
        error: str,
        traceback: str | None,
        since_ms: int,
        restarted: bool,
        missing: Sequence[int],
        kept: str | None = None,
    ) -> None: ...
    def stop(self) -> None: ...

def write_system_status(state: str | PathLike[str], status: str) -> None: ...

@final
class Pipe:
    @overload
    def step(
        self,
        kind: str,
        name: str,
        shape: str,
        make: Callable[[], object],
        on_error: object,
        by_clock: Literal[False] = False,
        in_order: bool = False,
    ) -> Pipe: ...
    @overload
    def step(
        self,
        kind: str,
        name: str,
        shape: str,
        make: Callable[[Callable[[], float]], object],
        on_error: object,
        by_clock: Literal[True],
        in_order: bool = False,
    ) -> Pipe: ...
    def event_time(
        self,
        name: str,
        make: Callable[[], object],
        limits: tuple[int, int | None, int | None],
        on_error: object,
    ) -> Pipe: ...
    def message_time(
        self, name: str, limits: tuple[int, int | None, int | None], on_error: object
    ) -> Pipe: ...
    def event_clock(self, name: str, make: Callable[[str], object], on_error: object) -> Pipe: ...
    def processing_time(self, name: str) -> Pipe: ...
    def stateful(
        self,
        kind: str,
        name: str,
        make: Callable[[], object],
        function: Callable[[Any, Any], object] | None,
        returns: bool,
        times: tuple[bool, bool],
        ttl: int | None,
        on_error: object,
    ) -> tuple[Pipe, Pipe]: ...
    def debug(
        self, show: Callable[[int | None, int, list[Any] | None, list[Any] | None], object]
    ) -> Pipe: ...
    def reads(self, f: object) -> None: ...
    def joins(self, sides: Sequence[Sequence[Pipe]]) -> None: ...
    def batches(self, name: str) -> Pipe: ...
    def stateful_batch(
        self, name: str, make: Callable[[], object], timed: bool, ttl: int | None, on_error: object
    ) -> Pipe: ...
    def limit(
        self,
        kind: str,
        name: str,
        per_period: tuple[int, int | None],
        ttl: int | None,
        timed: bool,
    ) -> Pipe: ...
    def join_all(
        self, name: str, made: tuple[int, bool, Callable[[], object]], timed: bool, ttl: int | None
    ) -> tuple[Pipe, Pipe]: ...
    def window(
        self,
        name: str,
        described: object,
        windower: object | None,
        kind: str,
        functions: Sequence[Callable[..., Any] | None],
        timed: bool,
        on_error: object,
    ) -> tuple[Pipe, Pipe]: ...
    def collect(self, name: str, most: int, wait: int | None, keyed: bool) -> Pipe: ...
    def ticking(self, kind: str, name: str, make: Callable[[], object], on_error: object) -> Pipe: ...
    def to_the_right(self) -> Pipe: ...
    def join(
        self,
        name: str,
        described: tuple[str, str, tuple[int, int], int | None, tuple[int, int | None] | None],
        timed: bool,
        on_error: object,
    ) -> tuple[Pipe, Pipe]: ...
    def divide(self, name: str, make: Callable[[], object], on_error: object) -> tuple[Pipe, Pipe]: ...
    @staticmethod
    def gather(kind: str, name: str, streams: Sequence[Pipe], by_key: bool) -> Pipe: ...
    def redistribute(self) -> Pipe: ...
    @staticmethod
    def check_sink(sink: object, on_error: object) -> None: ...
    def sink(self, name: str, sink: object, gather: bool, on_error: object) -> None: ...

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
    def advance(self, by: Seconds) -> None: ...
    def set(self, to: float | datetime) -> None: ...

@final
class Counter:
    @property
    def value(self) -> float: ...
    def inc(self, by: float = 1.0) -> None: ...

@final
class Gauge:
    @property
    def value(self) -> float: ...
    def set(self, to: float) -> None: ...
    def inc(self, by: float = 1.0) -> None: ...

def user_counter(name: str, help: str) -> Counter: ...
def user_gauge(name: str, help: str) -> Gauge: ...

@final
class Report:
    @property
    def flow(self) -> str: ...
    @property
    def seconds(self) -> float: ...
    @property
    def steps(self) -> list[dict[str, Any]]: ...
    @property
    def outboxes(self) -> list[dict[str, Any]]: ...
    @property
    def lags(self) -> list[dict[str, Any]]: ...
    @property
    def workers(self) -> list[list[dict[str, Any]]]: ...
    @property
    def others(self) -> list[dict[str, Any]]: ...
    def step(self, name: str) -> dict[str, Any]: ...
    def to_json(self) -> str: ...
    def plot(self) -> Any: ...
    def _repr_html_(self) -> str: ...

@final
class Handle:
    def stop(self) -> None: ...
    def ended_within(self, seconds: float) -> bool: ...
    def report(self) -> Report | None: ...
    def finish(self) -> Report | None: ...

@final
class Stopper:
    def __new__(cls, on_start: Callable[[], object] | None = None) -> Self: ...
    def stop(self) -> None: ...
    @property
    def stopped(self) -> bool: ...
    @property
    def ended(self) -> bool: ...

@final
class Rehearsal:
    def __new__(
        cls,
        inputs: Sequence[tuple[str, Script[Any]]],
        make_sink: Callable[[str], object],
        replay: tuple[
            Sequence[tuple[str | None, str, bool]],
            tuple[bool, int] | None,
            tuple[bool, int] | None,
            int | None,
        ]
        | None,
        copies: bool = False,
    ) -> Self: ...
    def committed(self) -> dict[str, int]: ...

@final
class Script(Generic[_T_co]):
    def __new__(cls, partitions: Sequence[Sequence[object]], batch_size: int) -> Self: ...
    def one_by_one(self) -> Self: ...
    def durable(self, keep: int | str | timedelta | None = None) -> DurableSource[_T_co]: ...

@final
class ByteSource(Generic[_T_co]):
    def durable(self, keep: int | str | timedelta | None = None) -> DurableSource[_T_co]: ...

@final
class DurableSource(Generic[_T_co]):
    def __new__(cls, source: object, all: bool, bytes: int | None, seconds: float | None) -> Self: ...

@final
class ByteSink(Generic[_T_contra]): ...

@final
class CsvSource(Generic[_T_co]): ...

@final
class KeyedSink(Generic[_T_contra]): ...

def run(
    flow: Flow,
    options: RunOptions,
    stopper: Stopper,
    rehearsal: Rehearsal | None = None,
    observer: Observer | None = None,
    crash: int | tuple[str, int] | None = None,
) -> Report: ...
def start(flow: Flow, options: RunOptions, stopper: Stopper, observer: Observer | None) -> Handle: ...
def log_line(
    time_ns: int,
    level: str,
    target: str,
    message: str,
    fields: Sequence[tuple[str, object]],
    json: bool,
) -> str: ...
def log_levels(text: str) -> list[tuple[str, int]]: ...
def log_modules() -> list[str]: ...
def plain_text(text: str) -> str: ...
def measure_lock_waits(measured: bool) -> tuple[float, int]: ...
def name_options_of_command_line(named: bool) -> bool: ...
def shown_state(how: int, written: bytes) -> str | None: ...
def saved_positions(dir: str | PathLike[str], ending: str) -> list[tuple[str, str, Any]]: ...
def saved_states(dir: str | PathLike[str]) -> list[tuple[str, Any, int, bytes]]: ...
def tcp_listen(
    address: str,
    *,
    framing: str,
    max_frame: int,
    connections: int | None,
    max_connections: int,
    decode: object,
    on_bound: Callable[[str, int], object] | None,
) -> ByteSource[Any]: ...
def http_listen(
    address: str,
    *,
    paths: Sequence[str],
    methods: Sequence[str],
    health: str | None,
    item: str,
    body: str,
    signature: object,
    reply: float | None,
    token: str | None,
    origins: Sequence[str],
    max_body: int,
    max_pending: int,
    max_connections: int,
    timeout: float,
    requests: int | None,
    decode: object,
    on_bound: Callable[[str], object] | None,
) -> ByteSource[Any]: ...
def http_received(item: bytes) -> tuple[str, str, str, str, list[tuple[str, bytes]], bytes]: ...
def http_replies(source: ByteSource[Any], encode: Callable[[Any], bytes]) -> ByteSink[Any]: ...
def http_reply(request: str, status: int, headers: list[tuple[str, str]], body: bytes) -> bytes: ...
def tcp_connect(address: str, *, framing: str, max_frame: int, decode: object) -> ByteSource[Any]: ...

class _HasFileno(Protocol):
    def fileno(self) -> int: ...

@final
class SourceIo:
    """What wakes a source of one's own; may be used by any thread."""

    @property
    def worker(self) -> int: ...
    @property
    def workers(self) -> int: ...
    def wake(self) -> None: ...
    def report_lag(
        self, records: int | None = None, bytes: int | None = None, seconds: float | None = None
    ) -> None: ...
    def register(self, fd: int | _HasFileno) -> None: ...
    def unregister(self, fd: int | _HasFileno) -> None: ...

def tcp_send_to(
    address: str,
    *,
    framing: str,
    encode: Callable[[Any], object] | None,
    reconnect: float | None,
    numbered: bool,
    connect_timeout: float,
) -> ByteSink[Any]: ...
def compress(content: bytes, compression: str | None) -> bytes: ...

@final
class Decompressor:
    def __new__(cls, chunks: Iterable[bytes], compression: str | None) -> Self: ...
    def __iter__(self) -> Self: ...
    def __next__(self) -> bytes: ...

def file_read(
    paths: Sequence[str | PathLike[str]],
    *,
    framing: str,
    max_frame: int,
    decode: object,
    position: int,
    compression: str | None,
    local: bool,
) -> ByteSource[Any]: ...
def file_write(
    path: str | PathLike[str],
    *,
    framing: str | None,
    encode: Callable[[Any], object] | None,
    preamble: bytes | None = None,
    compression: str | None,
) -> ByteSink[Any]: ...
def file_write_by_key(
    path: str | PathLike[str],
    *,
    suffix: str,
    framing: str | None,
    encode: Callable[[Any], object] | None,
    preamble: bytes,
    max_open: int,
) -> KeyedSink[Any]: ...
def directory_read(
    path: str | PathLike[str],
    pattern: str,
    *,
    partitions: int,
    follow: float | None,
    framing: str,
    max_frame: int,
    decode: object,
    compression: str | None,
    local: bool,
) -> ByteSource[Any]: ...
def csv_read(
    paths: Sequence[str | PathLike[str]],
    *,
    dialect: tuple[str, str | None, bool | list[str]],
    max_record: int,
    compression: str | None,
    types: list[tuple[str, Callable[[str], object]]],
    row: Callable[..., Any] | None,
    local: bool,
) -> CsvSource[Any]: ...
def csv_directory(
    path: str | PathLike[str],
    pattern: str,
    *,
    partitions: int,
    follow: float | None,
    dialect: tuple[str, str | None, bool | list[str]],
    max_record: int,
    compression: str | None,
    types: list[tuple[str, Callable[[str], object]]],
    row: Callable[..., Any] | None,
    local: bool,
) -> CsvSource[Any]: ...
def journal_read(
    path: str | PathLike[str],
    *,
    start: int | None,
    time_ns: int | None,
    stop: int | None,
    follow: bool,
    cursor: str | None,
    decode: object,
    local: bool,
) -> ByteSource[Any]: ...
def journal_append(
    path: str | PathLike[str], *, encode: Callable[[Any], object] | None, sync: float | None
) -> ByteSink[Any]: ...
def kafka_message_time(message: KafkaMessage) -> float: ...
def kafka_read(
    servers: str,
    topics: Sequence[str],
    *,
    start: str | None,
    start_ms: int | None,
    offsets: Sequence[tuple[str, int, int]] | None,
    end: str | None,
    end_ms: int | None,
    group: str | None,
    settings: Sequence[tuple[str, str]],
    token: Callable[[], object] | None,
    values: bool,
    decode: object,
    decode_key: object,
) -> ByteSource[Any]: ...
def kafka_write(
    servers: str,
    topic: str,
    *,
    key: Callable[[Any], object] | None,
    encode: Callable[[Any], object] | None,
    exactly_once: bool,
    settings: Sequence[tuple[str, str]],
    token: Callable[[], object] | None,
    max_bytes: int | None,
    max_age: float | None,
) -> ByteSink[Any]: ...
def queue_read(
    place: str | PathLike[str], names: Sequence[str], *, decode: object, until_empty: bool
) -> ByteSource[Any]: ...
def outbox_sink(
    address: str,
    connect: Callable[[str, str, str, bool, Callable[[int, str], None]], object],
    *,
    remembers: bool,
    encode: Callable[[Any], object] | None,
    decode: Callable[[bytes], object] | None,
    retry: tuple[float, float, float, int | None],
    max_bytes: int,
    max_age: float | None,
    batch: int,
    batch_bytes: int,
    batch_age: float | None,
    compares: bool,
    wait_at_end: float,
) -> ByteSink[Any]: ...
def http_post(
    url: str | None,
    encode: Callable[[Any], object],
    *,
    body: str,
    parts: object,
    checks_json: bool,
    method: str,
    parallel: int,
    oauth: tuple[str, str, str, bool, list[tuple[str, str]]] | None,
    headers: list[tuple[str, str]],
    timeout: float,
    ca: str | PathLike[str] | None,
    retry: tuple[float, float, float, int | None],
    max_bytes: int,
    max_age: float | None,
    batch: int,
    wait_at_end: float,
) -> ByteSink[Any]: ...
def http_feed(
    address: str,
    encode: Callable[[Any], object],
    *,
    path: str,
    token: str | None,
    origins: list[str],
    max_client: int,
    max_connections: int,
    timeout: float,
    on_bound: Callable[[str], object] | None,
) -> ByteSink[Any]: ...
def queue_write(
    place: str | PathLike[str], name: str, *, encode: Callable[[Any], object] | None
) -> ByteSink[Any]: ...
def key_hash(key: object) -> int: ...
def cli_main(argv: Sequence[str | PathLike[str]]) -> int: ...

@final
class Interface:
    def __new__(
        cls,
        name: str,
        version: int,
        definitions: Sequence[tuple[Any, ...]],
        methods: Sequence[tuple[str, list[str], Sequence[tuple[Any, ...]]]],
    ) -> Interface: ...
    @property
    def id(self) -> int: ...
    @property
    def name(self) -> str: ...

@final
class Outlet:
    def __new__(
        cls,
        interface: Interface,
        path: str | PathLike[str],
        sync: float | None,
        followers: int,
        timeout: float,
    ) -> Outlet: ...
    def call(self, number: int, arguments: tuple[Any, ...]) -> None: ...
    def call_answered(
        self, number: int, arguments: tuple[Any, ...], out: str | PathLike[str], timeout: float
    ) -> tuple[Path, int, bool, str | None]: ...

@final
class Gateway:
    def __new__(
        cls,
        address: str,
        *,
        calls: Sequence[tuple[str, Sequence[Interface]]],
        answers: Sequence[tuple[str, str]],
        feeds: Sequence[str],
        states: Sequence[str],
        token: str | None,
        origins: Sequence[str],
        sync: float | None,
        max_body: int,
        idempotency_keep: float,
    ) -> Gateway: ...
    @property
    def address(self) -> str: ...
    def wait(self, limit: float) -> None: ...
    def stop(self) -> None: ...

@final
class Recorder:
    def __new__(cls) -> Recorder: ...
    @staticmethod
    def closed() -> Recorder: ...
    def open(self) -> None: ...
    def outlet(self, interface: Interface) -> Outlet: ...
    def take(self) -> list[str]: ...

@final
class Clock:
    """The recorded time: what a component may see, and a replay sees again."""

    def now_ns(self) -> int: ...
    def record(self) -> tuple[str, int] | None: ...

@final
class OneOffs:
    def __new__(cls, clock: Clock) -> OneOffs: ...
    def start(self, timer: str, name: str, length_ns: int) -> None: ...
    def cancel(self, timer: str, name: str) -> bool: ...

@final
class When:
    def __new__(cls, period_ns: int | None, at: str | None, zone: str, missed: str) -> When: ...

@final
class Trial:
    def __new__(cls) -> Trial: ...
    def clock(self) -> Clock: ...
    def timer(self, name: str, when: When | None, method: Callable[..., object]) -> None: ...
    def advance_to(self, at_ns: int) -> None: ...
    def pause(self, by_ns: int) -> None: ...

@final
class Service:
    def __new__(
        cls,
        out: str | PathLike[str] | None,
        sync: float | None = None,
        retain: tuple[int | None, float | None, bool] = ...,
    ) -> Service: ...
    @staticmethod
    def replaying(out: str | PathLike[str] | None) -> Service: ...
    @property
    def is_recorded(self) -> bool: ...
    def outlet(self, interface: Interface) -> Outlet: ...
    def clock(self) -> Clock: ...
    def run(
        self,
        inputs: Sequence[tuple[str | PathLike[str], Interface, Sequence[Callable[..., object]]]],
        timers: Sequence[tuple[str, When | None, Callable[..., object], Sequence[str]]],
        stopper: Stopper,
        *,
        wait: str = "block",
        on_error: str = "fail",
        dead_letters: str | PathLike[str] | None = None,
        on_difference: str = "fail",
        accept_differences: int = 0,
        rebuild: bool = True,
        snapshots: tuple[int, int, Callable[[], bytes], Callable[[bytes, int], str | None]] | None = None,
        own: Sequence[tuple[Interface, Sequence[Callable[..., object]]]] = ...,
        queries: Sequence[tuple[str, Callable[[str], tuple[str, str]]]] = ...,
        drain: bool = False,
        until: int | None = None,
        skip_pruned: bool = False,
        followers: int = 0,
        meter: Meter | None = None,
        cores: Sequence[int] = ...,
    ) -> tuple[int, int, int, int]: ...

@final
class Meter:
    def __new__(cls) -> Meter: ...
    def wait_for(self, path: str | None) -> None: ...

@final
class Reporter:
    def __new__(
        cls, name: str, inputs: Sequence[str], folder: str | PathLike[str], meter: Meter
    ) -> Reporter: ...
    def check(self) -> None: ...
    def end(self) -> None: ...

def service_ask(output: str | PathLike[str], query: str, arguments: str, timeout: float) -> str: ...
def service_test(
    folder: str | PathLike[str],
    inputs: Sequence[Interface],
    outputs: Sequence[Interface],
    update: bool,
    agitate: bool,
    variant: str | None,
    make: Callable[[Recorder, Clock], object],
) -> tuple[int, list[tuple[PathLike[str], str]], list[PathLike[str]], int]: ...
def service_variants(folder: str | PathLike[str], inputs: Sequence[Interface]) -> list[str]: ...
def service_has_input(path: str | PathLike[str]) -> bool: ...
def service_export(path: str | PathLike[str], first: int, last: int | None) -> str: ...
def service_history(
    path: str | PathLike[str], sequence: int, folders: Sequence[str | PathLike[str]] = ...
) -> list[tuple[str, int, str, str | None]]: ...
def service_latency(
    path: str | PathLike[str], first: int, last: int | None, folders: Sequence[str | PathLike[str]]
) -> str: ...
