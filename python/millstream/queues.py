"""Queues as sources and sinks of flows: those of a folder, in process, see :class:`millstream.Queues`.

>>> import millstream as ms
>>> from tempfile import TemporaryDirectory
>>> folder = TemporaryDirectory()
>>> with ms.Queues(folder.name) as place:
...     _ = place["words"].put_many(["to", "be"])
...     flow = ms.Flow("shout")
...     words = flow.source("words", ms.queues.read(place, "words", decode=bytes.decode, until_empty=True))
...     words.map(str.upper).sink("loud", ms.queues.write(place, "loud"))
...     _ = ms.run(flow)
...     list(place["loud"]), len(place["words"])
([b'TO', b'BE'], 0)
"""

from __future__ import annotations

from typing import overload

from . import _millstream

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from collections.abc import Callable
    from typing import Any, TypeAlias

    from ._types import Decoder, Frame, U

    Place: TypeAlias = _millstream.Queues | str | os.PathLike[str]

__all__ = ["read", "write"]


def _path(place: Place) -> str | os.PathLike[str]:
    return place.path if isinstance(place, _millstream.Queues) else place


@overload
def read(
    place: Place,
    *names: str,
    decode: None = None,
    until_empty: bool = False,
) -> _millstream.ByteSource[bytes]: ...
@overload
def read(
    place: Place,
    *names: str,
    decode: Decoder[U] = ...,
    until_empty: bool = False,
) -> _millstream.ByteSource[U]: ...
def read(
    place: Place,
    *names: str,
    decode: type | Callable[[bytes], Any] | None = None,
    until_empty: bool = False,
) -> _millstream.ByteSource[Any]:
    """Takes the items of queues, each a partition; waits for more, or ends when one has none.

    ``place`` is the folder: a path, or a :class:`millstream.Queues`, whose settings then hold. Items are
    bytes, or what ``decode`` makes of them (see :mod:`millstream.tcp`). In a flow with a state directory each
    item counts once, whatever happens; without one an item may come again after a crash.
    """
    if not names:
        raise TypeError("read takes the name of a queue, or several")
    return _millstream.queue_read(_path(place), names, decode=decode, until_empty=until_empty)


@overload
def write(place: Place, name: str, encode: None = None) -> _millstream.ByteSink[Frame]: ...
@overload
def write(place: Place, name: str, encode: Callable[[U], Frame] = ...) -> _millstream.ByteSink[U]: ...
def write(place: Place, name: str, encode: Callable[[Any], Any] | None = None) -> _millstream.ByteSink[Any]:
    """Puts bytes, str or records, or what ``encode`` makes of an item, into a queue, whatever its limits say.

    In a flow with a state directory the items of an epoch are in the queue once it is committed, each of them
    once. Without one they are there at once.
    """
    return _millstream.queue_write(_path(place), name, encode=encode)
