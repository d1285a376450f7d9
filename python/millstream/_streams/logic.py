"""The methods of a class of logic for ``stateful``: which it has, and which of them take a context."""

from __future__ import annotations

from .._errors.flow import FlowUsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


ASYNC = 0x80 | 0x200
"""The flags of the code of coroutine functions and asynchronous generators, as ``inspect`` has them."""


def is_async(f: object) -> bool:
    """True for a function that is defined by ``async def``, or an object that is called as one.

    >>> async def ask(n): ...
    >>> is_async(ask), is_async(len), is_async(int)
    (True, False, False)
    """
    from functools import partial

    while isinstance(f, partial):
        f = f.func
    code = getattr(f, "__code__", None)
    if code is None and not isinstance(f, type):
        calls = (vars(kind).get("__call__") for kind in type(f).__mro__)
        code = getattr(next(filter(None, calls), None), "__code__", None)
    flags = getattr(code, "co_flags", 0)
    # An object that has every attribute, as mocks do, is no function of either kind.
    return isinstance(flags, int) and bool(flags & ASYNC)


def takes(logic: type, method: str, without: int) -> bool:
    """True when ``method`` takes a context after ``without`` other arguments."""
    import inspect

    function = getattr(logic, method)
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return False
    # ``None`` stands for ``self``, which a static method does not have.
    static = isinstance(inspect.getattr_static(logic, method), (staticmethod, classmethod))
    arguments: list[Any] = [None] * (without + (0 if static else 1))
    try:
        signature.bind(*arguments)
    except TypeError:
        try:
            signature.bind(*arguments, None)
        except TypeError:
            names = {"on_item": "key, value, ctx", "on_batch": "key, values, ctx"}.get(method, "key, ctx")
            raise FlowUsageError(f"{logic.__name__}.{method} takes ({names}), the last if it wants") from None
        return True
    return False


def context_of(logic: type, method: str = "on_item") -> tuple[bool, bool | None, bool]:
    """Whether ``method`` takes a context; whether ``on_end`` does (None: there is none); ``on_timer``."""
    if not hasattr(logic, method):
        value = "values" if method == "on_batch" else "value"
        raise FlowUsageError(f"{logic.__name__} has no method {method}(key, {value})")
    for called in (method, "on_end", "on_timer"):
        if is_async(getattr(logic, called, None)):
            raise FlowUsageError(
                f"{logic.__name__}.{called} is async, and the step does not wait for it: "
                "make the calls with map_async before this step"
            )
    end = takes(logic, "on_end", 1) if hasattr(logic, "on_end") else None
    return takes(logic, method, 2), end, hasattr(logic, "on_timer")


def is_plain(logic: type, method: str = "on_item") -> bool:
    """True for a class that uses neither times nor timers."""
    return context_of(logic, method) in ((False, None, False), (False, False, False))
