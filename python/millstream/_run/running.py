"""A flow that runs while the program does something else, as ``Flow.start`` returns it."""

from __future__ import annotations

import atexit
from threading import Thread
from time import monotonic

from .. import _millstream
from .._values.durations import seconds, seconds_or_none
from .page import page_of, url
from .programs import was_used
from .version import version_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from .._millstream import Handle, Observer, Report
    from .._streams.flow import Flow
    from .._values.durations import Seconds
    from .options import RunOptions


LOOK_SECONDS = 0.05
"""How often a waiting thread checks for signals, in seconds."""


class Running:
    """A running flow, as ``Flow.start`` returns it.

    As a context manager it stops the flow at the end of the block and waits for it. It handles no signals:
    Ctrl-C raises KeyboardInterrupt in the main thread.

    Args:
        native: the handle of the engine.
        observer: the server of its page, which stops when the flow has ended and was waited for.
        on_metrics: is called with the metrics, on a thread of its own, and at the end by the one that waits.
        interval: the time between two calls, in seconds.
        frame: the fragment of the address of its page, if a notebook may show that.
        stays: is called with the error of a flow that has failed; whether its page stays.

    Example:
        >>> import millstream as ms
        >>> flow, out = ms.Flow("squares"), ms.testing.collect()
        >>> flow.source("numbers", ms.testing.items([1, 2, 3])).map(lambda n: n * n).sink("out", out)
        >>> with flow.start() as running:
        ...     report = running.wait()
        >>> out
        [1, 4, 9]
    """

    def __init__(
        self,
        native: Handle,
        observer: Observer | None = None,
        on_metrics: Callable[[Report], object] | None = None,
        interval: float = 1.0,
        frame: str | None = None,
        stays: Callable[[BaseException], bool] = lambda error: False,
    ) -> None:
        self._native = native
        self._stays = stays
        self._frame = frame
        self._observer = observer
        self._on_metrics = on_metrics
        if on_metrics is not None:
            Thread(target=self._call_back, args=(on_metrics, interval), name="metrics", daemon=True).start()
        self._ended: Report | None = None

    def _call_back(self, call: Callable[[Report], object], interval: float) -> None:
        while not self._native.ended_within(interval):
            report = self._native.report()
            if report is not None:
                call(report)

    @property
    def has_ended(self) -> bool:
        """Whether the flow has ended."""
        return self._ended is not None or self._native.ended_within(0.0)

    @property
    def address(self) -> str | None:
        """The address of its page, with the port that the system has chosen; None without a page."""
        return None if self._observer is None else self._observer.address

    @property
    def page(self) -> str | None:
        """The URL of its page, with the token of :func:`millstream.show`; None without a page."""
        return None if self._observer is None else url(self._observer) + (self._frame or "")

    def stop(self) -> None:
        """Ends the flow without waiting for it: its sources read no more, and items in its steps are
        processed.

        Work that is not finished within a second is abandoned after the current item of each worker: with a
        state directory the next start repeats it, without one it is dropped, and standard error reports how
        many items that were.

        Example:
            >>> import millstream as ms
            >>> flow = ms.Flow("ticks")
            >>> ticks = flow.source("ticks", ms.generate(lambda: range(3)))
            >>> ticks.sink("out", ms.testing.discard())
            >>> running = flow.start()
            >>> running.stop()
            >>> _ = running.wait()
        """
        self._native.stop()

    def wait(self, timeout: Seconds | None = None) -> Report:
        """Waits for the end of the flow.

        Args:
            timeout: how long to wait at most. None waits without a limit.

        Returns:
            The metrics of the flow.

        Raises:
            TimeoutError: the flow has not ended in time, and continues.
            StepError: a step failed. Any failure is raised as :func:`millstream.run` raises it; a second
                call returns the last metrics instead.

        Example:
            >>> import millstream as ms
            >>> flow = ms.Flow("ticks")
            >>> ticks = flow.source("ticks", ms.generate(lambda: range(3)))
            >>> ticks.sink("out", ms.testing.discard())
            >>> running = flow.start()
            >>> running.wait().step("out")["items_in"]
            3
        """
        if self._ended is not None:
            return self._ended
        limit = seconds_or_none("timeout", timeout, 0)
        until = None if limit is None else monotonic() + limit
        while True:
            left = LOOK_SECONDS if until is None else max(0.0, until - monotonic())
            if self._native.ended_within(min(LOOK_SECONDS, left)):
                break
            if until is not None and left <= 0:
                raise TimeoutError(f"the flow has not ended within {limit:g} s")
        last = self._native.report()
        self._ended = last
        stays = False
        try:
            ended = self._native.finish()
        except BaseException as error:
            stays = self._stays(error)
            raise
        finally:
            if self._observer is not None and not stays:
                self._observer.stop()
        if ended is not None:
            self._ended = ended
        if self._ended is None:
            raise RuntimeError("another thread has waited for the flow")
        if self._on_metrics is not None:
            self._on_metrics(self._ended)
        return self._ended

    def report(self) -> Report:
        """Returns the metrics of the steps so far. They are published every 100 ms; all are there at the
        end.

        Returns:
            The metrics.

        Example:
            >>> import millstream as ms
            >>> flow = ms.Flow("ticks")
            >>> ticks = flow.source("ticks", ms.generate(lambda: range(3)))
            >>> ticks.sink("out", ms.testing.discard())
            >>> running = flow.start()
            >>> _ = running.wait()
            >>> running.report().step("out")["items_in"]
            3
        """
        report = self._ended or self._native.report()
        return self.wait() if report is None else report

    def _repr_html_(self) -> str:
        """Its page where a notebook may show it, or else its counters."""
        from .plot import table

        if self._frame is None or self.has_ended:
            return table(self.report())
        return (
            f'<iframe src="{self.page}" width="100%" height="640" style="border: 1px solid #aab6c2"></iframe>'
        )

    def __enter__(self) -> Running:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, frames: TracebackType | None
    ) -> None:
        self.stop()
        try:
            self.wait()
        except Exception:
            # The exception of the block says more than a later one of the flow.
            if error is None:
                raise


def start(flow: Flow, options: RunOptions, *, framed: bool = False) -> Running:
    """Starts a flow on threads of its own; ``framed`` lets a notebook show its page."""
    observer = page_of(options, framed=framed)

    def stays(error: BaseException) -> bool:
        from .kept_page import show_failed

        if observer is None or not show_failed(options, observer, flow.name, error):
            return False
        atexit.register(observer.stop)
        return True

    try:
        was_used(flow)
        if options.cluster is not None:
            flow._flow.version(version_of(flow))
        native = _millstream.start(flow._flow, options, _millstream.Stopper(), observer)
    except BaseException as error:
        if observer is not None and not stays(error):
            observer.stop()
        raise
    interval = seconds("metrics_interval", options.metrics_interval)
    frame = f"#token={options.http_token}" if framed else None
    return Running(native, observer, options.on_metrics, interval, frame, stays)
