"""The verbs of keyed streams that make one result of all values of a key."""

from __future__ import annotations

import operator
from typing import Any, overload

from .._errors.flow import FlowUsageError
from .._values import revival as _revival, states as _states, text_values as _text_values
from .._values.durations import nanos
from .._values.ownership import copied
from .._values.types import K_co, V_co
from . import agg as _agg, kernels as _kernels
from .agg_parts import Mean
from .arguments import at_each, callable_or_raise, named_or_raise, reading
from .base import KeyedBase

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, TypeAlias

    from .._values.durations import Seconds
    from .._values.revival import Aliases, Migrate
    from .._values.types import (
        A,
        Adds,
        C,
        Compares,
        Emit,
        N,
        OnError,
    )
    from .agg import Aggregate
    from .base import KeyedBase
    from .streams import KeyedStream

    Combine: TypeAlias = Callable[[Any, Any], Any]
    How: TypeAlias = tuple[Combine, Callable[[Any], Any]]


def lesser(a: Any, b: Any) -> Any:
    """The lesser of two values, the first of equal ones."""
    return b if b < a else a


def greater(a: Any, b: Any) -> Any:
    """The greater of two values, the first of equal ones."""
    return b if b > a else a


def _of(
    verb: str, f: Callable[[Any], Any] | str | None, combine: Combine, first: Callable[[Any], Any]
) -> How:
    """``combine`` and ``first`` of what ``f`` reads of a value."""
    if f is None:
        return combine, first
    read = reading(verb, f)
    return lambda total, value: combine(total, read(value)), lambda value: first(read(value))


class AggregateVerbs(KeyedBase[K_co, V_co]):
    """The verbs of :class:`KeyedStream` that combine the values of each key."""

    __slots__ = ()

    def _totals(
        self,
        kind: str,
        name: str,
        how: How,
        emit: Emit,
        on_error: OnError,
        ttl: Seconds | None,
        start: Callable[[], Any] | None = None,
        shown: Callable[[Any], Any] = copied,
    ) -> KeyedStream[K_co, Any]:
        """An accumulator for each key: ``how`` it takes a value, and how the first value makes it.

        ``start`` makes it instead, and has the rules for restoring one; ``shown`` makes the result of it.
        """
        combine, first = how
        each_item = at_each(emit)
        if ttl is None:
            kernel = _kernels.aggregate(combine, first, each_item, on_error != "fail", shown)
            kernel = kernel if start is None else _kernels.revived(kernel, start)
            in_order = kind in ("fold", "reduce")
            return self._keep(kind, name, kernel, on_error, not each_item, in_order)
        if not each_item:
            raise FlowUsageError(
                f'{kind}: ttl forgets a key with its result, which emit="end" would never emit: '
                'use emit="each", or a window'
            )
        named_or_raise(kind, name)

        def following(total: Any, value: Any) -> tuple[Any, Any]:
            made = first(value) if total is None else combine(total, value)
            if made is None:
                raise TypeError(f"with ttl a result of {kind} is not None")
            return made, shown(made)

        life = nanos("ttl", ttl)
        make = start or _states.nothing
        times = self._timed, False
        pipe, _ = self._home().stateful(kind, name, make, following, True, times, life, on_error)
        return self._new_keyed([pipe], True, self._timed)

    def fold(
        self,
        name: str,
        init: Callable[[], A],
        f: Callable[[A, V_co], A],
        emit: Emit = "end",
        on_error: OnError = "fail",
        ttl: Seconds | None = None,
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
            ttl: the time after which a key without values is forgotten, and begins anew with
                its next one; in event time where the stream has times. It needs ``emit="each"``. None keeps
                every key.
            aliases: names that the class of saved states had before, or a mapping from such names to
                classes.
            migrate: a function that is called with each saved state when a run begins, and returns the
                state to continue with. It may be called again with its own result.

        Returns:
            The keyed stream of the accumulators.

        Raises:
            FlowUsageError: ``init`` or ``f`` is not callable, the step has no name, ``emit`` is unknown, or
                ``ttl`` does not fit.

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
        made = _revival.reviving(init, init, aliases, migrate, strict=False)
        start = made if ttl is not None or aliases is not None or migrate is not None else None
        how = f, lambda value: f(init(), value)
        return self._totals("fold", name, how, emit, on_error, ttl, start)

    def reduce(
        self,
        name: str,
        f: Callable[[V_co, V_co], V_co],
        emit: Emit = "end",
        on_error: OnError = "fail",
        ttl: Seconds | None = None,
    ) -> KeyedStream[K_co, V_co]:
        """Combines the values of each key: the first value with each later one.

        Args:
            name: the name of the step; saved state is found by it, so it must stay the same.
            f: is called with the result so far and a value, and returns the new result.
            emit: ``"end"`` emits the result of each key when all input has ended, ``"each"`` after each
                value.
            on_error: what happens to an item on which ``f`` raises: ``"fail"``, ``"skip"`` or a
                :class:`millstream.dead_letter`.
            ttl: the time after which a key without values is forgotten, and begins anew with
                its next one; in event time where the stream has times. It needs ``emit="each"``. None keeps
                every key.

        Returns:
            The keyed stream of the results.

        Raises:
            FlowUsageError: ``f`` is not callable, the step has no name, ``emit`` is unknown, or ``ttl`` does
                not fit.

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
        return self._totals("reduce", name, (f, copied), emit, on_error, ttl)

    def count(
        self, emit: Emit = "end", name: str = "count", ttl: Seconds | None = None
    ) -> KeyedStream[K_co, int]:
        """Counts the values of each key.

        Args:
            emit: ``"end"`` emits the result of each key when all input has ended, ``"each"`` after each
                value.
            name: the name of the step; saved state is found by it, so it must stay the same.
            ttl: the time after which a key without values is forgotten, and begins anew with
                its next one; in event time where the stream has times. It needs ``emit="each"``. None keeps
                every key.

        Returns:
            The keyed stream of the counts.

        Raises:
            FlowUsageError: ``emit`` is unknown, the name is empty, or ``ttl`` does not fit.

        Example:
            >>> import millstream as ms
            >>> flow, out = ms.Flow("letters"), ms.testing.collect()
            >>> flow.source("text", ms.testing.items("abracadabra")).key_by(str).count().sink("out", out)
            >>> _ = ms.run(flow)
            >>> out
            [('a', 5), ('b', 2), ('r', 2), ('c', 1), ('d', 1)]
        """
        if ttl is None:
            each_item = at_each(emit)
            return self._keep("count", name, _kernels.count(each_item), "fail", not each_item)
        return self._totals("count", name, (lambda n, _: n + 1, lambda _: 1), emit, "fail", ttl)

    @overload
    def sum(
        self: AggregateVerbs[K_co, bool],
        f: None = None,
        emit: Emit = "end",
        name: str = "sum",
        on_error: OnError = "fail",
        ttl: Seconds | None = None,
    ) -> KeyedStream[K_co, int]: ...
    @overload
    def sum(
        self: AggregateVerbs[K_co, Adds],
        f: None = None,
        emit: Emit = "end",
        name: str = "sum",
        on_error: OnError = "fail",
        ttl: Seconds | None = None,
    ) -> KeyedStream[K_co, V_co]: ...
    @overload
    def sum(
        self,
        f: Callable[[V_co], N] | str,
        emit: Emit = "end",
        name: str = "sum",
        on_error: OnError = "fail",
        ttl: Seconds | None = None,
    ) -> KeyedStream[K_co, N]: ...
    def sum(
        self,
        f: Callable[[Any], Any] | str | None = None,
        emit: Emit = "end",
        name: str = "sum",
        on_error: OnError = "fail",
        ttl: Seconds | None = None,
    ) -> KeyedStream[K_co, Any]:
        """Adds the values of each key, or a field of each.

        Args:
            f: what is added of each value: a function of it, or the name of its field. None: the value.
            emit: ``"end"`` emits the result of each key when all input has ended, ``"each"`` after each
                value.
            name: the name of the step; saved state is found by it, so it must stay the same.
            on_error: what happens to a value that cannot be added, as text cannot.
            ttl: the time after which a key without values is forgotten, and begins anew with
                its next one; in event time where the stream has times. It needs ``emit="each"``. None keeps
                every key.

        Returns:
            The keyed stream of the sums.

        Raises:
            FlowUsageError: ``f`` is neither a function nor a ``str``, ``emit`` is unknown, the name is empty,
                or ``ttl`` does not fit.

        Example:
            >>> import millstream as ms
            >>> flow, out = ms.Flow("example"), ms.testing.collect()
            >>> sales = [{"user": "ann", "cents": 2}, {"user": "bob", "cents": 1}]
            >>> sales.append({"user": "ann", "cents": 4})
            >>> flow.source("in", ms.testing.items(sales)).key_by("user").sum("cents").sink("out", out)
            >>> _ = ms.run(flow)
            >>> out
            [('ann', 6), ('bob', 1)]
        """
        if f is None and ttl is None:
            each_item = at_each(emit)
            kernel = _kernels.sum_values(each_item, on_error != "fail")
            return self._keep("sum", name, kernel, on_error, not each_item)
        how = _of("sum", f, operator.add, _text_values.adding("sum"))
        return self._totals("sum", name, how, emit, on_error, ttl)._reading(f)

    @overload
    def min(
        self: AggregateVerbs[K_co, Compares],
        f: None = None,
        emit: Emit = "end",
        name: str = "min",
        on_error: OnError = "fail",
        ttl: Seconds | None = None,
    ) -> KeyedStream[K_co, V_co]: ...
    @overload
    def min(
        self,
        f: Callable[[V_co], C] | str,
        emit: Emit = "end",
        name: str = "min",
        on_error: OnError = "fail",
        ttl: Seconds | None = None,
    ) -> KeyedStream[K_co, C]: ...
    def min(
        self,
        f: Callable[[Any], Any] | str | None = None,
        emit: Emit = "end",
        name: str = "min",
        on_error: OnError = "fail",
        ttl: Seconds | None = None,
    ) -> KeyedStream[K_co, Any]:
        """Finds the least value of each key, or of a field of them; of two equal ones the earlier.

        Text is compared by its characters; the first text that is a number is logged.

        Args:
            f: what is compared of each value: a function of it, or the name of its field. None: the value.
            emit: ``"end"`` emits the result of each key when all input has ended, ``"each"`` after each
                value.
            name: the name of the step; saved state is found by it, so it must stay the same.
            on_error: what happens to a value that cannot be compared.
            ttl: the time after which a key without values is forgotten, and begins anew with
                its next one; in event time where the stream has times. It needs ``emit="each"``. None keeps
                every key.

        Returns:
            The keyed stream of the least values.

        Raises:
            FlowUsageError: ``f`` is neither a function nor a ``str``, ``emit`` is unknown, the name is empty,
                or ``ttl`` does not fit.

        Example:
            >>> import millstream as ms
            >>> flow, out = ms.Flow("example"), ms.testing.collect()
            >>> stream = flow.source("in", ms.testing.items([1, 4, 2]))
            >>> stream.key_by(lambda n: n % 2).min().sink("out", out)
            >>> _ = ms.run(flow)
            >>> out
            [(1, 1), (0, 2)]
        """
        how = _of("min", f, lesser, _text_values.comparing("min", name))
        return self._totals("min", name, how, emit, on_error, ttl)._reading(f)

    @overload
    def max(
        self: AggregateVerbs[K_co, Compares],
        f: None = None,
        emit: Emit = "end",
        name: str = "max",
        on_error: OnError = "fail",
        ttl: Seconds | None = None,
    ) -> KeyedStream[K_co, V_co]: ...
    @overload
    def max(
        self,
        f: Callable[[V_co], C] | str,
        emit: Emit = "end",
        name: str = "max",
        on_error: OnError = "fail",
        ttl: Seconds | None = None,
    ) -> KeyedStream[K_co, C]: ...
    def max(
        self,
        f: Callable[[Any], Any] | str | None = None,
        emit: Emit = "end",
        name: str = "max",
        on_error: OnError = "fail",
        ttl: Seconds | None = None,
    ) -> KeyedStream[K_co, Any]:
        """Finds the greatest value of each key, or of a field of them; of two equal ones the earlier.

        Text is compared by its characters; the first text that is a number is logged.

        Args:
            f: what is compared of each value: a function of it, or the name of its field. None: the value.
            emit: ``"end"`` emits the result of each key when all input has ended, ``"each"`` after each
                value.
            name: the name of the step; saved state is found by it, so it must stay the same.
            on_error: what happens to a value that cannot be compared.
            ttl: the time after which a key without values is forgotten, and begins anew with
                its next one; in event time where the stream has times. It needs ``emit="each"``. None keeps
                every key.

        Returns:
            The keyed stream of the greatest values.

        Raises:
            FlowUsageError: ``f`` is neither a function nor a ``str``, ``emit`` is unknown, the name is empty,
                or ``ttl`` does not fit.

        Example:
            >>> import millstream as ms
            >>> flow, out = ms.Flow("example"), ms.testing.collect()
            >>> stream = flow.source("in", ms.testing.items([1, 4, 2]))
            >>> stream.key_by(lambda n: n % 2).max(emit="each").sink("out", out)
            >>> _ = ms.run(flow)
            >>> out
            [(1, 1), (0, 4), (0, 4)]
        """
        how = _of("max", f, greater, _text_values.comparing("max", name))
        return self._totals("max", name, how, emit, on_error, ttl)._reading(f)

    @overload
    def mean(
        self: AggregateVerbs[K_co, float],
        f: None = None,
        emit: Emit = "end",
        name: str = "mean",
        on_error: OnError = "fail",
        ttl: Seconds | None = None,
    ) -> KeyedStream[K_co, float]: ...
    @overload
    def mean(
        self: AggregateVerbs[K_co, Adds],
        f: None = None,
        emit: Emit = "end",
        name: str = "mean",
        on_error: OnError = "fail",
        ttl: Seconds | None = None,
    ) -> KeyedStream[K_co, Any]: ...
    @overload
    def mean(
        self,
        f: Callable[[V_co], Adds] | str,
        emit: Emit = "end",
        name: str = "mean",
        on_error: OnError = "fail",
        ttl: Seconds | None = None,
    ) -> KeyedStream[K_co, Any]: ...
    def mean(
        self,
        f: Callable[[Any], Any] | str | None = None,
        emit: Emit = "end",
        name: str = "mean",
        on_error: OnError = "fail",
        ttl: Seconds | None = None,
    ) -> KeyedStream[K_co, Any]:
        """Computes the mean of the values of each key, or of a field of them. Text is refused.

        Args:
            f: what is added of each value: a function of it, or the name of its field. None: the value.
            emit: ``"end"`` emits the result of each key when all input has ended, ``"each"`` after each
                value.
            name: the name of the step; saved state is found by it, so it must stay the same.
            on_error: what happens to a value that cannot be added, as text cannot.
            ttl: the time after which a key without values is forgotten, and begins anew with
                its next one; in event time where the stream has times. It needs ``emit="each"``. None keeps
                every key.

        Returns:
            The keyed stream of the means.

        Raises:
            FlowUsageError: ``f`` is neither a function nor a ``str``, ``emit`` is unknown, the name is empty,
                or ``ttl`` does not fit.

        Example:
            >>> import millstream as ms
            >>> flow, out = ms.Flow("example"), ms.testing.collect()
            >>> readings = [{"room": "hall", "celsius": 18}, {"room": "hall", "celsius": 21}]
            >>> flow.source("in", ms.testing.items(readings)).key_by("room").mean("celsius").sink("out", out)
            >>> _ = ms.run(flow)
            >>> out
            [('hall', 19.5)]
        """
        part = Mean((lambda value: value) if f is None else reading("mean", f))
        how = part.plan, lambda value: part.plan([], value)
        return self._totals("mean", name, how, emit, on_error, ttl, shown=part.result)._reading(f)

    def agg(
        self,
        results: Mapping[str, Aggregate[V_co]] | None = None,
        /,
        *,
        emit: Emit = "end",
        name: str = "agg",
        on_error: OnError = "fail",
        ttl: Seconds | None = None,
        **more: Aggregate[V_co],
    ) -> KeyedStream[K_co, dict[str, Any]]:
        """Computes several aggregates of the values of each key, in a dict with the given names.

        A value for which one of them raises counts in none. A result is a dict because sinks of JSON, CSV and
        tables take one as it is, and so do verbs with the name of a field. Each aggregate is saved by the
        name of its result: one that a later version of the program adds begins with the values that follow,
        one that is gone is dropped.

        Args:
            results: aggregates by their names, where a name is no argument: ``{"name": ms.last("name")}``.
            emit: ``"end"`` emits the result of each key when all input has ended, ``"each"`` after each
                value.
            name: the name of the step; saved state is found by it, so it must stay the same.
            on_error: what happens to a value for which an aggregate raises.
            ttl: the time after which a key without values is forgotten, and begins anew with
                its next one; in event time where the stream has times. It needs ``emit="each"``. None keeps
                every key.
            more: aggregates by the names of their results.

        Returns:
            The keyed stream of the dicts.

        Raises:
            FlowUsageError: there is no aggregate, ``emit`` is unknown, the name is empty, or ``ttl`` does not
                fit.

        Example:
            >>> import millstream as ms
            >>> flow, out = ms.Flow("example"), ms.testing.collect()
            >>> sales = [{"user": "ann", "cents": 2}, {"user": "bob", "cents": 1}]
            >>> sales.append({"user": "ann", "cents": 4})
            >>> keyed = flow.source("in", ms.testing.items(sales)).key_by("user")
            >>> keyed.agg(n=ms.count(), total=ms.sum("cents"), last=ms.last("cents")).sink("out", out)
            >>> _ = ms.run(flow)
            >>> out
            [('ann', {'n': 2, 'total': 6, 'last': 4}), ('bob', {'n': 1, 'total': 1, 'last': 1})]
        """
        for option, value in {"emit": emit, "name": name, "on_error": on_error, "ttl": ttl}.items():
            _agg.option_or_raise(option, value)
        made = _agg.aggregation(name, results, more, ordered=True)
        start = _revival.reviving(made.initial, dict, migrate=made.restored)
        how = made.add, lambda value: made.add(made.initial(), value)
        return self._totals("agg", name, how, emit, on_error, ttl, start, made.result)
