"""The verbs that give the items of a stream times."""

from __future__ import annotations

from .. import _millstream
from .._values.durations import nanos
from .._values.types import T_co
from . import kernels as _kernels
from .arguments import callable_or_raise, reading
from .base import PlainBase

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from .._values.clocks import Clock
    from .._values.durations import Seconds
    from .._values.types import (
        OnError,
        Time,
    )
    from .streams import Stream


_MESSAGE_TIME = getattr(_millstream, "kafka_message_time", object())


class EventTimeVerbs(PlainBase[T_co]):
    """The verbs of :class:`Stream` that give items times."""

    __slots__ = ()

    def event_time(
        self,
        f: Callable[[T_co], Time] | str,
        lateness: Seconds = 0,
        idle: Seconds | None = None,
        name: str | None = None,
        on_error: OnError = "fail",
        max_ahead: Seconds | None = None,
    ) -> Stream[T_co]:
        """Gives each item the time at which it happened; the watermark follows the items.

        Must come before the first ``merge``, ``redistribute`` and step that keeps state.

        Args:
            f: a function that returns the time of an item, or the name of a field that has it: seconds since
                an epoch of your choice, or a datetime with a time zone. ``ms.kafka.message_time`` is that of
                a message, and is not called for each item.
            lateness: how many seconds an item may be older than the newest one of its partition without
                being late.
            idle: after how many seconds of silence a partition no longer holds back the watermark. None: it
                always does. When all are silent, the watermark is that of the latest; later items of a
                slower partition may be late.
            name: the name of the step in errors and metrics.
            on_error: what happens to an item on which ``f`` raises: ``"fail"``, ``"skip"`` or a
                :class:`millstream.dead_letter`.
            max_ahead: how many seconds a time may be ahead of the clock of the run, where times are since
                1970. An item with a later one is treated by ``on_error``, with the error
                :class:`millstream.FutureTimeError`, and does not move the watermark: one wrong time would
                close every window before it. None: there is no limit.

        Returns:
            The stream of the same items, with times.

        Raises:
            FlowUsageError: ``f`` is neither a function nor a ``str``, or a duration is out of range.

        Example:
            >>> import millstream as ms
            >>> flow, out = ms.Flow("per minute"), ms.testing.collect()
            >>> rows = [{"at": 1, "user": "a"}, {"at": 61, "user": "a"}, {"at": 62, "user": "a"}]
            >>> clicks = flow.source("clicks", ms.testing.items(rows)).event_time("at").key_by("user")
            >>> counts = clicks.window("minutes", ms.windows.tumbling(60)).count().values()
            >>> counts.map(lambda minute: (minute.start, minute.value)).sink("out", out)
            >>> _ = ms.run(flow)
            >>> out
            [(0.0, 1), (60.0, 2)]
        """
        time = reading("event_time", f)
        pause = None if idle is None else nanos("idle", idle)
        ahead = None if max_ahead is None else nanos("max_ahead", max_ahead, 0)
        limits = nanos("lateness", lateness, 0), pause, ahead
        if f is _MESSAGE_TIME:
            return self._new_stream(self._pipe.message_time(name or "", limits, on_error), True)
        kernel = _kernels.key_values(time, on_error != "fail")
        pipe = self._pipe.event_time(name or "", kernel, limits, on_error)
        pipe.reads(f)
        return self._new_stream(pipe, True)

    def event_clock(
        self, make: Callable[[str], Clock], name: str | None = None, on_error: OnError = "fail"
    ) -> Stream[T_co]:
        """Gives each item the time that a clock of your own returns; the clock also sets the watermark.

        Must come before the first ``merge`` and ``key_by``, like ``event_time``.

        Args:
            make: is called with the name of each partition of the source and returns its clock, an object
                with the methods of :class:`millstream.Clock`.
            name: the name of the step in errors and metrics.
            on_error: what happens to an item on which the clock raises.

        Returns:
            The stream of the same items, with times.

        Raises:
            FlowUsageError: ``make`` is not callable.

        Example:
            >>> import millstream as ms
            >>> class Marked:  # items are in order between marks, which say how far time has come
            ...     watermark = None
            ...     def on_item(self, item, now):
            ...         if item[1] == "mark":
            ...             self.watermark = item[0]
            ...         return item[0], self.watermark
            ...     def resume(self, watermark):
            ...         self.watermark = watermark
            >>> flow, out = ms.Flow("marks"), ms.testing.collect()
            >>> items = flow.source("items", ms.testing.items([(5, "a"), (3, "b"), (20, "mark"), (4, "c")]))
            >>> tens = items.event_clock(lambda partition: Marked()).key_by(lambda item: "k")
            >>> counts = tens.window("tens", ms.windows.tumbling(10)).count()
            >>> counts.values().map(lambda window: (window.start, window.value)).sink("out", out)
            >>> counts.late.values().sink("late", out)
            >>> _ = ms.run(flow)
            >>> sorted(out, key=str)
            [(0.0, 2), (20.0, 1), (4, 'c')]
        """
        callable_or_raise("event_clock", make)
        return self._new_stream(self._pipe.event_clock(name or "", make, on_error), True)

    def processing_time(self, name: str | None = None) -> Stream[T_co]:
        """Gives each item the time at which it is read. Time advances without items, too.

        Args:
            name: the name of the step in errors and metrics.

        Returns:
            The stream of the same items, with times.

        Example:
            >>> import millstream as ms
            >>> flow, out = ms.Flow("per hour"), ms.testing.collect()
            >>> timed = flow.source("in", ms.testing.items("aab")).processing_time().key_by(str)
            >>> counts = timed.window("hours", ms.windows.tumbling(3600)).count()
            >>> counts.map(lambda hour: hour.value).sink("out", out)
            >>> _ = ms.run(flow, clock=ms.testing.clock(0))
            >>> sorted(out)
            [('a', 2), ('b', 1)]
        """
        return self._new_stream(self._pipe.processing_time(name or ""), True)
