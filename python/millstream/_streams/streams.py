"""The classes of streams. Their verbs are in the modules that they derive from."""

from __future__ import annotations

from typing import Any, Generic

from .._values.types import K_co, L_co, T_co, V_co
from .aggregates import AggregateVerbs
from .base import Keys, NoKeys, StreamMakers
from .event_time import EventTimeVerbs
from .joins import JoinVerbs
from .keyed import KeyedVerbs
from .limits import LimitVerbs
from .misplaced import verbs_are_found
from .plain import PlainVerbs
from .shared import SharedVerbs
from .stateful import StatefulVerbs
from .steps import StepVerbs
from .windowed import WindowVerbs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .._millstream import Pipe
    from .._values.types import OnError
    from ..windows import Window, Windower


class Makers(StreamMakers):
    """Makes streams of the classes of this module."""

    __slots__ = ()

    def _new_stream(self, pipe: Pipe, timed: bool) -> Stream[Any]:
        return Stream(pipe, timed)

    def _new_keyed(self, pipes: list[Pipe], placed: bool, timed: bool) -> KeyedStream[Any, Any]:
        return KeyedStream(pipes, placed, timed)

    def _new_late(self, pipe: Pipe, timed: bool, late: Pipe) -> LateStream[Any, Any, Any]:
        return LateStream([pipe], timed, [late])

    def _new_joined(
        self, results: KeyedStream[Any, Any], numbered: KeyedStream[Any, Any]
    ) -> LateStream[Any, Any, Any]:
        return Joined(results, numbered)

    def _new_windows(
        self,
        name: str,
        window: Window | Windower,
        options: tuple[int, bool, tuple[int, int | None] | None],
        on_error: OnError,
    ) -> Windows[Any, Any]:
        assert isinstance(self, KeyedStream)
        return Windows(self, name, window, options, on_error)


@verbs_are_found
class Stream(
    Makers,
    StepVerbs[NoKeys, T_co],
    SharedVerbs[NoKeys, T_co],
    PlainVerbs[T_co],
    EventTimeVerbs[T_co],
):
    """A stream of objects without keys.

    ``name`` of a verb is the name of the step in errors and metrics. ``on_error`` says what happens to an
    item on which the function of the step raises:

    - ``"fail"`` ends the flow with a :class:`millstream.StepError`.
    - ``"skip"`` counts the item and drops it.
    - ``ms.dead_letter(sink)`` sends the item to a sink.

    Example:
        >>> import millstream as ms
        >>> flow, out = ms.Flow("example"), ms.testing.collect()
        >>> stream = flow.source("in", ms.testing.items([1, 2]))
        >>> stream.map(lambda n: n * 10, name="tens").sink("out", out)
        >>> _ = ms.run(flow)
        >>> out
        [10, 20]
    """

    __slots__ = ()


@verbs_are_found
class KeyedStream(
    Makers,
    StepVerbs[Keys[K_co], V_co],
    SharedVerbs[Keys[K_co], V_co],
    KeyedVerbs[K_co, V_co],
    StatefulVerbs[K_co, V_co],
    AggregateVerbs[K_co, V_co],
    LimitVerbs[K_co, V_co],
    JoinVerbs[K_co, V_co],
):
    """A stream whose values have a key. In the verbs of both kinds of streams, an item is such a value: they
    keep the keys.

    Steps that keep state need a name that stays the same, because saved state is found by it. With
    ``emit="end"`` a verb emits the result of each key when all input has ended, with ``emit="each"`` after
    each value.

    Example:
        >>> import millstream as ms
        >>> flow, out = ms.Flow("example"), ms.testing.collect()
        >>> stream = flow.source("in", ms.testing.items("abca"))
        >>> stream.key_by(str).count(emit="each").sink("out", out)
        >>> _ = ms.run(flow)
        >>> out
        [('a', 1), ('b', 1), ('c', 1), ('a', 2)]
    """

    __slots__ = ()


@verbs_are_found
class Windows(Makers, WindowVerbs[K_co, V_co]):
    """The values of each key, grouped into windows. A verb makes a result of each window.

    The result is a :class:`millstream.windows.Windowed` with ``start``, ``end`` and ``value``. It is
    emitted when the watermark has reached the end of the window. The attribute ``late`` of the resulting
    stream is the stream of the late values.

    Example:
        >>> import millstream as ms
        >>> flow, out = ms.Flow("example"), ms.testing.collect()
        >>> numbers = flow.source("in", ms.testing.items([1, 5, 12])).event_time(float)
        >>> tens = numbers.key_by(lambda n: "all").window("tens", ms.windows.tumbling(10))
        >>> tens.sum().values().map(lambda ten: ten.value).sink("out", out)
        >>> _ = ms.run(flow)
        >>> out
        [6, 12]
    """

    __slots__ = ()


class LateStream(KeyedStream[K_co, V_co], Generic[K_co, V_co, L_co]):
    """The results of windows or of a join. The attribute ``late`` is the stream of the late values.

    Example:
        >>> import millstream as ms
        >>> flow, sums, late = ms.Flow("example"), ms.testing.collect(), ms.testing.collect()
        >>> numbers = flow.source("in", ms.testing.items([1, 12, 5])).event_time(float)
        >>> tens = numbers.key_by(lambda n: "all").window("tens", ms.windows.tumbling(10)).sum()
        >>> tens.values().map(lambda ten: ten.value).sink("sums", sums)
        >>> tens.late.values().sink("late", late)
        >>> _ = ms.run(flow)
        >>> sums, late
        ([1, 12], [5])
    """

    __slots__ = ("late",)

    def __init__(self, pipes: list[Pipe], timed: bool, late: list[Pipe]) -> None:
        super().__init__(pipes, True, timed)
        self.late: KeyedStream[K_co, L_co] = KeyedStream(late, True, timed)


class Joined(LateStream[Any, Any, Any]):
    """The result of a join of numbered streams; ``late`` are the values that came too late."""

    __slots__ = ("_late", "_numbered")

    def __init__(self, results: KeyedStream[Any, Any], numbered: KeyedStream[Any, Any]) -> None:
        KeyedStream.__init__(self, results._pipes, True, results._timed)
        self._numbered = numbered
        self._late: KeyedStream[Any, Any] | None = None

    @property
    def late(self) -> KeyedStream[Any, Any]:  # type: ignore[override]
        """The late values. The step is added on first use, because an unused step is an error."""
        if self._late is None:
            self._late = self._numbered.map(lambda value: value[1])
        return self._late
