"""What a class of logic for ``stateful`` can do: which methods it has, and which of them take a context."""

from __future__ import annotations

from ._errors import FlowUsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def takes(logic: type, method: str, without: int) -> bool:
    """True when ``method`` takes a context behind the ``without`` arguments that it takes anyway."""
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
            names = "key, value, ctx" if method == "on_item" else "key, ctx"
            raise FlowUsageError(f"{logic.__name__}.{method} takes ({names}), the last if it wants") from None
        return True
    return False


def face(logic: type) -> tuple[bool, bool | None, bool]:
    """Whether ``on_item`` takes a context; whether ``on_end`` does (None: there is none); ``on_timer``."""
    if not hasattr(logic, "on_item"):
        raise FlowUsageError(f"{logic.__name__} has no method on_item(key, value)")
    end = takes(logic, "on_end", 1) if hasattr(logic, "on_end") else None
    return takes(logic, "on_item", 2), end, hasattr(logic, "on_timer")


def is_plain(logic: type) -> bool:
    """True for a class that has nothing to do with time."""
    return face(logic) in ((False, None, False), (False, False, False))
