"""The verbs of keyed streams that make one result of all values of a key."""

from __future__ import annotations

from typing import Any, overload

from .. import _kernels, _revival, _text_values
from .._ownership import copied
from .._types import K_co, V_co
from .arguments import at_each, callable_or_raise
from .base import KeyedBase

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .._revival import Aliases, Migrate
    from .._types import (
        A,
        Adds,
        Compares,
        Emit,
        OnError,
    )
    from .base import KeyedBase
    from .streams import KeyedStream


__all__ = ["AggregateVerbs"]


class AggregateVerbs(KeyedBase[K_co, V_co]):
    """The verbs of :class:`KeyedStream` that combine the values of each key."""

    __slots__ = ()

    def fold(
        self,
        name: str,
        init: Callable[[], A],
        f: Callable[[A, V_co], A],
        emit: Emit = "end",
        on_error: OnError = "fail",
        aliases: Aliases | None = None,
        migrate: Migrate | None = None,
    ) -> KeyedStream[K_co, A]:
        """Folds the values of each key into an accumulator: ``acc = f(acc, value)``, beginning with
        ``init()``.

        Args:
            name: the name of the step; saved state is found by it, so it must stay the same.
            init: makes the first accumulator of a key.
            f: is called with the accumulator and a value, and returns the new accumulator.
            emit: ``"end"`` emits the result of each key when all input has ended, ``"each"`` after each
                value.
            on_error: what happens to an item on which ``f`` raises: ``"fail"``, ``"skip"`` or a
                :class:`millstream.dead_letter`.
            aliases: names that the class of saved states had before, or a mapping from such names to
                classes.
            migrate: a function that is called with each saved state when a run begins, and returns the
                state to continue with. It may be called again with its own result.

        Returns:
            The keyed stream of the accumulators.

        Raises:
            FlowUsageError: ``init`` or ``f`` is not callable, the step has no name, or ``emit`` is unknown.

        Example:
            >>> import millstream as ms
            >>> flow, out = ms.Flow("example"), ms.testing.collect()
            >>> stream = flow.source("in", ms.testing.items([1, 2, 4]))
            >>> stream.key_by(lambda n: n % 2).fold("sums", int, lambda total, n: total + n).sink("out", out)
            >>> _ = ms.run(flow)
            >>> out
            [(1, 1), (0, 6)]
        """
        callable_or_raise("fold", init)
        callable_or_raise("fold", f)
        kernel = _kernels.aggregate(f, lambda value: f(init(), value), at_each(emit), on_error != "fail")
        if aliases is not None or migrate is not None:
            kernel = _kernels.revived(kernel, _revival.reviving(init, init, aliases, migrate, strict=False))
        return self._keep("fold", name, kernel, on_error)

    def reduce(
        self, name: str, f: Callable[[V_co, V_co], V_co], emit: Emit = "end", on_error: OnError = "fail"
    ) -> KeyedStream[K_co, V_co]:
        """Combines the values of each key: the first value with each later one.

        Args:
            name: the name of the step; saved state is found by it, so it must stay the same.
            f: is called with the result so far and a value, and returns the new result.
            emit: ``"end"`` emits the result of each key when all input has ended, ``"each"`` after each
                value.
            on_error: what happens to an item on which ``f`` raises: ``"fail"``, ``"skip"`` or a
                :class:`millstream.dead_letter`.

        Returns:
            The keyed stream of the results.

        Raises:
            FlowUsageError: ``f`` is not callable, the step has no name, or ``emit`` is unknown.

        Example:
            >>> import millstream as ms
            >>> flow, out = ms.Flow("example"), ms.testing.collect()
            >>> stream = flow.source("in", ms.testing.items([1, 2, 4]))
            >>> stream.key_by(lambda n: n % 2).reduce("product", lambda a, b: a * b).sink("out", out)
            >>> _ = ms.run(flow)
            >>> out
            [(1, 1), (0, 8)]
        """
        callable_or_raise("reduce", f)
        # The function may change its first argument, and the first value may have other readers.
        kernel = _kernels.aggregate(f, copied, at_each(emit), on_error != "fail")
        return self._keep("reduce", name, kernel, on_error)

    def count(self, emit: Emit = "end", name: str = "count") -> KeyedStream[K_co, int]:
        """Counts the values of each key.

        Args:
            emit: ``"end"`` emits the result of each key when all input has ended, ``"each"`` after each
                value.
            name: the name of the step; saved state is found by it, so it must stay the same.

        Returns:
            The keyed stream of the counts.

        Raises:
            FlowUsageError: ``emit`` is unknown, or the name is empty.

        Example:
            >>> import millstream as ms
            >>> flow, out = ms.Flow("letters"), ms.testing.collect()
            >>> flow.source("text", ms.testing.items("abracadabra")).key_by(str).count().sink("out", out)
            >>> _ = ms.run(flow)
            >>> out
            [('a', 5), ('b', 2), ('r', 2), ('c', 1), ('d', 1)]
        """
        return self._keep("count", name, _kernels.count(at_each(emit)), "fail")

    @overload
    def sum(
        self: AggregateVerbs[K_co, bool], emit: Emit = "end", name: str = "sum", on_error: OnError = "fail"
    ) -> KeyedStream[K_co, int]: ...
    @overload
    def sum(
        self: AggregateVerbs[K_co, Adds], emit: Emit = "end", name: str = "sum", on_error: OnError = "fail"
    ) -> KeyedStream[K_co, V_co]: ...
    def sum(
        self, emit: Emit = "end", name: str = "sum", on_error: OnError = "fail"
    ) -> KeyedStream[K_co, Any]:
        """Adds the values of each key.

        Args:
            emit: ``"end"`` emits the result of each key when all input has ended, ``"each"`` after each
                value.
            name: the name of the step; saved state is found by it, so it must stay the same.
            on_error: what happens to a value that cannot be added, as text cannot.

        Returns:
            The keyed stream of the sums.

        Raises:
            FlowUsageError: ``emit`` is unknown, or the name is empty.

        Example:
            >>> import millstream as ms
            >>> flow, out = ms.Flow("example"), ms.testing.collect()
            >>> stream = flow.source("in", ms.testing.items([1, 2, 4]))
            >>> stream.key_by(lambda n: n % 2).sum().sink("out", out)
            >>> _ = ms.run(flow)
            >>> out
            [(1, 1), (0, 6)]
        """
        return self._keep("sum", name, _kernels.sum_values(at_each(emit), on_error != "fail"), on_error)

    def min(
        self: AggregateVerbs[K_co, Compares],
        emit: Emit = "end",
        name: str = "min",
        on_error: OnError = "fail",
    ) -> KeyedStream[K_co, V_co]:
        """Finds the least value of each key; of two equal values the earlier one.

        Text is compared by its characters; the first text that is a number is logged.

        Args:
            emit: ``"end"`` emits the result of each key when all input has ended, ``"each"`` after each
                value.
            name: the name of the step; saved state is found by it, so it must stay the same.
            on_error: what happens to a value that cannot be compared.

        Returns:
            The keyed stream of the least values.

        Raises:
            FlowUsageError: ``emit`` is unknown, or the name is empty.

        Example:
            >>> import millstream as ms
            >>> flow, out = ms.Flow("example"), ms.testing.collect()
            >>> stream = flow.source("in", ms.testing.items([1, 4, 2]))
            >>> stream.key_by(lambda n: n % 2).min().sink("out", out)
            >>> _ = ms.run(flow)
            >>> out
            [(1, 1), (0, 2)]
        """

        def least(a: Any, b: Any) -> Any:
            return b if b < a else a

        first = _text_values.comparing("min", name)
        kernel = _kernels.aggregate(least, first, at_each(emit), on_error != "fail")
        return self._keep("min", name, kernel, on_error)

    def max(
        self: AggregateVerbs[K_co, Compares],
        emit: Emit = "end",
        name: str = "max",
        on_error: OnError = "fail",
    ) -> KeyedStream[K_co, V_co]:
        """Finds the greatest value of each key; of two equal values the earlier one.

        Text is compared by its characters; the first text that is a number is logged.

        Args:
            emit: ``"end"`` emits the result of each key when all input has ended, ``"each"`` after each
                value.
            name: the name of the step; saved state is found by it, so it must stay the same.
            on_error: what happens to a value that cannot be compared.

        Returns:
            The keyed stream of the greatest values.

        Raises:
            FlowUsageError: ``emit`` is unknown, or the name is empty.

        Example:
            >>> import millstream as ms
            >>> flow, out = ms.Flow("example"), ms.testing.collect()
            >>> stream = flow.source("in", ms.testing.items([1, 4, 2]))
            >>> stream.key_by(lambda n: n % 2).max(emit="each").sink("out", out)
            >>> _ = ms.run(flow)
            >>> out
            [(1, 1), (0, 4), (0, 4)]
        """

        def greatest(a: Any, b: Any) -> Any:
            return b if b > a else a

        first = _text_values.comparing("max", name)
        kernel = _kernels.aggregate(greatest, first, at_each(emit), on_error != "fail")
        return self._keep("max", name, kernel, on_error)
