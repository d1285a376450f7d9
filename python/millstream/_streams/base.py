"""The base of all verbs: the native pipes of a stream, and the makers of the streams that verbs return."""

from __future__ import annotations

from typing import Generic

from .. import _millstream
from .._values.types import K_co, T_co, V_co
from .arguments import named_or_raise
from .misplaced import Verbs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .._millstream import Pipe
    from .._values.types import OnError
    from ..windows import Window, Windower
    from .streams import KeyedStream, LateStream, Stream, Windows

__all__ = ["KeyedBase", "PlainBase", "StreamMakers"]


class StreamMakers(Verbs):
    """The makers of the streams that verbs return.

    A verb of one kind of stream returns another kind. The classes are declared together, in one module on
    top of the verbs, which implements these methods; the modules of verbs know none of the classes.
    """

    __slots__ = ()

    def _new_stream(self, pipe: Pipe, timed: bool) -> Stream[Any]:
        raise NotImplementedError

    def _new_keyed(self, pipes: list[Pipe], placed: bool, timed: bool) -> KeyedStream[Any, Any]:
        raise NotImplementedError

    def _new_late(self, pipe: Pipe, timed: bool, late: Pipe) -> LateStream[Any, Any, Any]:
        """A stream on the workers of its keys, with its late values."""
        raise NotImplementedError

    def _new_joined(
        self, results: KeyedStream[Any, Any], numbered: KeyedStream[Any, Any]
    ) -> LateStream[Any, Any, Any]:
        """The results of a join within windows or of many streams; ``numbered`` are the late values, each
        after the number of its stream."""
        raise NotImplementedError

    def _new_windows(
        self,
        name: str,
        window: Window | Windower,
        options: tuple[int, bool, tuple[int, int | None] | None],
        on_error: OnError,
    ) -> Windows[Any, Any]:
        raise NotImplementedError


class PlainBase(StreamMakers, Generic[T_co]):
    """The pipe of a stream without keys."""

    __slots__ = ("_pipe", "_timed")

    def __init__(self, pipe: Pipe, timed: bool = False) -> None:
        self._pipe = pipe
        self._timed = timed


class KeyedBase(StreamMakers, Generic[K_co, V_co]):
    """The pipes of a keyed stream: several until a step merges them.

    ``placed`` is whether each item is on the worker of its key.
    """

    __slots__ = ("_pipes", "_placed", "_timed")

    def __init__(self, pipes: list[Pipe], placed: bool, timed: bool) -> None:
        self._pipes = pipes
        self._placed = placed
        self._timed = timed

    def _home(self) -> _millstream.Pipe:
        """The items on the workers of their keys, as one stream."""
        if self._placed:
            return self._pipes[0]
        return _millstream.Pipe.gather("exchange", "", self._pipes, True)

    def _joined(self) -> tuple[_millstream.Pipe, bool]:
        """The items as one stream, and whether each is on the worker of its key."""
        if len(self._pipes) == 1:
            return self._pipes[0], self._placed
        return self._home(), True

    def _keep(
        self, kind: str, name: str, kernel: Any, on_error: OnError, at_end: bool = False
    ) -> KeyedStream[K_co, Any]:
        """A step that keeps state; ``at_end``: it emits only when all input has ended."""
        named_or_raise(kind, name)
        shape = "at end" if at_end else "pairs"
        return self._new_keyed([self._home().step(kind, name, shape, kernel, on_error)], True, False)
