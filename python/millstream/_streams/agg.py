"""The aggregates of ``agg``: ``ms.count()``, ``ms.sum("cents")`` and others; several make one result.

``sum``, ``min`` and ``max`` have names of builtins, and are not in ``millstream.__all__``: a star import
leaves the builtins as they are.
"""

from __future__ import annotations

from typing import Generic

from .._errors.flow import FlowUsageError
from .._values.types import T_contra
from . import agg_parts as _agg_parts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, TypeAlias

    from .._values.types import T

    Of: TypeAlias = Callable[[T], Any] | str | None


ORDERED = (_agg_parts.First, _agg_parts.Last)
"""The aggregates whose results depend on the order of the values."""


class Aggregate(Generic[T_contra]):
    """What ``agg`` computes of values, under the name of one result. The functions of ``ms`` make it.

    Example:
        >>> import millstream as ms
        >>> ms.sum("cents")
        ms.sum('cents')
    """

    __slots__ = ("_make", "_read", "_text")

    def __init__(self, text: str, make: Callable[[str], _agg_parts.Part], *read: Of[Any]) -> None:
        self._text = text
        self._make = make
        self._read = read

    def __repr__(self) -> str:
        return f"ms.{self._text}"


def aggregation(
    step: str, given: Mapping[str, Aggregate[Any]] | None, more: Mapping[str, Aggregate[Any]], ordered: bool
) -> _agg_parts.Aggregation:
    """The aggregates that ``agg`` of a step was given. ``ordered``: the values have an order of their own."""
    from collections.abc import Mapping

    if given is not None and not isinstance(given, Mapping):
        raise FlowUsageError(f"agg takes aggregates by their names, or a dict of them, not {given!r}")
    results = {**(given or {}), **more}
    if not results:
        raise FlowUsageError("agg takes the aggregates of its result by their names: agg(n=ms.count())")
    for name, aggregate in results.items():
        if not isinstance(name, str) or not isinstance(aggregate, Aggregate):
            raise FlowUsageError(
                "agg takes names and aggregates such as ms.count() and ms.sum('cents'), "
                f"not {name!r} and {aggregate!r}"
            )
    made = _agg_parts.Aggregation(results, step)
    for name, part in made.parts.items():
        if not ordered and isinstance(part, ORDERED):
            raise FlowUsageError(
                f"{name}={results[name]!r}: in a window the {part.kind} value is that by time, which needs "
                f"window(..., ordered=True); or {'min' if part.kind == 'first' else 'max'}(by=...) of a field"
            )
    return made


def option_or_raise(option: str, value: object) -> None:
    """Raises where a result of ``agg`` has the name of an option."""
    if isinstance(value, Aggregate):
        raise FlowUsageError(
            f"{option} is an option of agg: give a result of this name in a dict, "
            f"agg({{{option!r}: {value!r}}})"
        )


def value_of(verb: str, f: Of[Any]) -> Callable[[Any], Any]:
    """What an aggregate reads of a value."""
    from .arguments import reading

    return (lambda value: value) if f is None else reading(verb, f)


def compared_by(by: Of[Any]) -> Callable[[Any], Any] | None:
    return None if by is None else value_of("by=", by)


def shown(verb: str, *arguments: object, **named: object) -> str:
    """The call that made an aggregate."""
    given = [repr(argument) for argument in arguments if argument is not None]
    given += [f"{name}={argument!r}" for name, argument in named.items() if argument is not None]
    return f"{verb}({', '.join(given)})"


def count() -> Aggregate[Any]:
    """Counts the values.

    Returns:
        The aggregate.

    Example:
        >>> import millstream as ms
        >>> flow, out = ms.Flow("example"), ms.testing.collect()
        >>> words = flow.source("in", ms.testing.items(["to", "be", "or"])).key_by(len)
        >>> words.agg(n=ms.count()).sink("out", out)
        >>> _ = ms.run(flow)
        >>> out
        [(2, {'n': 3})]
    """
    return Aggregate("count()", lambda step: _agg_parts.Count())


def sum(f: Of[T] = None) -> Aggregate[T]:
    """Adds the values, or a field of each. Text is refused.

    Args:
        f: what is added of each value: a function of it, or the name of its field. None: the value.

    Returns:
        The aggregate.

    Raises:
        FlowUsageError: ``f`` is neither a function nor a ``str``.

    Example:
        >>> import millstream as ms
        >>> flow, out = ms.Flow("example"), ms.testing.collect()
        >>> sales = [{"user": "ann", "cents": 2}, {"user": "ann", "cents": 4}]
        >>> keyed = flow.source("in", ms.testing.items(sales)).key_by("user")
        >>> keyed.agg(n=ms.count(), total=ms.sum("cents")).sink("out", out)
        >>> _ = ms.run(flow)
        >>> out
        [('ann', {'n': 2, 'total': 6})]
    """
    read = value_of("sum", f)
    return Aggregate(shown("sum", f), lambda step: _agg_parts.Sum(read), f)


def mean(f: Of[T] = None) -> Aggregate[T]:
    """Computes the mean of the values, or of a field of each. Text is refused.

    Args:
        f: what is added of each value: a function of it, or the name of its field. None: the value.

    Returns:
        The aggregate.

    Raises:
        FlowUsageError: ``f`` is neither a function nor a ``str``.

    Example:
        >>> import millstream as ms
        >>> flow, out = ms.Flow("example"), ms.testing.collect()
        >>> flow.source("in", ms.testing.items([1, 2, 6])).key_by(bool).agg(mean=ms.mean()).sink("out", out)
        >>> _ = ms.run(flow)
        >>> out
        [(True, {'mean': 3.0})]
    """
    read = value_of("mean", f)
    return Aggregate(shown("mean", f), lambda step: _agg_parts.Mean(read), f)


def min(f: Of[T] = None, by: Of[T] = None) -> Aggregate[T]:
    """Finds the least value; of two equal values the earlier one.

    Text is compared by its characters; the first text that is a number is logged.

    Args:
        f: what is the result of a value: a function of it, or the name of its field. None: the value.
        by: what is compared of each value, as a function or the name of a field. None: the result.

    Returns:
        The aggregate.

    Raises:
        FlowUsageError: ``f`` or ``by`` is neither a function nor a ``str``.

    Example:
        >>> import millstream as ms
        >>> flow, out = ms.Flow("example"), ms.testing.collect()
        >>> offers = [{"item": "tea", "shop": "a", "cents": 30}, {"item": "tea", "shop": "b", "cents": 20}]
        >>> keyed = flow.source("in", ms.testing.items(offers)).key_by("item")
        >>> keyed.agg(cents=ms.min("cents"), shop=ms.min("shop", by="cents")).sink("out", out)
        >>> _ = ms.run(flow)
        >>> out
        [('tea', {'cents': 20, 'shop': 'b'})]
    """
    read = value_of("min", f)
    key = compared_by(by)
    text = shown("min", f, by=by)
    return Aggregate(text, lambda step: _agg_parts.Extreme("min", lambda a, b: a < b, read, key, step), f, by)


def max(f: Of[T] = None, by: Of[T] = None) -> Aggregate[T]:
    """Finds the greatest value; of two equal values the earlier one.

    Text is compared by its characters; the first text that is a number is logged.

    Args:
        f: what is the result of a value: a function of it, or the name of its field. None: the value.
        by: what is compared of each value, as a function or the name of a field. None: the result.

    Returns:
        The aggregate.

    Raises:
        FlowUsageError: ``f`` or ``by`` is neither a function nor a ``str``.

    Example:
        >>> import millstream as ms
        >>> flow, out = ms.Flow("example"), ms.testing.collect()
        >>> orders = [{"user": "ann", "cents": 30}, {"user": "ann", "cents": 20}]
        >>> keyed = flow.source("in", ms.testing.items(orders)).key_by("user")
        >>> keyed.agg(largest=ms.max(by="cents")).sink("out", out)
        >>> _ = ms.run(flow)
        >>> out
        [('ann', {'largest': {'user': 'ann', 'cents': 30}})]
    """
    read = value_of("max", f)
    key = compared_by(by)
    text = shown("max", f, by=by)
    return Aggregate(text, lambda step: _agg_parts.Extreme("max", lambda a, b: a > b, read, key, step), f, by)


def first(f: Of[T] = None) -> Aggregate[T]:
    """Takes the first value: of a key that which arrived first, of a window the earliest.

    A window by time must be ``ordered=True``.

    Args:
        f: what is the result of a value: a function of it, or the name of its field. None: the value.

    Returns:
        The aggregate.

    Raises:
        FlowUsageError: ``f`` is neither a function nor a ``str``.

    Example:
        >>> import millstream as ms
        >>> flow, out = ms.Flow("example"), ms.testing.collect()
        >>> prices = flow.source("in", ms.testing.items([12, 10, 11])).key_by(lambda price: "tea")
        >>> prices.agg(open=ms.first(), high=ms.max(), low=ms.min(), close=ms.last()).sink("out", out)
        >>> _ = ms.run(flow)
        >>> out
        [('tea', {'open': 12, 'high': 12, 'low': 10, 'close': 11})]
    """
    read = value_of("first", f)
    return Aggregate(shown("first", f), lambda step: _agg_parts.First(read), f)


def last(f: Of[T] = None) -> Aggregate[T]:
    """Takes the last value: of a key that which arrived last, of a window the latest.

    A window by time must be ``ordered=True``.

    Args:
        f: what is the result of a value: a function of it, or the name of its field. None: the value.

    Returns:
        The aggregate.

    Raises:
        FlowUsageError: ``f`` is neither a function nor a ``str``.

    Example:
        >>> import millstream as ms
        >>> flow, out = ms.Flow("example"), ms.testing.collect()
        >>> pages = [{"user": "ann", "page": "/"}, {"user": "ann", "page": "/tea"}]
        >>> clicks = flow.source("in", ms.testing.items(pages)).key_by("user")
        >>> clicks.agg(page=ms.last("page")).sink("out", out)
        >>> _ = ms.run(flow)
        >>> out
        [('ann', {'page': '/tea'})]
    """
    read = value_of("last", f)
    return Aggregate(shown("last", f), lambda step: _agg_parts.Last(read), f)


def distinct(f: Of[T] = None) -> Aggregate[T]:
    """Counts the distinct values, exactly: each of them is kept, and saved.

    Values that are equal are one, as 1 and 1.0 are.

    Args:
        f: what is counted of each value: a function of it, or the name of its field. None: the value.

    Returns:
        The aggregate.

    Raises:
        FlowUsageError: ``f`` is neither a function nor a ``str``.

    Example:
        >>> import millstream as ms
        >>> flow, out = ms.Flow("example"), ms.testing.collect()
        >>> clicks = [("/", "ann"), ("/", "bob"), ("/", "ann")]
        >>> pages = flow.source("in", ms.testing.items(clicks)).key_by(lambda click: click[0])
        >>> pages.agg(users=ms.distinct(lambda click: click[1])).sink("out", out)
        >>> _ = ms.run(flow)
        >>> out
        [('/', {'users': 2})]
    """
    read = value_of("distinct", f)
    return Aggregate(shown("distinct", f), lambda step: _agg_parts.Distinct(read), f)


def quantile(q: float, f: Of[T] = None, error: float = 0.01) -> Aggregate[T]:
    """Finds the value below which a part of the values is: of ``n`` values in order, counted from 0, that
    at ``q * (n - 1)``, rounded down.

    The result differs from this value by at most ``error`` times the value. Its accumulator is some hundred
    numbers, however many values there are, and the result does not depend on their order. With ``error=0``
    the result is exact, and each distinct value is kept.

    Args:
        q: the part, from 0 (the least value) to 1 (the greatest).
        f: what is ranked of each value: a function of it, or the name of its field. None: the value.
        error: the greatest relative error, from 0 to below 1.

    Returns:
        The aggregate.

    Raises:
        FlowUsageError: a number is out of range, or ``f`` is neither a function nor a ``str``.

    Example:
        >>> import millstream as ms
        >>> flow, out = ms.Flow("example"), ms.testing.collect()
        >>> calls = flow.source("in", ms.testing.items(range(1, 101))).key_by(lambda ms: "call")
        >>> calls.agg(median=ms.quantile(0.5, error=0), p90=ms.quantile(0.9)).sink("out", out)
        >>> _ = ms.run(flow)
        >>> [(key, result["median"], 89 <= result["p90"] <= 91) for key, result in out]
        [('call', 50, True)]
    """
    if isinstance(q, bool) or not isinstance(q, (int, float)) or not 0 <= q <= 1:
        raise FlowUsageError(f"quantile takes a number from 0 to 1, not {q!r}")
    if isinstance(error, bool) or not isinstance(error, (int, float)) or not 0 <= error < 1:
        raise FlowUsageError(f"error is a number from 0 to below 1, not {error!r}")
    read = value_of("quantile", f)
    text = shown("quantile", q, f, error=None if error == 0.01 else error)
    return Aggregate(text, lambda step: _agg_parts.Quantile(q, read, error), f)


def top(k: int, f: Of[T] = None, by: Of[T] = None) -> Aggregate[T]:
    """Lists the greatest values, the greatest first; of equal ones the earlier first.

    Args:
        k: how many values the list has at most.
        f: what is listed of each value: a function of it, or the name of its field. None: the value.
        by: what is compared of each value, as a function or the name of a field. None: what is listed.

    Returns:
        The aggregate.

    Raises:
        FlowUsageError: ``k`` is below 1, or ``f`` or ``by`` is neither a function nor a ``str``.

    Example:
        >>> import millstream as ms
        >>> flow, out = ms.Flow("example"), ms.testing.collect()
        >>> orders = [{"shop": "a", "item": "tea", "cents": 3}, {"shop": "a", "item": "rum", "cents": 9}]
        >>> keyed = flow.source("in", ms.testing.items(orders)).key_by("shop")
        >>> keyed.agg(dearest=ms.top(1, "item", by="cents")).sink("out", out)
        >>> _ = ms.run(flow)
        >>> out
        [('a', {'dearest': ['rum']})]
    """
    if isinstance(k, bool) or not isinstance(k, int) or k < 1:
        raise FlowUsageError(f"top takes a number of values, 1 or more, not {k!r}")
    read = value_of("top", f)
    key = compared_by(by)
    return Aggregate(shown("top", k, f, by=by), lambda step: _agg_parts.Top(k, read, key, step), f, by)
