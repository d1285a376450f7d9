"""``ms.source``: a generator function becomes a source."""

from __future__ import annotations

import inspect
from contextvars import Context, copy_context
from dataclasses import replace
from functools import partial
from typing import Generic, ParamSpec

from ..._errors.flow import FlowUsageError, show
from ..._values.backoff import Backoff
from ..._values.checked import checked
from ..._values.types import T_co
from ..durable import Keep, durable as recorded, retention_of
from ..io import Source
from .dedupe import Dedupe, deduplicated
from .options import BUFFER_BYTES, BUFFER_ITEMS, Options

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
    from typing import Any, Literal, Protocol, TypeAlias, TypedDict, overload

    from typing_extensions import Unpack

    from ..._millstream import SourceIo
    from ..._streams.streams import Stream
    from ..._values.types import AnySource, U
    from .item import At
    from .reader import Reader

    Yields: TypeAlias = AsyncIterator[U] | Iterator[U]

    class Reading(TypedDict, total=False):
        """The options of :func:`source` that do not change the type of its function."""

        durable: bool
        keep: Keep
        resume: bool
        partitions: Sequence[str] | None
        retry: Backoff | None
        ack: bool
        dedupe: Dedupe | None
        buffer: int
        buffer_bytes: int

    class Items(Protocol):
        """The decorator of functions that yield items."""

        @overload
        def __call__(self, function: Callable[P, Yields[At[U]]], /) -> SourceFunction[P, U]: ...
        @overload
        def __call__(self, function: Callable[P, Yields[U]], /) -> SourceFunction[P, U]: ...

    class Batches(Protocol):
        """The decorator of functions that yield lists of items."""

        @overload
        def __call__(self, function: Callable[P, Yields[At[list[U]]]], /) -> SourceFunction[P, U]: ...
        @overload
        def __call__(self, function: Callable[P, Yields[list[U]]], /) -> SourceFunction[P, U]: ...


P = ParamSpec("P")
CLOSE_SECONDS = 5.0
"""How long the end of a flow waits for acknowledgements, and then for generators to end."""

LATE_SECONDS = 0.1
"""The same after a generator of the source that did not end in that time."""


class SourceFunction(Source[T_co], Generic[P, T_co]):
    """A source whose partitions are generators, as ``ms.source`` makes it.

    A call with arguments returns the same source with these arguments for its function.

    Args:
        function: the generator function.
        options: the options of ``ms.source``.
        args: arguments of the function by position.
        kwargs: arguments of the function by name.

    Example:
        >>> import millstream as ms
        >>> @ms.source
        ... async def countdown(start: int):
        ...     for number in range(start, 0, -1):
        ...         yield number
        >>> flow, out = ms.Flow("countdown"), ms.testing.collect()
        >>> flow.source("numbers", countdown(3)).sink("out", out)
        >>> _ = ms.run(flow)
        >>> out
        [3, 2, 1]
    """

    def __init__(
        self,
        function: Callable[..., Any],
        options: Options,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> None:
        self.function = function
        self._options = options
        self._args = args
        self._kwargs = kwargs or {}
        # What follows belongs to one flow, for which `_for_flow` makes a copy.
        self._context = Context()
        # The readers of the current run, if commits notify them.
        self._notified: dict[str, Reader] | None = None
        self._close_seconds = CLOSE_SECONDS

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> SourceFunction[P, T_co]:
        return SourceFunction(self.function, self._options, args, dict(kwargs))

    def __repr__(self) -> str:
        name = f"<source {self._options.name}>"
        return f"<durable {name}>" if self._options.durable else name

    def partitions(self, *args: Any, **kwargs: Any) -> list[str]:
        """Returns the names of the partitions.

        Args:
            args: unused.
            kwargs: unused.

        Returns:
            The names.

        Example:
            >>> import millstream as ms
            >>> @ms.source(partitions=["a", "b"])
            ... async def pages(partition: str):
            ...     yield partition
            >>> pages.partitions()
            ['a', 'b']
        """
        return ["0"] if self._options.partitions is None else list(self._options.partitions)

    def open(self, partition: str, position: Any, io: SourceIo) -> Reader:
        """Starts the generator of a partition; the engine calls this.

        Args:
            partition: the name of the partition.
            position: the position at the last commit, or None.
            io: wakes the worker.

        Returns:
            What reads the partition.

        Example:
            >>> import millstream as ms
            >>> @ms.source
            ... def one():
            ...     yield 1
            >>> flow, out = ms.Flow("one"), ms.testing.collect()
            >>> flow.source("in", one).sink("out", out)
            >>> _ = ms.run(flow)
            >>> out
            [1]
        """
        # Asyncio is imported when a flow needs it.
        from .reader import Reader

        reader = Reader(
            partial(self._call, partition),
            self._options,
            position,
            io,
            self._context,
            self._notified is not None,
            self._closed,
        )
        self._close_seconds = CLOSE_SECONDS
        if self._notified is not None:
            self._notified[partition] = reader
        return reader

    def _call(self, partition: str, position: Any) -> Any:
        """Calls the function, which starts it at a position."""
        given = dict(self._kwargs)
        if self._options.resume:
            given["resume"] = position
        if self._options.partitions is not None:
            given["partition"] = partition
        return self.function(*self._args, **given)

    def durable(self, keep: Keep = None) -> SourceFunction[P, T_co]:  # type: ignore[override]
        """Returns this source with its input recorded before it is processed, as ``durable=True`` does.

        Args:
            keep: for how long recorded input is retained when no epoch needs it.

        Returns:
            The durable source.

        Raises:
            FlowUsageError: ``keep`` is neither a time nor a size.

        Example:
            >>> import millstream as ms
            >>> @ms.source
            ... def one():
            ...     yield 1
            >>> one.durable(keep="7d")
            <durable <source one>>
        """
        retention_of(keep)
        return self._with(durable=True, keep=keep)

    def _with(self, **options: Any) -> SourceFunction[P, T_co]:
        """The same source with other options."""
        changed = replace(self._options, **options)
        return SourceFunction(self.function, changed, self._args, self._kwargs)

    @property
    def _undecoded(self) -> bool:
        """Whether items may be ``Undecoded``, on which the engine acts by ``on_error``."""
        return self._options.undecoded

    def _for_flow(self) -> SourceFunction[P, T_co]:
        """A copy for one flow, whose generators run in the context of the caller."""
        self._check_arguments()
        copy: SourceFunction[P, T_co] = SourceFunction(self.function, self._options, self._args, self._kwargs)
        copy._context = copy_context()
        return copy

    def _add_to_flow(self, name: str, add: Callable[[AnySource[T_co]], Stream[T_co]]) -> Stream[T_co]:
        """Adds this source to a flow, as ``Flow.source`` does; ``add`` adds it to the engine's."""
        source = self._for_flow()
        options = self._options
        stream = add(recorded(source, options.keep) if options.durable else source)
        return stream if options.dedupe is None else deduplicated(stream, name, options.dedupe)

    def _check_arguments(self) -> None:
        """Raises TypeError if a call of the function would."""
        try:
            given = dict(self._kwargs)
            given |= {"resume": None} if self._options.resume else {}
            given |= {"partition": ""} if self._options.partitions is not None else {}
            inspect.signature(self.function).bind(*self._args, **given)
        except TypeError as error:
            raise TypeError(f"source function {self._options.name}: {error}") from None

    def _begin(self, name: str) -> None:
        """A run with a state directory begins, in which the source is not durable."""
        self._notified = {}
        if not self._options.resume and not self._options.ack:
            import logging

            logging.getLogger("millstream.flow.source").warning(
                'source "%s": it neither resumes nor is durable, so that items that are not committed are '
                "lost if the flow is killed",
                name,
                extra={"source": name},
            )

    def commit(self, positions: dict[str, tuple[int, Any]]) -> None:
        """An epoch is committed; the engine calls this.

        Args:
            positions: the positions of the partitions in it.

        Example:
            >>> import millstream as ms
            >>> @ms.source
            ... def one():
            ...     yield 1
            >>> one.commit({})
        """
        readers = self._notified or {}
        # A partition that is not open may have the position of another kind of source.
        for partition, position in positions.items():
            if partition in readers:
                readers[partition].release(position[0])

    def _closed(self, reader: Reader) -> None:
        """A worker has closed a partition. In a run that notifies of commits the last one follows, and its
        acknowledgements need the generator."""
        if self._notified is None:
            self._close([reader])

    def _end(self) -> None:
        """The run has made its last commit."""
        readers = self._notified or {}
        self._notified = None
        self._close(readers.values())

    def _close(self, readers: Collection[Reader]) -> None:
        from .reader import close_readers

        if not close_readers(readers, self._close_seconds):
            self._close_seconds = LATE_SECONDS


if TYPE_CHECKING:

    @overload
    def source(function: Callable[P, Yields[At[U]]], /) -> SourceFunction[P, U]: ...
    @overload
    def source(function: Callable[P, Yields[U]], /) -> SourceFunction[P, U]: ...
    @overload
    def source(
        *,
        batches: Literal[True],
        **options: Unpack[Reading],
    ) -> Batches: ...
    @overload
    def source(
        *,
        batches: Literal[False] = False,
        **options: Unpack[Reading],
    ) -> Items: ...


@checked
def source(
    function: Callable[..., Any] | None = None,
    /,
    *,
    durable: bool = False,
    keep: Keep = None,
    resume: bool = False,
    partitions: Sequence[str] | None = None,
    retry: Backoff | None = None,
    ack: bool = False,
    dedupe: Dedupe | None = None,
    batches: bool = False,
    buffer: int = BUFFER_ITEMS,
    buffer_bytes: int = BUFFER_BYTES,
) -> Any:
    """Makes a source of a generator function, asynchronous or not. The decorator takes options or none.

    Asynchronous generators of a process run on one event loop; others on a thread each. The generator is
    asked for no further item while its buffer is full.

    Args:
        function: the generator function.
        durable: whether items are recorded in the state directory before they are processed.
        keep: for how long recorded items are retained when no epoch needs them; see ``Source.durable``.
        resume: whether the function receives ``resume``, the last position that was committed or None, and
            yields ``ms.At(position, item)``.
        partitions: the names of the partitions; the function is called for each, with its ``partition``.
        retry: the delays after which a function that fails is called again, except with a :class:`FlowError`.
            None: its failure ends the flow.
        ack: whether the function yields ``ms.At(position, item, ack)``. An ``ack`` is called when the item is
            recorded (durable), or its epoch committed (with a state directory), or passed on (without).
        dedupe: a :class:`Dedupe`, by which items are dropped that came before. With a state directory it
            remembers keys over restarts. All items pass through one worker.
        batches: whether the function yields lists, and steps receive their items.
        buffer: how many items are buffered for a partition before the generator waits.
        buffer_bytes: the same in bytes, as ``sys.getsizeof`` counts those of each item.

    Returns:
        A :class:`SourceFunction`.

    Raises:
        TypeError: ``function`` is no generator function, or an option has the wrong type.
        FlowUsageError: ``buffer``, ``buffer_bytes`` or the partitions are empty, partitions repeat, or
            ``keep`` is given without ``durable``.

    Example:
        >>> import asyncio
        >>> import millstream as ms
        >>> @ms.source(resume=True)
        ... async def ticks(count: int, resume: int | None = None):
        ...     for number in range(resume or 0, count):
        ...         await asyncio.sleep(0)
        ...         yield ms.At(number + 1, f"tick {number}")
        >>> flow, out = ms.Flow("ticks"), ms.testing.collect()
        >>> flow.source("ticks", ticks(3)).sink("out", out)
        >>> _ = ms.run(flow)
        >>> out
        ['tick 0', 'tick 1', 'tick 2']
    """
    if buffer < 1 or buffer_bytes < 1:
        raise FlowUsageError(f"buffer and buffer_bytes are 1 or more, not {buffer!r} and {buffer_bytes!r}")
    if partitions is not None and (not partitions or len(set(partitions)) < len(partitions)):
        raise FlowUsageError(f"partitions is a list of different names, at least one, not {partitions!r}")
    if keep is not None and not durable:
        raise FlowUsageError("keep applies to durable=True only")
    retention_of(keep)

    def decorate(function: Callable[..., Any]) -> SourceFunction[..., Any]:
        asynchronous = inspect.isasyncgenfunction(function)
        if not asynchronous and not inspect.isgeneratorfunction(function):
            raise TypeError(f"ms.source takes a generator function, which yields items, not {show(function)}")
        name = getattr(function, "__name__", type(function).__name__)
        names = None if partitions is None else tuple(partitions)
        options = Options(
            name,
            asynchronous,
            durable,
            keep,
            resume,
            names,
            retry,
            ack,
            dedupe,
            batches,
            buffer,
            buffer_bytes,
        )
        return SourceFunction(function, options)

    return decorate if function is None else decorate(function)
