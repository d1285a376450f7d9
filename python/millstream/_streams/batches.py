"""``stateful_batch``: state for each key, called with all values of the key in a batch."""

# ruff: noqa: B905 - keys and values have the same number.
from __future__ import annotations

from .._errors.flow import FlowUsageError
from .._values.durations import nanos
from .._values.states import without_arguments_or_raise
from . import kernels as _kernels, logic as _logic
from .arguments import callable_or_raise, named_or_raise

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .._values.durations import Seconds
    from .._values.types import OnError
    from .base import KeyedBase
    from .streams import KeyedStream


def stateful_batch(
    stream: KeyedBase,
    name: str,
    logic: Callable[..., Any],
    state: Callable[[], Any] | None,
    on_error: OnError,
    ttl: Seconds | None,
) -> KeyedStream:
    """Implements :meth:`KeyedStream.stateful_batch`."""
    callable_or_raise("stateful_batch", logic)
    named_or_raise("stateful_batch", name)
    if state is None:
        without_arguments_or_raise(logic)
        if isinstance(logic, type) and not hasattr(logic, "on_batch"):
            raise FlowUsageError(f"{logic.__name__} has no method on_batch(key, values)")
    pipe = stream._home().batches(f"{name}.batches")
    batches = stream._new_keyed([pipe], True, stream._timed)
    if state is not None:
        return batches.stateful(name, logic, state, on_error, ttl)
    plain = isinstance(logic, type) and _logic.is_plain(logic, "on_batch")
    if plain and ttl is None and not stream._timed:
        kernel = batch_logic(logic, on_error != "fail")
        pipe = pipe.step("stateful_batch", name, "pairs", kernel, on_error, in_order=True)
        return stream._new_keyed([pipe], True, False)
    life = None if ttl is None else nanos("ttl", ttl)
    timed = stream._timed
    return stream._new_keyed([pipe.stateful_batch(name, logic, timed, life, on_error)], True, timed)


def batch_logic(make_logic: Callable[[], Any], tolerant: bool) -> _kernels.Make:
    """As ``stateful_logic`` of the kernels, with lists of values and ``on_batch(key, values)``."""

    def make() -> Any:
        logics = _kernels._Logics()
        logics.make = make_logic

        def kernel(keys: list[Any], batches: Any) -> Any:
            out_keys: list[Any] = []
            out: list[Any] = []
            for key, values in zip(keys, batches):
                made = logics[key].on_batch(key, values)
                if made is not None:
                    for value in made:
                        out_keys.append(key)
                        out.append(value)
            return out_keys, out

        def each(keys: list[Any], batches: Any, bad: Any) -> Any:
            out_keys: list[Any] = []
            out: list[Any] = []
            for key, values in zip(keys, batches):
                try:
                    made = list(logics[key].on_batch(key, values) or ())
                except Exception as error:
                    bad.append((key, values, error))
                else:
                    out.extend(made)
                    out_keys.extend([key] * len(made))
            return out_keys, out

        def end(bad: Any) -> Any:
            def last(key: Any) -> Any:
                on_end = getattr(logics[key], "on_end", None)
                return None if on_end is None else on_end(key)

            return _kernels.at_end(logics, last, tolerant, bad)

        return (each if tolerant else kernel), end, logics

    return make
