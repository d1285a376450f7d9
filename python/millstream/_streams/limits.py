"""The logic of ``dedupe`` and ``throttle``: what a key remembers of its values to drop some of them."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .._millstream import KeyContext

__all__ = ["Once", "Throttled"]


class Once:
    """Passes the first value of a key on."""

    __slots__ = ("seen",)

    def __init__(self) -> None:
        self.seen = False

    def on_item(self, key: object, value: Any) -> tuple[Any, ...]:
        if self.seen:
            return ()
        self.seen = True
        return (value,)

    def snapshot(self) -> bool:
        return self.seen

    def restore(self, seen: bool) -> None:
        self.seen = seen


class Throttled:
    """Passes the first ``most`` values of each period on. A period begins with its first value."""

    __slots__ = ("begun", "every", "most", "passed")

    def __init__(self, most: int, every: float) -> None:
        self.most = most
        self.every = every
        self.begun: float | None = None
        self.passed = 0

    def on_item(self, key: object, value: Any, ctx: KeyContext) -> tuple[Any, ...]:
        now = ctx.now if ctx.time is None else ctx.time
        if self.begun is None or now >= self.begun + self.every:
            self.begun, self.passed = now, 0
        if self.passed == self.most:
            return ()
        self.passed += 1
        return (value,)

    def snapshot(self) -> tuple[float | None, int]:
        return self.begun, self.passed

    def restore(self, saved: tuple[float | None, int]) -> None:
        self.begun, self.passed = saved
