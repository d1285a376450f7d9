"""The verbs of streams with and without keys that call a function with each item, or each batch."""

from __future__ import annotations

from typing import Any, overload

from .._values.types import Kind_co, T_co
from . import kernels as _kernels
from .arguments import callable_or_raise
from .base import Base

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import TypeGuard

    from typing_extensions import TypeIs

    from .._values.types import AnyKey, OnError, U
    from .base import Keyed, Plain, Same
    from .streams import KeyedStream, Stream


class StepVerbs(Base[Kind_co, T_co]):
    """The verbs of both kinds of streams that call a function. The items of a keyed stream are its values."""

    __slots__ = ()

    def _each(
        self,
        kind: str,
        f: Callable[[Any], Any],
        plain: Callable[[Callable[[Any], Any], bool], Any],
        produce: Callable[[Callable[[Any], Any]], Callable[[Any], Any]],
        name: str | None,
        on_error: OnError,
    ) -> Same:
        """A step that calls ``f`` with each item.

        ``plain`` makes its kernel. Keys and times are beside the items: where a step may drop items, they are
        found by position, and the kernel is made of ``produce``.
        """
        callable_or_raise(kind, f)
        tolerant = on_error != "fail"
        pipe, placed = self._joined()
        if (self._keyed or self._timed) and (tolerant or kind not in ("map", "inspect")):
            shape = "produce"
            kernel = _kernels.keyed(produce(f), tolerant)
        else:
            shape = "values"
            kernel = plain(f, tolerant)
        return self._same(pipe.step(kind, name or "", shape, kernel, on_error), placed, self._timed)

    @overload
    def map(
        self: Plain[T_co], f: Callable[[T_co], U], name: str | None = None, on_error: OnError = "fail"
    ) -> Stream[U]: ...
    @overload
    def map(
        self: Keyed[AnyKey, T_co], f: Callable[[T_co], U], name: str | None = None, on_error: OnError = "fail"
    ) -> KeyedStream[AnyKey, U]: ...
    def map(self, f: Callable[[Any], Any], name: str | None = None, on_error: OnError = "fail") -> Same:
        """Makes one item of each item.

        Args:
            f: is called with each item and returns the new item.
            name: the name of the step in errors and metrics.
            on_error: what happens to an item on which ``f`` raises: ``"fail"``, ``"skip"`` or a
                :class:`millstream.dead_letter`.

        Returns:
            The stream of the new items.

        Raises:
            FlowUsageError: ``f`` is not callable.

        Example:
            >>> import millstream as ms
            >>> flow, out, pairs = ms.Flow("example"), ms.testing.collect(), ms.testing.collect()
            >>> numbers = flow.source("in", ms.testing.items([1, 2]))
            >>> numbers.map(lambda n: n * 10).sink("out", out)
            >>> numbers.key_by(str).map(lambda n: n * 10).sink("pairs", pairs)
            >>> _ = ms.run(flow)
            >>> out, pairs
            ([10, 20], [('1', 10), ('2', 20)])
        """
        return self._each("map", f, _kernels.map_values, _kernels.one, name, on_error)

    @overload
    def filter(
        self: Plain[T_co], f: Callable[[T_co], TypeIs[U]], name: str | None = None, on_error: OnError = "fail"
    ) -> Stream[U]: ...
    @overload
    def filter(
        self: Plain[T_co],
        f: Callable[[T_co], TypeGuard[U]],
        name: str | None = None,
        on_error: OnError = "fail",
    ) -> Stream[U]: ...
    @overload
    def filter(
        self: Plain[T_co], f: Callable[[T_co], object], name: str | None = None, on_error: OnError = "fail"
    ) -> Stream[T_co]: ...
    @overload
    def filter(
        self: Keyed[AnyKey, T_co],
        f: Callable[[T_co], TypeIs[U]],
        name: str | None = None,
        on_error: OnError = "fail",
    ) -> KeyedStream[AnyKey, U]: ...
    @overload
    def filter(
        self: Keyed[AnyKey, T_co],
        f: Callable[[T_co], TypeGuard[U]],
        name: str | None = None,
        on_error: OnError = "fail",
    ) -> KeyedStream[AnyKey, U]: ...
    @overload
    def filter(
        self: Keyed[AnyKey, T_co],
        f: Callable[[T_co], object],
        name: str | None = None,
        on_error: OnError = "fail",
    ) -> KeyedStream[AnyKey, T_co]: ...
    def filter(self, f: Callable[[Any], object], name: str | None = None, on_error: OnError = "fail") -> Same:
        """Keeps the items for which ``f`` is true.

        Args:
            f: is called with each item.
            name: the name of the step in errors and metrics.
            on_error: what happens to an item on which ``f`` raises: ``"fail"``, ``"skip"`` or a
                :class:`millstream.dead_letter`.

        Returns:
            The stream of the items that are kept.

        Raises:
            FlowUsageError: ``f`` is not callable.

        Example:
            >>> import millstream as ms
            >>> flow, out = ms.Flow("example"), ms.testing.collect()
            >>> flow.source("in", ms.testing.items([1, 2, 3])).filter(lambda n: n > 1).sink("out", out)
            >>> _ = ms.run(flow)
            >>> out
            [2, 3]
        """
        return self._each("filter", f, _kernels.filter_values, _kernels.where, name, on_error)

    @overload
    def flat_map(
        self: Plain[T_co],
        f: Callable[[T_co], Iterable[U]],
        name: str | None = None,
        on_error: OnError = "fail",
    ) -> Stream[U]: ...
    @overload
    def flat_map(
        self: Keyed[AnyKey, T_co],
        f: Callable[[T_co], Iterable[U]],
        name: str | None = None,
        on_error: OnError = "fail",
    ) -> KeyedStream[AnyKey, U]: ...
    def flat_map(
        self, f: Callable[[Any], Iterable[Any]], name: str | None = None, on_error: OnError = "fail"
    ) -> Same:
        """Makes any number of items of each item.

        Args:
            f: is called with each item and returns an iterable of new items.
            name: the name of the step in errors and metrics.
            on_error: what happens to an item on which ``f`` raises: ``"fail"``, ``"skip"`` or a
                :class:`millstream.dead_letter`.

        Returns:
            The stream of the new items, in order.

        Raises:
            FlowUsageError: ``f`` is not callable.

        Example:
            >>> import millstream as ms
            >>> flow, out = ms.Flow("words"), ms.testing.collect()
            >>> lines = flow.source("lines", ms.testing.items(["to be", "or not"]))
            >>> lines.flat_map(str.split).sink("out", out)
            >>> _ = ms.run(flow)
            >>> out
            ['to', 'be', 'or', 'not']
        """
        return self._each("flat_map", f, _kernels.flat_map_values, _kernels.all_of, name, on_error)

    @overload
    def filter_map(
        self: Plain[T_co], f: Callable[[T_co], U | None], name: str | None = None, on_error: OnError = "fail"
    ) -> Stream[U]: ...
    @overload
    def filter_map(
        self: Keyed[AnyKey, T_co],
        f: Callable[[T_co], U | None],
        name: str | None = None,
        on_error: OnError = "fail",
    ) -> KeyedStream[AnyKey, U]: ...
    def filter_map(
        self, f: Callable[[Any], Any], name: str | None = None, on_error: OnError = "fail"
    ) -> Same:
        """Makes one item of each item, or none where ``f`` returns None.

        Args:
            f: is called with each item and returns the new item, or None.
            name: the name of the step in errors and metrics.
            on_error: what happens to an item on which ``f`` raises: ``"fail"``, ``"skip"`` or a
                :class:`millstream.dead_letter`.

        Returns:
            The stream of the new items.

        Raises:
            FlowUsageError: ``f`` is not callable.

        Example:
            >>> import millstream as ms
            >>> flow, out = ms.Flow("example"), ms.testing.collect()
            >>> stream = flow.source("in", ms.testing.items(["1", "x", "2"]))
            >>> stream.filter_map(lambda text: int(text) if text.isdigit() else None).sink("out", out)
            >>> _ = ms.run(flow)
            >>> out
            [1, 2]
        """
        return self._each("filter_map", f, _kernels.filter_map_values, _kernels.some, name, on_error)

    @overload
    def inspect(
        self: Plain[T_co], f: Callable[[T_co], object], name: str | None = None, on_error: OnError = "fail"
    ) -> Stream[T_co]: ...
    @overload
    def inspect(
        self: Keyed[AnyKey, T_co],
        f: Callable[[T_co], object],
        name: str | None = None,
        on_error: OnError = "fail",
    ) -> KeyedStream[AnyKey, T_co]: ...
    def inspect(
        self, f: Callable[[Any], object], name: str | None = None, on_error: OnError = "fail"
    ) -> Same:
        """Calls ``f`` with each item and passes the item on unchanged.

        Args:
            f: is called with each item; its result is ignored.
            name: the name of the step in errors and metrics.
            on_error: what happens to an item on which ``f`` raises: ``"fail"``, ``"skip"`` or a
                :class:`millstream.dead_letter`.

        Returns:
            The stream of the same items.

        Raises:
            FlowUsageError: ``f`` is not callable.

        Example:
            >>> import millstream as ms
            >>> seen = []
            >>> flow, out = ms.Flow("example"), ms.testing.collect()
            >>> flow.source("in", ms.testing.items([1, 2])).inspect(seen.append).sink("out", out)
            >>> _ = ms.run(flow)
            >>> seen, out
            ([1, 2], [1, 2])
        """
        return self._each("inspect", f, _kernels.inspect_values, _kernels.looked_at, name, on_error)

    @overload
    def map_batch(
        self: Plain[T_co],
        f: Callable[[list[T_co]], list[U]],
        name: str | None = None,
        on_error: OnError = "fail",
    ) -> Stream[U]: ...
    @overload
    def map_batch(
        self: Keyed[AnyKey, T_co],
        f: Callable[[list[T_co]], list[U]],
        name: str | None = None,
        on_error: OnError = "fail",
    ) -> KeyedStream[AnyKey, U]: ...
    def map_batch(
        self, f: Callable[[list[Any]], list[Any]], name: str | None = None, on_error: OnError = "fail"
    ) -> Same:
        """Makes a list of items of each batch, in one call.

        How many items a batch has depends on the source and on how fast its input arrives. In a keyed stream
        and after ``event_time`` the function must return as many items as it received, or none.

        Args:
            f: is called with a list, which it may change and keep, and returns a list.
            name: the name of the step in errors and metrics.
            on_error: what happens to the whole batch if ``f`` raises.

        Returns:
            The stream of the items of the lists.

        Raises:
            FlowUsageError: ``f`` is not callable.

        Example:
            >>> import millstream as ms
            >>> flow, out = ms.Flow("example"), ms.testing.collect()
            >>> stream = flow.source("in", ms.testing.items([1, 2, 3]))
            >>> stream.map_batch(lambda batch: [n + 1 for n in batch]).sink("out", out)
            >>> _ = ms.run(flow)
            >>> out
            [2, 3, 4]
        """
        callable_or_raise("map_batch", f)
        pipe, placed = self._joined()
        pipe = pipe.step("map_batch", name or "", "batch", _kernels.batch(f), on_error)
        return self._same(pipe, placed, self._timed)

    @overload
    def branch(
        self: Plain[T_co], f: Callable[[T_co], TypeIs[U]], name: str | None = None, on_error: OnError = "fail"
    ) -> tuple[Stream[U], Stream[T_co]]: ...
    @overload
    def branch(
        self: Plain[T_co],
        f: Callable[[T_co], TypeGuard[U]],
        name: str | None = None,
        on_error: OnError = "fail",
    ) -> tuple[Stream[U], Stream[T_co]]: ...
    @overload
    def branch(
        self: Plain[T_co], f: Callable[[T_co], object], name: str | None = None, on_error: OnError = "fail"
    ) -> tuple[Stream[T_co], Stream[T_co]]: ...
    @overload
    def branch(
        self: Keyed[AnyKey, T_co],
        f: Callable[[T_co], TypeIs[U]],
        name: str | None = None,
        on_error: OnError = "fail",
    ) -> tuple[KeyedStream[AnyKey, U], KeyedStream[AnyKey, T_co]]: ...
    @overload
    def branch(
        self: Keyed[AnyKey, T_co],
        f: Callable[[T_co], TypeGuard[U]],
        name: str | None = None,
        on_error: OnError = "fail",
    ) -> tuple[KeyedStream[AnyKey, U], KeyedStream[AnyKey, T_co]]: ...
    @overload
    def branch(
        self: Keyed[AnyKey, T_co],
        f: Callable[[T_co], object],
        name: str | None = None,
        on_error: OnError = "fail",
    ) -> tuple[KeyedStream[AnyKey, T_co], KeyedStream[AnyKey, T_co]]: ...
    def branch(
        self, f: Callable[[Any], object], name: str | None = None, on_error: OnError = "fail"
    ) -> tuple[Same, Same]:
        """Divides the stream in two: the items for which ``f`` is true, and the others.

        A stream that is not used is dropped.

        Args:
            f: is called with each item.
            name: the name of the step in errors and metrics.
            on_error: what happens to an item on which ``f`` raises: ``"fail"``, ``"skip"`` or a
                :class:`millstream.dead_letter`.

        Returns:
            The stream of the items for which ``f`` is true, and the stream of the others.

        Raises:
            FlowUsageError: ``f`` is not callable.

        Example:
            >>> import millstream as ms
            >>> flow, small, large = ms.Flow("sizes"), ms.testing.collect(), ms.testing.collect()
            >>> below, others = flow.source("in", ms.testing.items([1, 20, 3])).branch(lambda n: n < 10)
            >>> below.sink("small", small)
            >>> others.sink("large", large)
            >>> _ = ms.run(flow)
            >>> small, large
            ([1, 3], [20])
        """
        callable_or_raise("branch", f)
        pipe, placed = self._joined()
        yes, no = pipe.divide(name or "", _kernels.judge(f, on_error != "fail"), on_error)
        return self._same(yes, placed, self._timed), self._same(no, placed, self._timed)
