"""The verbs of streams without keys alone: those that distribute the items, and give them keys."""

from __future__ import annotations

from .._values.types import T_co
from . import kernels as _kernels
from .arguments import reading
from .base import PlainBase

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from .._values.types import K, OnError
    from .streams import KeyedStream, Stream


class PlainVerbs(PlainBase[T_co]):
    """The verbs of :class:`Stream` alone, those that give times excepted."""

    __slots__ = ()

    def redistribute(self) -> Stream[T_co]:
        """Distributes the batches over the workers in turn, so that they share the work. Order is lost.

        Returns:
            The stream of the same items.

        Example:
            >>> import millstream as ms
            >>> flow, out = ms.Flow("shared"), ms.testing.collect()
            >>> flow.source("in", ms.testing.items(range(4))).redistribute().map(str).sink("out", out)
            >>> _ = ms.run(flow, workers=2)
            >>> sorted(out)
            ['0', '1', '2', '3']
        """
        return self._new_stream(self._pipe.redistribute(), self._timed)

    def key_by(
        self, f: Callable[[T_co], K] | str, name: str | None = None, on_error: OnError = "fail"
    ) -> KeyedStream[K, T_co]:
        """Gives each item a key.

        A key is ``str``, ``bytes``, ``int``, ``bool`` or a tuple of them; objects of their subclasses are
        not. From the next step that keeps state on, all items of a key are on one worker, in the order of
        their source.

        Args:
            f: a function that returns the key of an item, or the name of a field: of a mapping, a record or
                an object with attributes.
            name: the name of the step in errors and metrics.
            on_error: what happens to an item on which ``f`` raises or that gets no valid key: ``"fail"``,
                ``"skip"`` or a :class:`millstream.dead_letter`.

        Returns:
            The keyed stream of the same items.

        Raises:
            FlowUsageError: ``f`` is neither a function nor a ``str``.

        Example:
            >>> import millstream as ms
            >>> flow, out = ms.Flow("example"), ms.testing.collect()
            >>> stream = flow.source("in", ms.testing.items(["to", "be", "to"]))
            >>> stream.key_by(str.upper).count().sink("out", out)
            >>> _ = ms.run(flow)
            >>> out
            [('TO', 2), ('BE', 1)]
        """
        kernel = _kernels.key_values(reading("key_by", f), on_error != "fail")
        pipe = self._pipe.step("key_by", name or "", "keys", kernel, on_error)
        pipe.reads(f)
        return self._new_keyed([pipe], False, self._timed)
