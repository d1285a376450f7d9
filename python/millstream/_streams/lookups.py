"""``enrich_cached`` and ``inspect_debug``: looking up answers, and showing items.

The engine has ``enrich_cached`` for Rust (`lookups.rs`). This one is a loop in Python: a question is an
object that only the interpreter can hash and compare, so that native code would call back for each item.
"""

from __future__ import annotations

import sys
from collections import OrderedDict

from .._errors.flow import FlowUsageError
from .._values.durations import seconds
from . import kernels as _kernels
from .arguments import callable_or_raise, reading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .._millstream import Pipe
    from .._values.durations import Seconds
    from .._values.types import OnError


def enrich(
    pipe: Pipe,
    pairs: bool,
    f: Callable[[Any], Any],
    key: Callable[[Any], Any] | str | None,
    ttl: Seconds | None,
    size: int,
    stale: Seconds,
    retry: Seconds,
    name: str | None,
    on_error: OnError,
) -> Pipe:
    """Implements ``enrich_cached``. ``pairs``: values have keys or times."""
    callable_or_raise("enrich_cached", f)
    ask = None if key is None else reading("key=", key)
    if not isinstance(size, int) or isinstance(size, bool) or size < 1:
        raise FlowUsageError(f"size is a number of answers, 1 or more, not {size!r}")
    life = float("inf") if ttl is None else seconds("ttl", ttl)
    more = seconds("stale", stale, 0)
    pause = seconds("retry", retry, 0)
    tolerant = on_error != "fail"

    def make(clock: Callable[[], float]) -> Any:
        # A cache for each worker: they share nothing.
        look_up = Cache(f, ask, life, size, more, pause, clock).pair
        if pairs and tolerant:
            return _kernels.keyed(_kernels.one(look_up), True)()
        return _kernels.map_values(look_up, tolerant)()

    shape = "produce" if pairs and tolerant else "values"
    return pipe.step("enrich_cached", name or "", shape, make, on_error, by_clock=True)


class Cache:
    """The last answers of a function, for some time."""

    def __init__(
        self,
        f: Callable[[Any], Any],
        key: Callable[[Any], Any] | None,
        ttl: float,
        size: int,
        stale: float,
        retry: float,
        clock: Callable[[], float],
    ) -> None:
        self.f = f
        self.key = key
        self.ttl = ttl
        self.size = size
        self.stale = stale
        self.retry = retry
        self.clock = clock
        # Answer, when it was given, from when on it is asked for again; the one used longest ago is first.
        self.answers: OrderedDict[Any, tuple[Any, float, float]] = OrderedDict()

    def pair(self, item: Any) -> tuple[Any, Any]:
        key = item if self.key is None else self.key(item)
        now = self.clock()
        known = self.answers.get(key)
        if known is not None and now < known[2]:
            self.answers.move_to_end(key)
            return item, known[0]
        try:
            answer = self.f(key)
        except Exception:
            if known is None or now >= known[1] + self.ttl + self.stale:
                self.answers.pop(key, None)
                raise
            self.answers[key] = known[0], known[1], now + self.retry
            self.answers.move_to_end(key)
            return item, known[0]
        self.answers[key] = answer, now, now + self.ttl
        self.answers.move_to_end(key)
        if len(self.answers) > self.size:
            self.answers.popitem(last=False)
        return item, answer


def debug(pipe: Pipe, label: str, to: Callable[[str], object] | None) -> Pipe:
    """Implements ``inspect_debug``."""
    if not isinstance(label, str) or not label:
        raise FlowUsageError(f"inspect_debug takes a label, a str that is not empty, not {label!r}")
    if to is not None:
        callable_or_raise("to=", to)

    def show(epoch: int | None, worker: int, keys: list[Any] | None, values: list[Any] | None) -> None:
        head = f"{label} epoch={'-' if epoch is None else epoch} worker={worker}"
        if keys is None:
            lines = [f"{head}: {value!r}" for value in values or ()]
        else:
            lines = [f"{head} key={key!r}: {value!r}" for key, value in zip(keys, values or ())]  # noqa: B905
        if to is None:
            sys.stderr.write("".join([f"{line}\n" for line in lines]))
        else:
            for line in lines:
                to(line)

    return pipe.debug(show)
