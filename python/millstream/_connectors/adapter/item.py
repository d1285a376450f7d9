"""``At``: an item with its position or its acknowledgement."""

from __future__ import annotations

from typing import Generic

from ..._values.types import T_co

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


class At(Generic[T_co]):
    """An item of a generator source with its position, its acknowledgement or both.

    Args:
        position: the position after the item, any value that can be pickled; None in sources without
            ``resume=True``.
        item: the item; with ``batches=True`` a list of items.
        ack: a function without arguments, which may be asynchronous. It is called when the item need not be
            delivered again. None: there is nothing to call.

    Example:
        >>> import millstream as ms
        >>> ms.At(7, "seven")
        At(7, 'seven')
    """

    __slots__ = ("ack", "item", "position")

    def __init__(self, position: Any, item: T_co, ack: Callable[[], object] | None = None) -> None:
        self.position: Any = position
        self.item: T_co = item
        self.ack = ack

    def __repr__(self) -> str:
        return f"At({self.position!r}, {self.item!r})"
