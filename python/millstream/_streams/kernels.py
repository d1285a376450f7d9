"""The loops of the steps: each kernel works on a whole batch, called once for it by the engine.

They are Python on purpose. From version 3.11 on the interpreter inlines a call of a Python function into the
frame of the loop, which makes ``[f(x) for x in items]`` faster than any loop of calls from native code.

``items`` is a *list iterator*: when a kernel raises, the engine sees from what is left in it which item
failed. The ``*_each`` kernels continue after a failure: they append ``(key, item, exception)`` to ``bad``.
"""

# ruff: noqa: B905 - keys and values have the same number, and `strict` costs time for each batch.
from __future__ import annotations

from collections import Counter, defaultdict

from .._values.ownership import PLAIN, copied
from .._values.text_values import adding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    Items = Iterator[Any]
    Bad = list[tuple[Any, Any, BaseException]]
    Make = Callable[[], Any]
    Pairs = tuple[list[Any], list[Any]]


FAILED = object()
"""The placeholder for the result of a function that failed on an item."""


def map_values(f: Callable[[Any], Any], tolerant: bool) -> Make:
    """``map`` without keys, and ``map`` with keys where no item may be skipped."""

    def kernel(items: Items) -> list[Any]:
        return [f(item) for item in items]

    def each(items: Items, bad: Bad) -> list[Any]:
        out: list[Any] = []
        for item in items:
            try:
                out.append(f(item))
            except Exception as error:
                bad.append((None, item, error))
        return out

    return lambda: each if tolerant else kernel


def inspect_values(f: Callable[[Any], object], tolerant: bool) -> Make:
    """``inspect``: an item on which the function fails is skipped, as in any other step."""

    def kernel(items: Items) -> list[Any]:
        out = []
        for item in items:
            f(item)
            out.append(item)
        return out

    def each(items: Items, bad: Bad) -> list[Any]:
        out: list[Any] = []
        for item in items:
            try:
                f(item)
            except Exception as error:
                bad.append((None, item, error))
            else:
                out.append(item)
        return out

    return lambda: each if tolerant else kernel


def filter_values(f: Callable[[Any], object], tolerant: bool) -> Make:
    """``filter`` without keys."""

    def kernel(items: Items) -> list[Any]:
        return [item for item in items if f(item)]

    def each(items: Items, bad: Bad) -> list[Any]:
        out: list[Any] = []
        for item in items:
            try:
                if f(item):
                    out.append(item)
            except Exception as error:
                bad.append((None, item, error))
        return out

    return lambda: each if tolerant else kernel


def filter_map_values(f: Callable[[Any], Any], tolerant: bool) -> Make:
    """``filter_map`` without keys."""

    def kernel(items: Items) -> list[Any]:
        return [made for item in items if (made := f(item)) is not None]

    def each(items: Items, bad: Bad) -> list[Any]:
        out: list[Any] = []
        for item in items:
            try:
                if (made := f(item)) is not None:
                    out.append(made)
            except Exception as error:
                bad.append((None, item, error))
        return out

    return lambda: each if tolerant else kernel


def flat_map_values(f: Callable[[Any], Any], tolerant: bool) -> Make:
    """``flat_map`` without keys. An item that fails midway has no output."""

    def kernel(items: Items) -> list[Any]:
        return [made for item in items for made in f(item)]

    def each(items: Items, bad: Bad) -> list[Any]:
        out: list[Any] = []
        for item in items:
            try:
                out.extend(list(f(item)))
            except Exception as error:
                bad.append((None, item, error))
        return out

    return lambda: each if tolerant else kernel


def judge(f: Callable[[Any], object], tolerant: bool) -> Make:
    """``branch``: true and false, and None for an item that failed."""

    def kernel(items: Items) -> list[bool]:
        return [True if f(item) else False for item in items]

    def each(items: Items, bad: Bad) -> list[bool | None]:
        out: list[bool | None] = []
        for item in items:
            try:
                out.append(True if f(item) else False)
            except Exception as error:
                bad.append((None, item, error))
                out.append(None)
        return out

    return lambda: each if tolerant else kernel


def key_values(f: Callable[[Any], Any], tolerant: bool) -> Make:
    """``key_by`` and ``event_time``: a key or a time for each item, FAILED where the function failed."""

    def kernel(items: Items) -> list[Any]:
        return [f(item) for item in items]

    def each(items: Items, bad: Bad) -> list[Any]:
        beside: list[Any] = []
        for item in items:
            try:
                beside.append(f(item))
            except Exception as error:
                bad.append((None, item, error))
                beside.append(FAILED)
        return beside

    return lambda: each if tolerant else kernel


def keyed(produce: Callable[[Any], Any], tolerant: bool) -> Make:
    """Any number of values for each value of a keyed stream; ``produce`` returns an iterable."""

    def kernel(keys: list[Any], items: Items) -> Pairs:
        out_keys: list[Any] = []
        out: list[Any] = []
        for key, item in zip(keys, items):
            for made in produce(item):
                out_keys.append(key)
                out.append(made)
        return out_keys, out

    def each(keys: list[Any], items: Items, bad: Bad) -> Pairs:
        out_keys: list[Any] = []
        out: list[Any] = []
        for key, item in zip(keys, items):
            try:
                made = list(produce(item))
            except Exception as error:
                bad.append((key, item, error))
            else:
                out.extend(made)
                out_keys.extend([key] * len(made))
        return out_keys, out

    return lambda: each if tolerant else kernel


def one(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """``map`` for ``keyed``."""
    return lambda value: (f(value),)


def where(f: Callable[[Any], object]) -> Callable[[Any], Any]:
    """``filter`` for ``keyed``."""
    return lambda value: (value,) if f(value) else ()


def some(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """``filter_map`` for ``keyed``."""
    return lambda value: () if (made := f(value)) is None else (made,)


def looked_at(f: Callable[[Any], object]) -> Callable[[Any], Any]:
    """``inspect`` for ``keyed``."""

    def produce(value: Any) -> Any:
        f(value)
        return (value,)

    return produce


def all_of(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """``flat_map`` for ``keyed``."""
    return f


def batch(f: Callable[[list[Any]], list[Any]]) -> Make:
    """``map_batch``: the user's function itself."""
    return lambda: f


def pairs() -> Any:
    """``items``: keys and values as tuples."""
    return lambda keys, items: list(zip(keys, items))


def values() -> Any:
    """``values``: the keys are dropped."""
    return lambda keys, items: list(items)


def stateful_function(f: Callable[[Any, Any], Any], state: Callable[[], Any], tolerant: bool) -> Make:
    """``stateful`` with a function ``(state, value)``; None is no output, and the state itself is copied.

    The states of a batch are looked up first, in a loop without bytecode: with many keys that is
    memory latency, and the processor overlaps several loads.
    """

    def make() -> Any:
        states: defaultdict[Any, Any] = defaultdict(state)

        def kernel(keys: list[Any], items: Items) -> Pairs:
            try:
                found = list(map(states.__getitem__, keys))
                if len(found) < len(keys):
                    raise StopIteration  # by the maker of a state, which ends a map silently
            except BaseException:
                for key, _ in zip(keys, items):
                    if key not in states:
                        raise  # with the items after that for which no state could be made
                raise
            made = [
                copied(known) if (value := f(known, item)) is known else value
                for known, item in zip(found, items)
            ]
            out = [value for value in made if value is not None]
            if len(out) == len(made):
                return keys, out
            return [key for key, value in zip(keys, made) if value is not None], out

        def each(keys: list[Any], items: Items, bad: Bad) -> Pairs:
            out_keys: list[Any] = []
            out: list[Any] = []
            for key, item in zip(keys, items):
                try:
                    known = states[key]
                    made = f(known, item)
                except Exception as error:
                    bad.append((key, item, error))
                    continue
                if made is not None:
                    out_keys.append(key)
                    out.append(copied(made) if made is known else made)
            return out_keys, out

        return (each if tolerant else kernel), None, states

    return make


class _Logics(dict):  # type: ignore[type-arg]
    """One logic for each key, made at its first item."""

    __slots__ = ("make",)
    make: Callable[[], Any]

    def __missing__(self, key: Any) -> Any:
        logic = self[key] = self.make()
        return logic


def stateful_logic(make_logic: Callable[[], Any], tolerant: bool) -> Make:
    """``stateful`` with a class: ``on_item(key, value)`` and, where there is one, ``on_end(key)``."""

    def make() -> Any:
        logics = _Logics()
        logics.make = make_logic

        def kernel(keys: list[Any], items: Items) -> Pairs:
            out_keys: list[Any] = []
            out: list[Any] = []
            for key, item in zip(keys, items):
                made = logics[key].on_item(key, item)
                if made is not None:
                    for value in made:
                        out_keys.append(key)
                        out.append(value)
            return out_keys, out

        def each(keys: list[Any], items: Items, bad: Bad) -> Pairs:
            out_keys: list[Any] = []
            out: list[Any] = []
            for key, item in zip(keys, items):
                try:
                    made = list(logics[key].on_item(key, item) or ())
                except Exception as error:
                    bad.append((key, item, error))
                else:
                    out.extend(made)
                    out_keys.extend([key] * len(made))
            return out_keys, out

        def end(bad: Bad) -> Pairs:
            def last(key: Any) -> Any:
                on_end = getattr(logics[key], "on_end", None)
                return None if on_end is None else on_end(key)

            return at_end(logics, last, tolerant, bad)

        return (each if tolerant else kernel), end, logics

    return make


def at_end(states: dict[Any, Any], last: Callable[[Any], Any], tolerant: bool, bad: Bad) -> Pairs:
    """The results of ``last`` for each key, in the order in which the keys arrived."""
    out_keys: list[Any] = []
    out: list[Any] = []
    for key in states:
        try:
            made = list(last(key) or ())
        except BaseException as error:
            bad.append((key, None, error))
            if not (tolerant and isinstance(error, Exception)):
                break
        else:
            out.extend(made)
            out_keys.extend([key] * len(made))
    return out_keys, out


class _Revived(dict):  # type: ignore[type-arg]
    """States of a step, with the function that makes them, which says how saved ones are restored."""

    __slots__ = ("make",)
    make: Callable[[], Any]


def revived(kernel: Callable[..., Any], make_state: Callable[[], Any]) -> Make:
    """Adds the restoring of saved states to a kernel that keeps states."""

    def make() -> Any:
        states = _Revived()
        states.make = make_state
        return kernel(states)

    return make


def aggregate(
    combine: Callable[[Any, Any], Any],
    first: Callable[[Any], Any],
    each_item: bool,
    tolerant: bool,
    shown: Callable[[Any], Any] = copied,
) -> Make:
    """``acc = combine(acc, value)`` for each key; ``first`` makes the accumulator of a key's first value.

    ``shown`` makes the result of an accumulator that other values may follow.
    """

    def make(totals: dict[Any, Any] | None = None) -> Any:
        totals = {} if totals is None else totals

        def kernel(keys: list[Any], items: Items) -> Pairs:
            for key, item in zip(keys, items):
                if key in totals:
                    totals[key] = combine(totals[key], item)
                else:
                    totals[key] = first(item)
            return [], []

        def running(keys: list[Any], items: Items) -> Pairs:
            out: list[Any] = []
            for key, item in zip(keys, items):
                total = combine(totals[key], item) if key in totals else first(item)
                totals[key] = total
                out.append(total if type(total) in PLAIN else shown(total))
            return keys, out

        def each(keys: list[Any], items: Items, bad: Bad) -> Pairs:
            out_keys: list[Any] = []
            out: list[Any] = []
            for key, item in zip(keys, items):
                try:
                    total = combine(totals[key], item) if key in totals else first(item)
                except Exception as error:
                    bad.append((key, item, error))
                    continue
                totals[key] = total
                if each_item:
                    out_keys.append(key)
                    out.append(shown(total))
            return out_keys, out

        def end(bad: Bad) -> Pairs:
            if each_item:
                return [], []
            results = totals.values() if shown is copied else map(shown, totals.values())
            return list(totals), list(results)

        step = each if tolerant else running if each_item else kernel
        return step, end, totals

    return make


def count(each_item: bool) -> Make:
    """``count``: the interpreter's own counting loop, where only the end is wanted."""

    def make() -> Any:
        counts: Counter[Any] = Counter()

        def kernel(keys: list[Any], items: Items) -> Pairs:
            counts.update(keys)
            return [], []

        def running(keys: list[Any], items: Items) -> Pairs:
            out: list[Any] = []
            for key in keys:
                counts[key] = total = counts.get(key, 0) + 1
                out.append(total)
            return keys, out

        step = running if each_item else kernel
        return step, lambda bad: ([], []) if each_item else (list(counts), list(counts.values())), counts

    return make


def firsts() -> Make:
    """``dedupe`` where no key is forgotten and nothing is known of time."""

    def make() -> Any:
        seen: dict[Any, bool] = {}

        def kernel(keys: list[Any], items: Items) -> Pairs:
            out_keys: list[Any] = []
            out: list[Any] = []
            for key, item in zip(keys, items):
                if key not in seen:
                    seen[key] = True
                    out_keys.append(key)
                    out.append(item)
            return out_keys, out

        return kernel, None, seen

    return make


def sum_values(each_item: bool, tolerant: bool) -> Make:
    """``sum``: as ``aggregate``, without the call of a function for each item."""
    first = adding("sum")
    if each_item or tolerant:
        return aggregate(lambda total, item: total + item, first, each_item, tolerant)

    def make() -> Any:
        totals: dict[Any, Any] = {}

        def kernel(keys: list[Any], items: Items) -> Pairs:
            for key, item in zip(keys, items):
                if key in totals:
                    totals[key] = totals[key] + item
                else:
                    totals[key] = first(item)
            return [], []

        return kernel, lambda bad: (list(totals), list(totals.values())), totals

    return make
