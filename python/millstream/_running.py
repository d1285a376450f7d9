"""A flow that runs while the program does something else: what ``Flow.start`` gives."""

from __future__ import annotations

from time import monotonic

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType

    from ._millstream import Handle, Report

__all__ = ["Running"]

LOOK_SECONDS = 0.05
"""How often a thread that waits looks whether a signal came."""


class Running:
    """A flow that runs on threads of its own; :meth:`Flow.start` makes it.

    As a context manager it stops the flow at the end of the block and waits for it:

    >>> import millstream as ms
    >>> flow, out = ms.Flow("squares"), ms.testing.collect()
    >>> flow.source("numbers", ms.testing.items([1, 2, 3])).map(lambda n: n * n).sink("out", out)
    >>> with flow.start() as running:
    ...     report = running.wait()
    >>> out
    [1, 4, 9]

    It handles no signals: Ctrl-C raises KeyboardInterrupt where the main thread is, as always.
    """

    def __init__(self, native: Handle) -> None:
        self._native = native
        self._ended: Report | None = None

    def stop(self) -> None:
        """Asks the flow to end, and does not wait: its sources read no more, and what is in its steps is
        finished. What is not finished within a second is abandoned behind the item that each worker has in
        hand: with a state directory the next start takes it up, without one it is dropped, and standard error
        says how many items that were."""
        self._native.stop()

    def wait(self, timeout: float | None = None) -> Report:
        """Waits for the end of the flow and gives its metrics; ``timeout`` is in seconds, None for any time.

        Raises TimeoutError when the flow has not ended by then: it runs on. Raises the failure of the flow,
        as :func:`millstream.run` does; a second call does not raise it again but gives the last metrics.
        """
        if self._ended is not None:
            return self._ended
        until = None if timeout is None else monotonic() + timeout
        while True:
            left = LOOK_SECONDS if until is None else max(0.0, until - monotonic())
            if self._native.ended_within(min(LOOK_SECONDS, left)):
                break
            if until is not None and left <= 0:
                raise TimeoutError(f"the flow has not ended within {timeout} s")
        last = self._native.report()
        self._ended = last
        ended = self._native.finish()
        if ended is not None:
            self._ended = ended
        if self._ended is None:
            raise RuntimeError("another thread has waited for the flow")
        return self._ended

    def report(self) -> Report:
        """The metrics of the steps so far, as published every 100 ms: none before that, all at the end."""
        report = self._ended or self._native.report()
        return self.wait() if report is None else report

    def __enter__(self) -> Running:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, frames: TracebackType | None
    ) -> None:
        self.stop()
        try:
            self.wait()
        except Exception:
            # What ended the block says more than what the flow says behind it.
            if error is None:
                raise
