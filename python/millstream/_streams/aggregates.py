"""The verbs of keyed streams that make one result of all values of a key."""

from __future__ import annotations

from typing import Any, overload

from .. import _kernels, _revival
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
        """``acc = f(acc, value)`` for each key, from ``init()``; ``aliases`` and ``migrate`` as for
        ``stateful``.
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
        """The first value of each key, combined with the later ones by ``f``."""
        callable_or_raise("reduce", f)
        kernel = _kernels.aggregate(f, lambda value: value, at_each(emit), on_error != "fail")
        return self._keep("reduce", name, kernel, on_error)

    def count(self, emit: Emit = "end", name: str = "count") -> KeyedStream[K_co, int]:
        """How many values each key has.

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
        """The sum of each key's values."""
        return self._keep("sum", name, _kernels.sum_values(at_each(emit), on_error != "fail"), on_error)

    def min(
        self: AggregateVerbs[K_co, Compares],
        emit: Emit = "end",
        name: str = "min",
        on_error: OnError = "fail",
    ) -> KeyedStream[K_co, V_co]:
        """The least of each key's values; the earlier of two equal ones."""

        def least(a: Any, b: Any) -> Any:
            return b if b < a else a

        kernel = _kernels.aggregate(least, lambda value: value, at_each(emit), on_error != "fail")
        return self._keep("min", name, kernel, on_error)

    def max(
        self: AggregateVerbs[K_co, Compares],
        emit: Emit = "end",
        name: str = "max",
        on_error: OnError = "fail",
    ) -> KeyedStream[K_co, V_co]:
        """The greatest of each key's values; the earlier of two equal ones."""

        def greatest(a: Any, b: Any) -> Any:
            return b if b > a else a

        kernel = _kernels.aggregate(greatest, lambda value: value, at_each(emit), on_error != "fail")
        return self._keep("max", name, kernel, on_error)
