"""The verbs of keyed streams alone that keep no state: those that take the keys away."""

from __future__ import annotations

from .._values.types import K_co, V_co
from . import kernels as _kernels
from .base import KeyedBase

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .streams import Stream


class KeyedVerbs(KeyedBase[K_co, V_co]):
    """The verbs of :class:`KeyedStream` alone that keep no state."""

    __slots__ = ()

    def items(self) -> Stream[tuple[K_co, V_co]]:
        """Makes pairs of keys and values.

        Returns:
            The stream of the pairs, without keys.

        Example:
            >>> import millstream as ms
            >>> flow, out = ms.Flow("example"), ms.testing.collect()
            >>> flow.source("in", ms.testing.items(["a", "bc"])).key_by(len).items().sink("out", out)
            >>> _ = ms.run(flow)
            >>> out
            [(1, 'a'), (2, 'bc')]
        """
        return self._new_stream(self._unkeyed(), self._timed)

    def values(self) -> Stream[V_co]:
        """Drops the keys.

        Returns:
            The stream of the values, without keys.

        Example:
            >>> import millstream as ms
            >>> flow, out = ms.Flow("example"), ms.testing.collect()
            >>> flow.source("in", ms.testing.items(["a", "bc"])).key_by(len).values().sink("out", out)
            >>> _ = ms.run(flow)
            >>> out
            ['a', 'bc']
        """
        pipe = self._joined()[0].step("values", "", "unkey", _kernels.values, "fail")
        return self._new_stream(pipe, self._timed)
