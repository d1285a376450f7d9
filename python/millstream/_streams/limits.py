"""The verbs of keyed streams that drop some of the values of each key.

The engine has the rules of ``dedupe`` and ``throttle``, whose states are numbers: no function of Python is
called for a value. Without times and ``ttl``, ``dedupe`` and ``changes`` are loops in Python. With them
``changes`` has an object for each key.
"""

from __future__ import annotations

from .._errors.flow import FlowUsageError
from .._values import revival as _revival
from .._values.durations import nanos
from .._values.ownership import copied
from .._values.types import K_co, V_co
from . import kernels as _kernels
from .arguments import named_or_raise, reading
from .base import KeyedBase

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .._values.durations import Seconds
    from .._values.revival import Aliases, Migrate
    from .._values.types import OnError
    from .streams import KeyedStream


class Last:
    """Passes the values of a key on that differ from the one before them, in what ``read`` reads of them."""

    __slots__ = ("known", "read")

    def __init__(self, read: Callable[[Any], Any] = lambda value: value) -> None:
        self.read = read
        self.known: tuple[Any, ...] = ()

    def on_item(self, key: object, value: Any) -> tuple[Any, ...]:
        read = self.read(value)
        if self.known and self.known[0] == read:
            return ()
        # A later step may change the value.
        self.known = (copied(read),)
        return (value,)

    def snapshot(self) -> tuple[Any, ...]:
        return self.known

    def restore(self, known: tuple[Any, ...]) -> None:
        self.known = known


class LimitVerbs(KeyedBase[K_co, V_co]):
    """The verbs of :class:`KeyedStream` that pass some of the values of a key on as they are."""

    __slots__ = ()

    def _limited(
        self, kind: str, name: str, per_period: tuple[int, int | None], ttl: int | None
    ) -> KeyedStream[K_co, V_co]:
        named_or_raise(kind, name)
        pipe = self._home().limit(kind, name, per_period, ttl, self._timed)
        return self._new_keyed([pipe], True, self._timed)

    def dedupe(self, ttl: Seconds | None = None, name: str = "dedupe") -> KeyedStream[K_co, V_co]:
        """Passes the first value of each key on, and drops the others.

        Args:
            ttl: the time after which a key without values is forgotten, so that its next value
                passes; a value that is dropped counts. In event time where the stream has times. None keeps
                every key, and the saved state grows with each.
            name: the name of the step; saved state is found by it, so it must stay the same.

        Returns:
            The keyed stream of the first values.

        Raises:
            FlowUsageError: ``ttl`` is out of range, or the name is empty.

        Example:
            >>> import millstream as ms
            >>> flow, out = ms.Flow("example"), ms.testing.collect()
            >>> messages = flow.source("in", ms.testing.items([{"id": 1}, {"id": 2}, {"id": 1}]))
            >>> messages.key_by("id").dedupe(ttl=3600).values().sink("out", out)
            >>> _ = ms.run(flow)
            >>> out
            [{'id': 1}, {'id': 2}]
        """
        if ttl is None and not self._timed:
            return self._keep("dedupe", name, _kernels.firsts(), "fail", in_order=True)
        return self._limited("dedupe", name, (1, None), None if ttl is None else nanos("ttl", ttl))

    def throttle(self, n: int, every: Seconds, name: str = "throttle") -> KeyedStream[K_co, V_co]:
        """Passes at most ``n`` values of each key in a period on, and drops the others.

        The period of a key begins with a value that finds none, and lasts ``every``. It is one of event time
        where the stream has times, else of processing time. A value that is earlier than the start of the
        period of its key counts in it. The metrics of the step show how many values it has dropped, as the
        difference of ``items_in`` and ``items_out``.

        Args:
            n: how many values pass, 1 or more.
            every: the length of a period.
            name: the name of the step; saved state is found by it, so it must stay the same.

        Returns:
            The keyed stream of the values that pass.

        Raises:
            FlowUsageError: ``n`` or ``every`` is out of range, or the name is empty.

        Example:
            >>> import millstream as ms
            >>> flow, out = ms.Flow("example"), ms.testing.collect()
            >>> alarms = flow.source("in", ms.testing.items([0, 20, 59, 60, 90])).event_time(float)
            >>> alarms.key_by(lambda at: "all").throttle(1, every=60).values().sink("out", out)
            >>> _ = ms.run(flow)
            >>> out
            [0, 60]
        """
        if isinstance(n, bool) or not isinstance(n, int) or n < 1:
            raise FlowUsageError(f"throttle takes a number of values, 1 or more, not {n!r}")
        period = nanos("every", every)
        return self._limited("throttle", name, (min(n, 2**63), period), period)

    def changes(
        self,
        f: Callable[[V_co], object] | str | None = None,
        ttl: Seconds | None = None,
        name: str = "changes",
        on_error: OnError = "fail",
        aliases: Aliases | None = None,
        migrate: Migrate | None = None,
    ) -> KeyedStream[K_co, V_co]:
        """Passes the values on that differ from the one before them of their key, and drops the others.

        The first value of a key passes. The metrics of the step show how many values it has dropped, as the
        difference of ``items_in`` and ``items_out``.

        Args:
            f: what is compared of each value, by ``==``: a function of it, or the name of its field. None:
                the value.
            ttl: the time after which a key without values is forgotten, so that its next value
                passes; a value that is dropped counts. In event time where the stream has times. None keeps
                every key, and the saved state grows with each.
            name: the name of the step; saved state is found by it, so it must stay the same.
            on_error: what happens to a value that cannot be read or compared.
            aliases: names that the class of what is compared had before, or a mapping from such names to
                classes.
            migrate: a function that is called with each saved state, a tuple with what was compared last,
                when a run begins, and returns the state to continue with.

        Returns:
            The keyed stream of the values that differ.

        Raises:
            FlowUsageError: ``f`` is neither a function nor a ``str``, ``ttl`` is out of range, or the name is
                empty.

        Example:
            >>> import millstream as ms
            >>> flow, out = ms.Flow("example"), ms.testing.collect()
            >>> doors = [("front", "open"), ("back", "open"), ("front", "open"), ("front", "shut")]
            >>> keyed = flow.source("in", ms.testing.items(doors)).key_by(lambda door: door[0])
            >>> keyed.changes(lambda door: door[1]).values().sink("out", out)
            >>> _ = ms.run(flow)
            >>> out
            [('front', 'open'), ('back', 'open'), ('front', 'shut')]
        """
        named_or_raise("changes", name)
        read = None if f is None else reading("changes", f)
        make = Last if read is None else lambda: Last(read)
        made = _revival.reviving(make, make, aliases, migrate)
        if ttl is None and not self._timed:
            kernel = _kernels.stateful_logic(made, on_error != "fail")
            return self._keep("changes", name, kernel, on_error, in_order=True)._reading(f)
        life = None if ttl is None else nanos("ttl", ttl)
        times = self._timed, False
        pipe, _ = self._home().stateful("changes", name, made, None, False, times, life, on_error)
        return self._new_keyed([pipe], True, self._timed)._reading(f)
