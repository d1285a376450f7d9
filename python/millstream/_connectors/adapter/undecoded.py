"""``Undecoded``: what a source of this package yields in the place of an item that it could not decode."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Undecoded:
    """Input that could not be decoded: the source's ``on_error`` handles it, and steps do not receive it.

    The options of the source have ``undecoded=True``.

    Args:
        item: the input as it came, which a dead letter has.
        error: the exception, which names the place in the input. It can be pickled.
        key: the key, which a dead letter has, or None.
        position: the place in the input, for people, which a dead letter has.

    >>> Undecoded(b"x", ValueError("no number"), None, "line 7")
    Undecoded(b'x', ValueError('no number'), None, 'line 7')
    """

    __slots__ = ("error", "item", "key", "position")

    def __init__(self, item: Any, error: Exception, key: Any, position: str) -> None:
        self.item = item
        self.error = error
        self.key = key
        self.position = position

    def __repr__(self) -> str:
        return f"Undecoded({self.item!r}, {self.error!r}, {self.key!r}, {self.position!r})"
