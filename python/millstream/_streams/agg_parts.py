"""The accumulators of ``agg``: how each aggregate takes a value, and its result.

Invariant: a value counts in all aggregates of a key or window, or in none. So each of them first *plans*
what the value changes, which may raise and changes nothing, and when all have, the changes are made, which do
not raise.

The state of a key or window is a dict: for the name of each result its kind, its accumulator, and the names
of the fields that it reads, if any. A later version of a program finds each by its name. Accumulators are
lists, dicts and numbers: they are saved as they are.
"""

from __future__ import annotations

from .._errors.flow import show
from .._values.ownership import copied
from .._values.text_values import TEXT, adding, comparing, refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any, TypeAlias

    from .agg import Aggregate

    Read: TypeAlias = "Callable[[Any], Any]"
    State: TypeAlias = "dict[str, list[Any]]"


class Part:
    """One aggregate, whose accumulator is a value that is replaced."""

    kind: str
    fields: tuple[str | None, ...] = ()
    """The names of the fields that it reads; None for what is read by a function, or for the value."""

    def initial(self) -> Any:
        return []

    def plan(self, acc: Any, value: Any) -> Any:
        """What ``value`` changes: here the next accumulator."""
        raise NotImplementedError

    def apply(self, acc: Any, planned: Any) -> Any:
        """The accumulator with what was planned."""
        return planned

    def merge(self, acc: Any, later: Any) -> Any:
        """The accumulator of two parts of a window. ``later`` is a part of other windows too, and stays as
        it is."""
        raise NotImplementedError

    def result(self, acc: Any) -> Any:
        raise NotImplementedError

    def takes(self, kind: str) -> bool:
        """Whether it continues an accumulator of this kind."""
        return kind == self.kind


class Count(Part):
    kind = "count"

    def initial(self) -> Any:
        return 0

    def plan(self, acc: Any, value: Any) -> Any:
        return acc + 1

    def merge(self, acc: Any, later: Any) -> Any:
        return acc + later

    def result(self, acc: Any) -> Any:
        return acc


class Sum(Part):
    """The accumulator is a list of the sum, empty before the first value."""

    kind = "sum"

    def __init__(self, read: Read) -> None:
        self.read = read
        self.first = adding("sum")

    def plan(self, acc: Any, value: Any) -> Any:
        value = self.read(value)
        return [acc[0] + value] if acc else [self.first(value)]

    def merge(self, acc: Any, later: Any) -> Any:
        return [acc[0] + later[0]] if acc and later else acc or later

    def result(self, acc: Any) -> Any:
        return copied(acc[0]) if acc else None


class Mean(Part):
    """The accumulator is a list of the sum and the number of values."""

    kind = "mean"

    def __init__(self, read: Read) -> None:
        self.read = read
        self.first = adding("mean")

    def plan(self, acc: Any, value: Any) -> Any:
        value = self.read(value)
        return [acc[0] + value, acc[1] + 1] if acc else [self.first(value), 1]

    def merge(self, acc: Any, later: Any) -> Any:
        return [acc[0] + later[0], acc[1] + later[1]] if acc and later else acc or later

    def result(self, acc: Any) -> Any:
        return acc[0] / acc[1] if acc else None


class First(Part):
    """The accumulator is a list of the value, or of nothing."""

    kind = "first"

    def __init__(self, read: Read) -> None:
        self.read = read

    def plan(self, acc: Any, value: Any) -> Any:
        return acc or [self.read(value)]

    def merge(self, acc: Any, later: Any) -> Any:
        return acc or later

    def result(self, acc: Any) -> Any:
        return copied(acc[0]) if acc else None


class Last(First):
    kind = "last"

    def plan(self, acc: Any, value: Any) -> Any:
        return [self.read(value)]

    def merge(self, acc: Any, later: Any) -> Any:
        return later or acc


class Extreme(Part):
    """``min`` and ``max``: a list of what is compared and, with ``by=``, the value that has it."""

    def __init__(
        self, kind: str, better: Callable[[Any, Any], bool], read: Read, by: Read | None, step: str
    ) -> None:
        self.kind = kind if by is None else f"{kind} by"
        self.better = better
        self.read = read
        self.by = by
        self.first = comparing(kind, step)

    def plan(self, acc: Any, value: Any) -> Any:
        compared = (self.by or self.read)(value)
        if acc:
            if not self.better(compared, acc[0]):
                return acc
        else:
            compared = self.first(compared)
        return [compared] if self.by is None else [compared, self.read(value)]

    def merge(self, acc: Any, later: Any) -> Any:
        return later if later and (not acc or self.better(later[0], acc[0])) else acc

    def result(self, acc: Any) -> Any:
        return copied(acc[-1]) if acc else None


class Distinct(Part):
    """The accumulator is a dict with the values as keys: in the order of their arrival, as a set is not."""

    kind = "distinct"

    def __init__(self, read: Read) -> None:
        self.read = read

    def initial(self) -> Any:
        return {}

    def plan(self, acc: Any, value: Any) -> Any:
        value = self.read(value)
        try:
            hash(value)
        except TypeError as error:
            raise TypeError(
                f"distinct counts values that can be hashed, and {show(value)} cannot: "
                "name a field, or make text or a tuple of it"
            ) from error
        return value

    def apply(self, acc: Any, planned: Any) -> Any:
        acc[planned] = True
        return acc

    def merge(self, acc: Any, later: Any) -> Any:
        acc.update(later)
        return acc

    def result(self, acc: Any) -> Any:
        return len(acc)


class Top(Part):
    """The accumulator is a list of pairs of what is compared and the value, the greatest first."""

    def __init__(self, k: int, read: Read, by: Read | None, step: str) -> None:
        self.kind = f"top {k}"
        self.k = k
        self.read = read
        self.by = by
        self.first = comparing("top", step)

    def plan(self, acc: Any, value: Any) -> Any:
        shown = self.read(value)
        compared = shown if self.by is None else self.by(value)
        if not acc:
            compared = self.first(compared)
        return self.place(acc, compared), [compared, shown]

    def place(self, acc: Any, compared: Any) -> int:
        """The position of a value: after those that are equal."""
        low = 0
        high = len(acc)
        while low < high:
            middle = (low + high) // 2
            if acc[middle][0] < compared:
                high = middle
            else:
                low = middle + 1
        return low

    def apply(self, acc: Any, planned: Any) -> Any:
        place, pair = planned
        if place < self.k:
            acc.insert(place, pair)
            del acc[self.k :]
        return acc

    def merge(self, acc: Any, later: Any) -> Any:
        for pair in later:
            self.apply(acc, (self.place(acc, pair[0]), pair))
        return acc

    def result(self, acc: Any) -> Any:
        return [copied(value) for _, value in acc[: self.k]]

    def takes(self, kind: str) -> bool:
        """Whether the list is as long: a shorter one has dropped values that count now."""
        top, _, k = kind.partition(" ")
        return top == "top" and int(k) >= self.k


class Quantile(Part):
    """The accumulator is a list: a dict of the numbers of values, for each value or for each bucket, and the
    least and the greatest value, which the result is between.

    The buckets are those of DDSketch (Masson, Rim, Lee: DDSketch, VLDB 2019): their bounds are powers of
    ``(1 + error) / (1 - error)``, so that the middle of a bucket differs from each value in it by at most
    ``error`` times the value. A bucket is a sign and an exponent. The result does not depend on the order of
    the values.
    """

    def __init__(self, q: float, read: Read, error: float) -> None:
        from fractions import Fraction
        from math import log

        # As it is written: 0.29 is not a bit less, or the rank in 101 values would be 28.
        self.q = Fraction(str(q))
        self.read = read
        self.error = error
        self.kind = f"quantile {error!r}"
        self.base = log((1 + error) / (1 - error))

    def initial(self) -> Any:
        return [{}, None, None]

    def plan(self, acc: Any, value: Any) -> Any:
        value = self.read(value)
        if isinstance(value, TEXT):
            raise refused("quantile takes numbers", value)
        if not self.error:
            hash(value)
            # It is false for what has no order, such as a number that is none.
            if value != value or (acc[0] and not (value < acc[1] or value >= acc[1])):
                raise ValueError(f"quantile takes values that have an order, not {show(value)}")
            return value, value
        number = float(value)
        return self.bucket(number), number

    def bucket(self, number: float) -> tuple[int, int]:
        from math import ceil, isfinite, log

        if not isfinite(number):
            raise ValueError(f"quantile takes finite numbers, not {number!r}")
        if number == 0:
            return 0, 0
        return (1 if number > 0 else -1), ceil(log(abs(number)) / self.base)

    def middle(self, bucket: tuple[int, int]) -> float:
        """The number that stands for all of a bucket."""
        from math import exp, log
        from sys import float_info

        sign, exponent = bucket
        if not sign:
            return 0.0
        try:
            return sign * exp(exponent * self.base + log(2 / (1 + exp(self.base))))
        except OverflowError:
            return sign * float_info.max

    def apply(self, acc: Any, planned: Any) -> Any:
        bucket, value = planned
        return self.merge(acc, [{bucket: 1}, value, value])

    def merge(self, acc: Any, later: Any) -> Any:
        counts, least, greatest = acc
        if not counts:
            return [dict(later[0]), *later[1:]]
        if not later[0]:
            return acc
        for bucket, number in later[0].items():
            counts[bucket] = counts.get(bucket, 0) + number
        acc[1] = later[1] if later[1] < least else least
        acc[2] = later[2] if later[2] > greatest else greatest
        return acc

    def result(self, acc: Any) -> Any:
        counts, least, greatest = acc
        if not counts:
            return None
        last = sum(counts.values()) - 1
        rank = self.q.numerator * last // self.q.denominator
        if rank in (0, last):
            return least if rank == 0 else greatest
        for bucket in sorted(counts, key=self.order if self.error else None):
            rank -= counts[bucket]
            if rank < 0:
                break
        return min(max(self.middle(bucket), least), greatest) if self.error else bucket

    @staticmethod
    def order(bucket: tuple[int, int]) -> tuple[int, int]:
        """The place of a bucket: among negative ones the greatest exponent is first."""
        return bucket[0], bucket[0] * bucket[1]


def begun(part: Part, acc: Any) -> list[Any]:
    """What is saved of a result."""
    return [part.kind, acc, *part.fields] if any(part.fields) else [part.kind, acc]


def of_fields(kind: str, fields: Iterable[str | None]) -> str:
    """A kind with the fields that it reads, in words."""
    named = [repr(field) for field in fields if field]
    return f"{kind} of {' by '.join(named)}" if named else kind


class Aggregation:
    """The aggregates of one ``agg``, by the names of their results."""

    def __init__(self, results: Mapping[str, Aggregate[Any]], step: str) -> None:
        self.parts = {name: aggregate._make(step) for name, aggregate in results.items()}
        for name, part in self.parts.items():
            part.fields = tuple(f if isinstance(f, str) else None for f in results[name]._read)

    def initial(self) -> State:
        return {name: begun(part, part.initial()) for name, part in self.parts.items()}

    def add(self, state: State, value: Any) -> State:
        """Adds a value to all, or raises and adds it to none."""
        planned = [part.plan(state[name][1], value) for name, part in self.parts.items()]
        for (name, part), change in zip(self.parts.items(), planned):  # noqa: B905 - it is one list
            held = state[name]
            held[1] = part.apply(held[1], change)
        return state

    def merge(self, state: State, later: State) -> State:
        """Adds a later part of a window, and leaves that as it is."""
        for name, part in self.parts.items():
            held = state[name]
            held[1] = part.merge(held[1], later[name][1])
        return state

    def result(self, state: State) -> dict[str, Any]:
        return {name: part.result(state[name][1]) for name, part in self.parts.items()}

    def restored(self, saved: Any) -> State:
        """The state with which a run continues: results that are new begin, those that are gone are dropped.

        Raises:
            TypeError: a result of this name was of another kind, or the state is no state of ``agg``.
        """
        if not isinstance(saved, dict):
            raise TypeError(f"agg has not saved it: it is {show(saved)}")
        state = self.initial()
        for name, part in self.parts.items():
            kind, acc, *fields = saved.get(name, state[name])
            changed = any(a and b and a != b for a, b in zip(fields, part.fields))  # noqa: B905
            if changed or not part.takes(kind):
                was, now = of_fields(kind, fields), of_fields(part.kind, part.fields)
                raise TypeError(
                    f"its {name!r} was saved as that of {was}, and is one of {now} now: "
                    "give the result another name, with which it begins anew"
                )
            state[name] = begun(part, acc)
        return state
