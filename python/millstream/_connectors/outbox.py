"""Sinks to external systems: ``ms.sink``."""

from __future__ import annotations

import functools
import inspect
import re
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar, cast, overload

from .. import _millstream
from .._errors.flow import FlowError, FlowUsageError
from .._values.backoff import Backoff
from .._values.checked import checked, public_name
from .._values.durations import seconds, seconds_or_none
from .durable import retention_of
from .io import Sink

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import ParamSpec, TypedDict

    from typing_extensions import Unpack

    from .._values.durations import Seconds

    P = ParamSpec("P")
    U = TypeVar("U")

    class OutboxOptions(TypedDict, total=False):
        """The options of an outbox, as :func:`sink` has them."""

        retry: Backoff | None
        max_bytes: int | str
        max_age: Seconds | None
        batch: int
        batch_bytes: int | str
        batch_age: Seconds | None
        wait_at_end: Seconds

    class SinkOptions(OutboxOptions, total=False):
        """The options of :func:`sink`."""

        encode: Callable[[Any], object] | None
        decode: Callable[[bytes], Any] | None


T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)


OPTIONS = ("retry", "max_bytes", "max_age", "batch", "batch_bytes", "batch_age", "wait_at_end")
"""The options of an outbox."""


def refused(number: int, reason: str) -> None:
    """Fails with an item that is refused: what ``leave_out`` does where none is skipped."""
    raise FlowError(f"record {number} is refused: {reason}")


@dataclass(frozen=True)
class OutboxIdentity:
    """The identity of an outbox, as the method ``connect`` of a destination receives it.

    Args:
        flow: the name of the flow.
        sink: the name of the sink.
        id: 32 hexadecimal digits, set when the outbox is created. Copies of a state directory share them.
        skips_refused: whether the sink skips items that the destination refuses, or makes dead letters of
            them, by ``on_error`` of ``Stream.sink``.
        leave_out: if so, ``write`` may write the other items of a batch and call this function with the
            number and the reason of each that is refused, in place of raising :class:`Refused`; and before it
            stores its position: a dead letter is kept durably when the function returns. It raises FlowError
            if refused items are not skipped, or the item is none of the batch.

    Example:
        >>> import millstream as ms
        >>> ms.OutboxIdentity("orders", "table", "00" * 16).sink
        'table'
    """

    flow: str
    sink: str
    id: str
    skips_refused: bool = False
    leave_out: Callable[[int, str], None] = field(default_factory=lambda: refused)


class Writes(Protocol[T]):
    """What an object needs to be a destination."""

    def write(self, batch: list[T], first: int, last: int) -> object: ...


class OutboxSink(Sink[T_contra], Generic[T_contra]):
    """A sink to an external system, made by :func:`sink`: pass it to ``Stream.sink``.

    Example:
        >>> import millstream as ms
        >>> @ms.sink
        ... def show(batch: list[int], first: int, last: int) -> None:
        ...     print(first, last, batch)
        >>> show
        <sink show>
        >>> show.write([7], 0, 0)
        0 0 [7]
    """

    def __init__(self, name: str, write: Callable[..., object], outbox: _millstream.ByteSink[Any]) -> None:
        self._name = name
        self._write = write
        self._outbox = outbox

    def write(self, batch: list[T_contra], first: int, last: int) -> object:
        """Calls the destination's ``write`` directly, for a test of its own.

        Args:
            batch: the items.
            first: the number of the first item.
            last: the number of the last item.

        Returns:
            What the function returns: a coroutine if it is asynchronous.

        Raises:
            FlowUsageError: the destination is a class; create an object of it in the test.

        Example:
            >>> import millstream as ms
            >>> ms.sink(lambda batch, first, last: print(batch)).write(["a"], 0, 0)
            ['a']
        """
        return self._write(batch, first, last)

    def __repr__(self) -> str:
        return f"<sink {self._name}>"


class _Function:
    """The destination that a function is."""

    def __init__(self, write: Callable[..., object]) -> None:
        self.write = write


@overload
def sink(
    write: Callable[P, Writes[T]],
    **options: Unpack[SinkOptions],
) -> Callable[P, OutboxSink[T]]: ...
@overload
def sink(
    write: Callable[[list[T], int, int], Awaitable[object] | None],
    **options: Unpack[SinkOptions],
) -> OutboxSink[T]: ...
@overload
def sink(
    write: None = None,
    **options: Unpack[SinkOptions],
) -> _Decorator: ...
@checked
def sink(
    write: Any = None,
    *,
    encode: Callable[[Any], object] | None = None,
    decode: Callable[[bytes], Any] | None = None,
    retry: Backoff | None = None,
    max_bytes: int | str = "1GiB",
    max_age: Seconds | None = None,
    batch: int = 1000,
    batch_bytes: int | str = "1MiB",
    batch_age: Seconds | None = None,
    wait_at_end: Seconds = 60.0,
) -> Any:
    """Makes a sink to an external system of a function ``write(batch, first, last)``, or of a class with it.

    In a run with a state directory the output is kept there, in an *outbox*, and delivered after its epoch
    is committed. Items are numbered from 0 in the order of delivery, without gaps; a repeated item has the
    number that it had before. A function receives each item at least once. A class with a method
    ``position``, which returns the number of the last item that the destination has (None: it has none),
    receives each item exactly once. Without a state directory each item is delivered at least once while
    the run lasts.

    A class is instantiated for each connection: at the start, and again after each exception. Its optional
    methods are ``connect(outbox)``, which receives an :class:`OutboxIdentity` before the first call, and
    ``close()``. All functions and methods may be asynchronous. They are called on one thread, one after the
    other.

    A delivery is repeated after OSError (also ConnectionError and TimeoutError) and :class:`RetryLater`.
    After :class:`Refused` the batch is halved until the refused item is alone; that one fails the flow, is
    skipped or becomes a dead letter, as ``on_error`` of ``Stream.sink`` says. A class that knows which items
    are refused may write the others, and leave these out: see :class:`OutboxIdentity`.
    Any other exception fails the flow; the items stay in the outbox.

    Args:
        write: the function or class. None: returns a decorator.
        encode: makes bytes or text of an item for the outbox. None: items are saved as states are.
        decode: makes an item of these bytes. None: ``write`` receives the bytes where ``encode`` is given.
        retry: the delays after failed attempts. None: ``Backoff()``, from 0.1 s to 30 s, without end.
        max_bytes: sources pause while more waits: a number of bytes, or text such as ``"1GiB"``.
        max_age: sources pause while an older item waits.
        batch: the largest number of items in a delivery.
        batch_bytes: a delivery ends at the item with which it has so many bytes: a number, or text as for
            ``max_bytes``.
        batch_age: a delivery that is not full waits until its oldest item has this age, so that it has the
            items of several epochs; at the end of a run, and while sources pause, none waits. None: committed
            items are delivered as soon as possible.
        wait_at_end: how long a flow whose sources have ended waits for a destination that fails. Without a
            state directory this, ``max_bytes``, ``max_age`` and ``batch_age`` have no effect: a worker waits
            for each delivery, as often as ``retry`` says.

    Returns:
        The sink for a function. For a class, a function with the same arguments that returns the sink.

    Raises:
        FlowUsageError: there is no ``write``, or an option has a wrong value.

    Example:
        >>> import millstream as ms
        >>> from tempfile import TemporaryDirectory
        >>> table = []
        >>> @ms.sink(batch=2)
        ... class Table:
        ...     def write(self, batch, first, last):
        ...         table.extend(zip(range(first, last + 1), batch))
        ...     def position(self):
        ...         return table[-1][0] if table else None
        >>> flow = ms.Flow("letters")
        >>> flow.source("in", ms.testing.items("abc")).sink("out", Table())
        >>> with TemporaryDirectory() as folder:
        ...     report = ms.run(flow, state=folder)
        >>> table, report.outboxes[0]["delivered_records"]
        ([(0, 'a'), (1, 'b'), (2, 'c')], 3)
    """
    if decode is not None and encode is None:
        raise FlowUsageError("decode needs encode: the one reads what the other writes")
    retry = Backoff() if retry is None else retry
    options = {
        "encode": encode,
        "decode": decode,
        "retry": retry._parts(),
        "max_bytes": _size(max_bytes),
        "max_age": seconds_or_none("max_age", max_age, 0),
        "batch": _records(batch),
        "batch_bytes": _batch_size(batch_bytes),
        "batch_age": seconds_or_none("batch_age", batch_age, 0),
        "wait_at_end": seconds("wait_at_end", wait_at_end, 0),
    }
    if write is None:
        return functools.partial(_make, options=options)
    return _make(write, options)


def destination(name: str, made: type[Any], **outbox: Unpack[SinkOptions]) -> Callable[..., OutboxSink[Any]]:
    """What makes a sink with an outbox, whose destination receives the arguments.

    Args:
        name: what the sink is called in messages.
        made: the class of the destination.
        outbox: the options of its outbox.
    """
    make: Callable[..., OutboxSink[Any]] = sink(type(name, (made,), {}), **outbox)
    return make


def with_outbox(**defaults: Unpack[OutboxOptions]) -> Callable[[Callable[P, U]], Callable[P, U]]:
    """A decorator of functions that make sinks with an outbox, whose options they have as ``**outbox``.

    They show these options, with the descriptions of :func:`sink` and these defaults.
    """

    def decorate(write: Callable[P, U]) -> Callable[P, U]:
        signature = inspect.signature(write)
        *own, _ = signature.parameters.values()
        options = [
            each.replace(default=defaults.get(each.name, each.default))
            for each in inspect.signature(sink).parameters.values()
            if each.name in OPTIONS
        ]
        shown = signature.replace(parameters=[*own, *options])

        @functools.wraps(write)
        def make(*args: P.args, **given: P.kwargs) -> U:
            for name in given:
                if name not in shown.parameters:
                    raise TypeError(f"{public_name(write)}() got an unexpected keyword argument {name!r}")
            made: Any = {**defaults, **given}
            return write(*args, **made)

        before, returns, after = inspect.cleandoc(write.__doc__ or "").partition("\n\nReturns:")
        about = inspect.cleandoc(sink.__doc__ or "")
        lines = re.findall(rf"^    (?:{'|'.join(OPTIONS)}): .*\n(?:     .*\n)*", about, re.MULTILINE)
        make.__doc__ = "\n".join([before, "".join(lines).rstrip() + returns + after])
        make.__signature__ = shown  # type: ignore[attr-defined]
        return checked(make)

    return decorate


class _Decorator(Protocol):
    @overload
    def __call__(self, write: Callable[P, Writes[T]], /) -> Callable[P, OutboxSink[T]]: ...
    @overload
    def __call__(
        self, write: Callable[[list[T], int, int], Awaitable[object] | None], /
    ) -> OutboxSink[T]: ...


def _make(target: Any, options: dict[str, Any]) -> Any:
    if inspect.isclass(target):
        return _of_class(target, options)
    if not callable(target):
        raise FlowUsageError(f"ms.sink takes a function write(batch, first, last) or a class, not {target!r}")
    _check_arguments(target, getattr(target, "__name__", repr(target)))
    name = getattr(target, "__name__", type(target).__name__)
    engine = _engine(name, lambda: _Function(target), [target, type(target).__call__], False, options)
    made: OutboxSink[Any] = OutboxSink(name, target, engine)
    return functools.update_wrapper(cast(Any, made), target, updated=())


def _of_class(target: type[Any], options: dict[str, Any]) -> Callable[..., OutboxSink[Any]]:
    name = target.__name__
    if not callable(getattr(target, "write", None)):
        raise FlowUsageError(f"{name} has no method write(batch, first, last)")
    methods = [getattr(target, verb, None) for verb in ("write", "position", "connect", "close")]

    def no_object(*_: object) -> object:
        raise FlowUsageError(f"{name} is a class: create an object of {name}.__wrapped__ to call its write")

    @functools.wraps(target, updated=())
    def make(*args: Any, **kwargs: Any) -> OutboxSink[Any]:
        # A wrong argument is an error here, and not on the thread that connects.
        inspect.signature(target).bind(*args, **kwargs)
        remembers = callable(methods[1])
        compares = bool(getattr(target, "_compares", False))
        engine = _engine(name, lambda: target(*args, **kwargs), methods, remembers, options, compares)
        return OutboxSink(name, no_object, engine)

    return make


def _engine(
    name: str,
    make: Callable[[], Any],
    methods: list[Any],
    remembers: bool,
    options: dict[str, Any],
    compares: bool = False,
) -> _millstream.ByteSink[Any]:
    is_async = any(map(inspect.iscoroutinefunction, methods))

    def connect(
        flow: str, sink: str, id: str, skips_refused: bool, leave_out: Callable[[int, str], None]
    ) -> object:
        from .destination import Connection

        return Connection(make, OutboxIdentity(flow, sink, id, skips_refused, leave_out), is_async)

    return _millstream.outbox_sink(name, connect, remembers=remembers, compares=compares, **options)


def _check_arguments(write: Callable[..., object], name: str) -> None:
    try:
        signature = inspect.signature(write)
    except (TypeError, ValueError):
        return
    try:
        signature.bind([], 0, 0)
    except TypeError:
        raise FlowUsageError(f"{name} takes other arguments than (batch, first, last)") from None


def _size(max_bytes: int | str, name: str = "max_bytes") -> int:
    """A number of bytes.

    >>> _size("1MiB")
    1048576
    """
    try:
        everything, size, _ = retention_of(max_bytes)
    except FlowUsageError:
        everything = False
        size = None
    if everything or size is None:
        raise FlowUsageError(f'{name} is a number of bytes or a size like "1GiB", not {max_bytes!r}')
    return size


def _batch_size(batch_bytes: int | str) -> int:
    size = _size(batch_bytes, "batch_bytes")
    if not 1 <= size <= 1 << 30:
        raise FlowUsageError(f'batch_bytes is from 1 to "1GiB", not {batch_bytes!r}')
    return size


def _records(batch: int) -> int:
    if not 1 <= batch < 1 << 32:
        raise FlowUsageError(f"batch is a number of items, from 1, not {batch!r}")
    return batch
