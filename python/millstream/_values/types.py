"""The type variables of streams, sources and sinks, and the types that several modules use.

Type checkers read all of it. At run time the variables are there because classes are declared with them;
the rest is not. A class that is named without types has `Any` for each of them, so that `Stream` is
`Stream[Any]`: also under `mypy --strict`.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from datetime import datetime
    from typing import Any, Literal, Protocol, TypeAlias

    from typing_extensions import TypeVar

    from .._connectors.io import Sink, Source
    from .._connectors.outbox import Writes
    from .._errors.flow import dead_letter
    from .._millstream import (
        ByteSink,
        ByteSource,
        CsvSource,
        DurableSource,
        KeyContext,
        KeyedSink,
        Record,
        Script,
    )
elif sys.version_info >= (3, 13):
    from typing import Any, TypeVar
else:
    from typing import Any, TypeVar as _TypeVar

    def TypeVar(name, *, default, **kinds):
        """Defaults are known to `typing` from Python 3.13 on."""
        return _TypeVar(name, **kinds)


# The items of a stream, its keys, and its late items. Streams only emit items, and a stream of
# `bool` is a stream of `int`, too.
T_co = TypeVar("T_co", covariant=True, default=Any)
K_co = TypeVar("K_co", covariant=True, default=Any)
V_co = TypeVar("V_co", covariant=True, default=Any)
L_co = TypeVar("L_co", covariant=True, default=Any)
# Whether a stream has keys, and of what type.
Kind_co = TypeVar("Kind_co", covariant=True, default=Any)
# The items that a sink takes. A sink of `object` is a sink of anything.
T_contra = TypeVar("T_contra", contravariant=True, default=Any)
# The items of a list that is a sink, which a user reads and writes.
T = TypeVar("T", default=Any)

if TYPE_CHECKING:
    from typing import TypeVar as Variable

    Scalar: TypeAlias = str | bytes | int
    Key: TypeAlias = Scalar | tuple[Any, ...]
    """The types of keys. The members of a tuple are keys again, which the run checks."""

    Time: TypeAlias = float | datetime
    """A number of seconds since an epoch of the user's choice, or a datetime with a time zone."""

    Frame: TypeAlias = bytes | bytearray | str | Record
    """The types that are written as they are."""

    U = Variable("U")
    Decoder: TypeAlias = type[U] | Callable[[bytes], U]
    """`str`, `bytes`, a class of records, or a function of bytes."""

    AnySource: TypeAlias = (
        Source[T_co] | ByteSource[T_co] | CsvSource[T_co] | DurableSource[T_co] | Script[T_co]
    )
    # Of a class with `ms.sink`: mypy takes a class with a decorator for the class itself.
    AnySink: TypeAlias = (
        Sink[T_contra] | ByteSink[T_contra] | KeyedSink[T_contra] | list[T_contra] | Writes[T_contra]
    )
    OnError: TypeAlias = Literal["fail", "skip"] | dead_letter
    Emit: TypeAlias = Literal["end", "each"]

    class Adds(Protocol):
        """A type with a sum."""

        def __add__(self, other: Any, /) -> Any: ...

    class Compares(Protocol):
        """A type with an order."""

        def __lt__(self, other: Any, /) -> Any: ...

    # A key, a value that is added, one that is compared: where a field is named, not a function, Any.
    K = TypeVar("K", bound=Key, default=Any)
    # The keys of a stream that has them: `key_by` has checked their type.
    AnyKey = Variable("AnyKey")
    A = Variable("A")
    N = TypeVar("N", bound=Adds, default=Any)
    C = TypeVar("C", bound=Compares, default=Any)
    # What a sink takes that has a function for it, or else any object.
    Written = TypeVar("Written", default=object)
    R = Variable("R")
    S = Variable("S")
    W = Variable("W")
    X = Variable("X")
    Y = Variable("Y")
    K_contra = Variable("K_contra", contravariant=True)
    V_contra = Variable("V_contra", contravariant=True)
    V = Variable("V")
    R_co = Variable("R_co", covariant=True)

    # The protocols of logic that is a class for each key. A context as the last argument is optional, so that
    # each method is one of two types of function; `on_end` and `on_timer` may be absent.

    class Logic(Protocol[K_contra, V_contra, R_co]):
        """An object that makes outputs of the values of one key."""

        @property
        def on_item(
            self,
        ) -> (
            Callable[[K_contra, V_contra], Iterable[R_co] | None]
            | Callable[[K_contra, V_contra, KeyContext], Iterable[R_co] | None]
        ): ...

    class EndingLogic(Logic[K_contra, V_contra, R_co], Protocol[K_contra, V_contra, R_co]):
        """Logic that makes outputs at the end of all input, too."""

        @property
        def on_end(
            self,
        ) -> (
            Callable[[K_contra], Iterable[R_co] | None]
            | Callable[[K_contra, KeyContext], Iterable[R_co] | None]
        ): ...

    class TimedLogic(Logic[K_contra, V_contra, R_co], Protocol[K_contra, V_contra, R_co]):
        """Logic that makes outputs when its timers fire, too."""

        @property
        def on_timer(self) -> Callable[[K_contra, float, KeyContext], Iterable[R_co] | None]: ...

    class EndingTimedLogic(
        EndingLogic[K_contra, V_contra, R_co],
        TimedLogic[K_contra, V_contra, R_co],
        Protocol[K_contra, V_contra, R_co],
    ):
        """Logic that makes outputs on all three occasions."""

    # The same, called with all values that a key has in a batch.

    class BatchLogic(Protocol[K_contra, V, R_co]):
        """An object that makes outputs of lists of values of one key."""

        @property
        def on_batch(
            self,
        ) -> (
            Callable[[K_contra, list[V]], Iterable[R_co] | None]
            | Callable[[K_contra, list[V], KeyContext], Iterable[R_co] | None]
        ): ...

    class EndingBatchLogic(BatchLogic[K_contra, V, R_co], Protocol[K_contra, V, R_co]):
        """Such logic that makes outputs at the end of all input, too."""

        @property
        def on_end(
            self,
        ) -> (
            Callable[[K_contra], Iterable[R_co] | None]
            | Callable[[K_contra, KeyContext], Iterable[R_co] | None]
        ): ...

    class TimedBatchLogic(BatchLogic[K_contra, V, R_co], Protocol[K_contra, V, R_co]):
        """Such logic that makes outputs when its timers fire, too."""

        @property
        def on_timer(self) -> Callable[[K_contra, float, KeyContext], Iterable[R_co] | None]: ...

    class EndingTimedBatchLogic(
        EndingBatchLogic[K_contra, V, R_co],
        TimedBatchLogic[K_contra, V, R_co],
        Protocol[K_contra, V, R_co],
    ):
        """Such logic that makes outputs on all three occasions."""
