"""Queues as sources and sinks of flows, in this process; see :class:`millstream.Queues`.

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
from ._errors.flow import FlowUsageError
from ._values.checked import checked

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from collections.abc import Callable
    from typing import Any, TypeAlias

    from ._values.types import Decoder, Frame, U

Place: TypeAlias = "_millstream.Queues | str | os.PathLike[str]"

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
@checked
def read(
    place: Place,
    *names: str,
    decode: type | Callable[[bytes], Any] | None = None,
    until_empty: bool = False,
) -> _millstream.ByteSource[Any]:
    """Takes the items of queues; each queue is a partition.

    With a state directory each item has its effect once, after a crash too; without one an item may be read
    again after a crash.

    Args:
        place: the directory of the queues: a path, or a :class:`millstream.Queues`, whose settings are used
            then.
        names: the names of the queues.
        decode: makes an item of the bytes: ``str``, ``bytes``, a subclass of :class:`millstream.Record`, or
            a function. None leaves bytes.
        until_empty: whether the source ends when a queue is empty, instead of waiting for items.

    Returns:
        A source of bytes, or of what ``decode`` makes of them.

    Raises:
        FlowUsageError: there is no name.

    Example:
        >>> import millstream as ms
        >>> from tempfile import TemporaryDirectory
        >>> flow, out = ms.Flow("jobs"), ms.testing.collect()
        >>> with TemporaryDirectory() as folder, ms.Queues(folder) as queues:
        ...     _ = queues["jobs"].put_many(["a", "b"])
        ...     jobs = ms.queues.read(queues, "jobs", decode=bytes.decode, until_empty=True)
        ...     flow.source("jobs", jobs).sink("out", out)
        ...     _ = ms.run(flow)
        >>> out
        ['a', 'b']
    """
    if not names:
        raise FlowUsageError("names is the name of a queue, or several")
    return _millstream.queue_read(_path(place), names, decode=decode, until_empty=until_empty)


@overload
def write(place: Place, name: str, encode: None = None) -> _millstream.ByteSink[Frame]: ...
@overload
def write(place: Place, name: str, encode: Callable[[U], Frame] = ...) -> _millstream.ByteSink[U]: ...
@checked
def write(place: Place, name: str, encode: Callable[[Any], Any] | None = None) -> _millstream.ByteSink[Any]:
    """Puts items into a queue, whatever its limits are.

    With a state directory the items of an epoch are in the queue when the epoch is committed, each of them
    once; without one they are there at once.

    Args:
        place: the directory of the queues: a path, or a :class:`millstream.Queues`, whose settings are used
            then.
        name: the name of the queue.
        encode: a function that makes bytes, ``str`` or a record of an item. None: items are that already.

    Returns:
        A sink of bytes, ``str``, records, or items for ``encode``.

    Example:
        >>> import millstream as ms
        >>> from tempfile import TemporaryDirectory
        >>> flow = ms.Flow("letters")
        >>> with TemporaryDirectory() as folder, ms.Queues(folder) as queues:
        ...     letters = flow.source("letters", ms.testing.items("ab"))
        ...     letters.sink("out", ms.queues.write(queues, "letters"))
        ...     _ = ms.run(flow)
        ...     list(queues["letters"])
        [b'a', b'b']
    """
    return _millstream.queue_write(_path(place), name, encode=encode)
