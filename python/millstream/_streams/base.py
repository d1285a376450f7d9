"""The base of all verbs: the native pipes of a stream, and the makers of the streams that verbs return.

Streams are of two kinds, with keys and without, and most verbs belong to both. Each has one body and one
docstring, and two types: Python's types cannot say "a stream of the same kind, of other items". A verb that
both kinds have is a method of a :class:`Base`, with one type where ``self`` is a ``Plain[T]`` and one where
it is a ``Keyed[K, T]``. Type checkers and editors show the type that belongs to the stream at hand.
"""

from __future__ import annotations

from typing import Any, Generic, cast, final

from .. import _millstream
from .._errors.flow import FlowUsageError
from .._values.types import K_co, Kind_co, T_co, V_co
from . import kernels as _kernels
from .arguments import named_or_raise, same_times
from .misplaced import Verbs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import ClassVar, TypeAlias

    from .._millstream import Pipe
    from .._values.types import AnyKey, OnError
    from ..windows import Window, Windower
    from .streams import KeyedStream, LateStream, Stream, Windows

    Same: TypeAlias = Stream[Any] | KeyedStream[Any, Any]
    """A stream of the kind of the one whose verb is called."""


@final
class NoKeys:
    """The kind of streams without keys."""


@final
class Keys(Generic[K_co]):
    """The kind of streams with keys of a type."""


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


class Base(StreamMakers, Generic[Kind_co, T_co]):
    """A stream of either kind: what the verbs of both need of it."""

    __slots__ = ()

    _keyed: ClassVar[bool]
    _timed: bool

    def _joined(self) -> tuple[Pipe, bool]:
        """The items as one stream, and whether each is on the worker of its key."""
        raise NotImplementedError

    def _home(self) -> Pipe:
        """The items as one stream, on the workers where state is kept."""
        raise NotImplementedError

    def _unkeyed(self) -> Pipe:
        """The items as one stream without keys; with their keys, pairs."""
        raise NotImplementedError

    def _merged(self, others: tuple[Any, ...]) -> Same:
        """This stream and others of the same kind as one."""
        raise NotImplementedError

    def _same(self, pipe: Pipe, placed: bool, timed: bool) -> Same:
        """A stream of this kind; ``placed`` is whether each item is on the worker of its key."""
        raise NotImplementedError


if TYPE_CHECKING:
    Plain: TypeAlias = Base[NoKeys, T_co]
    Keyed: TypeAlias = Base[Keys[AnyKey], T_co]


class PlainBase(Base[NoKeys, T_co]):
    """The pipe of a stream without keys."""

    __slots__ = ("_pipe", "_timed")

    _keyed = False

    def __init__(self, pipe: Pipe, timed: bool = False) -> None:
        self._pipe = pipe
        self._timed = timed

    def _joined(self) -> tuple[Pipe, bool]:
        return self._pipe, False

    def _home(self) -> Pipe:
        return self._pipe

    def _unkeyed(self) -> Pipe:
        return self._pipe

    def _merged(self, others: tuple[Any, ...]) -> Stream[Any]:
        for other in others:
            if not isinstance(other, PlainBase):
                raise FlowUsageError(f"a stream without keys merges with such streams, not with {other!r}")
            same_times(self._timed, other._timed)
        pipes = [stream._pipe for stream in (self, *others)]
        return self._new_stream(_millstream.Pipe.gather("merge", "", pipes, False), self._timed)

    def _same(self, pipe: Pipe, placed: bool, timed: bool) -> Stream[Any]:
        return self._new_stream(pipe, timed)


class KeyedBase(Base[Keys[K_co], V_co], Generic[K_co, V_co]):
    """The pipes of a keyed stream: several until a step merges them.

    ``placed`` is whether each item is on the worker of its key.
    """

    __slots__ = ("_pipes", "_placed", "_timed")

    _keyed = True

    def __init__(self, pipes: list[Pipe], placed: bool, timed: bool) -> None:
        self._pipes = pipes
        self._placed = placed
        self._timed = timed

    def _home(self) -> Pipe:
        if self._placed:
            return self._pipes[0]
        return _millstream.Pipe.gather("exchange", "", self._pipes, True)

    def _joined(self) -> tuple[Pipe, bool]:
        if len(self._pipes) == 1:
            return self._pipes[0], self._placed
        return self._home(), True

    def _unkeyed(self) -> Pipe:
        return self._joined()[0].step("items", "", "unkey", _kernels.pairs, "fail")

    def _merged(self, others: tuple[Any, ...]) -> KeyedStream[Any, Any]:
        for other in others:
            if not isinstance(other, KeyedBase):
                raise FlowUsageError(f"a keyed stream merges with keyed streams, not with {other!r}")
            same_times(self._timed, other._timed)
        streams = (self, *others)
        if any(stream._placed for stream in streams):
            homes = [stream._home() for stream in streams]
            return self._new_keyed([_millstream.Pipe.gather("merge", "", homes, False)], True, self._timed)
        return self._new_keyed([pipe for stream in streams for pipe in stream._pipes], False, self._timed)

    def _same(self, pipe: Pipe, placed: bool, timed: bool) -> KeyedStream[Any, Any]:
        return self._new_keyed([pipe], placed, timed)

    def _reading(self, f: object) -> KeyedStream[K_co, V_co]:
        """This stream; its step has state of the field ``f``, where that is the name of one."""
        self._pipes[0].reads(f)
        return cast("KeyedStream[K_co, V_co]", self)

    def _keep(
        self,
        kind: str,
        name: str,
        kernel: Any,
        on_error: OnError,
        at_end: bool = False,
        in_order: bool = False,
    ) -> KeyedStream[K_co, Any]:
        """A step that keeps state.

        ``at_end``: it emits only when all input has ended. ``in_order``: what it emits depends on the order
        in which the values of a key arrive.
        """
        named_or_raise(kind, name)
        shape = "at end" if at_end else "pairs"
        pipe = self._home().step(kind, name, shape, kernel, on_error, in_order=in_order)
        return self._new_keyed([pipe], True, False)
